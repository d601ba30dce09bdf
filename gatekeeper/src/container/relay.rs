//! The relay before Chromium's debugging port, in the browser's container. The engine publishes the relay's port on the
//! host's loopback, where every local user can connect, and other containers of the same network can too; so each request
//! needs the token. Chromium itself listens on the container's loopback alone.

use super::state::Door;
use super::vnc;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The relay's port in the container.
pub const PORT: u16 = 9222;
/// Where the relay tells how it is used. Everything else goes to Chromium.
pub const USE: &str = "/gatekeeper/use";

/// The longest head of a request or answer.
const HEAD: usize = 16 << 10;
/// The longest answer of `/json`.
const ANSWER: u64 = 4 << 20;
const CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// A request that has the token.
#[derive(Debug, PartialEq, Eq)]
struct Admitted {
    /// The head for Chromium, without the token.
    head: Vec<u8>,
    path: String,
    upgrade: bool,
    /// It is for noVNC.
    views: bool,
}

/// Status and text of an answer that refuses.
type Refused = (&'static str, &'static str);

const NO_TOKEN: Refused = ("401 Unauthorized", "a token is needed: ?token=... or Authorization: Bearer ...");
const MALFORMED: Refused = ("400 Bad Request", "not a request for the debugging port");
const ELSEWHERE: Refused = ("404 Not Found", "only /json and the WebSockets of /devtools are here");
/// What the paths of noVNC start with. The token follows, so that the page finds its scripts by relative addresses.
pub const VIEW: &str = "/vnc/";

/// Compares without telling by its time how much was right.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Judges the head of a request, up to and including the empty line.
fn admit(head: &[u8], token: &str) -> Result<Admitted, Refused> {
    let text = std::str::from_utf8(head).map_err(|_| MALFORMED)?;
    let mut lines = text.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1"] = first.as_slice() else { return Err(MALFORMED) };
    if !target.starts_with('/') || text.contains('\0') {
        return Err(MALFORMED);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (mut given, mut left): (Option<&str>, Vec<&str>) = (None, Vec::new());
    let viewed = path.strip_prefix(VIEW).and_then(|rest| rest.split_once('/'));
    let path = match viewed {
        Some((word, rest)) => {
            given = Some(word);
            rest
        }
        None => path,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.strip_prefix("token=") {
            Some(value) => given = Some(value),
            None => left.push(pair),
        }
    }
    let (mut kept, mut host, mut upgrade) = (Vec::new(), None, false);
    for line in lines.filter(|line| !line.is_empty()) {
        // A folded line or a lone line break would mean one thing here and another to Chromium.
        let (name, value) = line.split_once(':').ok_or(MALFORMED)?;
        if name.is_empty() || line.contains(['\r', '\n']) || name.contains([' ', '\t']) {
            return Err(MALFORMED);
        }
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => given = value.strip_prefix("Bearer ").or(given),
            "host" => host = Some(value),
            "upgrade" => upgrade = value.eq_ignore_ascii_case("websocket"),
            "connection" | "content-length" | "transfer-encoding" | "expect" | "keep-alive" => {}
            _ => kept.push(line),
        }
    }
    if !given.is_some_and(|given| same(given.as_bytes(), token.as_bytes())) {
        return Err(NO_TOKEN);
    }
    // A page with a name that leads to this address has another host: see DNS rebinding.
    let host = host.ok_or(MALFORMED)?;
    if !["127.0.0.1", "localhost"].contains(&host.rsplit_once(':').map_or(host, |(name, _)| name)) {
        return Err(MALFORMED);
    }
    if viewed.is_some() {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
        let head = kept.iter().fold(head, |head, line| format!("{head}{line}\r\n")) + "\r\n";
        let admitted = Admitted { head: head.into_bytes(), path: path.to_owned(), upgrade, views: true };
        return if *method == "GET" { Ok(admitted) } else { Err(MALFORMED) };
    }
    let is_json = path == "/json" || path.starts_with("/json/");
    if !(is_json && !upgrade || path.starts_with("/devtools/") && upgrade || path == USE) {
        return Err(ELSEWHERE);
    }
    let query = if left.is_empty() { String::new() } else { format!("?{}", left.join("&")) };
    let way = if upgrade { "Upgrade: websocket\r\nConnection: Upgrade" } else { "Connection: close" };
    let mut head = format!("{method} {path}{query} HTTP/1.1\r\nHost: {host}\r\n{way}\r\n");
    kept.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
    head.push_str("\r\n");
    Ok(Admitted { head: head.into_bytes(), path: path.to_owned(), upgrade, views: false })
}

/// Addresses of WebSockets in an answer of Chromium get the token; addresses of its own pages, which the relay does not
/// serve, are left out.
fn with_token(mut value: Value, token: &str) -> Value {
    match &mut value {
        Value::Array(list) => list.iter_mut().for_each(|one| *one = with_token(one.take(), token)),
        Value::Object(table) => {
            table.remove("devtoolsFrontendUrl");
            if let Some(Value::String(address)) = table.get_mut("webSocketDebuggerUrl") {
                address.push_str(&format!("?token={token}"));
            }
        }
        _ => {}
    }
    value
}

/// The head of a request or answer, and what was read behind it.
fn head(from: &mut impl Read) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 2048];
    loop {
        let count = from.read(&mut piece)?;
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Ok((bytes, rest));
        }
        if count == 0 || bytes.len() > HEAD {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
    }
}

/// The length that the head of an answer announces.
fn length(head: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(head).ok()?;
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    text.lines().find_map(value)
}

fn answer(to: &mut TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        body.len()
    );
    to.write_all(head.as_bytes())?;
    to.write_all(body)
}

/// How the relay is used.
#[derive(Default)]
struct Usage {
    connections: AtomicUsize,
    clients: AtomicUsize,
    last: AtomicU64,
}

/// Relays to Chromium's port, and to x11vnc's socket if there is one, until the process ends.
pub fn serve(listener: &TcpListener, chromium: u16, token: &str, viewer: Option<&Path>) {
    let usage = Arc::new(Usage::default());
    usage.last.store(super::state::now(), Ordering::Relaxed);
    for client in listener.incoming() {
        let Ok(mut client) = client else {
            // Out of descriptors, perhaps.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if usage.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            usage.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (usage, token, viewer) = (Arc::clone(&usage), token.to_owned(), viewer.map(Path::to_owned));
        std::thread::spawn(move || {
            let _ = one(&mut client, (chromium, viewer.as_deref()), &token, &usage);
            usage.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn one(client: &mut TcpStream, (chromium, viewer): (u16, Option<&Path>), token: &str, usage: &Usage) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let (asked, rest) = head(client)?;
    let admitted = match admit(&asked, token) {
        Ok(admitted) => admitted,
        Err((status, text)) => return answer(client, status, "text/plain", format!("{text}\n").as_bytes()),
    };
    if admitted.path == USE {
        let idle = super::state::now().saturating_sub(usage.last.load(Ordering::Relaxed));
        let body = serde_json::json!({"clients": usage.clients.load(Ordering::Relaxed), "idle_seconds": idle});
        return answer(client, "200 OK", "application/json", body.to_string().as_bytes());
    }
    usage.last.store(super::state::now(), Ordering::Relaxed);
    if admitted.views {
        let missing = |client: &mut TcpStream| answer(client, ELSEWHERE.0, "text/plain", b"there is no such page\n");
        let Some(socket) = viewer else { return missing(client) };
        if admitted.upgrade {
            let mut server = UnixStream::connect(socket)?;
            server.write_all(&admitted.head)?;
            return tunnel(client, server.into(), &rest, usage);
        }
        return match vnc::file(&admitted.path) {
            Some((kind, bytes)) => answer(client, "200 OK", kind, &bytes),
            None => missing(client),
        };
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, chromium));
    let Ok(mut server) = TcpStream::connect_timeout(&address, PATIENCE) else {
        return answer(client, "502 Bad Gateway", "text/plain", b"the browser does not answer\n");
    };
    server.write_all(&admitted.head)?;
    if admitted.upgrade {
        return tunnel(client, server.into(), &rest, usage);
    }
    server.set_read_timeout(Some(PATIENCE))?;
    let (top, mut body) = head(&mut server)?;
    // Chromium leaves the connection open.
    let left = length(&top).unwrap_or(ANSWER).min(ANSWER).saturating_sub(body.len() as u64);
    server.take(left).read_to_end(&mut body)?;
    let status = String::from_utf8_lossy(&top);
    let status =
        status.lines().next().and_then(|line| line.split_once(' ')).map_or("502 Bad Gateway", |(_, rest)| rest);
    match serde_json::from_slice(&body) {
        Ok(value) => answer(client, status, "application/json", with_token(value, token).to_string().as_bytes()),
        Err(_) => answer(client, status, "text/plain", &body),
    }
}

/// Passes a WebSocket both ways. `rest` was read from the client already.
fn tunnel(client: &TcpStream, server: OwnedFd, rest: &[u8], usage: &Usage) -> io::Result<()> {
    let server = File::from(server);
    (&server).write_all(rest)?;
    client.set_read_timeout(None)?;
    usage.clients.fetch_add(1, Ordering::Relaxed);
    let done = both_ways(client, &server);
    usage.clients.fetch_sub(1, Ordering::Relaxed);
    usage.last.store(super::state::now(), Ordering::Relaxed);
    done
}

fn both_ways(client: &TcpStream, server: &File) -> io::Result<()> {
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let back = std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut from, mut to) = (client, server);
    let _ = io::copy(&mut from, &mut to);
    let _ = rustix::net::shutdown(server, rustix::net::Shutdown::Both);
    let _ = back.join();
    Ok(())
}

/// Asks the relay from outside. The answer's status is 200, or it is an error.
pub fn ask(port: u16, door: &Door, method: &str, target: &str) -> Result<Value, String> {
    let wrong = |error: io::Error| format!("the browser's relay on 127.0.0.1:{port}: {error}");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(wrong)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(wrong)?;
    let head_of =
        format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {}\r\n\r\n", door.token);
    stream.write_all(head_of.as_bytes()).map_err(wrong)?;
    let (top, mut body) = head(&mut stream).map_err(wrong)?;
    stream.take(ANSWER + 1024).read_to_end(&mut body).map_err(wrong)?;
    if !top.starts_with(b"HTTP/1.1 200") {
        let text = String::from_utf8_lossy(&body).trim().chars().take(200).collect::<String>();
        return Err(format!("the browser's relay on 127.0.0.1:{port}: {text}"));
    }
    // /json/close answers with a sentence.
    Ok(serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(head: &str) -> Result<String, Refused> {
        admit(head.as_bytes(), "secret").map(|admitted| String::from_utf8(admitted.head).expect("it was text"))
    }

    #[test]
    fn a_request_needs_the_token_and_chromium_never_sees_it() {
        let host = "Host: 127.0.0.1:5\r\n";
        let plain = "GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:5\r\nConnection: close\r\n\r\n";
        for asked in [
            format!("GET /json/version?token=secret HTTP/1.1\r\n{host}\r\n"),
            format!("GET /json/version HTTP/1.1\r\n{host}Authorization: Bearer secret\r\n\r\n"),
        ] {
            assert_eq!(judged(&asked).as_deref(), Ok(plain));
        }
        let socket = format!(
            "GET /devtools/browser/x?token=secret HTTP/1.1\r\n{host}Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: k\r\n\r\n"
        );
        assert!(judged(&socket).is_ok_and(|head| !head.contains("secret") && head.contains("Sec-WebSocket-Key: k")));
        for asked in [
            format!("GET /json/version HTTP/1.1\r\n{host}\r\n"),
            format!("GET /json/version?token= HTTP/1.1\r\n{host}\r\n"),
            format!("GET /json/version?token=secre HTTP/1.1\r\n{host}\r\n"),
            format!("GET /json/version?token=secret2 HTTP/1.1\r\n{host}\r\n"),
            format!("GET /json/version?xtoken=secret HTTP/1.1\r\n{host}\r\n"),
            socket.replace("?token=secret", ""),
        ] {
            assert_eq!(judged(&asked), Err(NO_TOKEN), "{asked}");
        }
    }

    #[test]
    fn the_pages_of_novnc_have_the_token_in_their_path() {
        let asked = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:5\r\n\r\n");
        let page = admit(asked("/vnc/secret/app/ui.js?x=1").as_bytes(), "secret").expect("the token");
        assert_eq!((page.path.as_str(), page.views, page.upgrade), ("app/ui.js", true, false));
        for path in ["/vnc/secre/vnc.html", "/vnc//vnc.html", "/vnc/vnc.html/secret"] {
            assert_eq!(admit(asked(path).as_bytes(), "secret"), Err(NO_TOKEN), "{path}");
        }
        for path in ["../../etc/passwd.html", "/etc/x.html", ".hidden.js", "a/../b.js", "noextension"] {
            assert_eq!(vnc::file(path), None, "{path}");
        }
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        let host = "Host: 127.0.0.1:5\r\n";
        for asked in [
            "GET /json?token=secret HTTP/1.1\r\nHost: evil.example:5\r\n\r\n".to_owned(),
            "GET /json?token=secret HTTP/1.1\r\n\r\n".to_owned(),
            format!("GET /json?token=secret HTTP/1.0\r\n{host}\r\n"),
            format!("GET http://x/json?token=secret HTTP/1.1\r\n{host}\r\n"),
            format!("GET /json?token=secret HTTP/1.1\r\n{host} folded\r\n\r\n"),
            format!("GET /json?token=secret HTTP/1.1\r\n{host}X: a\nHost: b\r\n\r\n"),
        ] {
            assert_eq!(judged(&asked), Err(MALFORMED), "{asked}");
        }
        for path in ["/", "/jsonx", "/devtools/inspector.html", "/x/json"] {
            assert_eq!(judged(&format!("GET {path}?token=secret HTTP/1.1\r\n{host}\r\n")), Err(ELSEWHERE), "{path}");
        }
        // A body would become the next request.
        let body = format!("PUT /json/new?token=secret&about:blank HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\n");
        assert_eq!(
            judged(&body).as_deref(),
            Ok("PUT /json/new?about:blank HTTP/1.1\r\nHost: 127.0.0.1:5\r\nConnection: close\r\n\r\n")
        );
    }
}
