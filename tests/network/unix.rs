//! UNIX sockets: under every network mode, only those in the working directory and those listed are reachable.

use super::{confined, users};
use crate::support::{fresh, has};
use std::os::unix::net::UnixListener;

const CONNECT: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1]); print("connected")
except OSError as e:
    print(e.errno)
"#;

#[test]
fn a_socket_outside_is_denied_unless_it_is_listed_whatever_the_network() {
    if !has("python3") {
        return;
    }
    let outside = fresh("unix-outside");
    let socket = outside.join("docker.sock");
    let listener = UnixListener::bind(&socket).expect("a short path");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            drop(client);
        }
    });
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).expect("own");
    let socket = socket.to_str().expect("UTF-8");
    let dir = fresh("unix-inside");
    for user in users() {
        for mode in ["none", "loopback", "full", "hosts=a.test"] {
            let attempt = |flags: &[&str]| {
                let flags = [&["--profile", "write", "--net", mode][..], flags].concat();
                confined(&dir, user, &flags).args(&["--", "python3", "-c", CONNECT, socket]).go()
            };
            let ran = attempt(&[]);
            ran.done.prints("1\n");
            let denial = &ran.denials().iter().find(|denial| denial["path"] == socket).expect("a record");
            assert_eq!(denial["allow_with"], format!("--unix {socket}"), "{mode}");
            attempt(&["--unix", socket]).done.prints("connected\n");
        }
    }
}

/// A real ssh-agent and its client: the socket is not reachable unless it is listed.
#[test]
fn the_ssh_agent_is_out_of_reach_unless_it_is_listed() {
    if !has("ssh-agent") || !has("ssh-add") {
        return;
    }
    let ways = crate::isolate::ways();
    for user in users() {
        use std::os::unix::process::CommandExt;
        let (outside, dir) = (fresh("agent-outside"), fresh("agent-inside"));
        let socket = outside.join("agent.sock");
        let mut agent = std::process::Command::new("ssh-agent");
        agent.args(["-D", "-a"]).arg(&socket).stdout(std::process::Stdio::null());
        if let Some(user) = user {
            agent.uid(user).gid(user);
        }
        let mut agent = agent.spawn().expect("it starts");
        crate::plumbing::eventually("the agent listens", || socket.exists());
        let socket = socket.to_str().expect("UTF-8");
        for way in ways {
            let ask = |flags: &[&str]| {
                let variable = format!("SSH_AUTH_SOCK={socket}");
                let flags = [&["--env", &variable], *way, flags].concat();
                confined(&dir, user, &flags).args(&["--", "ssh-add", "-l"]).go()
            };
            // ssh-add exits with 2 if it reaches no agent, and with 1 if the agent has no keys.
            let denied = ask(&[]);
            denied.done.exits(2);
            // Inside bubblewrap the path does not exist. Otherwise the denial is recorded.
            let record = denied.denials().iter().find(|denial| denial["path"] == socket);
            assert_eq!(record.is_none(), !way.is_empty(), "{:#}", denied.report);
            let allowed = ask(&["--unix", socket]);
            allowed.done.exits(1).prints("The agent has no identities.\n");
        }
        agent.kill().expect("own child");
        agent.wait().expect("own child");
    }
}

/// Abstract names, which are in no directory. X11 uses them, and D-Bus used to.
#[test]
fn abstract_names_are_denied_whatever_the_network() {
    if !has("python3") {
        return;
    }
    use std::os::linux::net::SocketAddrExt;
    let name = format!("gatekeeper-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a short name");
    let listener = UnixListener::bind_addr(&address).expect("nobody else's name");
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let connect = CONNECT.replace("sys.argv[1]", "'\\0' + sys.argv[1]");
    let dir = fresh("abstract");
    assert_eq!(
        crate::support::run(std::process::Command::new("python3").args(["-c", &connect, &name])).stdout(),
        "connected\n"
    );
    for user in users() {
        for mode in ["none", "loopback", "full", "hosts=a.test"] {
            let ran = confined(&dir, user, &["--profile", "write", "--net", mode])
                .args(&["--", "python3", "-c", &connect, &name])
                .go();
            ran.done.prints("1\n");
            assert_eq!(ran.denials()[0]["args"][1], format!("@{name}"), "{:#}", ran.report);
        }
    }
}

#[test]
fn sockets_of_its_own_work_whatever_the_network() {
    if !has("python3") {
        return;
    }
    let script = r#"
import asyncio, multiprocessing, os, socket, sys
async def main():
    async def serve(r, w): w.write(b"tree"); w.close()
    await asyncio.start_unix_server(serve, "s.sock")
    r, w = await asyncio.open_unix_connection("s.sock"); print((await r.read()).decode())
if __name__ == "__main__":
    a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(4).decode())
    asyncio.run(main()); os.unlink("s.sock")
    with multiprocessing.get_context("forkserver").Pool(1) as p: print(p.map(len, ["fork"])[0])
"#;
    for user in users() {
        for (mode, isolate) in [
            ("none", "disabled"),
            ("loopback", "disabled"),
            ("full", "disabled"),
            ("hosts=a.test", "disabled"),
            ("none", "preferred"),
            ("hosts=a.test", "preferred"),
        ] {
            let dir = fresh("unix-own");
            std::fs::write(dir.join("own.py"), script).expect("own directory");
            let flags = ["--profile", "write", "--net", mode, "--isolate", isolate];
            let ran = confined(&dir, user, &flags).args(&["--", "python3", "own.py"]).go();
            ran.done.prints("pair\ntree\n4\n").exits(0);
        }
    }
}
