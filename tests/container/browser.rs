//! The browser's container: its address, its token, and what happens if it does not start.

use super::World;
use crate::support::{fresh, has, run};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn sandbox(browser: Value) -> Value {
    json!({"docker": {"network": "bridge", "env": {"MAIN_ONLY": "yes"}}, "browser": browser})
}

#[test]
fn a_browser_that_does_not_start_is_a_failure_with_its_log_and_its_own_variables() {
    let browser =
        json!({"image": "fake:1", "autoStart": true, "autoStartTimeoutMs": 3000, "env": {"BROWSER_ONLY": "yes"}});
    let Some(world) = World::new(&sandbox(browser)) else { return };
    let root = world.dir.join("fake-root");
    fs::create_dir(&root).expect("own directory");
    run(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(super::image())).exits(0);
    let script = root.join("usr/bin/chromium");
    fs::create_dir_all(root.join("usr/bin")).expect("own directory");
    // With a shell below /usr, as every distribution has it.
    fs::rename(root.join("bin"), root.join("usr/bin")).expect("own directory");
    std::os::unix::fs::symlink("usr/bin", root.join("bin")).expect("own directory");
    fs::write(&script, "#!/bin/sh\nenv >&2\necho cannot open the door >&2\nsleep 60\n").expect("own directory");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("own directory");
    let tar = world.dir.join("fake.tar");
    run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".")).exits(0);
    world.podman(&["import", "-q", tar.to_str().expect("UTF-8"), "fake:1"]).exits(0);
    let done = world.gatekeeper(&["up"]);
    done.exits(125);
    let told = done.stderr();
    for text in ["browser: the browser was not ready within 3000 ms", "cannot open the door", "BROWSER_ONLY=yes"] {
        assert!(told.contains(text), "{text}: {done}");
    }
    assert!(!told.contains("MAIN_ONLY"), "{done}");
    let names = world.containers();
    assert!(names.len() == 1 && !names[0].contains("browser"), "the main one stays: {names:?}");
    // With autoStart false, up leaves it alone; the image of the main container has no Chromium.
    let browser = json!({"image": "tiny:1", "autoStart": false});
    world.configure(&sandbox(browser));
    world.gatekeeper(&["up"]).exits(0);
    let done = world.gatekeeper(&["browser"]);
    assert!(done.code() == Some(125) && done.stderr().contains("the image has no /usr/bin/chromium"), "{done}");
}

#[test]
fn keys_that_exclude_a_browser_are_named() {
    let world = World::without_engine(&json!({"docker": {"network": "none"}, "browser": {"enabled": true}}));
    let done = world.gatekeeper(&["browser"]);
    let told = "docker.network is none (agents.defaults.sandbox.docker.network)";
    assert!(done.code() == Some(125) && done.stderr().contains(told), "{done}");
    world.configure(&sandbox(json!({"enabled": false})));
    let done = world.gatekeeper(&["browser"]);
    assert!(done.code() == Some(125) && done.stderr().contains("agents.defaults.sandbox.browser.enabled"), "{done}");
    // The browser of the host is refused by its own key, and otherwise that of `gatekeeper browser`.
    world.configure(&sandbox(json!({"allowHostControl": false})));
    let done = world.gatekeeper(&["browser", "--target", "host", "--", "true"]);
    let told = "browser.allowHostControl is false (agents.defaults.sandbox.browser.allowHostControl)";
    assert!(done.code() == Some(126) && done.stderr().contains(told), "{done}");
    world.configure(&sandbox(json!({"allowHostControl": true})));
    let done = world.gatekeeper(&["browser", "--target", "host", "--", "/no/such/browser"]);
    assert!(done.code() == Some(127), "gatekeeper browser answers: {done}");
}

/// Chromium of this machine with its libraries, as a tar file.
fn chromium() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let dir = fresh("browser-image");
        let list = dir.join("list");
        let line = "{ echo /usr/lib/chromium; echo /usr/share/fonts/truetype/dejavu; echo /etc/fonts; cd /usr/bin; ls -d $PWD/Xvfb $PWD/x11vnc $PWD/xkbcomp /usr/share/X11/xkb /usr/share/novnc; ldd /usr/lib/chromium/chromium Xvfb x11vnc xkbcomp | grep -v ':$' | grep -o '/[^ ]*'; ls -d /usr/lib/*/libsoftokn3.so /usr/lib/*/libfreebl*.so /usr/lib/*/libnssckbi.so /usr/lib/*/nss /usr/lib/*/libnss_files.so.2; } 2>/dev/null | sed 's,^/lib,/usr/lib,' | sort -u";
        fs::write(&list, run(Command::new("sh").args(["-c", line])).stdout()).expect("own directory");
        let tar = dir.join("chromium.tar");
        let mut command = Command::new("tar");
        command.args(["-C", "/", "--dereference", "--exclude=*.pak.info", "--exclude=locales/[a-df-z]*", "-cf"]);
        run(command.arg(&tar).arg("--transform=s,^/*,,").arg("--files-from").arg(&list));
        let top = dir.join("top");
        for path in ["usr/bin", "tmp"] {
            fs::create_dir_all(top.join(path)).expect("own directory");
        }
        fs::set_permissions(top.join("tmp"), fs::Permissions::from_mode(0o1777)).expect("own directory");
        run(Command::new("sh").args(["-c", "ln -s usr/lib64 lib64; ln -s usr/lib lib; ln -s usr/bin bin; ln -s ../lib/chromium/chromium usr/bin/chromium; cp -L $(command -v busybox) usr/bin/busybox; ln -s busybox usr/bin/sh"]).current_dir(&top)).exits(0);
        run(Command::new("tar").arg("-C").arg(&top).arg("-rf").arg(&tar).arg(".")).exits(0);
        tar
    })
}

/// The status line of an answer on the host's loopback.
fn status(port: u16, target: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("published");
    let asked = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(asked.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// Speaks with x11vnc through the relay, and prints the size of the display.
const LOOK: &str = r#"
import base64, os, socket, struct, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); s.settimeout(20)
key = base64.b64encode(os.urandom(16)).decode()
s.sendall(f"GET /{sys.argv[2]} HTTP/1.1\r\nHost: 127.0.0.1:{sys.argv[1]}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nOrigin: http://127.0.0.1:{sys.argv[1]}\r\nSec-WebSocket-Protocol: binary\r\n\r\n".encode())
def exactly(count):
    data = b""
    while len(data) < count:
        block = s.recv(count - len(data))
        if not block: sys.exit("closed after " + repr(data))
        data += block
    return data
head = b""
while not head.endswith(b"\r\n\r\n"): head += exactly(1)
print(head.split(b"\r\n")[0].decode())
pending = b""
def take(count):
    global pending
    while len(pending) < count:
        length = exactly(2)[1]
        if length == 126: length = struct.unpack(">H", exactly(2))[0]
        pending += exactly(length)
    data, pending = pending[:count], pending[count:]
    return data
def send(data):
    mask = os.urandom(4)
    s.sendall(bytes([0x82, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
send(take(12)); count = take(1)[0]; assert 1 in take(count); send(b"\1"); assert take(4) == b"\0" * 4
send(b"\1"); width, height = struct.unpack(">HH", take(4))
print(width, height)
"#;

/// noVNC is served with the token in its path, and shows the display.
fn shows_its_display(port: u16, token: &str, page: &str) {
    let top = format!("http://127.0.0.1:{port}");
    assert!(page.starts_with(&format!("{top}/vnc/{token}/vnc.html?")), "{page}");
    let told = status(port, page.strip_prefix(&top).expect("the same port"));
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("<title>noVNC</title>"), "{told}");
    assert!(status(port, &format!("/vnc/{token}/app/ui.js")).starts_with("HTTP/1.1 200 "));
    let wrong = token.replace(|letter: char| letter.is_ascii_digit(), "x");
    for (path, answer) in [
        (format!("/vnc/{wrong}/vnc.html"), "401"),
        ("/vnc/vnc.html".to_owned(), "401"),
        (format!("/vnc/{token}/../../../etc/passwd"), "404"),
        (format!("/vnc/{token}/utils/novnc_proxy"), "404"),
    ] {
        assert!(status(port, &path).starts_with(&format!("HTTP/1.1 {answer} ")), "{path}");
    }
    let socket = page.rsplit_once("&path=").expect("a path").1;
    let done = run(Command::new("python3").args(["-c", LOOK, &port.to_string(), socket]));
    done.exits(0).prints("HTTP/1.1 101 Switching Protocols\n1280 800\n");
}

#[test]
fn a_browser_answers_on_loopback_to_those_who_have_its_token() {
    let browser = json!({"image": "chromium:1", "autoStart": true, "autoStartTimeoutMs": 60000, "enableNoVnc": true});
    if !has("chromium") || !has("Xvfb") || !has("x11vnc") || !has("python3") {
        return;
    }
    let Some(world) = World::new(&sandbox(browser)) else { return };
    world.podman(&["import", "-q", chromium().to_str().expect("UTF-8"), "chromium:1"]).exits(0);
    let done = world.gatekeeper(&["up", "--json"]);
    let up: Value = serde_json::from_str(&done.exits(0).stdout()).unwrap_or_else(|_| panic!("no JSON: {done}"));
    let found = &up["browser"];
    let name = found["name"].as_str().expect("a name");
    let http = found["http"].as_str().expect("an address");
    let (address, token) = http.split_once("/?token=").expect("a token");
    let port: u16 = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    assert!(address.starts_with("http://127.0.0.1:") && token.len() == 48 && found["made"] == true, "{found}");
    assert!(found["version"].as_str().is_some_and(|text| text.contains("Chrome/")), "{found}");
    // On loopback alone, with the token alone.
    assert_eq!(world.podman(&["port", name]).stdout(), format!("9222/tcp -> 127.0.0.1:{port}\n"));
    assert!(status(port, "/json/version").starts_with("HTTP/1.1 401 "));
    assert!(status(port, &format!("/json/version?token={}", &token[1..])).starts_with("HTTP/1.1 401 "));
    let told = status(port, &format!("/json/version?token={token}"));
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let socket = found["webSocket"].as_str().expect("an address");
    assert!(told.contains(&format!("\"webSocketDebuggerUrl\":\"{socket}\"")), "{told}\n{socket}");
    shows_its_display(port, token, found["noVnc"].as_str().expect("an address"));
    // The token is nowhere where the engine shows it.
    let shown = world.podman(&["inspect", name]).stdout() + &world.podman(&["top", name, "args"]).stdout();
    assert!(!shown.contains(token) && shown.contains("chromium"), "{shown}");
    // A WebSocket passes.
    let path = socket.strip_prefix(&format!("ws://127.0.0.1:{port}")).expect("the same port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("published");
    let asked = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"HTTP/1.1 101");
    // A connected client keeps it from being pruned; list shows it.
    let listed: Value = serde_json::from_str(&world.gatekeeper(&["list", "--json"]).stdout()).expect("JSON");
    let one = listed.as_array().and_then(|all| all.iter().find(|one| one["name"] == name)).expect("listed");
    assert_eq!((&one["kind"], &one["in_use"]), (&json!("browser"), &json!(true)), "{listed}");
    drop(stream);
    // The second call finds the same one; a dead one is made anew, with another token, and here without a display.
    let again: Value = serde_json::from_str(&world.gatekeeper(&["browser", "--json"]).stdout()).expect("JSON");
    assert_eq!((&again["http"], &again["made"]), (&found["http"], &json!(false)));
    world.podman(&["kill", name]).exits(0);
    let mut words = vec!["run", "--name", "bare", "--network", "none", "--ulimit", "nofile=1000:1000"];
    words.extend(["--ulimit", "nproc=1000:1000", "chromium:1", "/usr/bin/busybox", "rm", "/usr/bin/Xvfb"]);
    world.podman(&words).exits(0);
    world.podman(&["commit", "-q", "bare", "headless:1"]).exits(0);
    world.podman(&["rm", "bare"]).exits(0);
    let headless = |vnc: bool| {
        let browser = json!({"image": "headless:1", "autoStartTimeoutMs": 60000, "enableNoVnc": vnc});
        world.configure(&sandbox(browser));
        world.gatekeeper(&["browser"])
    };
    let without = headless(true);
    assert!(without.code() == Some(125) && without.stderr().contains("the image has no /usr/bin/Xvfb"), "{without}");
    let anew = headless(false);
    assert!(anew.code() == Some(0) && !anew.stdout().contains(token) && anew.stdout().lines().count() == 1, "{anew}");
    world.gatekeeper(&["rm", "--all", "--force"]).exits(0);
    assert!(world.containers().is_empty());
}
