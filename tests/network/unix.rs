//! UNIX sockets: those in the working directory and those listed, whatever the network.

use super::{confined, users};
use crate::support::{fresh, on_path, skip};
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
    if !on_path("python3") {
        return skip("python3 is not installed");
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

#[test]
fn sockets_of_its_own_work_whatever_the_network() {
    if !on_path("python3") {
        return skip("python3 is not installed");
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
        for mode in ["none", "loopback", "full", "hosts=a.test"] {
            let dir = fresh("unix-own");
            std::fs::write(dir.join("own.py"), script).expect("own directory");
            let ran =
                confined(&dir, user, &["--profile", "write", "--net", mode]).args(&["--", "python3", "own.py"]).go();
            ran.done.prints("pair\ntree\n4\n").exits(0);
        }
    }
}
