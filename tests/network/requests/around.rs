//! Ways around the rules of a host: its address, other headers that name a method, path or host, and HTTP/2.

use super::{READ_V1, Tls};
use crate::network::users;
use crate::support::{fresh, has};

#[test]
fn an_address_of_a_host_with_rules_does_not_lead_around_them() {
    let Some(tls) = Tls::new("both") else { return };
    for user in users() {
        let dir = fresh("around");
        let policy = format!(
            "mode = 'hosts'\nhosts = ['127.0.0.1:{0}']\n[[network.http]]\nhost = 'localhost:{0}'\nmethods = ['GET']\npaths = ['/v1/**']\n",
            tls.port
        );
        let named = format!("https://localhost:{}", tls.port);
        let line = format!(
            "for how in '{named}/v1/x' '-X DELETE {named}/v1/x' '-k -X DELETE {0}/v1/x' \
             '-k -X DELETE --proxy socks5h://'${{HTTP_PROXY#http://}}' {0}/v1/x' '-X DELETE http://{1}/v1/x'; do \
             curl -s -o /dev/null -w '%{{http_code}}/%{{http_connect}} ' $how; done; true",
            tls.url(""),
            tls.host()
        );
        let ran = tls.confined(&dir, user, &policy, &[]).args(&["-c", &line]).go();
        assert_eq!(ran.done.exits(0).stdout().trim(), "200/200 403/200 000/403 000/000 403/000", "{}", ran.done);
        let seen = tls.seen();
        assert!(seen.lines().count() == 1 && seen.starts_with("GET /v1/x"), "{seen}");
        let rule = ran.denial("proxy", &tls.host())["rule"].to_string();
        assert!(rule.contains("an address of localhost, whose rules would not hold"), "{rule}");
    }
}

#[test]
fn an_address_with_rules_is_reached_by_its_own() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("own-rules");
    let policy = format!(
        "{}[[network.http]]\nhost = 'localhost:{}'\npaths = ['/v1/**']\n",
        READ_V1.replace("HOST", &tls.host()),
        tls.port
    );
    let line = format!("curl -sS -o /dev/null -w '%{{http_code}}' {}", tls.url("/v1/x"));
    tls.confined(&dir, None, &policy, &[]).args(&["-c", &line]).go().done.exits(0).prints("200");
}

#[test]
fn no_header_names_another_method_path_or_host() {
    for kind in ["both", "one"] {
        let Some(tls) = Tls::new(kind) else { return };
        let dir = fresh("headers");
        let headers = [
            ("X-HTTP-Method-Override: DELETE", "403"),
            ("X_HTTP_Method_Override: DELETE", "403"),
            ("X-Original-Method: DELETE", "403"),
            ("X-HTTP-Method-Override: GET", "200"),
            ("X-Original-URL: /admin", "403"),
            ("X_Original_URL: /admin", "403"),
            ("X-Rewrite-URL: /v1/../admin", "403"),
            ("X-Original-URI: https://other.test/admin", "403"),
            ("X-Envoy-Original-Path: /admin?x", "403"),
            ("X-Original-URL: /v1/other?q", "200"),
            ("X-Forwarded-Host: other.test", "403"),
            ("X-Forwarded-Host: 127.0.0.1, other.test", "403"),
            ("X-Host: other.test", "403"),
            ("Forwarded: for=1.2.3.4;host=other.test", "403"),
            ("Forwarded: for=1.2.3.4;Host=\"other.test\"", "403"),
            ("X-Forwarded-Host: 127.0.0.1", "200"),
            ("Forwarded: for=1.2.3.4", "200"),
            ("X-A: b' -G -d '_method=DELETE", "403"),
            ("X-A: b' -G -d '%5Fmethod=delete&x=1", "403"),
            ("X-A: b' -G -d '_method=get", "200"),
            ("X-A: b' -G -d '.method=DELETE", "403"),
            ("X-A: b' -G -d '+_method=DELETE", "403"),
            ("X-A: b' -G -d '%20_method=DELETE", "403"),
            ("X-A: b' -G -d '_method%00z=DELETE", "403"),
            ("X.HTTP.Method.Override: DELETE", "403"),
            ("X!Original*URL: /admin", "403"),
            ("Destination: https://127.0.0.1/admin", "403"),
            ("Destination: https://other.test/v1/y", "403"),
            ("Destination: https://127.0.0.1/v1/y", "200"),
            ("Script_Name: /v1/x", "403"),
            ("Path-Info: /admin", "403"),
            ("Content.Length: 5", "refused"),
            ("Content_Length: 5", "refused"),
            ("Transfer_Encoding: chunked", "refused"),
        ];
        for version in ["--http1.1", "--http2"] {
            let curl = |header: &str| {
                format!("curl -s -o /dev/null -w '%{{http_code}}\\n' {version} -H '{header}' {}", tls.url("/v1/x"))
            };
            let line: Vec<String> = headers.iter().map(|(header, _)| curl(header)).collect();
            let ran = tls.confined(&dir, None, READ_V1, &[]).args(&["-c", &(line.join("; ") + "; true")]).go();
            let out = ran.done.exits(0).stdout();
            for ((header, wanted), code) in headers.iter().zip(out.lines()) {
                let fits = *wanted == code || *wanted == "refused" && ["400", "403"].contains(&code);
                assert!(fits, "{kind} {version} {header}: {code}");
            }
            let passed = headers.iter().filter(|(_, wanted)| *wanted == "200").count();
            assert_eq!(tls.seen().lines().count(), passed, "{kind} {version}");
        }
    }
}

/// Sends requests of HTTP/2 with these headers through the tunnel, one after the other. Prints each status, or the error.
const TWO: &str = r#"
const http = require("http"), http2 = require("http2"), tls = require("tls"), to = process.argv[2];
const proxy = new URL(process.env.HTTPS_PROXY);
const one = (headers, body, trailers) => new Promise((done) => {
  http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: to }).on("connect", (_, socket) => {
    const createConnection = () => tls.connect({ socket, host: "127.0.0.1", ALPNProtocols: ["h2"] });
    const session = http2.connect("https://" + to, { createConnection, strictFieldWhitespaceValidation: false });
    const end = (text) => { done(text); session.destroy(); };
    session.on("error", () => end("error"));
    try {
      const request = session.request(headers, { endStream: body === undefined, waitForTrailers: trailers !== undefined });
      let status = 0, sum = "";
      request.on("response", (answer) => { status = answer[":status"]; });
      request.on("trailers", (more) => { sum = " " + more["x-sum"]; });
      request.on("wantTrailers", () => request.sendTrailers(trailers));
      request.on("error", () => end("error"));
      request.on("end", () => end(status + sum));
      request.on("close", () => end("error"));
      request.resume();
      if (body !== undefined) request.end(body);
    } catch (error) { end("thrown " + error.code); }
  }).end();
});
(async () => {
  for (const [headers, body, trailers] of JSON.parse(process.argv[3])) console.log(await one(headers, body, trailers));
})();
"#;

#[test]
fn nothing_hides_in_http_2() {
    if !has("node") {
        return;
    }
    for kind in ["both", "one"] {
        let Some(tls) = Tls::new(kind) else { return };
        let dir = fresh("two");
        std::fs::write(dir.join("two.js"), TWO).expect("own directory");
        let policy = "[[network.http]]\nhost = 'HOST'\nmethods = ['GET', 'POST']\npaths = ['/v1/**']\n";
        let refused = ["400", "403", "error"];
        let requests = serde_json::json!([
            [{":path": "/v1/x"}],
            [{":path": "/v1/trailers"}],
            [{":path": "/v1/x", ":method": "POST"}, "hello", {"x-check": "1"}],
            [{":path": "/v1/x", ":method": "POST", "content-length": "5"}, "hello"],
            [{":path": "/v1/x", ":authority": "other.test"}],
            [{":path": "/v1/x", "host": "other.test"}],
            [{":path": "/v1/x", ":scheme": "http"}],
            [{":path": "https://other.test/v1/x"}],
            [{":path": "/v1/../admin"}],
            [{":path": "/v1/x HTTP/1.1\r\nHost: other.test\r\n\r\nGET /admin"}],
            [{":path": "/v1/x", ":method": "GET /admin HTTP/1.1\r\nX: y"}],
            [{":path": "/v1/x", ":method": "DELETE"}],
            [{":path": "*", ":method": "OPTIONS"}],
            [{":authority": "other.test:443", ":method": "CONNECT"}],
            [{":path": "/v1/x", ":method": "POST", "content-length": "0"}, "GET /admin HTTP/1.1\r\nHost: HOST\r\n\r\n"],
            [{":path": "/v1/x", ":method": "POST", "content-length": "500"}, "short"],
            [{":path": "/v1/x", ":method": "POST", "content_length": "0"}, "GET /admin HTTP/1.1\r\n\r\n"],
            [{":path": "/v1/x", "transfer_encoding": "chunked"}],
            [{":path": "/v1/x", "x-http-method-override": "DELETE"}],
        ]);
        let text = requests.to_string().replace("HOST", &tls.host());
        let run = tls.confined(&dir, None, policy, &[]).args(&["--", "node", "two.js", &tls.host(), &text]);
        let ran = run.go();
        let out = ran.done.exits(0).stdout();
        let answers: Vec<&str> = out.lines().collect();
        assert_eq!(answers.len(), requests.as_array().expect("a list").len(), "{}", ran.done);
        assert_eq!((answers[0], answers[2], answers[3]), ("200", "200", "200"), "{kind}: {out}");
        assert!(answers[1].starts_with("200"), "{kind}: {out}");
        for (at, answer) in answers.iter().enumerate().skip(4) {
            assert!(refused.contains(answer) || answer.starts_with("thrown"), "{kind} {}: {answer}", requests[at]);
        }
        let seen = tls.seen();
        assert!(seen.lines().all(|line| line.contains(" /v1/x ") || line.contains(" /v1/trailers ")), "{kind}: {seen}");
        assert!(!seen.contains("admin") && !seen.contains("DELETE"), "{kind}: {seen}");
    }
}
