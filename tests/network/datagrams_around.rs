//! UNIX datagrams within a run, with `--isolate` and with `--ask`: they arrive as without, and a socket outside is out of reach.

use super::datagrams::{FLAGS, TALK, outside_in, talk_unconfined};
use super::users;
use crate::ask::isolated::Elsewhere;
use crate::ask::{always, ask};
use crate::isolate;
use crate::support::has;

/// Sends to the socket file that its argument names, by each call that can.
const SEND: &str = r#"
import socket, sys
for act in [lambda s: s.sendto(b"xyz", sys.argv[1]), lambda s: s.sendmsg([b"xyz"], [], 0, sys.argv[1]), lambda s: s.connect(sys.argv[1])]:
    try: print(act(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
    except OSError as e: print(e.errno)
"#;

#[test]
fn isolated_datagrams_are_as_unconfined() {
    if !has("python3") || !isolate::works() {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        let words = [&["run", "--isolate", "required"], &FLAGS[..], &["--", "python3", "-c", TALK]].concat();
        place.run(&words).exits(0).prints(&talk_unconfined(user));
        // The socket is visible inside, and stays out of reach.
        let directory = place.at("home").join("outside");
        std::fs::create_dir(&directory).expect("own directory");
        let outside = outside_in(&directory);
        let shown = directory.to_str().expect("text");
        let send = |more: &[&str]| {
            let flags = ["run", "--quiet", "--isolate", "required", "--read", shown];
            let last = ["--", "python3", "-c", SEND, &outside.path];
            place.run(&[&flags, &FLAGS[..], more, &last].concat())
        };
        send(&[]).exits(0).prints("1\n1\n1\n");
        outside.got_nothing();
        send(&["--unix", &outside.path]).exits(0).prints("3\n3\nNone\n");
    }
}

/// Datagrams of the run itself raise no question, and one that names a socket outside is denied without one. A connection to that
/// socket is asked about, like every other.
#[test]
fn asked_runs_send_datagrams_without_a_question() {
    if !has("python3") {
        return;
    }
    for user in users() {
        for isolated in isolate::ways() {
            let place = Elsewhere::new(user);
            let flags = [isolated, &FLAGS[..]].concat();
            let ran = ask(&place, &[&flags[..], &["--", "python3", "-c", TALK]].concat(), always("deny"));
            ran.done.exits(0).prints(&talk_unconfined(user));
            assert_eq!(ran.asked(), [""; 0], "{isolated:?}");
            let directory = place.at("home").join("outside");
            std::fs::create_dir(&directory).expect("own directory");
            let outside = outside_in(&directory);
            let words = ["--read", directory.to_str().expect("text"), "--", "python3", "-c", SEND, &outside.path];
            let ran = ask(&place, &[&flags[..], &words].concat(), always("once"));
            ran.done.exits(0).prints("1\n1\nNone\n");
            assert_eq!(ran.asked(), [format!("connect {}", outside.path)], "{isolated:?}");
            outside.got_nothing();
        }
    }
}

/// The supervisor sends, so that a receiver which asks for the sender's credentials sees the process of gatekeeper.
#[test]
fn a_receiver_of_credentials_sees_gatekeeper() {
    if !has("python3") {
        return;
    }
    let script = r#"
import os, socket, struct
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
a.sendmsg([b"x"]); pid, uid, gid = struct.unpack("3i", b.recvmsg(1, 64)[1][0][2])
print(pid == os.getpid(), uid == os.getuid(), gid == os.getgid())
"#;
    for user in users() {
        let place = Elsewhere::new(user);
        let words = [&["run"], &FLAGS[..], &["--", "python3", "-c", script]].concat();
        place.run(&words).exits(0).prints("False True True\n");
        place.run(&["run", "-p", "unrestricted", "--", "python3", "-c", script]).exits(0).prints("True True True\n");
    }
}
