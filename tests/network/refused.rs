//! Without a network, or with a denied address, real clients give up at once: a denied internet socket fails with
//! EAFNOSUPPORT and a denied address with ENETUNREACH, after which no client retries for minutes.
//!
//! The address is multicast: even if it were allowed, the kernel would send no TCP packet.

use super::{confined, users};
use crate::support::{fresh, has, on_path, run, skip};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than any client takes to start on a busy machine, but shorter than the first pause of one that retries.
const AT_ONCE: Duration = Duration::from_secs(8);

const URL: &str = "http://224.0.0.1/";

struct Client {
    name: &'static str,
    line: String,
}

fn in_go(dir: &Path) -> PathBuf {
    let source = r#"package main
import ("net/http"; "os")
func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil || answer.StatusCode >= 400 { os.Exit(1) }
}
"#;
    let (from, to) = (dir.join("get.go"), dir.join("get"));
    std::fs::write(&from, source).expect("own directory");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&to).arg(&from).env("GOCACHE", dir.join("cache")).env("HOME", dir);
    run(command.env("CGO_ENABLED", "0")).exits(0);
    to
}

fn in_java(dir: &Path) -> PathBuf {
    let source = "public class Get { public static void main(String[] a) throws Exception {\n\
                  new java.net.URL(a[0]).openStream(); } }\n";
    std::fs::write(dir.join("Get.java"), source).expect("own directory");
    run(Command::new("javac").arg("Get.java").current_dir(dir)).exits(0);
    dir.to_owned()
}

/// The clients with their default settings: no option limits their retries.
fn clients() -> Vec<Client> {
    let dir = fresh("refused-clients");
    let mut clients = Vec::new();
    let mut add = |name: &'static str, there: bool, line: &dyn Fn() -> String| match there {
        true => clients.push(Client { name, line: line() }),
        false => skip(&format!("{name} is not installed")),
    };
    add("curl", on_path("curl"), &|| format!("exec curl -fsS {URL}"));
    add("wget", on_path("wget"), &|| format!("exec wget -O out {URL}"));
    add("git", on_path("git"), &|| format!("exec git clone {URL}repo.git"));
    let python = Path::new("/usr/bin/python3").exists();
    add("python urllib", python, &|| {
        format!("exec /usr/bin/python3 -c 'import urllib.request as r; r.urlopen(\"{URL}\")'")
    });
    let pip = python && run(Command::new("/usr/bin/python3").args(["-m", "pip", "--version"])).output.status.success();
    add("pip", pip, &|| {
        format!(
            "exec /usr/bin/python3 -m pip download --no-cache-dir --disable-pip-version-check --no-deps --trusted-host 224.0.0.1 -i {URL}simple tiny"
        )
    });
    add("npm", on_path("npm"), &|| {
        format!("exec npm install --no-update-notifier --cache $TMPDIR/npm --registry {URL} tiny")
    });
    let node = format!("exec node -e 'fetch(\"{URL}\").catch(e => {{ console.error(e.cause); process.exit(1) }})'");
    add("node fetch", on_path("node"), &|| node.clone());
    add("java", on_path("javac"), &|| format!("exec java -Xint -cp {} Get {URL}", in_java(&dir).display()));
    add("go", on_path("go"), &|| format!("exec {} {URL}", in_go(&dir).display()));
    match super::clients::cargo() {
        Some((cargo, rustc)) => clients.push(Client {
            name: "cargo",
            line: format!(
                "mkdir src && echo > src/lib.rs && printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\n[dependencies]\\n\
                 tiny = {{ version = \"1\", registry = \"local\" }}\\n' > Cargo.toml && RUSTC={rustc} CARGO_HOME=$PWD/cargo \
                 CARGO_REGISTRIES_LOCAL_INDEX=sparse+{URL}index/ exec {cargo} fetch"
            ),
        }),
        None => skip("cargo is not installed"),
    }
    clients
}

#[test]
fn every_client_gives_up_at_once() {
    let mut table = String::from("client           none  loopback  hosts  seconds until it gives up\n");
    let mut slow = Vec::new();
    let user = *users().last().expect("there is always one");
    for client in clients() {
        let _ = write!(table, "{:<15}", client.name);
        for (mode, call) in [("none", "socket"), ("loopback", "connect"), ("hosts=127.0.0.1:9", "connect")] {
            let dir = fresh("refused");
            let flags = ["--profile", "write", "--net", mode, "--timeout", "60s"];
            let began = Instant::now();
            let ran = confined(&dir, user, &flags).args(&["-c", &client.line]).go();
            let took = began.elapsed();
            let _ = write!(table, "{:>7.2}", took.as_secs_f64());
            // It ended by itself, with an error.
            assert_eq!(ran.report["outcome"], "exited", "{} {mode}: {}", client.name, ran.done);
            assert!(!matches!(ran.done.code(), Some(0) | None), "{} {mode}: {}", client.name, ran.done);
            if took > AT_ONCE {
                slow.push(format!("{} under {mode}: {took:?}{}", client.name, ran.done));
            }
            // The sandbox denied it. Under `hosts`, most clients ask the proxy, which refuses.
            let errno = if call == "socket" { "EAFNOSUPPORT" } else { "ENETUNREACH" };
            let refused = |denial: &&serde_json::Value| denial["syscall"] == call && denial["errno"] == errno;
            let by_proxy = |denial: &&serde_json::Value| mode.starts_with("hosts") && denial["layer"] == "proxy";
            let found = ran.denials().iter().any(|denial| refused(&denial) || by_proxy(&denial));
            assert!(found, "{} {mode}: {:#}{}", client.name, ran.report["denials"], ran.done);
        }
        table.push('\n');
    }
    let _ = write!(std::io::stderr(), "{table}");
    assert!(slow.is_empty(), "{table}{}", slow.join("\n"));
}

/// A program that may start no other, under `minimal`.
#[test]
fn the_smallest_profile_answers_the_same() {
    for user in users() {
        for (client, words) in [("curl", ["curl", "-sS", URL]), ("wget", ["wget", "-q", URL])] {
            if !has(client) {
                continue;
            }
            let began = Instant::now();
            let ran = confined(&fresh("refused-minimal"), user, &["--timeout", "60s"]).arg("--").args(&words).go();
            assert!(!matches!(ran.done.code(), Some(0 | 124) | None), "{}", ran.done);
            assert!(began.elapsed() < AT_ONCE, "{client}: {:?}", began.elapsed());
            let refused =
                |denial: &serde_json::Value| denial["syscall"] == "socket" && denial["errno"] == "EAFNOSUPPORT";
            assert!(ran.denials().iter().any(refused), "{:#}", ran.report);
        }
    }
}
