//! A command's process that waits executes nothing before it is let go.

use super::*;
use crate::sys::child::Arguments;
use crate::sys::signals::current_mask;
use std::fs::File;

/// /bin/true, unconfined, started by a fork of this process.
fn waiting() -> Started {
    let operations = vec![Operation::Signals, Operation::ProcessGroup, Operation::NoNewPrivs, Operation::Exec];
    let launch = Launch {
        operations,
        program: File::open("/bin/true").expect("there").into(),
        directory: c"/".to_owned(),
        streams: [None, None, None],
        limits: Vec::new(),
        group: Group::Session,
        mask: current_mask(),
        mounts: None,
        stage: None,
        lock: None,
        watched: None,
        ruleset: None,
        filter: None,
        arguments: Arguments::new(vec![c"true".to_owned()], Vec::new()).expect("memory"),
        progress: Progress::new().expect("memory"),
        place: None,
        stubs: Vec::new(),
        cgroup: None,
        kept: Vec::new(),
        numbers: Vec::new(),
        waits: true,
        backstop: None,
    };
    start(launch).expect("processes")
}

/// The wait status of the command.
fn ended(started: &Started) -> i32 {
    loop {
        let (message, _) = message::receive(started.tree.as_fd()).expect("a message").expect("the guardian");
        if matches!(message.kind, Message::EXITED | Message::EXITED_ALONE) {
            return message.a;
        }
    }
}

#[test]
fn a_command_that_waits_is_executed_when_it_is_let_go() {
    let started = waiting();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(started.progress.reached(), (Operation::NoNewPrivs, 0));
    started.let_go().expect("it waits");
    assert_eq!(ended(&started), 0);
    assert_eq!(started.progress.reached(), (Operation::Exec, 0));
    started.leave().0.reap().expect("own child");
}

#[test]
fn a_command_that_is_not_let_go_is_never_executed() {
    let mut started = waiting();
    started.setup = message::pair().expect("sockets").0;
    assert!(libc::WIFEXITED(ended(&started)));
    let (operation, errno) = started.progress.reached();
    assert_eq!(operation, Operation::NoNewPrivs);
    assert_ne!(errno, 0, "a failure");
    started.leave().0.reap().expect("own child");
}

#[test]
fn a_copy_of_its_sockets_in_another_process_keeps_no_tree() {
    let started = waiting();
    let copies = [&started.tree, &started.setup].map(|socket| socket.try_clone().expect("descriptors"));
    started.leave().0.reap().expect("own child");
    drop(copies);
}
