//! What a client may get wrong.

use super::Server;
use crate::plumbing::{Place, eventually, mark, marked, none_left, users};
use serde_json::{Value, json};

#[test]
fn a_bad_line_is_answered_and_the_server_goes_on() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    for (line, id, words) in [
        ("nonsense", Value::Null, "not JSON"),
        ("[1]", Value::Null, "not an object"),
        (r#"{"id":7,"argv":["ls"],"cwdd":"/"}"#, json!(7), "did you mean cwd?"),
        (r#"{"id":7,"argv":"ls"}"#, json!(7), "a list of strings"),
        (r#"{"id":7,"argv":["ls"],"flags":["--report-fd","1"]}"#, json!(7), "--report-fd is for `gatekeeper run`"),
        (r#"{"id":7,"argv":["ls"],"flags":["--env-fd","5"]}"#, json!(7), "--env-fd is for `gatekeeper run`"),
        (r#"{"id":7,"argv":["ls"],"flags":["--json"]}"#, json!(7), "--json is for"),
        (r#"{"id":7,"argv":["ls"],"flags":["-c","id"]}"#, json!(7), "cannot be used with"),
        (r#"{"id":7,"argv":["ls"],"flags":["--","id"]}"#, json!(7), "only flags belong here"),
        (r#"{"id":7,"argv":["ls"],"flags":["--profil","read"]}"#, json!(7), "'--profile'"),
        (r#"{"id":7,"argv":["ls"],"flags":["--profile","raed"]}"#, json!(7), "read"),
        (r#"{"id":7,"argv":["ls"],"flags":["--help"]}"#, json!(7), "flags"),
        (r#"{"id":7,"argv":["ls"],"cwd":"/","flags":["--cwd","/"]}"#, json!(7), "also given by the flag"),
        (r#"{"id":7,"argv":["ls"],"cwd":"/no/such"}"#, json!(7), "/no/such"),
        (r#"{"id":"none","cancel":true}"#, json!("none"), "no run with this id"),
    ] {
        server.say(line.as_bytes());
        let error = server.error(id);
        assert!(error.contains(words), "{line}: {error}");
    }
    server.say(b"{\"id\":1,\"argv\":[\"\xff\"]}");
    assert!(server.error(Value::Null).contains("not JSON"));
    server.say(b"");
    server.say(&vec![b'x'; (16 << 20) + 10]);
    assert!(server.error(Value::Null).contains("longer than"));
    assert_eq!(server.run(json!({"id": 8, "argv": ["echo", "on"]}))["stdout"], "on\n");
    assert_eq!(server.leave(), Some(0));
    server.says_nothing_more();
}

#[test]
fn a_flood_of_bad_lines_gets_as_many_answers() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    let mut stdin = server.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        for at in 0..20_000 {
            writeln!(stdin, "{{\"id\":{at},\"bad\":").expect("the server reads");
        }
        stdin
    });
    for _ in 0..20_000 {
        server.error(Value::Null);
    }
    server.stdin = writer.join().ok();
    assert_eq!(server.run(json!({"id": 8, "argv": ["echo", "on"]}))["stdout"], "on\n");
}

#[test]
fn an_id_belongs_to_one_run_until_it_is_answered() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    let mark = mark();
    server.ask(json!({"id": 1, "argv": ["sleep", mark]}));
    eventually("it sleeps", || !marked(&mark).is_empty());
    server.ask(json!({"id": 1, "argv": ["echo", "no"]}));
    assert_eq!(server.error(1), "a run with this id has not ended yet");
    // The string "1" is another id than the number.
    assert_eq!(server.run(json!({"id": "1", "argv": ["echo", "yes"]}))["stdout"], "yes\n");
    server.ask(json!({"id": 1, "cancel": true}));
    let report = server.report(1);
    assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("signaled"), &json!(137)), "{report}");
    assert_eq!(report["error"], "cancelled by the caller", "{report}");
    none_left(&mark);
    assert_eq!(server.run(json!({"id": 1, "argv": ["echo", "again"]}))["stdout"], "again\n");
}

#[test]
fn more_than_fit_wait_for_their_turn() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    let mark = mark();
    // 256 run, the others wait; the first of those is cancelled before it starts.
    for id in 0..300 {
        server.ask(json!({"id": id, "argv": ["sleep", mark]}));
    }
    eventually("256 sleep", || marked(&mark).len() == 256);
    server.ask(json!({"id": 299, "cancel": true}));
    assert_eq!(server.error(299), "cancelled before it started");
    assert_eq!(marked(&mark).len(), 256);
    for id in 0..299 {
        server.ask(json!({"id": id, "cancel": true}));
    }
    for id in 0..299 {
        let answer = server.next(&json!(id));
        let ended = answer["report"]["error"] == "cancelled by the caller";
        assert!(ended || answer["error"] == "cancelled before it started", "{answer}");
    }
    none_left(&mark);
    assert_eq!(server.leave(), Some(0));
}

/// What exec takes is limited, and the report says which argument is too long.
#[test]
fn an_argument_that_exec_does_not_take_is_named() {
    let place = Place::new(None);
    let mut server = Server::start(&place);
    let long = |bytes: usize| "a".repeat(bytes);
    let one = "and the kernel takes at most 131071 in one";
    for (id, order, told) in [
        (1, json!({"argv": ["true", "x", long(131_072)]}), format!("; argument 2 has 131072 bytes, {one} argument")),
        (
            2,
            json!({"line": format!(": {}", long(131_072))}),
            format!("; the shell line has 131074 bytes, {one} argument"),
        ),
        (
            3,
            json!({"argv": ["true"], "env": {"LONG": long(131_072)}}),
            format!("; the variable LONG has 131077 bytes, {one}"),
        ),
        (4, json!({"argv": vec![long(100_000); 70]}), "bytes, and the kernel takes at most ".to_owned()),
    ] {
        let mut order = order;
        order["id"] = json!(id);
        if id == 4 {
            order["argv"][0] = json!("true");
        }
        server.ask(order);
        let answer = server.next(&json!(id));
        let error = answer["report"]["error"].as_str().unwrap_or_default();
        assert_eq!(answer["report"]["outcome"], "setup_failed", "{id}: {error}");
        assert!(
            error.starts_with("exec: Argument list too long (os error 7); ") && error.contains(&told),
            "{id}: {error}"
        );
        assert!(error.ends_with("pass long text on standard input or in a file"), "{id}: {error}");
    }
    // The control: one byte less, for the NUL.
    server.ask(json!({"id": 5, "argv": ["true", long(131_071)]}));
    assert_eq!(server.next(&json!(5))["report"]["exit_code"], 0);
}

/// Only flags of `run` that say something about the command belong into an order.
#[test]
fn help_is_no_flag_of_an_order() {
    let place = Place::new(None);
    let mut server = Server::start(&place);
    for flag in ["--help", "-h", "--version", "-V"] {
        server.ask(json!({"id": flag, "argv": ["true"], "flags": ["-p", "read", flag]}));
        let answer = server.next(&json!(flag));
        let told = format!(
            "flags: {flag} does not belong here: the flags of `gatekeeper run` that say what the command may do are expected"
        );
        assert!(answer["error"].as_str().is_some_and(|error| error.starts_with(&told)), "{answer}");
        assert!(answer.get("report").is_none(), "{answer}");
    }
}

#[test]
fn a_server_whose_answers_nobody_could_read_runs_nothing() {
    for user in users() {
        let place = Place::new(user);
        let order = r#"{"id":1,"argv":["touch","ran"],"flags":["-p","write"]}"#;
        let line = format!("echo '{order}' | \"$0\" serve >&-");
        let mut command = place.any("/bin/sh".as_ref(), &["-c", &line]);
        let done = crate::support::run(command.arg(crate::plumbing::gatekeeper()));
        done.exits(2).complains("gatekeeper: serve: standard output is closed, so no answer could be read\n");
        assert!(!place.at("work").join("ran").exists(), "{done}");
    }
}

/// A client may send its next orders before it reads the answers to earlier lines.
#[test]
fn answers_to_bad_lines_wait_while_the_server_reads_on() {
    const BAD: u64 = 20_000;
    let place = Place::new(None);
    let mut server = Server::unread(&place);
    for id in 0..BAD {
        server.say(json!({"id": id, "cancel": true}).to_string().as_bytes());
    }
    let order = json!({"id": "last", "line": "echo done > new", "flags": ["-p", "write"]});
    server.say(order.to_string().as_bytes());
    eventually("the order is carried out, although nothing reads", || {
        std::fs::read_to_string(place.at("work").join("new")).is_ok_and(|text| text == "done\n")
    });
    let lines = super::values(server.reading.take().expect("not read yet"));
    for id in 0..BAD {
        let line = lines.recv_timeout(crate::plumbing::PATIENCE).expect("an answer");
        assert_eq!(line, json!({"id": id, "error": "no run with this id"}));
    }
    let line = lines.recv_timeout(crate::plumbing::PATIENCE).expect("an answer");
    assert_eq!((&line["id"], &line["report"]["exit_code"]), (&json!("last"), &json!(0)), "{line}");
    assert_eq!(server.leave(), Some(0));
}
