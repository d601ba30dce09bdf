//! Commands end with the request or the client that started them.

use super::Client;
use crate::plumbing::{Place, eventually, mark, marked, none_left, users};
use serde_json::json;
use std::fs;

/// Starts a call with two sleeping processes, one in the process group and one outside of it.
fn two_sleep(client: &mut Client, mark: &str) -> u64 {
    let line = format!("touch $TMPDIR/file; setsid sleep {mark} & exec sleep {mark}");
    let id = client.ask("tools/call", json!({"name": "exec", "arguments": {"line": line}}));
    eventually("both sleep", || marked(mark).len() == 2);
    id
}

#[test]
fn a_cancelled_call_is_ended_with_everything_it_started() {
    for user in users() {
        let place = Place::new(user);
        let mut client = Client::start(&place, &["-p", "write"]);
        let mark = mark();
        let id = two_sleep(&mut client, &mark);
        client.tell("notifications/cancelled", json!({"requestId": id, "reason": "enough"}));
        none_left(&mark);
        assert_eq!(client.exec(json!({"line": "echo on"}))["structuredContent"]["stdout"], "on\n");
        assert!(client.early.is_empty(), "a call that was given up is not answered: {:?}", client.early);
        assert_eq!(client.leave().code(), Some(0));
        assert_eq!(fs::read_dir(place.at("tmp")).expect("readable").count(), 0);
    }
}

#[test]
fn a_client_that_leaves_takes_everything_with_it() {
    for user in users() {
        let place = Place::new(user);
        let mut client = Client::start(&place, &["-p", "write"]);
        let mark = mark();
        two_sleep(&mut client, &mark);
        assert_eq!(client.leave().code(), Some(0));
        // The server waits for the end of the tree before it exits.
        assert_eq!(marked(&mark), Vec::<i32>::new());
        assert_eq!(fs::read_dir(place.at("tmp")).expect("readable").count(), 0);
    }
}

#[test]
fn a_server_that_is_killed_leaves_nothing() {
    for user in users() {
        let place = Place::new(user);
        let mut client = Client::start(&place, &["-p", "write"]);
        let mark = mark();
        two_sleep(&mut client, &mark);
        client.child.kill().expect("own child");
        none_left(&mark);
        eventually("the directory is gone", || fs::read_dir(place.at("tmp")).expect("readable").count() == 0);
    }
}

#[test]
fn calls_run_at_once() {
    let place = Place::new(None);
    let mut client = Client::start(&place, &["-p", "write", "--timeout", "60s"]);
    // Each call ends only when all have started.
    let line = |n: usize| format!("touch {n}; while [ $(ls | wc -l) -lt 8 ]; do sleep 0.02; done; echo {n}");
    let ids: Vec<u64> =
        (0..8).map(|n| client.ask("tools/call", json!({"name": "exec", "arguments": {"line": line(n)}}))).collect();
    for (n, id) in ids.into_iter().enumerate() {
        let answer = client.answer(id);
        assert_eq!(answer["result"]["structuredContent"]["stdout"], format!("{n}\n"), "{answer}");
    }
}
