//! UNIX datagrams within a run, `--net own --allow socketpair`: the supervisor sends every message that can name a receiver.

use super::{confined, users};
use crate::support::{fresh, has, probe};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

pub(super) const FLAGS: [&str; 6] = ["--net", "own", "--allow", "socketpair", "-p", "write"];

/// Prints the same unconfined and confined: what is sent arrives whole, with its sender and its descriptors, and fails in the
/// same way.
pub(super) const TALK: &str = r#"
import ctypes, os, signal, socket, struct, threading, time
U, D = socket.AF_UNIX, socket.SOCK_DGRAM
def attempt(name, act):
    try: print(name, act())
    except OSError as e: print(name, "errno", e.errno)
def bound(name):
    s = socket.socket(U, D); s.bind(name); return s
def pair():
    a, b = socket.socketpair(U, D); a.send(b"x"); a.sendmsg([b"ab", b"", b"cd"]); a.send(b""); return b.recv(9), b.recv(9), b.recv(9)
def files():
    a, b = bound("a.sock"), bound("b.sock")
    b.sendto(b"ask", "a.sock"); text, who = a.recvfrom(9); a.sendmsg([b"answer"], [], 0, who); return text, who, b.recvfrom(9)
def connected():
    a, b = bound("c.sock"), socket.socket(U, D); b.connect("c.sock"); b.send(b"1"); b.sendto(b"2", os.getcwd() + "/c.sock"); return a.recv(3), a.recv(3)
def abstract():
    a, b = bound("\0datagrams"), socket.socket(U, D); b.sendto(b"hi", "\0datagrams"); b.connect("\0datagrams"); b.send(b"ho"); return a.recv(4), a.recv(4)
def rights(kind):
    a, b = socket.socketpair(U, kind); r, w = os.pipe(); socket.send_fds(a, [b"f"], [w, r]); _, fds, _, _ = socket.recv_fds(b, 9, 3)
    os.write(fds[0], b"through"); return os.read(fds[1], 9)
def credentials(pid):
    a, b = socket.socketpair(U, D); return a.sendmsg([b"c"], [(1, 2, struct.pack("3i", pid, os.getuid(), os.getgid()))])
def stream():
    a, b = socket.socketpair(); big, got = os.urandom(3 << 20), []
    def take():
        while sum(map(len, got)) < len(big): got.append(b.recv(1 << 16))
    t = threading.Thread(target=take); t.start(); n = a.sendmsg([big[:1 << 20], big[1 << 20:]]); t.join(); return n, b"".join(got) == big
def broken():
    a, b = socket.socketpair(); b.close(); return a.sendmsg([b"x"])
def full(act):
    a, b = socket.socketpair(U, D); a.setblocking(False); n = 0
    try:
        while True: a.sendmsg([b"x" * 1000]); n += 1
    except BlockingIOError: pass
    return act(a, b, n)
def times_out(a, b, n):
    a.settimeout(0.1); return a.sendmsg([b"x"])
def waits(a, b, n):
    a.setblocking(True); threading.Timer(0.1, lambda: [b.recv(1000) for _ in range(n)]).start(); return a.sendmsg([b"later"])
def interrupted(a, b, n):
    class Stop(Exception): pass
    def handler(*_): raise Stop
    a.setblocking(True); signal.signal(signal.SIGALRM, handler); signal.setitimer(signal.ITIMER_REAL, 0.1)
    try: return a.sendmsg([b"never"])
    except Stop: return "interrupted"
def many():
    class Piece(ctypes.Structure): _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]
    class Header(ctypes.Structure): _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int), ("unused", ctypes.c_int), ("sent", ctypes.c_uint)]
    assert ctypes.sizeof(Header) == 64
    a, b = socket.socketpair(U, D); pieces = [Piece(text, len(text)) for text in [b"one", b"three", b"seven77"]]
    headers = (Header * 3)(*[Header(iov=ctypes.addressof(p), iovlen=1) for p in pieces])
    return ctypes.CDLL(None).sendmmsg(a.fileno(), headers, 3, 0), [h.sent for h in headers], [b.recv(9) for _ in range(3)]
def udp():
    a = socket.socket(socket.AF_INET, D); a.bind(("127.0.0.1", 0)); b = socket.socket(socket.AF_INET, D)
    b.sendto(b"u", a.getsockname()); b.sendmsg([b"v"], [(socket.IPPROTO_IP, socket.IP_TTL, struct.pack("i", 9))], 0, a.getsockname()); return a.recv(3), a.recv(3)
for name, act in dict(pair=pair, files=files, connected=connected, abstract=abstract, stream=stream, broken=broken, many=many, udp=udp).items(): attempt(name, act)
for kind in [D, socket.SOCK_STREAM, socket.SOCK_SEQPACKET]: attempt("rights", lambda: rights(kind))
attempt("own credentials", lambda: credentials(os.getpid()))
if os.getuid() != 0: attempt("another's credentials", lambda: credentials(1))
for act in [times_out, waits, interrupted]: attempt(act.__name__, lambda: full(act))
attempt("missing", lambda: socket.socket(U, D).sendto(b"x", "none.sock"))
open("file", "w"); attempt("no socket", lambda: socket.socket(U, D).sendto(b"x", "file"))
attempt("no descriptor", lambda: socket.send_fds(socket.socketpair(U, D)[0], [b"x"], [999]))
attempt("too long", lambda: socket.socketpair(U, D)[0].sendmsg([b"x" * (20 << 20)]))
attempt("not connected", lambda: socket.socket(U, D).sendmsg([b"x"]))
attempt("a stream's name", lambda: socket.socketpair()[0].sendto(b"x", "a.sock"))
if os.fork() == 0:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL); broken(); os._exit(0)
print("killed by", os.WTERMSIG(os.wait()[1]))
"#;

pub(super) fn talk_unconfined(user: Option<u32>) -> String {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("python3");
    command.args(["-c", TALK]).current_dir(writable("datagrams-plain"));
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    crate::support::run(&mut command).exits(0).stdout()
}

#[test]
fn datagrams_of_a_run_are_as_unconfined() {
    if !has("python3") {
        return;
    }
    for user in users() {
        let unconfined = talk_unconfined(user);
        let dir = writable("datagrams");
        let ran = confined(&dir, user, &FLAGS).args(&["--", "python3", "-c", TALK]).go();
        ran.done.prints(&unconfined).exits(0);
        assert!(ran.denials().is_empty(), "{:#}", ran.report);
        assert!(unconfined.contains("many (3, [3, 5, 7]") && unconfined.contains("killed by 13"), "{unconfined}");
    }
}

/// A receiver outside of the run, in a directory that everybody may reach, and a way to see that it got nothing.
pub(super) struct Outside {
    receiver: UnixDatagram,
    pub(super) path: String,
}

fn outside() -> Outside {
    outside_in(&fresh("datagrams-outside"))
}

pub(super) fn outside_in(directory: &Path) -> Outside {
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).expect("own directory");
    let path = directory.join("out.sock");
    let receiver = UnixDatagram::bind(&path).expect("a fresh name");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("own socket");
    receiver.set_nonblocking(true).expect("own socket");
    Outside { receiver, path: path.to_str().expect("text").to_owned() }
}

impl Outside {
    /// Whether nothing has arrived. The proof that something could is a message of the test itself.
    pub(super) fn got_nothing(&self) {
        let got = self.receiver.recv(&mut [0; 8]);
        assert_eq!(got.expect_err("nothing was sent").kind(), std::io::ErrorKind::WouldBlock);
        UnixDatagram::unbound().expect("a socket").send_to(b"!", &self.path).expect("it can be reached");
        assert_eq!(self.receiver.recv(&mut [0; 8]).expect("sent"), 1);
    }
}

fn writable(name: &str) -> std::path::PathBuf {
    let dir = fresh(name);
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).expect("own directory");
    dir
}

/// A receiver in the working directory.
fn inside(dir: &Path) -> UnixDatagram {
    let receiver = UnixDatagram::bind(dir.join("own.sock")).expect("a fresh name");
    std::fs::set_permissions(dir.join("own.sock"), PermissionsExt::from_mode(0o777)).expect("own socket");
    receiver
}

/// Counts the messages of one byte until a longer one comes. The queue of a receiver that is not read fills up.
fn counting(receiver: UnixDatagram) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut count = 0;
        while receiver.recv(&mut [0; 8]).is_ok_and(|length| length == 1) {
            count += 1;
        }
        count
    })
}

/// Ends the counting, and says how many there were.
fn counted(reader: std::thread::JoinHandle<usize>, path: impl AsRef<Path>) -> usize {
    UnixDatagram::unbound().and_then(|end| end.send_to(b"the end", path)).expect("the reader reads");
    reader.join().expect("ends")
}

#[test]
fn a_socket_outside_is_reached_by_no_call() {
    let datagrams = probe("datagrams", &["-pthread"]);
    let outside = outside();
    for user in users() {
        let dir = writable("datagrams-reach");
        let reader = counting(inside(&dir));
        symlink(&outside.path, dir.join("link")).expect("own directory");
        let ways = ["sendto", "sendmsg", "sendmmsg", "second", "connect"];
        let all = |errno: i32| -> String {
            ways.iter().map(|way| format!("{way} {errno}\n{way} of a pair {errno}\n")).collect()
        };
        let through = format!("/proc/self/root{}", outside.path);
        let run = |flags: &[&str], path: &str| {
            let words = ["--env", "OWN=own.sock", "--", datagrams.to_str().expect("text"), "reach", path];
            confined(&dir, user, flags).args(&words).go()
        };
        for path in [&outside.path, "link", &through] {
            let ran = run(&FLAGS, path);
            ran.done.prints(&all(1)).exits(0);
            let denied = ran.denials();
            for call in ["sendto", "sendmsg", "sendmmsg", "connect"] {
                let denial = denied.iter().find(|denial| denial["syscall"] == call).expect(call);
                assert_eq!(denial["path"], outside.path.as_str(), "{denial:#}");
                assert_eq!(denial["allow_with"], format!("--unix {}", outside.path), "{denial:#}");
            }
            outside.got_nothing();
        }
        // The controls: a socket of the run itself, and the remedy.
        run(&FLAGS, "own.sock").done.prints(&all(0)).exits(0);
        outside.receiver.set_nonblocking(false).expect("own socket");
        let listener = counting(outside.receiver.try_clone().expect("a copy"));
        run(&[&FLAGS[..], &["--unix", &outside.path]].concat(), &outside.path).done.prints(&all(0)).exits(0);
        assert!(counted(listener, &outside.path) > 10);
        outside.receiver.set_nonblocking(true).expect("own socket");
        // A list of allowed calls does not take the supervisor away.
        let more = ["--allow", "@network:@ipc:sendmsg:sendmmsg:connect"];
        let listed = run(&[&FLAGS[..], &more].concat(), &outside.path).done;
        assert!(listed.exits(0).stdout().contains("sendto 1\n"), "{listed}");
        assert!(listed.stdout().contains("sendmsg 1\n") && listed.stdout().contains("sendmmsg 1\n"), "{listed}");
        assert!(counted(reader, dir.join("own.sock")) > 10);
    }
}

/// Names, headers, descriptors and links change while the supervisor looks at them. What it sends is what it judged.
#[test]
fn a_race_sends_nothing_outside() {
    let datagrams = probe("datagrams", &["-pthread"]);
    let outside = outside();
    for user in users() {
        let dir = writable("datagrams-race");
        let reader = counting(inside(&dir));
        let words = ["--", datagrams.to_str().expect("text"), "race", "own.sock", &outside.path, "1500"];
        let done = confined(&dir, user, &FLAGS).args(&words).go().done;
        let sent = done.exits(0).stdout();
        assert!(counted(reader, dir.join("own.sock")) > 0, "the right ones arrive: {sent}");
        outside.got_nothing();
    }
}

/// A descriptor that a program outside passes is judged like one of the run.
#[test]
fn a_socket_that_is_passed_in_reaches_nothing_more() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    if !has("python3") {
        return;
    }
    let outside = outside();
    for user in users() {
        let dir = writable("datagrams-passed");
        let giver = UnixListener::bind(dir.join("give.sock")).expect("a fresh name");
        std::fs::set_permissions(dir.join("give.sock"), PermissionsExt::from_mode(0o777)).expect("own socket");
        let thread = std::thread::spawn(move || {
            let (stream, _) = giver.accept().expect("a client");
            let given = UnixDatagram::unbound().expect("a socket");
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [given.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            sendmsg(&stream, &[std::io::IoSlice::new(b"f")], &mut control, SendFlags::empty()).expect("sent");
        });
        let script = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect("give.sock")
given = socket.socket(fileno=socket.recv_fds(s, 1, 1)[1][0])
for act in [lambda: given.sendto(b"x", sys.argv[1]), lambda: given.sendmsg([b"x"], [], 0, sys.argv[1]), lambda: given.connect(sys.argv[1])]:
    try: print(act())
    except OSError as e: print(e.errno)
"#;
        let words = ["--", "python3", "-c", script, &outside.path];
        let ran = confined(&dir, user, &FLAGS).args(&words).go();
        ran.done.prints("1\n1\n1\n").exits(0);
        thread.join().expect("gave it");
        outside.got_nothing();
    }
}

/// An abstract name of the machine is not one of the run.
#[test]
fn an_abstract_name_outside_is_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    if !has("python3") {
        return;
    }
    let dir = writable("datagrams-abstract");
    let name = format!("datagrams-outside-{}", std::process::id());
    let receiver = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("free");
    receiver.set_nonblocking(true).expect("own socket");
    let script = r#"
import socket, sys
for act in [lambda s: s.sendto(b"x", "\0" + sys.argv[1]), lambda s: s.sendmsg([b"x"], [], 0, "\0" + sys.argv[1]), lambda s: s.connect("\0" + sys.argv[1])]:
    try: print(act(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
    except OSError as e: print(e.errno)
"#;
    for user in users() {
        let sent = |flags: &[&str]| confined(&dir, user, flags).args(&["--", "python3", "-c", script, &name]).go();
        // Nobody has this name in the namespace: the kernel answers ECONNREFUSED.
        sent(&FLAGS).done.prints("111\n111\n111\n").exits(0);
        assert!(receiver.recv(&mut [0; 8]).is_err());
        sent(&["-p", "unrestricted"]).done.prints("1\n1\nNone\n").exits(0);
        while receiver.recv(&mut [0; 8]).is_ok() {}
    }
}

/// Without the word they stay denied; in a network of the run, the word is the remedy for all of them.
#[test]
fn in_other_modes_there_are_none() {
    if !has("python3") {
        return;
    }
    let dir = writable("datagrams-denied");
    let script = r#"
import socket
for make in [socket.socket, socket.socketpair]:
    try: make(socket.AF_UNIX, socket.SOCK_DGRAM); print("made")
    except OSError as e: print(e.errno)
"#;
    for user in users() {
        let run = |flags: &[&str]| confined(&dir, user, flags).args(&["--", "python3", "-c", script]).go();
        for mode in ["none", "loopback", "full", "own"] {
            let ran = run(&["--net", mode, "-p", "write"]);
            ran.done.prints("1\n1\n").exits(0);
            for denial in ran.denials() {
                let named = mode == "own" || denial["syscall"] == "socketpair";
                assert_eq!(denial["allow_with"].as_str(), named.then_some("--allow socketpair"), "{mode}: {denial:#}");
            }
        }
        // Elsewhere the word grants pairs, and no sockets.
        run(&["--net", "none", "-p", "write", "--allow", "socketpair"]).done.prints("1\nmade\n").exits(0);
        run(&FLAGS).done.prints("made\nmade\n").exits(0);
    }
}
