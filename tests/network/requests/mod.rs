//! `[[network.http]]` and `[[network.credential]]`: the proxy looks into requests, with real clients and TLS servers.

mod ambiguous;
mod around;
mod bodies;
mod clients;
mod frames;
mod libraries;
mod limits;
mod secrets;
mod upstream;

use super::{Ran, Run, confined, users};
use crate::support::{fresh, has, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A TLS server on loopback with a certificate of an authority of the test. Ends with this value.
pub struct Tls {
    child: Child,
    pub port: u16,
    pub authority: PathBuf,
    seen: PathBuf,
}

impl Tls {
    pub fn new(kind: &str) -> Option<Tls> {
        Tls::with_files(kind, Path::new(""))
    }

    /// Also serves the files below a directory.
    pub fn with_files(kind: &str, files: &Path) -> Option<Tls> {
        let files = files.is_absolute().then_some(files);
        Tls::serving(&["node", "server.js", kind], files, "DNS:localhost,IP:127.0.0.1", "30")
    }

    /// A server by a script beside this file, with a certificate for these names that holds for so many days.
    pub fn serving(words: &[&str], files: Option<&Path>, names: &str, days: &str) -> Option<Tls> {
        if !has("node") || !has("openssl") || !has("curl") {
            return None;
        }
        let dir = fresh("tls");
        let at = |name: &str| dir.join(name).to_string_lossy().into_owned();
        let openssl = |args: &[&str]| run(Command::new("openssl").args(args)).exits(0).stdout();
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let made = ["-keyout", &at("ca.key"), "-out", &at("ca.pem"), "-days", "30", "-subj", "/CN=test"];
        openssl(&[&["req", "-x509"][..], &curve, &made, &["-addext", "basicConstraints=critical,CA:TRUE"]].concat());
        let asked = ["-keyout", &at("key"), "-out", &at("csr"), "-subj", "/CN=localhost"];
        openssl(&[&["req"][..], &curve, &asked].concat());
        std::fs::write(dir.join("names"), format!("subjectAltName={names}")).expect("own directory");
        let signed = ["-CA", &at("ca.pem"), "-CAkey", &at("ca.key"), "-out", &at("cert"), "-days", days];
        openssl(&[&["x509", "-req", "-in", &at("csr"), "-extfile", &at("names")][..], &signed].concat());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/network/requests").join(words[1]);
        let mut command = Command::new(words[0]);
        command.arg(script).args([at("key"), at("cert"), at("seen")]).args(&words[2..]).stdout(Stdio::piped());
        if let Some(files) = files {
            command.env("FILES", files);
        }
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its port");
        let port = line.trim().parse().expect("a port");
        Some(Tls { child, port, authority: dir.join("ca.pem"), seen: dir.join("seen") })
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// What was asked since the last call.
    pub fn seen(&self) -> String {
        let text = std::fs::read_to_string(&self.seen).unwrap_or_default();
        let _ = std::fs::remove_file(&self.seen);
        text
    }

    /// A policy for this server: rules and credentials in which HOST stands for it.
    pub fn policy(&self, dir: &Path, text: &str) -> PathBuf {
        let file = dir.join("policy.toml");
        let ca = self.authority.display();
        let top = format!("profile = 'read'\n[network]\nupstream_ca = ['{ca}']\n");
        std::fs::write(&file, top + &text.replace("HOST", &self.host())).expect("own directory");
        file
    }

    /// A run under such a policy.
    pub fn confined(&self, dir: &Path, user: Option<u32>, policy: &str, flags: &[&str]) -> Run {
        let file = self.policy(dir, policy);
        confined(dir, user, flags).arg("--config").arg(file)
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const READ_V1: &str = "[[network.http]]\nhost = 'HOST'\nmethods = ['GET', 'HEAD']\npaths = ['/v1/**']\n";

/// The status codes of several requests with curl, in one run.
fn codes(tls: &Tls, user: Option<u32>, flags: &[&str], requests: &[&str]) -> (Vec<String>, Ran) {
    let dir = fresh("codes");
    let line: Vec<String> = requests
        .iter()
        .map(|request| {
            format!("curl -sS -o /dev/null -w '%{{http_code}} ' --path-as-is {}", request.replace("URL", &tls.url("")))
        })
        .collect();
    let ran = tls.confined(&dir, user, READ_V1, flags).args(&["-c", &line.join("; ")]).go();
    (ran.done.stdout().split_whitespace().map(str::to_owned).collect(), ran)
}

#[test]
fn only_the_listed_methods_and_paths_reach_the_server() {
    for kind in ["both", "one"] {
        let Some(tls) = Tls::new(kind) else { return };
        for user in users() {
            for flags in [&[][..], &["--isolate", "required"]] {
                let requests = [
                    "URL/v1/x",
                    "--http1.1 URL/v1/x",
                    "-I URL/v1/y",
                    "--proxy socks5h://${HTTP_PROXY#http://} URL/v1/z",
                    "-X DELETE URL/v1/x",
                    "-X DELETE --http1.1 URL/v1/x",
                    "-d body URL/v1/x",
                    "URL/v2/x",
                    "URL/",
                    "URL/v1",
                    "URL/v1/../admin",
                    "URL/v1/%2e%2e/admin",
                    "URL/v1/..%2fadmin",
                    "URL/v1/%252e%252e%252fadmin",
                    "URL/v1/..%5cadmin",
                    "'URL/v1/..;/admin'",
                    "URL//v1/x",
                    "URL/V1/x",
                    "-H 'Host: other.test' URL/v1/x",
                    "--http1.1 -H 'Host: other.test' URL/v1/x",
                    "-H 'X-HTTP-Method-Override: DELETE' URL/v1/x",
                    "-H 'X-Original-Url: /admin' URL/v1/x",
                    "--connect-to ::127.0.0.1: -X get URL/v1/x",
                    "--proxy socks5h://${HTTP_PROXY#http://} -X PUT URL/v1/z",
                ];
                let (codes, ran) = codes(&tls, user, flags, &requests);
                let expected: Vec<&str> = (0..requests.len()).map(|at| if at < 4 { "200" } else { "403" }).collect();
                assert_eq!(codes, expected, "{}", ran.done);
                let seen = tls.seen();
                assert_eq!(seen.lines().count(), 4, "{seen}");
                assert!(seen.lines().all(|line| line.contains(" /v1/")), "{seen}");
                assert_eq!(ran.layer("proxy").0, "enforced");
            }
        }
    }
}

#[test]
fn a_refusal_says_what_would_allow_it_and_that_is_true() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("remedy");
    let line = format!("curl -sS -X DELETE {}", tls.url("/v1/x?key=secret"));
    let ran = tls.confined(&dir, None, READ_V1, &[]).args(&["-c", &line]).go();
    let answer: serde_json::Value = serde_json::from_str(&ran.done.stdout()).expect("JSON");
    let flag = format!("--http 'DELETE {}/v1/x'", tls.host());
    assert_eq!(answer["allow_with"], flag.as_str(), "{answer:#}");
    let person = format!(
        "gatekeeper: the sandbox refused DELETE {}/v1/x: this path allows only GET, HEAD. Retrying will fail the same way.",
        tls.host()
    );
    assert_eq!(answer["message"], person.as_str());
    let denial = ran.denial("proxy", &tls.host());
    assert_eq!(denial["syscall"], "http");
    assert_eq!(denial["args"], serde_json::json!(["DELETE", format!("{}/v1/x", tls.host())]));
    assert_eq!((&denial["path"], &denial["allow_with"]), (&"/v1/x".into(), &flag.as_str().into()));
    assert!(!ran.report["denials"].to_string().contains("key=secret"));
    assert!(tls.seen().is_empty());

    let rule = format!("DELETE {}/v1/x", tls.host());
    let allowed = tls.confined(&dir, None, READ_V1, &["--http", &rule]).args(&["-c", &line]).go();
    let answer: serde_json::Value = serde_json::from_str(&allowed.done.stdout()).expect("JSON");
    assert_eq!((&answer["method"], &answer["url"]), (&"DELETE".into(), &"/v1/x?key=secret".into()));
    let line = denial["allow_with_policy"].as_str().expect("a line");
    let policy = format!("[network]\n{}\n", line.trim_start_matches("network."));
    gatekeeper::policy::parse(policy.as_bytes(), Path::new("x.toml")).expect("a policy");
}

#[test]
fn hosts_without_rules_stay_end_to_end() {
    let (Some(ruled), Some(plain)) = (Tls::new("both"), Tls::new("both")) else { return };
    let dir = fresh("end-to-end");
    let net = format!("hosts={}", plain.host());
    let line = format!(
        "curl -sS -X DELETE --cacert {} {} && ! curl -sS {}",
        plain.authority.display(),
        plain.url("/any"),
        plain.url("/any")
    );
    let ran = ruled.confined(&dir, None, READ_V1, &["--net", &net]).args(&["-c", &line]).go();
    ran.done.exits(0);
    assert!(
        plain.seen().starts_with("DELETE /any"),
        "the client verified the real certificate, and only with its authority"
    );
}

#[test]
fn the_real_host_is_verified() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("verified");
    std::fs::write(dir.join("p.toml"), format!("profile = 'read'\n{}", READ_V1.replace("HOST", &tls.host())))
        .expect("own");
    let ran = confined(&dir, None, &["--config", "p.toml"]).args(&["--", "curl", "-sS", &tls.url("/v1/x")]).go();
    assert!(ran.done.stdout().contains("network.upstream_ca adds an authority"), "{}", ran.done);
    assert!(tls.seen().is_empty());
}

#[test]
fn the_command_cannot_replace_an_authority_of_the_policy() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("authority");
    std::fs::copy(&tls.authority, dir.join("ca.pem")).expect("own directory");
    std::fs::copy(&tls.authority, dir.join("other.pem")).expect("own directory");
    let rules = READ_V1.replace("HOST", &tls.host());
    let policy = format!("profile = 'write'\n[network]\nupstream_ca = ['ca.pem']\n{rules}");
    std::fs::write(dir.join("p.toml"), policy).expect("own directory");
    let line =
        format!("echo >> other.pem && curl -sSf {} >/dev/null && ! echo >> ca.pem && ! rm -f ca.pem", tls.url("/v1/x"));
    let ran = confined(&dir, None, &["--config", "p.toml"]).args(&["-c", &line]).go();
    ran.done.exits(0);
    assert_eq!(std::fs::read(dir.join("ca.pem")).expect("there"), std::fs::read(&tls.authority).expect("there"));
}

#[test]
fn streams_trailers_bodies_and_websockets_pass() {
    for kind in ["both", "one"] {
        let Some(tls) = Tls::new(kind) else { return };
        let dir = fresh("streams");
        let policy = "[[network.http]]\nhost = 'HOST'\npaths = ['/v1/**']\n";
        let go = |line: &str| {
            let line = line.replace("URL", &tls.url("")).replace("PORT", &tls.port.to_string());
            let ran = tls.confined(&dir, None, policy, &["--profile", "write"]).args(&["-c", &line]).go();
            ran.done.exits(0).stdout()
        };
        assert_eq!(go("curl -sSN URL/v1/stream"), "part 1\npart 2\npart 3\n");
        assert_eq!(go("curl -sS URL/v1/large | wc -c").trim(), "20000000");
        assert!(go("curl -sS -D - --http2 URL/v1/trailers").contains("x-sum: 42"), "trailers of HTTP/2");
        let big = "head -c 3000000 /dev/zero > big; curl -sS";
        for how in [
            "-T big",
            "--http1.1 -T big",
            "--http1.1 -H 'Transfer-Encoding: chunked' -T big",
            "-H 'Expect: 100-continue' --http1.1 -T big",
        ] {
            let answer = go(&format!("{big} {how} URL/v1/put"));
            assert!(answer.contains("\"length\":3000000"), "{how}: {answer}");
        }
        // The answer to HEAD has no body, and the connection goes on.
        let heads = go(
            "curl -sS -I --http1.1 -w '%{num_connects} ' -o /dev/null URL/v1/a --next -sS --http1.1 -w '%{num_connects}' -o /dev/null URL/v1/b",
        );
        assert_eq!(heads.trim(), "1 0");
        // Two requests on one connection.
        let twice = go("curl -sS --http1.1 -w '%{num_connects} ' -o /dev/null URL/v1/a -o /dev/null URL/v1/b");
        assert_eq!(twice.trim(), "1 0");
        let socket = r#"
import os, socket, ssl
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
s = socket.create_connection((host, int(port)))
s.sendall(b"CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\n"); s.recv(1000)
s = ssl.create_default_context().wrap_socket(s, server_hostname="127.0.0.1")
s.sendall(b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n")
print(s.recv(1000).split(b"\r\n")[0].decode())
for word in (b"one", b"two"):
    s.sendall(word); print(s.recv(100).decode())
"#;
        assert_eq!(
            go(&format!("python3 -c '{socket}'")),
            "HTTP/1.1 101 Switching Protocols\necho one\necho two\n",
            "{kind}"
        );
    }
}

#[test]
fn a_plan_shows_the_rules_and_no_secret() {
    let dir = fresh("planned");
    let policy = format!("{READ_V1}[[network.credential]]\nenv = 'TOKEN'\nhost = 'a.org'\n").replace("HOST", "a.org");
    std::fs::write(dir.join("p.toml"), policy).expect("own directory");
    let mut plan = Command::new(crate::support::gatekeeper());
    let done = run(plan
        .args(["plan", "--config", "p.toml", "--", "true"])
        .env("TOKEN", "real-secret-value")
        .current_dir(&dir));
    let text = done.exits(0).stdout();
    assert!(text.contains("opens TLS and allows only GET,HEAD a.org/v1/**"), "{text}");
    assert!(
        text.contains("placeholders, replaced outside: TOKEN for a.org as bearer") && !text.contains("real-secret"),
        "{text}"
    );
}

#[test]
fn rules_that_nothing_would_enforce_are_refused() {
    let dir = fresh("unenforced");
    for (policy, why) in [
        ("[network]\nmode = 'full'\n[[network.http]]\nhost = 'a.org'\n", "need network.mode = \"hosts\""),
        ("[network]\nmode = 'none'\n[[network.http]]\nhost = 'a.org'\n", "need network.mode = \"hosts\""),
        ("[[network.http]]\nhost = 'a.org'\npath = ['/x']\n", "paths"),
        ("[[network.http]]\nhost = 'a.org'\nmethods = ['get']\n", "upper case"),
        ("[[network.http]]\nmethods = ['GET']\n", "host"),
        ("[[network.credential]]\nenv = 'T'\nhost = '*.a.org'\n", "without a wildcard"),
        ("[[network.credential]]\nenv = 'T'\nhost = 'a.org'\nas = 'cookie'\n", "bearer"),
        (
            "[[network.credential]]\nenv = 'T'\nhost = 'a.org'\nfrom = 'vault:x'\n",
            "env:NAME, file:PATH or systemd:NAME",
        ),
        ("[[network.credential]]\nenv = 'T'\nhost = 'a.org'\n[env]\npass = ['T']\n", "would pass the secret"),
        ("[network]\nupstream_ca = ['/x']\n", "needs network.http"),
    ] {
        std::fs::write(dir.join("p.toml"), policy).expect("own directory");
        let ran = confined(&dir, None, &["--config", "p.toml"]).args(&["--", "true"]).go();
        ran.done.exits(125);
        assert!(ran.done.stderr().contains(why), "{policy}: {}", ran.done);
    }
    // No secret, no run.
    for (from, why) in
        [("env:NOT_SET", "is not set"), ("file:/nowhere/x", "No such file"), ("systemd:x", "CREDENTIALS_DIRECTORY")]
    {
        let policy = format!("[[network.credential]]\nenv = 'T'\nhost = 'a.org'\nfrom = '{from}'\n");
        std::fs::write(dir.join("p.toml"), policy).expect("own directory");
        let ran = confined(&dir, None, &["--config", "p.toml"]).args(&["--", "true"]).go();
        ran.done.exits(125);
        assert!(ran.done.stderr().contains(why), "{from}: {}", ran.done);
    }
}
