//! Automation libraries that start the wrapper instead of the browser: Playwright with a pipe, chromedriver with a
//! port.

use super::site::Site;
use super::{Desk, QUIET, ready};
use crate::plumbing::{eventually, marked};
use crate::support::{has, run, skip};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Where `make test` installs npm packages.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/node/node_modules")
}

fn site() -> Site {
    Site::of(&[("/", "text/html", "<title>page</title><a id=get href=/download download>get</a>")])
}

/// The wrapper script for the browser of this desk.
#[track_caller]
fn wrapper(desk: &Desk) -> PathBuf {
    let path = desk.place.at("home").join("browser");
    let mut command = desk.place.command(&["browser", "--quiet", "--wrapper"]);
    command.arg(&path).arg("--workspace").arg(desk.workspace()).arg("--report").arg(desk.report_file());
    run(command.args(["--", "chromium"]).args(QUIET)).exits(0).prints("");
    path
}

const PLAYWRIGHT: &str = r#"
const { chromium } = require(process.env.MODULES + '/playwright-core');
(async () => {
  const [wrapper, url, workspace] = process.argv.slice(2);
  const browser = await chromium.launch({ executablePath: wrapper, downloadsPath: workspace + '/media/downloads', timeout: 120000 });
  const page = await (await browser.newContext({ acceptDownloads: true })).newPage();
  page.setDefaultTimeout(120000);
  await page.goto(url);
  console.log(await page.title());
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#get')]);
  const path = await download.path();
  console.log(path.startsWith(workspace + '/media/downloads/'), require('fs').readFileSync(path, 'utf8').trim());
  const shot = await page.screenshot();
  console.log(shot.subarray(1, 4).toString());
  console.log(await page.goto('file:///root').catch(error => /ERR_\w+/.exec(error.message)[0]));
  await browser.close();
  const second = await chromium.launchPersistentContext(process.argv[5], { executablePath: wrapper, timeout: 120000 })
    .then(() => 'started', error => /gatekeeper|closed/.test(error.message) ? 'refused' : error.message);
  console.log(second);
})().catch(error => { console.error(error); process.exit(1); });
"#;

#[test]
fn playwright_drives_the_wrapper() {
    if !ready() {
        return;
    }
    if !has("node") {
        return;
    }
    if !modules().join("playwright-core").is_dir() {
        return skip("playwright-core is not in target/node/node_modules; `make test` installs it");
    }
    let desk = Desk::plain();
    let (wrapper, site) = (wrapper(&desk), site());
    let script = desk.place.at("home").join("drive.js");
    fs::write(&script, PLAYWRIGHT).expect("own");
    // A copy, because the user may not enter the build directory.
    let copied = desk.place.at("modules");
    copy(&modules().join("playwright-core"), &copied.join("playwright-core"));
    let foreign = desk.place.at("home");
    let mut command = desk.place.any(Path::new("/usr/bin/env"), &["node"]);
    command.arg(&script).arg(&wrapper).arg(site.url("/")).arg(desk.workspace()).arg(&foreign);
    let done = run(command.env("MODULES", &copied));
    done.exits(0).prints("page\ntrue downloaded\nPNG\nERR_FILE_NOT_FOUND\nrefused\n");
    let profiles = || fs::read_dir(desk.place.at("tmp")).expect("own").count();
    eventually("the temporary profile is gone", || profiles() == 0);
    assert_eq!(desk.report()["outcome"], "refused", "the second one");
    let mark = desk.place.at("tmp").display().to_string();
    eventually("every process has ended", || marked(&mark).is_empty());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("own");
    for entry in fs::read_dir(from).expect("readable").flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("known") {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(fs::copy(entry.path(), &target).expect("copied")),
            _ => {}
        }
    }
}

/// Sends one request to chromedriver.
#[track_caller]
fn ask(port: u16, method: &str, path: &str, body: &Value) -> Value {
    let answer = super::site::ask(port, method, path, &body.to_string());
    serde_json::from_str::<Value>(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))["value"].take()
}

#[test]
fn chromedriver_drives_the_wrapper() {
    if !ready() {
        return;
    }
    if !has("chromedriver") {
        return;
    }
    let desk = Desk::plain();
    let (wrapper, site) = (wrapper(&desk), site());
    let mut command = desk.place.any(Path::new("/usr/bin/chromedriver"), &["--port=0"]);
    let mut driver = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let lines = BufReader::new(driver.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let port = lines.into_iter().find_map(|line| {
        line.strip_suffix('.')
            .unwrap_or(&line)
            .rsplit_once("on port ")
            .and_then(|(_, port)| port.trim().parse().ok())
            // chromedriver prints the requested port 0, and then the actual one.
            .filter(|port| *port != 0)
    });
    let port: u16 = port.expect("it says where it listens");
    let options = json!({"binary": wrapper, "args": ["--headless"]});
    let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}});
    let session = ask(port, "POST", "/session", &wanted);
    let session = format!("/session/{}", session["sessionId"].as_str().unwrap_or_else(|| panic!("{session:#}")));
    ask(port, "POST", &format!("{session}/url"), &json!({"url": site.url("/")}));
    assert_eq!(ask(port, "GET", &format!("{session}/title"), &json!({})), "page");
    ask(port, "POST", &format!("{session}/url"), &json!({"url": "file:///root"}));
    let shown = ask(port, "GET", &format!("{session}/source"), &json!({}));
    assert!(shown.as_str().is_some_and(|text| text.contains("ERR_FILE_NOT_FOUND")), "{shown:#}");
    ask(port, "DELETE", &session, &json!({}));
    let mark = desk.place.at("tmp").display().to_string();
    eventually("every process has ended", || marked(&mark).is_empty());
    driver.kill().expect("own child");
    driver.wait().expect("own child");
}
