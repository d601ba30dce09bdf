//! The socket file: who may connect, what may be in its place.

use super::values;
use crate::plumbing::{PATIENCE, Place, eventually, mark, marked, none_left, users};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;

struct Listening(Child);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &Place, path: &Path) -> Listening {
    let path_text = path.to_str().expect("text");
    let child =
        place.command(&["serve", "--socket", path_text]).stdin(Stdio::null()).spawn().expect("gatekeeper starts");
    let server = Listening(child);
    eventually("it listens", || UnixStream::connect(path).is_ok());
    server
}

fn connect(path: &Path) -> (UnixStream, Receiver<Value>) {
    let client = UnixStream::connect(path).expect("it listens");
    let lines = values(client.try_clone().expect("a copy"));
    (client, lines)
}

fn ask(client: &mut UnixStream, order: Value) {
    writeln!(client, "{order}").expect("the server reads");
}

#[test]
fn clients_of_the_same_user_are_served_at_the_same_time() {
    for user in users() {
        let place = Place::new(user);
        let path = place.at("home").join("s");
        let server = start(&place, &path);
        let stat = std::fs::symlink_metadata(&path).expect("there");
        assert_eq!(stat.mode() & 0o777, 0o600, "private to the user");
        if user.is_some() {
            // This test is root, which may open any socket; the server looks at the peer.
            let (_client, lines) = connect(&path);
            let refusal = lines.recv_timeout(PATIENCE).expect("an answer");
            assert!(refusal["error"].as_str().is_some_and(|error| error.contains("only the user")), "{refusal}");
            continue;
        }
        let ((mut one, ones), (mut two, twos)) = (connect(&path), connect(&path));
        let mark = mark();
        // The same id in two connections means two runs.
        ask(&mut one, json!({"id": 1, "argv": ["sleep", mark]}));
        ask(&mut two, json!({"id": 1, "argv": ["echo", "two"]}));
        assert_eq!(twos.recv_timeout(PATIENCE).expect("an answer")["report"]["stdout"], "two\n");
        eventually("it sleeps", || !marked(&mark).is_empty());
        // A client that leaves takes its runs with it, and no others.
        one.shutdown(std::net::Shutdown::Both).expect("connected");
        drop((one, ones));
        none_left(&mark);
        ask(&mut two, json!({"id": 2, "argv": ["echo", "on"]}));
        assert_eq!(twos.recv_timeout(PATIENCE).expect("an answer")["report"]["stdout"], "on\n");
        // One that only stops asking is answered.
        ask(&mut two, json!({"id": 3, "line": "sleep 1; echo late", "flags": ["-p", "read"]}));
        two.shutdown(std::net::Shutdown::Write).expect("connected");
        assert_eq!(twos.recv_timeout(PATIENCE).expect("an answer")["report"]["stdout"], "late\n");
        drop(server);
        // The file that a killed server left is replaced.
        assert!(path.exists());
        let _again = start(&place, &path);
    }
}

#[test]
fn nothing_else_is_replaced_and_no_link_is_followed() {
    for user in users() {
        let place = Place::new(user);
        let (home, work) = (place.at("home"), place.at("work"));
        std::fs::write(home.join("file"), "precious").expect("new");
        symlink(home.join("elsewhere"), home.join("link")).expect("new");
        std::fs::create_dir(home.join("real")).expect("new");
        symlink(home.join("real"), work.join("planted")).expect("new");
        std::fs::create_dir(home.join("open")).expect("new");
        std::os::unix::fs::chown(home.join("open"), user, user).expect("own, or root's to give");
        std::fs::set_permissions(home.join("open"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("own");
        let busy = UnixListener::bind(home.join("busy")).expect("new");
        std::os::unix::fs::chown(home.join("busy"), user, user).expect("own, or root's to give");
        for (path, words) in [
            (home.join("file"), "something else has this name"),
            (home.join("link"), "something else has this name"),
            (home.join("busy"), "another server listens"),
            (home.join("none/s"), "No such file"),
            (work.join("planted/s"), "symbolic link"),
            (home.join("open/s"), "other users can replace it"),
        ] {
            let done = place.run(&["serve", "--socket", path.to_str().expect("text")]);
            assert_eq!(done.code(), Some(2), "{done}");
            assert!(done.stderr().contains(words), "{words}: {done}");
        }
        drop(busy);
        assert_eq!(std::fs::read_to_string(home.join("file")).expect("there"), "precious");
        assert!(!home.join("elsewhere").exists() && !home.join("real/s").exists());
    }
}

/// Connects to a socket file and gives an order that a command may not give; prints the answer.
const ORDER: &str = r#"
import json, os, socket, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
except OSError as error:
    sys.exit(f"connect: {error}")
line = "echo escaped >" + sys.argv[2]
try:
    client.sendall((json.dumps({"id": 1, "line": line, "flags": ["-p", "unrestricted"]}) + "\n").encode())
except BrokenPipeError:
    pass  # refused already
print(client.makefile().readline(), end="")
"#;

#[test]
fn a_confined_command_gives_no_orders() {
    for user in users() {
        let place = Place::new(user);
        let (work, outside) = (place.at("work"), place.at("home").join("escaped"));
        let path = work.join("gk.sock");
        let (socket, mark) = (path.to_str().expect("text"), outside.to_str().expect("text"));
        let _server = start(&place, &path);
        let order = ["/usr/bin/python3", "-c", ORDER, socket, mark];
        for flags in [&["-p", "write"][..], &["-p", "write", "--net", "own"], &["--unix", socket, "-p", "read"]] {
            let words = [&["run", "--quiet"][..], flags, &["--"], &order].concat();
            let done = place.run(&words);
            assert!(done.stdout().contains("a confined command may not give orders"), "{flags:?}: {done}");
            assert!(!outside.exists(), "{flags:?}");
        }
        // The same client is served where nothing confines it.
        let done = crate::support::run(&mut place.any(Path::new(order[0]), &order[1..]));
        assert!(done.exits(0).stdout().contains("\"exit_code\":0") && outside.exists(), "{done}");
    }
}

/// A server may be started with no_new_privs itself, as by systemd's NoNewPrivileges. Its clients then have it too, and Landlock
/// shows nowhere.
#[test]
fn a_command_without_a_syscall_filter_gives_no_orders_to_a_server_with_no_new_privs() {
    for user in users() {
        let place = Place::new(user);
        let (work, outside) = (place.at("work"), place.at("home").join("escaped"));
        let path = work.join("gk.sock");
        let (socket, mark) = (path.to_str().expect("text"), outside.to_str().expect("text"));
        let (set, gatekeeper) = (Path::new("/usr/bin/setpriv"), crate::support::gatekeeper());
        let program = gatekeeper.to_str().expect("text");
        let serve = ["--no-new-privs", program, "serve", "--socket", socket];
        let child = place.any(set, &serve).stdin(Stdio::null()).spawn().expect("setpriv starts");
        let _server = Listening(child);
        eventually("it listens", || UnixStream::connect(&path).is_ok());
        let order = ["/usr/bin/python3", "-c", ORDER, socket, mark];
        let write = work.to_str().expect("text");
        for flags in [&["-p", "unrestricted", "--write", write][..], &["-p", "unrestricted"], &["-p", "write"]] {
            let words = [&["run", "--quiet"][..], flags, &["--"], &order].concat();
            let done = place.run(&words);
            assert!(done.stdout().contains("a confined command may not give orders"), "{flags:?}: {done}");
            assert!(!outside.exists(), "{flags:?}");
        }
        // A client that has no_new_privs, as the server, and is not confined, is served.
        let client = [&["--no-new-privs"][..], &order].concat();
        let done = crate::support::run(&mut place.any(set, &client));
        assert!(done.exits(0).stdout().contains("\"exit_code\":0") && outside.exists(), "{done}");
    }
}

#[test]
fn a_command_of_the_server_can_neither_use_nor_replace_its_socket() {
    let place = Place::new(None);
    let (work, outside) = (place.at("work"), place.at("home").join("escaped"));
    let path = work.join("gk.sock");
    let (socket, mark) = (path.to_str().expect("text"), outside.to_str().expect("text"));
    let _server = start(&place, &path);
    let (mut client, lines) = connect(&path);
    let mut report = |flags: Value| {
        let argv = ["/usr/bin/python3", "-c", ORDER, socket, mark];
        ask(&mut client, json!({"id": 1, "argv": argv, "flags": flags, "cwd": work}));
        lines.recv_timeout(PATIENCE).expect("an answer")["report"].clone()
    };
    let refused = report(json!(["-p", "write"]));
    assert_eq!(refused["exit_code"], 126, "{refused:#}");
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("could replace it")), "{refused:#}");
    let ran = report(json!(["-p", "read", "--unix", socket]));
    assert!(ran["stdout"].as_str().is_some_and(|text| text.contains("may not give orders")), "{ran:#}");
    // Without --unix, no connection is made.
    let ran = report(json!(["-p", "read"]));
    assert_eq!(ran["exit_code"], 1, "{ran:#}");
    assert!(!outside.exists());
}
