//! HTTP/2 with headers that no sound client sends, by a library that checks nothing.

use super::Tls;
use crate::support::{fetched, fresh};
use serde_json::{Value, json};

/// Sends each request on a connection of its own. Prints its status, or how the connection or stream was ended.
const SEND: &str = r#"
import json, os, socket, ssl, sys
import h2.config, h2.connection, h2.events
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
def one(headers, body=None, trailers=None):
    raw = lambda pairs: [(name.encode("latin1"), value.encode("latin1")) for name, value in pairs]
    s = socket.create_connection((host, int(port)))
    s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\r\n\r\n".encode()); s.recv(1000)
    context = ssl.create_default_context(); context.set_alpn_protocols(["h2"])
    s = context.wrap_socket(s, server_hostname="127.0.0.1"); s.settimeout(10)
    c = h2.connection.H2Connection(h2.config.H2Configuration(
        validate_outbound_headers=False, normalize_outbound_headers=False, validate_inbound_headers=False))
    c.initiate_connection()
    c.send_headers(1, raw(headers), end_stream=body is None)
    if body is not None: c.send_data(1, body.encode(), end_stream=trailers is None)
    if trailers is not None: c.send_headers(1, raw(trailers), end_stream=True)
    status = None
    try:
        s.sendall(c.data_to_send())
        while True:
            data = s.recv(65536)
            if not data: return status or "closed"
            for event in c.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived): status = dict(event.headers)[b":status"].decode()
                if isinstance(event, h2.events.StreamReset): return "reset"
                if isinstance(event, h2.events.ConnectionTerminated): return "ended"
                if isinstance(event, h2.events.StreamEnded): return status
            s.sendall(c.data_to_send())
    except OSError as error: return status or str(error)
for case in json.loads(sys.argv[2]): print(one(*case), flush=True)
"#;

/// The pseudo headers of a request, with some changed or, by null, left out.
fn head(to: &str, changes: Value) -> Vec<Value> {
    let usual = [(":method", "GET"), (":scheme", "https"), (":authority", to), (":path", "/v1/x")];
    let own = |name: &str, value: &str| match &changes[name] {
        Value::Null if changes.get(name).is_some() => None,
        Value::String(text) => Some(json!([name, text])),
        _ => Some(json!([name, value])),
    };
    usual.iter().filter_map(|(name, value)| own(name, value)).collect()
}

#[test]
fn what_no_client_sends_over_http_2_reaches_no_server() {
    let Some(modules) = fetched::python("httpx[http2]==0.28.1") else { return };
    let policy = "[[network.http]]\nhost = 'HOST'\nmethods = ['GET', 'POST']\npaths = ['/v1/**']\n";
    for kind in ["both", "one"] {
        let Some(tls) = Tls::new(kind) else { return };
        let to = tls.host();
        let with = |changes: Value, more: &[(&str, &str)]| {
            let mut all = head(&to, changes);
            all.extend(more.iter().map(|(name, value)| json!([name, value])));
            Value::from(all)
        };
        let plain = |more: &[(&str, &str)]| json!([with(json!({}), more)]);
        let changed = |name: &str, value: Value| json!([with(json!({name: value}), &[])]);
        let posted = |more: &[(&str, &str)]| json!([with(json!({":method": "POST"}), more), "hello"]);
        let ended = |name: &str| json!([with(json!({":method": "POST"}), &[]), "hello", [[name, "x"]]]);
        let fine = [
            plain(&[]),
            plain(&[("te", "trailers")]),
            plain(&[("cookie", "a=1"), ("cookie", "b=2")]),
            plain(&[("host", &to)]),
            json!([with(json!({":authority": null}), &[("host", &to)])]),
            posted(&[("content-length", "5")]),
            ended("x-sum"),
        ];
        let mut bad = vec![
            plain(&[("X-Upper", "1")]),
            plain(&[("x:y", "1")]),
            plain(&[("x y", "1")]),
            plain(&[("", "1")]),
            plain(&[("x\r\nhost", "other.test")]),
            plain(&[("x", "a\r\nX-HTTP-Method-Override: DELETE")]),
            plain(&[("x", "a\nb: c")]),
            plain(&[("x", "a\0b")]),
            plain(&[(":method", "DELETE")]),
            plain(&[(":path", "/admin")]),
            plain(&[(":authority", "other.test")]),
            plain(&[(":scheme", "http")]),
            plain(&[(":protocol", "websocket")]),
            plain(&[(":status", "200")]),
            json!([with(json!({":path": null}), &[("x", "1"), (":path", "/v1/x")])]),
            json!([with(json!({":method": "CONNECT"}), &[(":protocol", "websocket")])]),
            json!([[[":method", "CONNECT"], [":authority", to]]]),
            json!([[[":method", "CONNECT"], [":authority", "other.test:80"]]]),
            plain(&[("te", "chunked")]),
            plain(&[("connection", "keep-alive")]),
            plain(&[("proxy-connection", "keep-alive")]),
            plain(&[("keep-alive", "timeout=5")]),
            plain(&[("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")]),
            plain(&[("upgrade", "websocket")]),
            plain(&[("host", "other.test")]),
            plain(&[("host", &to), ("host", &to)]),
            posted(&[("transfer-encoding", "chunked")]),
        ];
        for path in ["", "v1/x", "/v1/x /admin", "/v1/x\t", "/v1/x\r\n\r\nGET /admin", "https://other.test/v1/x", "*"] {
            bad.push(changed(":path", json!(path)));
        }
        for path in ["/v1/\\..\\admin", "/v1/x%00", "/v1/\u{e4}", "/v1/..;/admin", "/v1/%2e%2e/admin", "//v1/x"] {
            bad.push(changed(":path", json!(path)));
        }
        let user = format!("u:p@{to}");
        let (with_path, with_query) = (format!("{to}/admin"), format!("{to}?x"));
        for authority in ["", "[fe80::1%25eth0]:443", "other.test", &user, &with_path, &with_query] {
            bad.push(changed(":authority", json!(authority)));
        }
        for method in ["", "get", "GET /admin HTTP/1.1", "GET\r\nX: y", "DELETE"] {
            bad.push(changed(":method", json!(method)));
        }
        for scheme in ["", "http", "https://x/admin?"] {
            bad.push(changed(":scheme", json!(scheme)));
        }
        bad.extend([":path", ":authority", ":scheme", ":method"].map(|name| changed(name, Value::Null)));
        for length in ["3", "30", "5,5", "+5", "05", "-1", "0x5", ""] {
            bad.push(posted(&[("content-length", length)]));
        }
        bad.push(posted(&[("content-length", "5"), ("content-length", "5")]));
        // After the body, a header would come too late for the rules.
        for name in ["host", "authorization", "content-length", "x-http-method-override", "x-original-url", "x_host"] {
            bad.push(ended(name));
        }
        let cases: Vec<&Value> = fine.iter().chain(&bad).collect();
        let dir = fresh("frames");
        let run = tls.confined(&dir, None, policy, &[]).arg("--env").arg(format!("PYTHONPATH={}", modules.display()));
        let text = serde_json::to_string(&cases).expect("JSON");
        let ran = run.args(&["--", "/usr/bin/python3", "-c", SEND, &to, &text]).go();
        let out = ran.done.exits(0).stdout();
        let answers: Vec<&str> = out.lines().collect();
        assert_eq!(answers.len(), cases.len(), "{}", ran.done);
        for (at, (case, answer)) in cases.iter().zip(&answers).enumerate() {
            let refused = ["400", "403", "reset", "ended", "closed"].contains(answer);
            assert!(if at < fine.len() { *answer == "200" } else { refused }, "{kind} {case}: {answer}");
        }
        let seen = tls.seen();
        // A body that is refused on its way may have begun to arrive.
        assert!(seen.lines().all(|line| line.starts_with("GET /v1/x ") || line.starts_with("POST /v1/x ")), "{seen}");
        assert!(seen.lines().count() <= fine.len() + 8, "{kind}: {seen}");
    }
}
