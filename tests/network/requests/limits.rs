//! Many connections, long heads, and the end of the proxy.

use super::{READ_V1, Tls};
use crate::network::users;
use crate::support::fresh;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

/// Opens a thousand connections to the proxy, asks for a tunnel on each that is served, and holds them until it reads a line.
/// Then closes them, and makes one request as any client does.
const STORM: &str = r#"
import os, socket, sys, time, urllib.request
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
all = []
for _ in range(1000):
    s = socket.socket(); s.setblocking(False); s.connect_ex((host, int(port))); all.append(s)
time.sleep(1)
served, waiting = 0, []
for s in all:
    try: s.send(f"CONNECT {sys.argv[1]} HTTP/1.1\r\n\r\n".encode()); waiting.append(s)
    except OSError: pass
time.sleep(1)
for s in waiting:
    try: served += s.recv(100).startswith(b"HTTP/1.1 200")
    except OSError: pass
print(served, flush=True)
sys.stdin.readline()
for s in all: s.close()
print(urllib.request.urlopen(f"https://{sys.argv[1]}/v1/x", timeout=60).status, flush=True)
"#;

fn field(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field of Linux");
    line.trim_matches([':', '\t', ' ']).split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

#[test]
fn a_thousand_connections_at_once_take_bounded_memory_and_then_requests_pass() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("storm");
    let mut run = tls.confined(&dir, None, READ_V1, &["--files", "4096"]);
    run.command.args(["--", "python3", "-c", STORM, &tls.host()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = run.command.spawn().expect("gatekeeper starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let served: u64 = line().parse().expect("a number");
    // No more than 256 are served; the others wait.
    assert!((1..=256).contains(&served), "{served}");
    let (memory, threads) = (field(child.id(), "VmHWM"), field(child.id(), "Threads"));
    println!("{served} served, {memory} kB at most, {threads} threads");
    assert!(memory < 256 * 1024, "{memory} kB");
    assert!(threads < 350, "{threads}");
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads");
    assert_eq!(line(), "200");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(tls.seen().lines().count(), 1);
}

#[test]
fn a_head_of_more_than_64_kib_is_refused() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("long-head");
    let script = r#"
head -c 70000 /dev/zero | tr '\0' x | sed 's/^/X-Long: /' > long
for how in '--http1.1 URL/v1/x' '--http2 URL/v1/x' 'http://HOST/v1/x'; do
    curl -s -o /dev/null -w '%{http_code} ' -H @long $how || true
done
curl -sS -o /dev/null -w '%{http_code}' URL/v1/x
"#;
    let line = script.replace("URL", &tls.url("")).replace("HOST", &tls.host());
    let ran = tls.confined(&dir, None, READ_V1, &["--profile", "write"]).args(&["-c", &line]).go();
    let out = ran.done.exits(0).stdout();
    let codes: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(codes.len(), 4, "{}", ran.done);
    assert!(codes[..3].iter().all(|code| ["400", "431", "000"].contains(code)) && codes[3] == "200", "{out}");
    assert_eq!(tls.seen().lines().count(), 1);
}

/// Makes requests as fast as it can, some of them without the proxy.
const BUSY: &str = r#"
import socket, sys, urllib.request
print("busy", flush=True)
while True:
    try: urllib.request.urlopen(f"https://{sys.argv[1]}/v1/x", timeout=2).read()
    except Exception: pass
    try:
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1].split(":")[1])), 1); s.close()
        print("DIRECT", flush=True)
    except OSError: pass
"#;

#[test]
fn if_the_proxy_dies_nothing_reaches_the_host_any_more() {
    for user in users() {
        let Some(tls) = Tls::new("one") else { return };
        let dir = fresh("dies");
        let mut run = tls.confined(&dir, user, READ_V1, &[]);
        run.command.args(["--", "python3", "-c", BUSY, &tls.host()]).stdout(Stdio::piped());
        let mut child = run.command.spawn().expect("gatekeeper starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "busy");
        let mut before = String::new();
        for _ in 0..100 {
            before = tls.seen();
            if !before.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!before.is_empty(), "requests pass as long as it lives");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        // The pipe ends once the last process of the run has ended.
        assert_eq!(lines.next().map(|line| line.expect("text")), None);
        tls.seen();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(tls.seen(), "");
    }
}
