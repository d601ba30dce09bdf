//! Placeholders in bodies, secrets that come back, and where secrets come from.

use super::Tls;
use crate::support::fresh;

const SECRET: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

const CREDENTIAL: &str =
    "[[network.credential]]\nenv = 'API_TOKEN'\nfrom = 'env:REAL_TOKEN'\nhost = 'HOST'\nas = 'bearer'\n";

/// Sends a body in pieces, each in a segment of its own, and prints the status line of the answer.
const PIECES: &str = r#"
import os, socket, ssl, sys, time
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
to, token = sys.argv[1], os.environ["API_TOKEN"]
def send(head, pieces, method="POST"):
    s = socket.create_connection((host, int(port)))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(f"CONNECT {to} HTTP/1.1\r\n\r\n".encode()); s.recv(1000)
    s = ssl.create_default_context().wrap_socket(s, server_hostname="127.0.0.1")
    s.settimeout(10)
    data = b""
    try:
        s.sendall(f"{method} /x HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{head}\r\n\r\n".encode())
        for piece in pieces:
            time.sleep(0.1); s.sendall(piece.encode())
        while True:
            block = s.recv(4096)
            if not block: break
            data += block
    except OSError: pass
    text = data.decode("latin1")
    print((text.split("\r\n")[0] or "closed"), "length", text.split('"length":')[-1].split(",")[0] if '"length":' in text else "-")
half = len(token) // 2
chunk = lambda text: f"{len(text):x}\r\n{text}\r\n"
send("Content-Length: 5", ["he", "llo"])
send(f"Content-Length: {len(token)}", [token])
send(f"Content-Length: {len(token)}", [token[:half], token[half:]])
send("Transfer-Encoding: chunked", [chunk("a"), chunk("b" + token[:half]), chunk(token[half:]), "0\r\n\r\n"])
send("Transfer-Encoding: chunked", [chunk(letter) for letter in token[:12]] + [chunk(token[12:]), "0\r\n\r\n"])
send("Transfer-Encoding: chunked", [chunk("a"), "0\r\nX-Sum: " + token + "\r\n\r\n"])
escaped = "".join(f"%25{ord(letter):02x}" for letter in token)
send(f"Content-Length: {len(escaped)}", [escaped[:half], escaped[half:]])
long = "x" * 60000 + token
send(f"Content-Length: {len(long)}", [long[:30000], long[30000:60010], long[60010:]])
send("Transfer-Encoding: chunked", [chunk("he"), chunk("llo"), "0\r\n\r\n"], "GET")
"#;

#[test]
fn a_placeholder_in_a_body_is_found_however_it_is_cut() {
    let Some(tls) = Tls::new("one") else { return };
    let dir = fresh("pieces");
    let run = tls.confined(&dir, None, CREDENTIAL, &[]).env("REAL_TOKEN", SECRET);
    let ran = run.args(&["--", "python3", "-c", PIECES, &tls.host()]).go();
    let out = ran.done.exits(0).stdout();
    let answers: Vec<&str> = out.lines().collect();
    assert_eq!(answers.len(), 9, "{}", ran.done);
    assert_eq!((answers[0], answers[8]), ("HTTP/1.1 200 OK length 5", "HTTP/1.1 200 OK length 5"));
    for (at, answer) in answers.iter().enumerate().take(8).skip(1) {
        assert!(answer.starts_with("HTTP/1.1 403") || answer.starts_with("closed"), "{at}: {answer}\n{out}");
    }
    // A body that was refused on its way never arrives as a whole: the server answers none of these requests.
    assert!(!out.contains(&format!("length {}", SECRET.len())), "{out}");
    let rule = ran.denial("proxy", &tls.host())["rule"].to_string();
    assert!(rule.contains("in the body"), "{rule}");
}

#[test]
fn a_secret_that_comes_back_is_masked_in_headers_trailers_and_the_reason() {
    for kind in ["both", "one"] {
        let Some(tls) = Tls::new(kind) else { return };
        let dir = fresh("masked");
        for version in ["--http1.1", "--http2"] {
            let line = format!(
                "curl -sS -o /dev/null -D - {version} -H \"Authorization: Bearer $API_TOKEN\" -H 'TE: trailers' {}",
                tls.url("/v1/echo")
            );
            let run = tls.confined(&dir, None, CREDENTIAL, &[]).env("REAL_TOKEN", SECRET);
            let ran = run.args(&["-c", &(line + "; printf '%s' \"$API_TOKEN\"")]).go();
            let out = ran.done.exits(0).stdout();
            assert!(!out.contains(SECRET), "{kind} {version}: {out}");
            let shown = out.lines().last().expect("the placeholder");
            assert!(out.contains(&format!("x-echo: Bearer {shown}")), "{kind} {version}: {out}");
        }
    }
}

#[test]
fn a_secret_is_read_from_a_credential_of_systemd() {
    let Some(tls) = Tls::new("both") else { return };
    let (dir, credentials) = (fresh("systemd"), fresh("credentials"));
    std::fs::write(credentials.join("token"), format!("{SECRET}\n")).expect("own directory");
    let policy = CREDENTIAL.replace("env:REAL_TOKEN", "systemd:token");
    let line = format!(
        "curl -sS -H \"Authorization: Bearer $API_TOKEN\" {}; cat {}/token || echo closed",
        tls.url("/x"),
        credentials.display()
    );
    let run = tls.confined(&dir, None, &policy, &[]).env("CREDENTIALS_DIRECTORY", &credentials);
    let ran = run.args(&["-c", &line]).go();
    let out = ran.done.exits(0).stdout();
    assert!(out.contains(&format!("Bearer {SECRET}")) && out.ends_with("closed\n"), "{}", ran.done);
}
