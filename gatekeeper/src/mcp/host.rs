//! The tool `browser` with the target host: Chromium under `gatekeeper browser` on this machine, started by the first action
//! that needs it. It belongs to this session, has an empty profile, and ends with the session. It is driven over its debugging
//! pipe, which no other process can reach.

use super::browser::{address, tab_id};
use super::catalogue::Arguments;
use crate::container::{Boxed, Log};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long the browser may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest message of the browser.
const LONGEST: u64 = 16 << 20;

/// Gives the standard streams the numbers that Chromium wants for its debugging pipe. The words are its arguments.
const SCRIPT: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";

/// A browser of the host that runs, or has run.
pub struct Host {
    child: Child,
    to: ChildStdin,
    answers: Receiver<Value>,
    last: u64,
    log: Log,
    version: String,
}

/// Does an action. `place` keeps the browser between calls; `audit` is the file of the session's trail.
pub fn act(place: &mut Option<Host>, main: &Boxed, audit: Option<&Path>, given: &Arguments) -> Result<Value, String> {
    let browser = &main.settings.browser;
    for (key, set) in [("enabled", &browser.enabled), ("allowHostControl", &browser.host_control)] {
        if !set.value {
            return Err(format!("target host is refused: browser.{key} is false ({})", set.decided_by()));
        }
    }
    if place.as_mut().is_some_and(|host| host.child.try_wait().is_ok_and(|ended| ended.is_some())) {
        *place = None;
    }
    let action = given.action.as_deref().unwrap_or_default();
    let auto = &browser.auto_start;
    match (action, place.is_some()) {
        ("status", false) => return Ok(json!({"running": false, "target": "host"})),
        ("stop", _) => {
            *place = None;
            return Ok(json!({"running": false, "target": "host"}));
        }
        ("tabs" | "open" | "close", false) if !auto.value => {
            return Err(format!(
                "no browser runs, and autoStart is false ({}); use the action start",
                auto.decided_by()
            ));
        }
        ("status" | "start" | "tabs" | "open" | "close", _) => {}
        _ => return Err(format!("action {action:?}: use status, start, stop, tabs, open or close")),
    }
    let started = place.is_none();
    let host = match place {
        Some(host) => host,
        None => {
            let patience = Duration::from_millis(browser.timeout_ms.value);
            place.insert(Host::start(OsStr::new("chromium"), audit, patience)?)
        }
    };
    match action {
        "tabs" => host.tabs(),
        "open" => {
            let url = address(given.url.as_deref().unwrap_or_default())?;
            let made = host.ask("Target.createTarget", json!({"url": url}))?;
            Ok(json!({"id": made["targetId"], "url": url}))
        }
        "close" => {
            let id = tab_id(given)?;
            host.ask("Target.closeTarget", json!({"targetId": id}))?;
            Ok(json!({"closed": id}))
        }
        _ => Ok(json!({"running": true, "target": "host", "version": host.version, "started": started})),
    }
}

impl Host {
    fn start(browser: &OsStr, audit: Option<&Path>, patience: Duration) -> Result<Host, String> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find gatekeeper itself: {error}"))?;
        let mut words: Vec<OsString> = vec![own.into(), "browser".into()];
        if let Some(file) = audit {
            words.push("--audit".into());
            words.push(file.into());
        }
        // Pages may come from a model that the network of the container would keep from this machine and its neighbours.
        words.push("--deny-private".into());
        words.push("--".into());
        words.push(browser.into());
        words.extend(["--remote-debugging-pipe", "--no-first-run"].map(OsString::from));
        if ["DISPLAY", "WAYLAND_DISPLAY"].iter().all(|name| std::env::var_os(name).is_none()) {
            words.push("--headless=new".into());
        }
        words.push("about:blank".into());
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "sh"]).args(words).env_remove("ENV").env_remove("BASH_ENV");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("gatekeeper browser: {error}"))?;
        let (Some(to), Some(from), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("gatekeeper browser: no pipe".to_owned());
        };
        let log = Log::default();
        log.follow(stderr);
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(from);
            while let Some(message) = message(&mut reader) {
                // Events have no id.
                if message["id"].is_u64() && send.send(message).is_err() {
                    return;
                }
            }
        });
        let mut host = Host { child, to, answers, last: 0, log, version: String::new() };
        let told = host.asked("Browser.getVersion", json!({}), patience).map_err(|error| {
            // Its last words.
            std::thread::sleep(Duration::from_millis(100));
            format!(
                "the browser of the host was not ready within {} ms: {error}; {}",
                patience.as_millis(),
                host.log.shown()
            )
        })?;
        host.version = told["product"].as_str().unwrap_or("unknown").to_owned();
        Ok(host)
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.asked(method, params, PATIENCE)
    }

    fn asked(&mut self, method: &str, params: Value, patience: Duration) -> Result<Value, String> {
        self.last += 1;
        let mut text = json!({"id": self.last, "method": method, "params": params}).to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).map_err(|error| format!("it does not take orders: {error}"))?;
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.answers.recv_timeout(left).map_err(|_| "it does not answer".to_owned())?;
            if answer["id"] == self.last {
                return match answer["error"]["message"].as_str() {
                    Some(error) => Err(error.to_owned()),
                    None => Ok(answer["result"].clone()),
                };
            }
        }
    }

    fn tabs(&mut self) -> Result<Value, String> {
        let listed = self.ask("Target.getTargets", json!({}))?;
        let pages = listed["targetInfos"].as_array().into_iter().flatten().filter(|one| one["type"] == "page");
        let tab = |one: &Value| json!({"id": one["targetId"], "title": one["title"], "url": one["url"]});
        Ok(json!({"tabs": pages.map(tab).collect::<Vec<_>>()}))
    }
}

impl Drop for Host {
    /// gatekeeper ends the whole tree when its front is killed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next message: JSON that ends with NUL.
fn message(from: &mut impl BufRead) -> Option<Value> {
    let mut bytes = Vec::new();
    let read: io::Result<usize> = from.take(LONGEST).read_until(0, &mut bytes);
    read.ok().filter(|count| *count > 0)?;
    serde_json::from_slice(bytes.strip_suffix(&[0])?).ok()
}
