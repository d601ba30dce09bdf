//! The operator's page, driven by Playwright in a real Chromium, with the real daemon behind it.

use super::ready;
use super::site::Site;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const HOME: &str = "<!doctype html><title>Shop</title><body style='margin:0;font:18px sans-serif;background:#ffc857;color:#2b2d42'>
<h1 style='margin:60px 60px 10px'>Fruit of the day</h1><p style='margin:0 60px'>Three kilos of apricots, picked this morning.</p>
<button style='margin:30px 60px;padding:14px 30px;font:inherit;border:0;border-radius:8px;background:#2b2d42;color:#fff'>Order</button>";

const LOGIN: &str = "<!doctype html><title>Log in</title><body style='margin:0;font:18px sans-serif;background:#eef'>
<form action=/in><input name=who autocomplete=off style='position:absolute;left:60px;top:100px;width:300px;height:40px;font:inherit'></form>
<p style='position:absolute;left:60px;top:40px'>Your name</p>";

const IN: &str = "<!doctype html><title>In</title><body style='font:18px sans-serif;background:#efe'>
<script>document.cookie = 'session=s3cret-of-the-site'</script><p>You are logged in.";

const ALERT: &str = "<!doctype html><title><img src=x onerror=\"document.body.dataset.pwned='yes'\"></title>
<script>alert('<img src=x onerror=\"document.body.dataset.pwned=1\">')</script>";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

struct Daemon {
    child: Child,
    base: String,
    token: String,
    /// Removed when the daemon has ended.
    _state: tempfile::TempDir,
}

impl Daemon {
    fn start(port: u16) -> Daemon {
        let state = tempfile::tempdir().expect("a directory");
        let command = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeperd"));
            command.arg("--state").arg(state.path()).arg("--json");
            command
        };
        let made = command().args(["token", "create", "--tenant", "fruit", "--operator"]).output().expect("runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
        let token = made["token"].as_str().expect("a token").to_owned();
        let mut serve = command();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--local-port", &port.to_string()]);
        let mut child = serve.stdout(Stdio::piped()).spawn().expect("runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let base = said["listen"].as_str().expect("an address").to_owned();
        Daemon { child, base, token, _state: state }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// PAGE_SHOTS=DIR keeps pictures of the page, from which those of the documents are chosen.
#[test]
fn an_operator_watches_sessions_grants_and_refreshes_a_login() {
    let modules = root().join("target/node/node_modules");
    if !ready() {
        return;
    }
    if !modules.join("playwright-core").is_dir() {
        assert!(std::env::var_os("SANDBOX_TESTS_MUST_RUN").is_none(), "playwright-core is missing");
        return println!("SKIPPED: playwright-core is not in target/node/node_modules; `make test` installs it");
    }
    let site = Site::of(&[("/", HOME), ("/login", LOGIN), ("/in", IN), ("/alert", ALERT)]);
    let other = Site::of(&[]);
    let daemon = Daemon::start(site.port);
    let mut driver = Command::new("node");
    driver.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/page.js"));
    driver.env("MODULES", modules.canonicalize().expect("exists"));
    driver.env("BASE", &daemon.base).env("TOKEN", &daemon.token);
    driver
        .env("SITE", format!("http://127.0.0.1:{}", site.port))
        .env("OTHER", format!("http://127.0.0.1:{}", other.port));
    let shots = std::env::var_os("PAGE_SHOTS").map(PathBuf::from);
    if let Some(shots) = &shots {
        std::fs::create_dir_all(shots).expect("writable");
        driver.env("SHOTS", shots);
    }
    let done = driver.output().expect("node runs");
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{complaint}");
    let said: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(said["wrong"], json!([]), "no script error, and nothing that the content security policy refused");
    assert_eq!(said["elsewhere"], json!([]), "no request to another host");
    assert_eq!(said["refused"], "This token is not known here.");
    assert_eq!(said["cookie"], json!([true, "Strict"]));
    assert_eq!(said["stored"], false, "neither the token nor the cookie is where scripts can read it");
    let why = said["why"].as_str().expect("text");
    assert!(why.contains("this machine itself") && why.ends_with(&format!("--local-port {}", other.port)), "{why}");
    // The live view shows the colour of the site's background.
    let pixel: Vec<i64> = said["pixel"].as_array().expect("three").iter().filter_map(Value::as_i64).collect();
    assert!(pixel.iter().zip([0xff, 0xc8, 0x57]).all(|(seen, meant)| (seen - meant).abs() < 12), "{pixel:?}");
    assert_eq!(said["grant"], true);
    assert_eq!(said["wide"], json!([]));
    assert_eq!(said["after"], 401, "logged out");
    assert_eq!(said["pwned"], "no", "a page wrote markup into this one");
    // The name was typed into the page of the site, and its cookie was stored, and neither is shown.
    assert!(site.heads().iter().any(|head| head.starts_with("GET /in?who=Ada ")), "{:?}", site.heads());
    let credential = said["credential"].as_str().expect("text");
    assert!(credential.starts_with("localhost1 cookie") && !credential.contains("s3cret"), "{credential}");
    let audit = said["audit"].as_str().expect("text");
    assert!(said["navigations"].as_i64() >= Some(3) && !audit.contains("Ada"), "{audit}");
}
