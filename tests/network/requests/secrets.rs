//! Secrets that are never inside: the command has a placeholder, and only requests in the right place get the secret.

use super::Tls;
use crate::network::users;
use crate::support::fresh;

const SECRET: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

fn credential(placed: &str) -> String {
    format!("[[network.credential]]\nenv = 'API_TOKEN'\nfrom = 'env:REAL_TOKEN'\nhost = 'HOST'\nas = '{placed}'\n")
}

#[test]
fn the_secret_arrives_only_where_it_belongs() {
    let Some(tls) = Tls::new("both") else { return };
    for user in users() {
        for isolate in [&[][..], &["--isolate", "required"]] {
            for (placed, request, arrives) in [
                ("bearer", "-H \"Authorization: Bearer $API_TOKEN\" URL/x", true),
                ("bearer", "--http1.1 -H \"Authorization: Bearer $API_TOKEN\" URL/x", true),
                ("basic", "-u git:$API_TOKEN URL/x", true),
                ("header:X-Api-Key", "-H \"X-Api-Key: $API_TOKEN\" URL/x", true),
                ("header:Authorization", "-H \"Authorization: token $API_TOKEN\" URL/x", true),
                ("query:key", "URL/x?key=$API_TOKEN", true),
                ("bearer", "-H \"X-Other: $API_TOKEN\" URL/x", false),
                ("bearer", "-u git:$API_TOKEN URL/x", false),
                ("bearer", "URL/$API_TOKEN", false),
                ("bearer", "URL/x?q=$API_TOKEN", false),
                ("bearer", "-d \"a=$API_TOKEN\" URL/x", false),
                ("bearer", "-b \"c=$API_TOKEN\" URL/x", false),
                ("bearer", "-d \"$(printf %s $API_TOKEN | base64 -w0)\" URL/x", false),
                ("query:key", "-H \"Authorization: Bearer $API_TOKEN\" URL/x", false),
            ] {
                let dir = fresh("placed");
                let line = format!("curl -sS -i {}", request.replace("URL", &tls.url("")));
                let run = tls.confined(&dir, user, &credential(placed), isolate).env("REAL_TOKEN", SECRET);
                let ran = run.args(&["-c", &line]).go();
                let (out, seen) = (ran.done.stdout(), tls.seen());
                // The server echoes what it got in the body; headers that echo it are masked.
                let basic = "Z2l0OmdocF8xNkM3ZTQyRjI5MmM2OTEyRTc3MTBjODM4MzQ3QWUxNzhCNGE=";
                let head =
                    out.split("\r\n\r\n").filter(|part| part.starts_with("HTTP/")).collect::<Vec<_>>().join("\n");
                assert!(!head.contains(SECRET), "{placed} {request}: {out}");
                let arrived = out.contains(SECRET) || out.contains(basic);
                assert_eq!((arrived, !seen.is_empty()), (arrives, arrives), "{placed} {request}: {out}{seen}");
                let report = ran.report.to_string();
                assert!(!report.contains(SECRET), "{report}");
                if !arrives {
                    let denial = ran.denial("proxy", &tls.host());
                    let rule = denial["rule"].as_str().unwrap_or_default();
                    assert!(
                        rule.contains("the placeholder of API_TOKEN is sent where its secret does not belong"),
                        "{rule}"
                    );
                }
                if !isolate.is_empty() || user.is_some() {
                    break;
                }
            }
        }
    }
}

/// Looks for the secret in everything that the command can read: memory, environments and command lines of all processes,
/// its own files, and the directories of the run.
const LOOK: &str = r#"
import os, glob, sys
wanted = bytes.fromhex(sys.argv[1])
found = []
def look(path, data):
    if wanted in data: found.append(path)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "auxv"):
        try: look(f"/proc/{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
        except OSError: pass
    if int(pid) == os.getpid(): continue
    try:
        maps = open(f"/proc/{pid}/maps").read().splitlines()
        memory = open(f"/proc/{pid}/mem", "rb")
        for line in maps:
            low, high = (int(x, 16) for x in line.split()[0].split("-"))
            try: memory.seek(low); look(f"/proc/{pid}/mem", memory.read(min(high - low, 1 << 24)))
            except (OSError, ValueError, OverflowError): pass
    except OSError: pass
for path in [p for top in (os.environ.get("TMPDIR", "/tmp"), os.path.dirname(os.environ["SSL_CERT_FILE"])) for p in glob.glob(top + "/**", recursive=True)]:
    try: look(path, open(path, "rb").read())
    except OSError: pass
for path in sys.argv[2:]:
    try: look(path, open(path, "rb").read()); found.append("opened " + path)
    except OSError: pass
print(found)
"#;

#[test]
fn the_command_finds_the_secret_nowhere() {
    let Some(tls) = Tls::new("both") else { return };
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    for user in users() {
        for flags in [&[][..], &["--isolate", "required"], &["--profile", "write"]] {
            let dir = fresh("nowhere");
            let file = fresh("holder").join("token");
            std::fs::write(&file, SECRET).expect("own directory");
            let from_file = credential("bearer").replace("env:REAL_TOKEN", &format!("file:{}", file.display()));
            for (policy, named) in [(credential("bearer"), ""), (from_file, file.to_str().expect("text"))] {
                let mut run = tls.confined(&dir, user, &policy, flags);
                if named.is_empty() {
                    run = run.env("REAL_TOKEN", SECRET);
                }
                let ran = run.args(&["--", "python3", "-c", LOOK, &hex, named]).go();
                ran.done.prints("[]\n").exits(0);
            }
        }
    }
}

#[test]
fn a_secret_on_the_command_line_is_refused() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("argued");
    let run = tls.confined(&dir, None, &credential("bearer"), &[]).env("REAL_TOKEN", SECRET);
    let ran = run.args(&["--", "echo", SECRET]).go();
    ran.done.exits(125).prints("");
    assert!(ran.done.stderr().contains("the command line holds the secret of API_TOKEN itself"), "{}", ran.done);
    let run = tls.confined(&dir, None, &credential("bearer"), &["--env", "COPY"]).env("REAL_TOKEN", SECRET);
    let ran = run.env("COPY", SECRET).args(&["--", "true"]).go();
    ran.done.exits(125);
    assert!(ran.done.stderr().contains("the variable COPY holds the secret of API_TOKEN"), "{}", ran.done);
}

#[test]
fn a_placeholder_has_the_shape_of_the_secret_and_changes_with_each_run() {
    let Some(tls) = Tls::new("both") else { return };
    let mut shown = Vec::new();
    for _ in 0..2 {
        let dir = fresh("shape");
        let flag = format!("REAL_TOKEN@{}", tls.host());
        let run = tls.confined(&dir, None, "[[network.http]]\nhost = 'HOST'\n", &["--credential", &flag]);
        let ran = run.env("REAL_TOKEN", SECRET).args(&["-c", "printf %s $REAL_TOKEN"]).go();
        shown.push(ran.done.exits(0).stdout());
    }
    assert!(
        shown.iter().all(|text| text.starts_with("ghp_") && text.len() == SECRET.len() && text != SECRET),
        "{shown:?}"
    );
    assert_ne!(shown[0], shown[1]);
}

/// Listens where the credential's host should, and sends itself a request with the placeholder.
const SERVE: &str = r#"
import os, socket, sys, threading, urllib.request
listener = socket.socket()
listener.bind(("127.0.0.1", int(sys.argv[1])))
try: listener.listen()
except OSError as error:
    print("refused", error.errno)
    sys.exit()
def serve():
    client, _ = listener.accept(); print(client.recv(9999)); client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
threading.Thread(target=serve, daemon=True).start()
url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
print(urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer " + os.environ["API_TOKEN"]}), timeout=9).status)
"#;

/// Plain HTTP to this machine needs no certificate, so anything that listens there gets the secret.
#[test]
fn the_command_cannot_pose_as_the_host_of_a_credential_on_this_machine() {
    if !crate::support::has("python3") {
        return;
    }
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("bound").port();
    for user in users() {
        let every = [format!("127.0.0.1:{free}"), "127.0.0.1".to_owned(), "localhost".to_owned()];
        for (host, port) in every.iter().map(String::as_str).zip([free, 0, 0]) {
            let dir = fresh("posing");
            let text = format!("profile = 'read'\n{}", credential("bearer").replace("HOST", host));
            std::fs::write(dir.join("p.toml"), text).expect("own directory");
            let run = crate::network::confined(&dir, user, &["--config", "p.toml"]).env("REAL_TOKEN", SECRET);
            let ran = run.args(&["--", "python3", "-c", SERVE, &port.to_string()]).go();
            let out = ran.done.exits(0).stdout();
            assert!(out.starts_with("refused ") && !out.contains(SECRET), "{host}: {}", ran.done);
            let denied = ran.denials().iter().find(|denial| denial["syscall"] == "listen").cloned();
            let denied = denied.unwrap_or_else(|| panic!("{host}: {:#}", ran.report));
            assert!(denied["rule"].to_string().contains("the command would receive the secret"), "{denied:#}");
            assert!(denied["allow_with"].is_null(), "{denied:#}");
        }
        // Other ports stay free.
        let dir = fresh("posing");
        let text = format!("profile = 'read'\n{}", credential("bearer").replace("HOST", &every[0]));
        std::fs::write(dir.join("p.toml"), text).expect("own directory");
        let run = crate::network::confined(&dir, user, &["--config", "p.toml"]).env("REAL_TOKEN", SECRET);
        let line = "import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); print(\"listens\")";
        run.args(&["--", "python3", "-c", line]).go().done.exits(0).prints("listens\n");
    }
}

#[test]
fn a_request_that_the_host_would_send_back_is_refused() {
    let Some(tls) = Tls::new("both") else { return };
    let dir = fresh("trace");
    let line = format!(
        "curl -s -o /dev/null -w %{{http_code}} -X TRACE -H \"Authorization: Bearer $API_TOKEN\" {}",
        tls.url("/x")
    );
    let run = tls.confined(&dir, None, &credential("bearer"), &[]).env("REAL_TOKEN", SECRET);
    let ran = run.args(&["-c", &line]).go();
    ran.done.exits(0).prints("403");
    assert!(
        tls.seen().is_empty() && ran.denial("proxy", &tls.host())["rule"].to_string().contains("send the request back")
    );
}
