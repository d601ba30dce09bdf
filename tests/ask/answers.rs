//! What an answer means: also a late one, a wrong one, and none.

use super::{always, ask};
use crate::plumbing::{Place, users};
use crate::support::{Done, has, probe, run};
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn writes(place: &Place) -> String {
    format!("echo x > {}/x", place.at("home").display())
}

#[test]
fn an_answer_that_cannot_be_understood_denies() {
    for wrong in [
        "garbage",
        "{\"id\": 99, \"decision\": \"once\"}",
        "{\"id\": 1, \"decision\": \"yes\"}",
        "{\"id\": 1, \"decision\": {\"once\": null}}",
        "[1, \"once\"]",
        "[]",
        "{}",
    ] {
        let place = Place::new(None);
        let began = Instant::now();
        let ran = ask(&place, &["--profile", "write", "-c", &writes(&place)], |_, _| Some(wrong.to_owned()));
        ran.done.exits(2);
        assert_eq!(ran.decisions(), ["deny invalid"], "{wrong}: {}", ran.done);
        assert!(began.elapsed() < Duration::from_secs(30), "{wrong}: it did not wait for the time limit");
        assert!(!place.at("home/x").exists());
    }
}

#[test]
fn an_answer_may_come_in_pieces_and_one_that_is_too_long_denies() {
    use std::io::Write;
    let place = Place::new(None);
    let words = ["--profile", "write", "-c", &writes(&place)];
    let ran = ask(&place, &words, |question, mut ours| {
        for byte in format!("\n\n{{\"id\": {}, \"decision\": \"once\"}}\n", question["id"]).bytes() {
            ours.write_all(&[byte]).expect("it reads");
        }
        None
    });
    ran.done.exits(0);
    for rest in [" ".repeat(1 << 20), "x".repeat(1 << 20)] {
        let place = Place::new(None);
        let ran = ask(&place, &["--profile", "write", "-c", &writes(&place)], |question, _| {
            Some(format!("{{\"id\": {}, \"decision\": \"once\"}}{rest}x", question["id"]))
        });
        ran.done.exits(2);
        assert_eq!(ran.decisions(), ["deny invalid"], "{}", ran.done);
    }
}

/// It could write questions of its own, or read the answers.
#[test]
fn a_descriptor_that_the_command_has_too_is_refused() {
    use std::os::unix::net::UnixStream;
    let place = Place::new(None);
    let (_ours, theirs) = UnixStream::pair().expect("a socket pair");
    for (number, name) in [("0", "input"), ("1", "output"), ("2", "error")] {
        let mut command = place.command(&["run", "--ask-fd", number, "--", "true"]);
        let stream = |own: &str| match own == number {
            true => Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().expect("a copy"))),
            false => Stdio::null(),
        };
        let status = command.stdin(stream("0")).stdout(stream("1")).stderr(stream("2")).status().expect("it starts");
        assert_eq!(status.code(), Some(125), "{name}");
    }
    // By another number.
    let done = run(&mut place.any(
        "/bin/bash".as_ref(),
        &[
            "-c",
            "exec \"$0\" run --ask-fd 5,6 -- true 5< <(cat) 6>&1",
            crate::support::gatekeeper_for_all().to_str().expect("text"),
        ],
    ));
    assert!(done.exits(125).stderr().contains("as its standard output"), "{done}");
}

#[test]
fn a_closed_descriptor_denies_now_and_later() {
    let place = Place::new(None);
    let line = format!("{0}; {0}2", writes(&place));
    let ran = ask(&place, &["--profile", "write", "-c", &line], |_, ours| {
        ours.shutdown(std::net::Shutdown::Both).expect("open");
        None
    });
    ran.done.exits(2);
    assert_eq!(ran.decisions(), ["deny closed", "deny closed"], "{}", ran.done);
}

#[test]
fn no_answer_in_time_denies_and_withdraws() {
    for user in users() {
        let place = Place::new(user);
        let ran = ask(&place, &["--ask-timeout", "300ms", "--profile", "write", "-c", &writes(&place)], |_, _| None);
        ran.done.exits(2);
        assert_eq!(ran.decisions(), ["deny timeout"], "{}", ran.done);
        assert_eq!(ran.lines.last(), Some(&serde_json::json!({"id": 1, "withdrawn": true})));
    }
}

#[test]
fn many_questions_wait_and_are_answered_in_any_order() {
    let place = Place::new(None);
    let line = format!(
        "for i in $(seq 100); do (echo $i > {}/$i) & done; wait; ls {} | wc -l",
        place.at("home").display(),
        place.at("home").display()
    );
    let mut open: Vec<serde_json::Value> = Vec::new();
    let mut most = 0;
    let mut answered = 0;
    let ran = ask(&place, &["--profile", "write", "--processes", "300", "-c", &line], |question, ours| {
        open.push(question.clone());
        most = most.max(open.len());
        // Hold back until no more can come, then answer the last one first.
        if open.len() == 64 || answered >= 36 {
            use std::io::Write;
            while let Some(question) = open.pop() {
                answered += 1;
                let line = format!("{{\"id\": {}, \"decision\": \"once\"}}\n", question["id"]);
                ours.try_clone().expect("a copy").write_all(line.as_bytes()).expect("it reads");
            }
        }
        None
    });
    ran.done.exits(0).prints("100\n");
    assert_eq!(most, 64, "no more than 64 questions wait");
    let ids: BTreeSet<u64> = ran.questions().iter().filter_map(|question| question["id"].as_u64()).collect();
    assert_eq!(ids.len(), 100, "ids are never used twice");
}

#[test]
fn the_same_question_is_asked_once_while_it_waits() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let path = place.at("home/same");
    let script = format!(
        "import threading\nt=[threading.Thread(target=lambda: open('{}','a').close()) for _ in range(8)]\n\
         [x.start() for x in t]; [x.join() for x in t]; print('all')",
        path.display()
    );
    let ran = ask(&place, &["--profile", "write", "--", "python3", "-c", &script], |question, ours| {
        std::thread::sleep(Duration::from_secs(1));
        always("once")(question, ours)
    });
    ran.done.exits(0).prints("all\n");
    assert_eq!(ran.asked(), [format!("write {}", path.display())], "{}", ran.done);
}

#[test]
fn a_signal_interrupts_the_wait_and_withdraws_the_question() {
    let place = Place::new(None);
    // The handler runs at once; the shell then gives up on the redirection or tries again, as without gatekeeper.
    let line = format!(
        "(sleep 1; kill -USR1 $$) & trap 'echo caught; exit 3' USR1; echo x > {}/x",
        place.at("home").display()
    );
    let ran = ask(&place, &["--profile", "write", "-c", &line], |_, _| None);
    ran.done.exits(3).prints("caught\n");
    assert!(ran.lines.iter().any(|line| line["withdrawn"] == true), "{}", ran.done);
    assert_eq!(ran.decisions().first().map(String::as_str), Some("deny withdrawn"), "{}", ran.report);
}

/// signal(7): with SA_RESTART the call is made again, without it it fails with EINTR. C programs see the difference; Python tries
/// again by itself, so this calls open(2) directly.
#[test]
fn a_handler_with_sa_restart_has_the_call_asked_again() {
    if !has("python3") {
        return;
    }
    for (interrupts, printed, questions) in [("False", "opened\n", 2), ("True", "Interrupted system call\n", 1)] {
        let place = Place::new(None);
        let script = format!(
            "import ctypes,os,signal\nlibc=ctypes.CDLL(None,use_errno=True)\nsignal.signal(signal.SIGALRM,lambda *_:None)\n\
             signal.siginterrupt(signal.SIGALRM,{interrupts})\nsignal.setitimer(signal.ITIMER_REAL,0.5)\n\
             fd=libc.open(b'{}/x',os.O_WRONLY|os.O_CREAT,0o600)\nprint('opened' if fd>=0 else os.strerror(ctypes.get_errno()))",
            place.at("home").display()
        );
        let mut asked = 0;
        let ran = ask(&place, &["--profile", "write", "--", "python3", "-c", &script], |question, ours| {
            asked += 1;
            if asked == 1 { None } else { always("once")(question, ours) }
        });
        ran.done.exits(0).prints(printed);
        assert_eq!(ran.questions().len(), questions, "{}", ran.done);
        assert_eq!(ran.decisions().first().map(String::as_str), Some("deny withdrawn"), "{}", ran.report);
    }
}

#[test]
fn the_time_limit_and_signals_work_while_a_question_waits() {
    let place = Place::new(None);
    let ran = ask(&place, &["--timeout", "1s", "--profile", "write", "-c", &writes(&place)], |_, _| None);
    ran.done.exits(124);
    assert_eq!(ran.decisions(), ["deny withdrawn"], "{}", ran.report);
    let place = Place::new(None);
    let pid = std::cell::Cell::new(0);
    let ran = ask(&place, &["--profile", "write", "-c", &writes(&place)], |question, _| {
        pid.set(question["pid"].as_i64().unwrap_or(0));
        crate::plumbing::signal(pid.get() as u32, "KILL");
        None
    });
    ran.done.exits(137);
    assert_eq!(ran.decisions(), ["deny withdrawn"], "{}", ran.report);
}

/// The first process of gatekeeper above the one that asks. Its guardian has the same command line, and gets no signals.
fn front_of(pid: i64) -> u32 {
    let parent = |pid: i64| -> Option<i64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok().filter(|parent| *parent > 1)
    };
    let is_gatekeeper = |pid: &i64| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(9).any(|word| word == b"\0--ask-fd")
    };
    let above = std::iter::successors(Some(pid), |pid| parent(*pid)).filter(is_gatekeeper);
    u32::try_from(above.last().expect("gatekeeper runs it")).expect("positive")
}

#[test]
fn ends_from_outside_withdraw_the_question() {
    for (signal, code) in [("TERM", Some(143)), ("INT", Some(130)), ("KILL", None)] {
        let place = Place::new(None);
        let asking = std::cell::Cell::new(0);
        let ran = ask(&place, &["--profile", "write", "-c", &writes(&place)], |question, _| {
            asking.set(question["pid"].as_i64().unwrap_or(0));
            crate::plumbing::signal(front_of(asking.get()), signal);
            None
        });
        assert_eq!(ran.done.code(), code, "{signal}: {}", ran.done);
        if signal != "KILL" {
            assert_eq!(ran.decisions(), ["deny withdrawn"], "{signal}: {}", ran.report);
            assert_eq!(ran.lines.last(), Some(&serde_json::json!({"id": 1, "withdrawn": true})), "{signal}");
        }
        let left = || std::path::Path::new(&format!("/proc/{}", asking.get())).exists();
        crate::plumbing::eventually("the command is gone", || !left());
        assert!(!place.at("home/x").exists(), "{signal}");
    }
}

#[test]
fn the_memory_limit_works_while_a_question_waits() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let line = format!("{} & python3 -c \"x = b'x' * (1 << 30); input()\"", writes(&place));
    let ran = ask(&place, &["--memory", "128M", "--profile", "write", "-c", &line], |_, _| None);
    assert_ne!(ran.done.code(), Some(0), "{}", ran.done);
    assert_eq!(ran.decisions(), ["deny withdrawn"], "{}", ran.report);
    assert!(!place.at("home/x").exists());
}

#[test]
fn runtimes_full_of_signals_get_their_answer() {
    let place = Place::new(None);
    let out = place.at("home/node");
    if has("node") {
        let script =
            format!("setInterval(()=>{{}},1); require('fs').writeFileSync('{}','x'); process.exit(0)", out.display());
        ask(&place, &["--profile", "write", "--", "node", "-e", &script], always("once")).done.exits(0);
        assert!(out.exists());
    }
    // Go's runtime sends itself SIGURG to stop goroutines that run for long, as these do. gofmt writes a backup first.
    if has("gofmt") {
        let place = Place::new(None);
        let source = format!("package p\n{}", "func  f ( )  { x  :=  1 ; _  =  x }\n".repeat(3000));
        let names: Vec<String> =
            (0..3).map(|number| place.at(&format!("home/{number}.go")).display().to_string()).collect();
        names.iter().for_each(|name| std::fs::write(name, &source).expect("own directory"));
        let mut words = vec!["--profile", "write", "--", "gofmt", "-w"];
        words.extend(names.iter().map(String::as_str));
        let ran = ask(&place, &words, |question, ours| {
            std::thread::sleep(Duration::from_millis(50));
            always("once")(question, ours)
        });
        ran.done.exits(0);
        assert!(ran.questions().len() >= 6, "{:?}", ran.asked());
        for name in &names {
            assert!(std::fs::read_to_string(name).expect("there").contains("\nfunc f() { x := 1; _ = x }\n"), "{name}");
        }
    }
}

#[test]
fn without_an_answering_side_nothing_runs() {
    let place = Place::new(None);
    let refused = |words: &[&str], why: &str| {
        let mut command = place.command(words);
        command.stdin(Stdio::null());
        // Without a controlling terminal.
        let done: Done = {
            use std::os::unix::process::CommandExt;
            // SAFETY: setsid is async-signal-safe.
            unsafe {
                command.pre_exec(|| if libc::setsid() < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) })
            };
            run(&mut command)
        };
        done.exits(125);
        assert!(done.stderr().contains(why), "{done}");
    };
    refused(&["run", "--ask", "--", "true"], "--ask-fd N");
    refused(&["run", "--ask-fd", "77", "--", "true"], "--ask-fd 77");
    refused(&["run", "--ask-timeout", "3s", "--", "true"], "needs --ask or --ask-fd");
    let _ = probe("pty", &[]);
}

#[test]
fn what_was_approved_becomes_a_policy() {
    let place = Place::new(None);
    let out = place.at("work/learned.toml");
    let words =
        ["learn", "--ask-fd", "9", "--profile", "write", "-o", out.to_str().expect("text"), "-c", &writes(&place)];
    let ran = super::drive(&mut place.command(&words), always("once"), &out);
    ran.done.exits(0);
    let policy = std::fs::read_to_string(&out).expect("written");
    assert!(policy.contains(&format!("{}", place.at("home").display())), "{policy}");
    std::fs::remove_file(place.at("home/x")).expect("it was made");
    place.run(&["run", "--config", out.to_str().expect("text"), "-c", &writes(&place)]).exits(0);
}

/// A new file is granted by its directory, in which the refused file may be.
#[test]
fn what_was_refused_is_not_granted_with_what_was_approved() {
    let learn = |line: &str, refused: &str| {
        let place = Place::new(None);
        for name in ["home/exp", "home/other", "home/st*r"] {
            std::fs::write(place.at(name), "").expect("own directory");
        }
        let out = place.at("work/learned.toml");
        let words = ["learn", "--ask-fd", "9", "--profile", "write", "-o", out.to_str().expect("text"), "-c", line];
        let answer = |question: &serde_json::Value, _: &_| {
            let refuses = question["path"].as_str().is_some_and(|path| path.ends_with(refused));
            let decision = if refuses { "deny" } else { "run" };
            Some(serde_json::json!({"id": question["id"], "decision": decision}).to_string())
        };
        super::drive(&mut place.command(&words), answer, &out);
        let policy = std::fs::read_to_string(&out).expect("written");
        (place, policy)
    };
    let run = |place: &Place, line: &str| {
        let out = place.at("work/learned.toml");
        place.run(&["run", "--config", out.to_str().expect("text"), "-c", line])
    };
    let (place, policy) = learn("echo x > ~/new; echo x >> ~/exp; true", "/exp");
    let exp = place.at("home/exp").display().to_string();
    assert!(policy.contains(&format!("# not approved: write {exp}")), "{policy}");
    assert!(
        policy.contains(&format!("# denied: {exp}, ")) && policy.contains(&format!("deny = [\"{exp}\"]")),
        "{policy}"
    );
    let done = run(&place, "echo x > ~/again && echo x >> ~/other && echo x >> ~/exp");
    assert!(done.stderr().contains("Permission denied"), "{done}");
    assert!(place.at("home/again").exists(), "{done}");
    assert_eq!(std::fs::read_to_string(place.at("home/other")).expect("own"), "x\n");
    assert_eq!(std::fs::read_to_string(place.at("home/exp")).expect("own"), "");
    // What does not exist cannot be denied, so its directory is not granted.
    let (place, policy) = learn("echo x > ~/new; echo x > ~/never; true", "/never");
    let flags = format!("--write {}", place.at("home").display());
    assert!(policy.contains(&format!("# not granted: {flags}, which would also allow to write ")), "{policy}");
    assert!(!policy.contains("\nwrite = "), "{policy}");
    // A name that no policy can hold is asked and carried out, and grants nothing.
    let (place, policy) = learn("echo x >> ~/'st*r'; echo x >> ~/exp; true", "/exp");
    assert_eq!(std::fs::read_to_string(place.at("home/st*r")).expect("own"), "x\n");
    assert!(policy.contains("# stays denied: openat") && !policy.contains("\nwrite = "), "{policy}");
}

#[test]
fn an_audit_trail_has_each_question_and_every_other_decision() {
    for user in users() {
        for (decision, shown) in [("once", "allowed"), ("deny", "denied")] {
            let place = Place::new(user);
            let (trail, asked) = (place.at("home/audit.jsonl"), place.at("home/x"));
            let line = format!("echo y > inside; rm inside; {}; cat {}", writes(&place), trail.display());
            let words = ["--profile", "write", "--audit", trail.to_str().expect("text"), "-c", &line];
            let ran = ask(&place, &words, always(decision));
            let text = std::fs::read_to_string(&trail).expect("written");
            let has = |kind: &str, decision: &str, path: &std::path::Path| {
                let is = |line: &serde_json::Value| {
                    line["kind"] == kind && line["decision"] == decision && line["path"] == path.to_str().expect("text")
                };
                let found = text.lines().filter_map(|line| serde_json::from_str(line).ok()).any(|line| is(&line));
                assert!(found, "{kind} {decision} {}: {text}{}", path.display(), ran.done);
            };
            has("open", "allowed", &place.at("work/inside"));
            has("call", "allowed", &place.at("work/inside"));
            has("asked", shown, &asked);
            has("open", shown, &asked);
            has("open", "denied", &trail);
            assert!(!ran.asked().iter().any(|asked| asked.contains("audit")), "{:?}", ran.asked());
        }
    }
}
