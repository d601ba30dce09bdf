//! Requests that two parsers could read differently never reach the server.

use super::{READ_V1, Tls};
use crate::support::fresh;

/// Sends each request through the tunnel, over TLS, as it is, and prints the first line of the answer.
const SEND: &str = r#"
import os, socket, ssl, sys
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
to = sys.argv[1]
for text in sys.argv[2:]:
    s = socket.create_connection((host, int(port)))
    s.sendall(f"CONNECT {to} HTTP/1.1\r\n\r\n".encode()); s.recv(1000)
    s = ssl.create_default_context().wrap_socket(s, server_hostname="127.0.0.1")
    s.settimeout(5)
    s.sendall(text.encode("latin1").decode("unicode_escape").encode("latin1"))
    data = b""
    try:
        while True:
            block = s.recv(4096)
            if not block: break
            data += block
            if b"HTTP/1.1 200" in data and b"}\n" in data: break
            if data.startswith(b"HTTP/1.1 4") and b"\r\n\r\n" in data: break
    except OSError: pass
    print((data.split(b"\r\n")[0] or b"closed").decode())
"#;

#[test]
fn nothing_ambiguous_is_passed_on() {
    let Some(tls) = Tls::new("one") else { return };
    let dir = fresh("ambiguous");
    let inner = "GET /admin HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n";
    let head = |headers: &str| format!("GET /v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n{headers}\\r\\n\\r\\n{inner}");
    let mut requests: Vec<String> = [
        "Content-Length: 0\\r\\nContent-Length: 60",
        "Content-Length: 60\\r\\nContent-Length: 0",
        "Content-Length: 0, 60",
        "Content-Length: 0\\r\\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\\r\\nContent-Length: 0",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity\\r\\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\\x0bchunked",
        "X: y\\r\\n Transfer-Encoding: chunked",
        "X: y\\nTransfer-Encoding: chunked",
        "X: y\\rTransfer-Encoding: chunked",
        "Transfer_Encoding: chunked",
        "Content-Length: +0",
        "Content-Length: 0x0",
        "Content-Length : 0",
        "X: a\\x00b",
        "Host: other.test",
        " X: y",
        "X",
    ]
    .iter()
    .map(|headers| head(headers))
    .collect();
    requests.extend([
        "GET /v1/x HTTP/1.1\\nHost: HOST\\n\\n".to_owned(),
        "GET  /v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET /v1/x\\r\\n\\r\\n".to_owned(),
        "GET /v1/x HTTP/0.9\\r\\n\\r\\n".to_owned(),
        "GET /v1/x HTTP/1.1\\r\\n\\r\\n".to_owned(),
        "GET /v1/x HTTP/3.0\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET /v1/x\\x00 HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET /v1\\\\..\\\\admin HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET http://other.test/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET https://other.test/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET https://u@HOST/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET HOST/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "CONNECT other.test:443 HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "CONNECT HOST HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "OPTIONS * HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET https://HOST@other.test/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET https://127.0.0.1/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET //other.test/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "GET\\t/v1/x\\tHTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
        "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n".to_owned(),
        "\\r\\nGET /admin HTTP/1.1\\r\\nHost: HOST\\r\\n\\r\\n".to_owned(),
    ]);
    // The host is that of the connection, however it is written.
    for host in [
        "u@HOST",
        "HOST, other.test",
        "HOST other.test",
        "HOST/admin",
        "127.0.0.1",
        "127.0.0.1:+1",
        "[fe80::1%eth0]:1",
        "",
    ] {
        requests.push(format!("GET /v1/x HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"));
    }
    for body in [
        "5;a=b\\r\\nhello",
        "5;\\nhello",
        "ffffffffffffffff\\r\\nhello",
        "10000000000000005\\r\\nhello",
        "-5\\r\\nhello",
    ] {
        let head = "GET /v1/x HTTP/1.1\\r\\nHost: HOST\\r\\nTransfer-Encoding: chunked";
        requests.push(format!("{head}\\r\\n\\r\\n{body}\\r\\n0\\r\\n\\r\\n"));
    }
    let fine = "GET https://HOST/v1/x HTTP/1.1\\r\\nHost: HOST\\r\\nConnection: close\\r\\n\\r\\n".to_owned();
    requests.push(fine);
    let count = requests.len();
    let mut run = tls.confined(&dir, None, READ_V1, &[]).args(&["--", "python3", "-c", SEND, &tls.host()]);
    for request in &requests {
        run = run.arg(request.replace("HOST", &tls.host()));
    }
    let ran = run.go();
    let out = ran.done.exits(0).stdout();
    let answers: Vec<&str> = out.lines().collect();
    assert_eq!(answers.len(), count, "{out}");
    for (request, answer) in requests.iter().zip(&answers).take(count - 1) {
        assert!(
            ["HTTP/1.1 400", "HTTP/1.1 403", "closed"].iter().any(|refused| answer.starts_with(refused)),
            "{request}: {answer}"
        );
    }
    assert_eq!(answers[count - 1], "HTTP/1.1 200 OK");
    let seen = tls.seen();
    assert_eq!(seen.lines().count(), 1, "{seen}");
}

#[test]
fn tls_for_another_host_is_refused() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("other-name");
    let script = SEND
        .replace("server_hostname=\"127.0.0.1\"", "server_hostname=\"other.test\"")
        .replace("ssl.create_default_context()", "ssl._create_unverified_context()");
    let run = tls.confined(&dir, None, READ_V1, &[]).args(&["--", "python3", "-c", &script, &tls.host(), "x"]);
    let ran = run.go();
    assert_ne!(ran.done.code(), Some(0));
    let rule = ran.denial("proxy", &tls.host())["rule"].to_string();
    assert!(rule.contains("TLS names the host other.test"), "{rule}");
}
