//! `--net loopback`: TCP reaches only this machine, in both directions.

use super::server::Server;
use super::{confined, users};
use crate::support::{fresh, has};

const FETCH: &str = r#"
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
try:
    s.connect((host, port)); print("connected")
except OSError as e:
    print(e.errno)
"#;

#[test]
fn this_machine_is_reached_and_every_other_address_is_denied_with_a_record() {
    if !has("python3") {
        return;
    }
    let dir = fresh("loopback");
    let server = Server::of(&dir);
    let port = server.port.to_string();
    for user in users() {
        let fetch = |host: &str, port: &str| {
            confined(&dir, user, &["--net", "loopback"]).args(&["--", "python3", "-c", FETCH, host, port]).go()
        };
        for host in ["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.1", "0.0.0.0"] {
            let ran = fetch(host, &port);
            // ECONNREFUSED: the connection was made, but the server listens on 127.0.0.1 only.
            let reached = if host == "127.0.0.2" { "111\n" } else { "connected\n" };
            ran.done.prints(reached).exits(0);
            assert!(ran.denials().is_empty(), "{:#}", ran.report);
        }
        // A multicast address: even if it were allowed, the kernel would send no TCP packet.
        for (host, shown) in [("224.0.0.1", "224.0.0.1:80"), ("::ffff:224.0.0.1", "[::ffff:224.0.0.1]:80")] {
            let ran = fetch(host, "80");
            ran.done.prints("101\n").exits(0);
            let denial = ran.denial("seccomp", shown);
            assert_eq!((&denial["syscall"], &denial["errno"]), (&"connect".into(), &"ENETUNREACH".into()));
            assert_eq!(denial["rule"], "network mode loopback: only this machine may be reached");
            assert_eq!(denial["allow_with"], "--net full");
        }
    }
}

#[test]
fn ports_narrow_what_is_reached() {
    if !has("python3") {
        return;
    }
    let dir = fresh("ports");
    let (one, other) = (Server::of(&dir), Server::of(&dir));
    let (listed, unlisted) = (one.port.to_string(), other.port.to_string());
    for mode in ["loopback", "full"] {
        let fetch = |port: &str| {
            let flags = ["--net", mode, "--port", &listed];
            confined(&dir, None, &flags).args(&["--", "python3", "-c", FETCH, "127.0.0.1", port]).go()
        };
        fetch(&listed).done.prints("connected\n");
        let ran = fetch(&unlisted);
        ran.done.prints("101\n");
        ran.denial("seccomp", &format!("127.0.0.1:{unlisted}"));
    }
}

#[test]
fn a_server_of_its_own_listens_on_loopback_only() {
    if !has("python3") {
        return;
    }
    let dir = fresh("listen");
    let script = r#"
import socket, threading
def listen(bind):
    s = socket.socket()
    try:
        if bind: s.bind((bind, 0))
        s.listen(); return s
    except OSError as e:
        print(bind, e.errno); return None
s = listen("127.0.0.1")
threading.Thread(target=lambda: s.accept()[0].sendall(b"served")).start()
print(socket.create_connection(s.getsockname()).recv(6).decode())
listen("0.0.0.0"); listen(None)
"#;
    for user in users() {
        let ran = confined(&dir, user, &["--net", "loopback", "--allow", "@network"])
            .args(&["--", "python3", "-c", script])
            .go();
        ran.done.prints("served\n0.0.0.0 1\nNone 1\n").exits(0);
        let refused: Vec<_> = ran.denials().iter().filter(|denial| denial["syscall"] == "listen").collect();
        assert_eq!(refused.len(), 2, "{:#}", ran.report);
        assert_eq!(refused[0]["rule"], "may listen only on 127.0.0.1 or ::1");
    }
}

#[test]
fn no_way_leads_around_connect() {
    if !has("python3") {
        return;
    }
    let dir = fresh("detours");
    let server = Server::of(&dir);
    let script = r#"
import socket, sys
def attempt(name, act):
    try:
        act(); print(name, "done")
    except OSError as e:
        print(name, e.errno)
there = ("127.0.0.1", int(sys.argv[1]))
tcp = lambda: socket.socket()
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("mptcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt("fastopen", lambda: tcp().sendto(b"x", socket.MSG_FASTOPEN, ("224.0.0.1", 80)))
attempt("source route", lambda: tcp().setsockopt(0, 4, bytes([131, 7, 4, 192, 0, 2, 1, 0])))
attempt("routing header", lambda: socket.socket(socket.AF_INET6).setsockopt(41, 57, bytes(24)))
attempt("connect", lambda: tcp().connect(there))
"#;
    let ran = confined(&dir, None, &["--net", "loopback"])
        .args(&["--", "python3", "-c", script, &server.port.to_string()])
        .go();
    ran.done.prints("udp 97\nraw 1\npacket 1\nmptcp 97\nfastopen 1\nsource route 1\nrouting header 1\nconnect done\n");
}

#[test]
fn another_thread_cannot_change_the_address_after_the_look() {
    let dir = fresh("race");
    let server = Server::of(&dir);
    let probe = crate::support::probe("elsewhere", &["-pthread"]);
    let ran = confined(&dir, None, &["--net", "loopback"]).arg("--").arg(&probe).arg(server.port.to_string()).go();
    ran.done.exits(0);
    assert_eq!(ran.done.stdout(), "elsewhere 0\n", "{}", ran.done);
}
