//! `--net own`: a network namespace with nothing but a loopback, for servers and clients of one run.

use super::server::Server;
use super::{confined, users};
use crate::support::{fresh, has};

const TALK: &str = r#"
import socket, threading
def attempt(name, act):
    try:
        print(name, act())
    except OSError as e:
        print(name, e.errno)
def serve(family, at, client):
    s = socket.socket(family); s.bind(at); s.listen()
    threading.Thread(target=lambda: s.accept()[0].sendall(b"served"), daemon=True).start()
    c = socket.socket(family); c.connect(client(s.getsockname())); return c.recv(6).decode()
attempt("any4", lambda: serve(socket.AF_INET, ("0.0.0.0", 0), lambda n: ("127.0.0.1", n[1])))
attempt("any6", lambda: serve(socket.AF_INET6, ("::", 0), lambda n: ("::1", n[1])))
attempt("abstract", lambda: serve(socket.AF_UNIX, "\0own-test", lambda n: n))
def udp():
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0))
    b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b.sendto(b"packet", a.getsockname()); return a.recv(6).decode()
attempt("udp", udp)
attempt("interfaces", socket.if_nameindex)
for family in [socket.AF_INET, socket.AF_UNSPEC]:
    found = lambda: socket.getaddrinfo("localhost", 80, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    attempt("localhost", lambda: ("127.0.0.1", 80) in [each[4] for each in found()])
"#;

#[test]
fn servers_and_clients_of_one_run_find_each_other() {
    if !has("python3") {
        return;
    }
    let dir = fresh("own");
    for user in users() {
        for profile in ["minimal", "write", "unrestricted"] {
            let ran = confined(&dir, user, &["--net", "own", "-p", profile]).args(&["--", "python3", "-c", TALK]).go();
            let served = "any4 served\nany6 served\nabstract served\nudp packet\ninterfaces [(1, 'lo')]\n";
            ran.done.prints(&format!("{served}localhost True\nlocalhost True\n")).exits(0);
            assert!(ran.denials().is_empty(), "{:#}", ran.report);
            let layers = ran.report["layers"].as_array().expect("layers");
            let layer = layers.iter().find(|layer| layer["layer"] == "namespaces").expect("the namespace is reported");
            assert_eq!(layer["status"], "enforced");
            let detail = layer["detail"].as_str().expect("text");
            assert!(detail.starts_with("its own network: a loopback interface and nothing else"), "{detail}");
        }
    }
}

#[test]
fn the_machines_own_ports_and_names_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    if !has("python3") {
        return;
    }
    let dir = fresh("own-outside");
    let server = Server::of(&dir);
    let name = format!("own-outside-{}", std::process::id());
    let _outside = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("free");
    let script = r#"
import socket, sys
def attempt(act):
    try:
        act(); print("reached")
    except OSError as e:
        print(e.errno)
attempt(lambda: socket.socket().connect(("127.0.0.1", int(sys.argv[1]))))
attempt(lambda: socket.socket(socket.AF_UNIX).connect("\0" + sys.argv[2]))
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
"#;
    let port = server.port.to_string();
    for user in users() {
        let fetch =
            |flags: &[&str]| confined(&dir, user, flags).args(&["--", "python3", "-c", script, &port, &name]).go().done;
        // Nothing listens in the namespace: the kernel answers ECONNREFUSED, and no gatekeeper had to deny it.
        fetch(&["--net", "own", "-p", "write"]).prints("111\n111\n1\n").exits(0);
        fetch(&["--net", "loopback", "-p", "write"]).prints("reached\n1\n1\n").exits(0);
    }
}

#[test]
fn root_keeps_no_capability_that_leads_out() {
    if !has("python3") || !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = fresh("own-root");
    let script = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open("/proc/1/ns/net", os.O_RDONLY) if os.access("/proc/1/ns/net", os.R_OK) else -1
print(libc.setns(fd, 0x40000000), [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")])
"#;
    let ran = confined(&dir, None, &["--net", "own", "-p", "unrestricted"]).args(&["--", "python3", "-c", script]).go();
    let text = ran.done.exits(0).stdout();
    let hex = text.split('\'').nth(1).expect("a mask");
    let mask = u64::from_str_radix(hex, 16).expect("hexadecimal");
    assert!(text.starts_with("-1 "), "{text}");
    // CAP_NET_ADMIN, CAP_SYS_PTRACE and CAP_SYS_ADMIN.
    assert_eq!(mask & (1 << 12 | 1 << 19 | 1 << 21), 0, "{text}");
}

#[test]
fn ports_beside_it_are_an_error() {
    let dir = fresh("own-ports");
    let ran = confined(&dir, None, &["--net", "own", "--port", "80"]).args(&["--", "true"]).go();
    let error = ran.done.exits(125).stderr();
    assert!(error.contains("network.ports has no use with mode own"), "{error}");
}

/// The filter of an outer gatekeeper denies namespaces. Nothing else would keep the command from the machine's network.
#[test]
fn without_a_namespace_the_command_has_no_network_or_does_not_start() {
    let dir = fresh("own-nested");
    for user in users() {
        let run = |more: &[&str], command: &[&str]| {
            let inner = [crate::support::gatekeeper().to_str().expect("text"), "run", "--net", "own"];
            let outer = confined(&dir, user, &["-q", "-p", "write"]).arg("--").args(&inner).args(more);
            outer.arg("--").args(command).go()
        };
        // A policy that does not insist gets less network, never more.
        let script = "import socket\ntry:\n socket.socket()\nexcept OSError as e:\n print(e.errno)";
        let ran = run(&["--require-sandbox=false"], &["/usr/bin/python3", "-c", script]);
        ran.done.exits(0).prints(&format!("{}\n", libc::EAFNOSUPPORT));
        assert!(ran.done.stderr().contains("warning: no network at all: network mode own needs"), "{}", ran.done);
        for more in [&[][..], &["-p", "unrestricted"]] {
            let ran = run(more, &["echo", "ran"]);
            let error = ran.done.exits(125).prints("").stderr();
            assert!(error.contains("namespaces: ") && error.contains("network mode own needs"), "{error}");
        }
    }
}

/// A socket stays in the network namespace where it was made, so one on standard input would lead out.
#[test]
fn a_socket_of_the_machines_network_is_no_standard_stream() {
    use std::os::fd::OwnedFd;
    use std::process::Stdio;
    let dir = fresh("own-inherited");
    let udp = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback"));
    let tcp = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").expect("loopback"));
    let datagrams = || OwnedFd::from(std::os::unix::net::UnixDatagram::pair().expect("a pair").0);
    for user in users() {
        for given in [udp(), tcp(), datagrams()] {
            let mut run = confined(&dir, user, &["--net", "own"]).args(&["--", "true"]);
            run.command.stdin(Stdio::from(given));
            let error = run.go().done.exits(125).stderr();
            assert!(error.contains("standard input is a socket of the machine's network"), "{error}");
        }
        // A connected stream reaches only its peer, and is what Node gives its children.
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut run = confined(&dir, user, &["--net", "own"]).args(&["--", "true"]);
        run.command.stdin(Stdio::from(OwnedFd::from(theirs)));
        run.go().done.exits(0);
        drop(ours);
    }
}

/// A netlink message that names its receiver makes the kernel ask the sender alone for capabilities, and not the process that opened
/// the socket. The supervisor has more than the command.
#[test]
fn netlink_messages_have_the_rights_of_the_command_alone() {
    if !has("python3") {
        return;
    }
    let script = r#"
import socket, struct
def netlink():
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def attempt(act):
    try: return act() or 0
    except OSError as error: return error.errno
def ask(socket, message, *name):
    socket.sendmsg([message], [], 0, *name); answer = socket.recv(9999); kind, = struct.unpack_from("=H", answer, 4)
    return -struct.unpack_from("=i", answer, 16)[0] if kind == 2 else "link"
RTM_NEWLINK, RTM_GETLINK, UP = 16, 18, 1
look = struct.pack("=IHHII", 32, RTM_GETLINK, 1, 1, 0) + struct.pack("=BBHiII", 0, 0, 0, 1, 0, 0)
down = struct.pack("=IHHII", 32, RTM_NEWLINK, 5, 2, 0) + struct.pack("=BBHiII", 0, 0, 0, 1, 0, UP)
s = netlink()
print("look", ask(s, look), ask(s, look, (0, 0)))
print("down", ask(s, down), ask(s, down, (0, 0)))
print("others", *[attempt(lambda: s.sendto(look, name)) for name in [(1, 0), (0, 1), (1, 1)]])
print("connect", *[attempt(lambda: netlink().connect(name)) for name in [(1, 0), (0, 1), (0, 0)]])
s.connect((0, 0)); print("connected", ask(s, look), ask(s, down))
"#;
    let dir = fresh("own-netlink");
    for user in users() {
        for flags in [&["--net", "own", "--allow", "socketpair", "-p", "write"][..], &["--net", "own", "-p", "write"]] {
            let ran = confined(&dir, user, flags).args(&["--", "python3", "-c", script]).go();
            let kernel = "look link link\ndown 1 1\n";
            ran.done.prints(&format!("{kernel}others 1 1 1\nconnect 1 1 0\nconnected link 1\n")).exits(0);
            assert!(ran.denials().is_empty(), "{:#}", ran.report);
        }
    }
}
