//! `--net hosts=...`: only the proxy is reachable.

use super::server::Server;
use super::{confined, users};
use crate::plumbing::{eventually, none_left};
use crate::support::{fresh, gatekeeper, has};
use std::process::Command;

/// Talks to the proxy in HTTP_PROXY directly, so that no client rewrites the request.
const ASK: &str = r#"
import os, socket, sys
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
def http(target):
    s = socket.create_connection((host, int(port)))
    s.sendall(f"GET http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return s.recv(100).split(b" ")[1].decode()
def connect(target):
    s = socket.create_connection((host, int(port)))
    s.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
    return s.recv(100).split(b" ")[1].decode()
def socks(name, to):
    s = socket.create_connection((host, int(port)))
    s.sendall(b"\x05\x01\x00"); assert s.recv(2) == b"\x05\x00"
    s.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + int(to).to_bytes(2, "big"))
    return str(s.recv(10)[1])
for target in sys.argv[1:]:
    name, to = target.rsplit(":", 1)
    print(target, http(target), connect(target), socks(name.strip("[]"), to))
"#;

#[test]
fn addresses_are_refused_in_every_spelling_but_the_listed_one() {
    if !has("python3") {
        return;
    }
    let dir = fresh("addresses");
    std::fs::write(dir.join("index.html"), "hello").expect("own directory");
    let server = Server::of(&dir);
    let port = server.port;
    let listed = server.host();
    let other = |host: &str| format!("{host}:{port}");
    let refused = [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "017700000001",
        "[::1]",
        "localhost",
        "127.0.0.2",
        "[ff01::1]",
        // Multicast addresses: even if they were allowed, the kernel would send no TCP packet. `namespace` tests the
        // address of the metadata service, where it belongs to the test.
        "224.0.0.1",
        "[::ffff:224.0.0.1]",
        "[64:ff9b::7f00:1]",
        "evil.test",
        "127.0.0.1.evil.test",
    ];
    for user in users() {
        let mut run = confined(&dir, user, &["--net", &format!("hosts={listed}")]).args(&["--", "python3", "-c", ASK]);
        run = run.arg(&listed).arg(other("[::ffff:127.0.0.1]"));
        for host in refused {
            run = run.arg(other(host));
        }
        let ran = run.go();
        let mut expected = format!("{listed} 200 200 0\n[::ffff:127.0.0.1]:{port} 200 200 0\n");
        refused.iter().for_each(|host| expected.push_str(&format!("{} 403 403 2\n", other(host))));
        ran.done.prints(&expected).exits(0);
        for host in refused.iter().filter(|host| !host.starts_with('[')) {
            let denial = ran.denial("proxy", &other(host));
            assert_eq!(denial["count"], 3, "HTTP, CONNECT and SOCKS: {denial:#}");
            assert!(denial["rule"].as_str().is_some_and(|rule| rule.starts_with("network mode hosts: ")), "{denial:#}");
        }
        let evil = ran.denial("proxy", &other("evil.test"));
        assert_eq!(evil["allow_with"], format!("--net hosts={listed},evil.test:{port}"));
        assert!(evil["comm"].as_str().is_some_and(|comm| comm.starts_with("python3")), "{evil:#}");
        assert_eq!(ran.layer("proxy").0, "enforced");
    }
}

#[test]
fn an_empty_list_lets_nothing_through() {
    if !has("python3") {
        return;
    }
    let dir = fresh("nothing");
    let server = Server::of(&dir);
    std::fs::write(dir.join("policy.toml"), "[network]\nmode = \"hosts\"\nhosts = []\n").expect("own directory");
    let ran =
        confined(&dir, None, &["--config", "policy.toml"]).args(&["--", "python3", "-c", ASK, &server.host()]).go();
    ran.done.prints(&format!("{} 403 403 2\n", server.host()));
    assert!(server.seen().is_empty());
}

#[test]
fn nobody_but_the_command_is_let_in() {
    if !has("python3") {
        return;
    }
    let dir = fresh("strangers");
    std::fs::write(dir.join("index.html"), "hello").expect("own directory");
    let server = Server::of(&dir);
    let script = "import os, time; print(os.environ['HTTP_PROXY'], flush=True); time.sleep(100)";
    let mut command = confined(&dir, None, &["--net", &format!("hosts={}", server.host())])
        .args(&["--", "python3", "-c", script])
        .command;
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("gatekeeper starts");
    let mut line = String::new();
    use std::io::{BufRead, BufReader, Read, Write};
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its address");
    let address = line.trim().trim_start_matches("http://").to_owned();
    let mut stranger = std::net::TcpStream::connect(&address).expect("the port is on the loopback of all");
    let _ = write!(stranger, "GET {} HTTP/1.1\r\n\r\n", server.url(""));
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    assert!(server.seen().is_empty());
    child.kill().expect("own child");
    child.wait().expect("own child");
}

#[test]
fn two_hundred_connections_at_once() {
    if !has("curl") {
        return;
    }
    let dir = fresh("many");
    std::fs::write(dir.join("file"), "x".repeat(10_000)).expect("own directory");
    let server = Server::of(&dir);
    for isolate in [&[][..], &["--isolate", "preferred"]] {
        let listed = format!("hosts={}", server.host());
        let flags = [&["--net", &listed][..], isolate].concat();
        let url = server.url("file?[1-200]");
        let words = [
            "--",
            "curl",
            "-sS",
            "-Z",
            "--parallel-immediate",
            "--parallel-max",
            "200",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}\\n",
            &url,
        ];
        let ran = confined(&dir, None, &flags).args(&words).go();
        ran.done.exits(0);
        assert_eq!(ran.done.stdout().lines().filter(|line| *line == "200").count(), 200, "{}", ran.done);
        assert_eq!(server.seen().len(), 200);
    }
}

#[test]
fn without_the_proxy_there_is_no_network_and_no_command() {
    if !has("curl") {
        return;
    }
    let ways = crate::isolate::ways();
    for (user, way) in users().into_iter().flat_map(|user| ways.iter().map(move |way| (user, *way))) {
        let dir = fresh("killed");
        let server = Server::of(&dir);
        let url = server.url("slow");
        // The connection ends with the proxy, and curl when the guardian notices.
        let line = format!("curl -s {url} > out; sleep 30; echo ended > after; sleep 100");
        let listed = format!("hosts={}", server.host());
        let flags = [&["--profile", "write", "--net", &listed], way].concat();
        let mut command = confined(&dir, user, &flags).args(&["-c", &line]).command;
        let mut child = command.spawn().expect("gatekeeper starts");
        eventually("curl came to the server", || !server.seen().is_empty());
        child.kill().expect("own child");
        child.wait().expect("own child");
        // The whole tree ends with the proxy.
        none_left(&url);
        assert!(!dir.join("after").exists(), "nothing went on without it");
    }
}

#[test]
fn a_profile_without_a_filter_cannot_hold_a_list_of_hosts() {
    for (profile, mode) in [("unrestricted", "hosts=a.org"), ("unrestricted", "loopback"), ("unrestricted", "none")] {
        let done = crate::support::run(Command::new(gatekeeper()).args([
            "run",
            "--profile",
            profile,
            "--net",
            mode,
            "--",
            "true",
        ]));
        done.exits(125);
        let name = mode.split('=').next().expect("a word");
        let words = format!("gatekeeper: network mode {name} is enforced by the syscall filter");
        assert!(done.stderr().starts_with(&words), "{done}");
    }
}
