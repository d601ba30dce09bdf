//! UNIX sockets: reachable inside the tree, but not outside, where they would be a way out of the sandbox.

use super::{Gate, act, denials, outside, owned_by, users};
use crate::support::has;
use std::io::Write;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

/// A server that sends one byte to every client, and ends with the test.
fn greets(path: &Path) {
    let listener = UnixListener::bind(path).expect("a fresh name");
    std::os::unix::fs::PermissionsExt::set_mode(&mut std::fs::metadata(path).unwrap().permissions(), 0o777);
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"x");
        }
    });
}

#[test]
fn sockets_inside_the_tree_are_reached_and_outside_refused() {
    for user in users() {
        let outside = outside();
        let docker = outside.join("docker.sock");
        greets(&docker);
        let gate = Gate::profile(*user, "write");
        greets(&gate.dir.join("inside.sock"));
        owned_by(*user, &gate.dir.join("inside.sock"));
        std::os::unix::fs::symlink(&docker, gate.dir.join("way-out.sock")).unwrap();
        let act = act();
        let act = act.to_str().unwrap();
        gate.run([act, "connect", "inside.sock"]).exits(0).prints("connect 0\n");
        gate.run([act, "connect", gate.dir.join("inside.sock").to_str().unwrap()]).exits(0).prints("connect 0\n");
        for name in [docker.to_str().unwrap(), "way-out.sock"] {
            let (done, report) = gate.report([act, "connect", name]);
            done.exits(0).prints("connect 1\n");
            let [denial] = denials(&report, "connect")[..] else { panic!("{report:#}") };
            assert_eq!(denial["path"], docker.to_str().unwrap(), "{report:#}");
        }
        gate.run([act, "connect", "missing.sock"]).exits(0).prints("connect 2\n");
        gate.file("data", "x");
        gate.run([act, "connect", "data"]).exits(0).prints("connect 111\n");
        // Under `minimal` no socket is reachable, not even inside. The control is the flag that names it.
        let minimal = Gate::new(*user);
        greets(&minimal.dir.join("s"));
        minimal.run([act, "connect", "s"]).exits(0).prints("connect 1\n");
        let listed = Gate::new(*user).flags(["--unix".as_ref(), docker.as_os_str()]);
        listed.run([act, "connect", docker.to_str().unwrap()]).exits(0).prints("connect 0\n");
    }
}

#[test]
fn abstract_sockets_are_refused() {
    use std::os::linux::net::SocketAddrExt;
    for user in users() {
        let name = format!("gatekeeper-test-{}-{user:?}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.write_all(b"x");
            }
        });
        let act = act();
        let name = format!("@{name}");
        let (done, report) = Gate::profile(*user, "write").report([act.to_str().unwrap(), "connect", &name]);
        done.exits(0).prints("connect 1\n");
        let [denial] = denials(&report, "connect")[..] else { panic!("{report:#}") };
        assert!(denial.to_string().contains(&name), "{denial:#}");
        Gate::profile(*user, "unrestricted")
            .run([act.to_str().unwrap(), "connect", &name])
            .exits(0)
            .prints("connect 0\n");
    }
}

#[test]
fn datagrams_are_refused() {
    for user in users() {
        let outside = outside();
        let path = outside.join("log.sock");
        let receiver = UnixDatagram::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        receiver.set_nonblocking(true).unwrap();
        for profile in ["minimal", "write", "network"] {
            let done = Gate::profile(*user, profile).run([act().to_str().unwrap(), "send", path.to_str().unwrap()]);
            done.exits(0).prints("send 1001\n");
            assert!(receiver.recv(&mut [0; 8]).is_err());
        }
        Gate::profile(*user, "unrestricted")
            .run([act().to_str().unwrap(), "send", path.to_str().unwrap()])
            .prints("send 0\n");
        assert_eq!(receiver.recv(&mut [0; 8]).unwrap(), 1);
    }
}

/// A grant of the network does not include UNIX sockets.
#[test]
fn the_network_profile_reaches_no_unix_socket() {
    for user in users() {
        let path = outside().join("docker.sock");
        greets(&path);
        for profile in ["network", "write+network"] {
            let gate = Gate::profile(*user, profile);
            let done = gate.run([act().to_str().unwrap(), "connect", path.to_str().unwrap()]);
            let code: i32 = done.exits(0).stdout().trim_end().rsplit(' ').next().unwrap().parse().unwrap();
            assert!([1, 1001].contains(&code), "{profile}: {done}");
        }
    }
}

/// Socket pairs stay inside the program, and runtimes use them internally.
#[test]
fn socket_pairs_work() {
    if !has("python3") {
        return;
    }
    let line = "import socket;a,b=socket.socketpair();a.send(b'x');print(b.recv(1));import asyncio;asyncio.run(asyncio.sleep(0))";
    for user in users() {
        for profile in ["minimal", "write", "network"] {
            Gate::profile(*user, profile).run(["python3", "-c", line]).exits(0).prints("b'x'\n");
        }
    }
}

/// A blocking connection is made by the supervisor. A signal interrupts it as it does without gatekeeper: a handler without
/// SA_RESTART runs at once and the call fails with EINTR; with SA_RESTART the call goes on, and succeeds when there is room.
#[test]
fn a_signal_interrupts_a_connection_that_waits() {
    const SCRIPT: &str = r#"
import os, signal, socket, sys, threading, time
server = socket.socket(socket.AF_UNIX)
server.bind("full"); server.listen(0)
first = socket.socket(socket.AF_UNIX); first.connect("full")
class Interrupted(Exception): pass
handled = []
def handler(*_):
    handled.append(time.monotonic())
    if sys.argv[1] == "stop": raise Interrupted
signal.signal(signal.SIGALRM, handler)
if sys.argv[1] == "restart": signal.siginterrupt(signal.SIGALRM, False)
began = time.monotonic()
signal.setitimer(signal.ITIMER_REAL, 0.3, 0.05 if sys.argv[1] == "restart" else 0)
if sys.argv[1] == "restart":
    # Another process makes room once the handler has run.
    if os.fork() == 0:
        time.sleep(1); server.accept(); os._exit(0)
try:
    second = socket.socket(socket.AF_UNIX); second.connect("full")
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("connected", second.getpeername(), len(handled) > 0)
except Interrupted:
    print("interrupted", time.monotonic() - began < 2)
"#;
    if !has("python3") {
        return;
    }
    for user in users() {
        for (way, prints) in [("stop", "interrupted True\n"), ("restart", "connected full True\n")] {
            let gate = Gate::profile(*user, "write").flags(["--timeout", "60s"]);
            gate.run(["python3", "-c", SCRIPT, way]).exits(0).prints(prints);
        }
    }
}

/// What a waiting connection leaves behind is the kernel's own: the error of an interrupted one stays in SO_ERROR, an interrupted
/// connection to a socket file is given up, a socket is not connected twice, and its timeouts are the program's. However often a
/// signal comes, the call goes on. A signal to a process with several threads interrupts one of them; the others see nothing.
#[test]
fn an_interrupted_connection_is_as_the_kernel_leaves_it() {
    const SCRIPT: &str = r#"
import ctypes, errno, os, select, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def connect(one, address):
    "connect(2), without what Python does about EINTR."
    if one.family == socket.AF_UNIX: raw = b"\1\0" + address.encode() + b"\0"
    else: raw = b"\2\0" + address[1].to_bytes(2, "big") + socket.inet_aton(address[0]) + bytes(8)
    made = libc.connect(one.fileno(), raw, len(raw))
    return "connected" if made == 0 else errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())
def full(address):
    server = socket.socket(socket.AF_UNIX if type(address) is str else socket.AF_INET)
    server.bind(address); server.listen(0)
    at, queued = server.getsockname(), []
    for _ in range(1 if type(address) is str else 4):
        queued.append(socket.socket(server.family)); queued[-1].setblocking(False); queued[-1].connect_ex(at)
    return server, at, queued
def ticks(first, every=0, restart=False):
    signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, not restart)
    signal.setitimer(signal.ITIMER_REAL, first, every)
def accepting(server, after):
    # Another process: a thread of this one would take the signals.
    if os.fork() == 0:
        os.close(1); os.close(2); time.sleep(after); kept = []
        server.settimeout(10)
        while True: kept.append(server.accept())
def error():
    server, at, queued = full(("127.0.0.1", 0))
    one = socket.socket(); ticks(0.2); first = connect(one, at)
    [other.close() for other in [server, *queued]]
    select.select([], [one], [], 30); time.sleep(0.1)
    print(first, errno.errorcode.get(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)))
def another():
    (first, _, _), (second, _, _) = full("first"), full("second")
    one = socket.socket(socket.AF_UNIX); ticks(0.2); interrupted = connect(one, "first")
    first.accept(); second.accept(); time.sleep(0.2)
    print(interrupted, connect(one, "second"), one.getpeername(), one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16) == bytes(16))
def twice():
    server, at, _ = full(("127.0.0.1", 0))
    one = socket.socket(); ticks(0.2, restart=True); accepting(server, 1)
    print(connect(one, at), connect(one, ("127.0.0.1", 1)))
def often():
    server, at, _ = full("often")
    one = socket.socket(socket.AF_UNIX); ticks(0.005, 0.005, restart=True); accepting(server, 8)
    made = connect(one, at); signal.setitimer(signal.ITIMER_REAL, 0); print(made)
def threads():
    server, at, _ = full(("127.0.0.1", 0)); accepting(server, 2); answers = []
    other = threading.Thread(target=lambda: answers.append(connect(socket.socket(), at))); other.start()
    time.sleep(0.2); ticks(0.2)
    answers.append(connect(socket.socket(), at)); other.join(); print(*answers)
globals()[sys.argv[1]]()
"#;
    if !has("python3") {
        return;
    }
    for user in users() {
        for (way, prints) in [
            ("error", "EINTR ECONNREFUSED\n"),
            ("another", "EINTR connected second True\n"),
            ("twice", "connected EISCONN\n"),
            ("often", "connected\n"),
            ("threads", "EINTR connected\n"),
        ] {
            let gate = Gate::profile(*user, "write").flags(["--net", "loopback", "--timeout", "60s"]);
            gate.run(["python3", "-c", SCRIPT, way]).exits(0).prints(prints);
        }
    }
}

/// The supervisor copies descriptors of the thread that makes the call, which may have outlived the first one of its process.
#[test]
fn a_program_whose_first_thread_has_ended_connects_and_listens() {
    const SCRIPT: &str = r#"
import ctypes, errno, os, platform, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(act):
    try: act(); return 0
    except OSError as error: return error.errno
def rest():
    state = lambda: open(f"/proc/self/task/{os.getpid()}/stat").read().rsplit(")", 1)[1].split()[0]
    while state() != "Z": time.sleep(0.01)
    # PIDFD_THREAD, which the supervisor needs for this, exists since Linux 6.9.
    known = libc.syscall(434, threading.get_native_id(), os.O_EXCL) >= 0 or ctypes.get_errno() != errno.EINVAL
    one, other = socket.socket(socket.AF_UNIX), socket.socket(); one.bind("s"); other.bind(("127.0.0.1", 0))
    made = [attempt(lambda: one.listen()), attempt(lambda: other.listen())]
    made.append(attempt(lambda: socket.socket(socket.AF_UNIX).connect("s")))
    made.append(attempt(lambda: socket.socket().connect(other.getsockname())))
    print(*made if known else ["unknown"], flush=True); os._exit(0)
threading.Thread(target=rest).start()
libc.syscall({"x86_64": 60}.get(platform.machine(), 93), 0)
"#;
    if !has("python3") {
        return;
    }
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--net", "loopback", "--timeout", "60s"]);
        let (done, report) = gate.report(["python3", "-c", SCRIPT]);
        if done.stdout() == "unknown\n" {
            return crate::support::skip("this kernel has no descriptors of threads");
        }
        done.exits(0).prints("0 0 0 0\n");
        assert!(report["denials"].as_array().is_some_and(Vec::is_empty), "{report:#}");
    }
}
