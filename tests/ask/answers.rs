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
    for wrong in ["garbage", "{\"id\": 99, \"decision\": \"once\"}", "{\"id\": 1, \"decision\": \"yes\"}", "[]", "{}"] {
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
    let ran = ask(&place, &["--isolate", "required", "--", "true"], always("once"));
    ran.done.exits(125);
    assert!(ran.done.stderr().contains("--ask does not work with --isolate"), "{}", ran.done);
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
