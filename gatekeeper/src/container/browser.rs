//! The browser's container, from outside: makes it, waits until its debugging port answers through the relay, and tells
//! how to reach it.

use super::boxed::Boxed;
use super::chromium::{Ready, Wanted};
use super::engine::{About, Engine, complaint};
use super::relay::{self, VIEW};
use super::seen::compare;
use super::state::{Door, State, hexadecimal, random};
use super::wire::{self, Kind};
use serde_json::{Value, json};
use std::io::Read;
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A browser that answers.
pub struct Endpoint {
    pub name: String,
    pub port: u16,
    pub door: Door,
    /// Whether it was started just now.
    pub made: bool,
    /// As the browser calls itself.
    pub version: String,
    /// Whether noVNC shows its display.
    vnc: bool,
}

impl Endpoint {
    /// For clients that start with HTTP.
    pub fn http(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.door.token)
    }

    pub fn web_socket(&self) -> String {
        format!("ws://127.0.0.1:{}{}?token={}", self.port, self.door.path, self.door.token)
    }

    /// The page of noVNC, for a person.
    pub fn no_vnc(&self) -> Option<String> {
        let (port, token) = (self.port, &self.door.token);
        let page = format!("http://127.0.0.1:{port}{VIEW}{token}/vnc.html?autoconnect=1&resize=scale");
        self.vnc.then(|| format!("{page}&path={}{token}/websockify", VIEW.trim_start_matches('/')))
    }

    /// Asks the browser by its HTTP interface.
    pub fn ask(&self, method: &str, target: &str) -> Result<Value, String> {
        relay::ask(self.port, &self.door, method, target)
    }

    pub fn json(&self) -> Value {
        json!({"name": self.name, "made": self.made, "version": self.version, "http": self.http(), "webSocket": self.web_socket(), "noVnc": self.no_vnc()})
    }
}

/// How long the engine may take beside the browser itself.
const GRACE: Duration = Duration::from_secs(20);

impl Boxed {
    /// The browser, if it runs and answers. For the container that [`Boxed::browser`] describes.
    pub fn found(&self) -> Option<Endpoint> {
        let note = self.state.note(&self.name)?;
        let door = note.door?;
        let port = note.engine.port(&self.name, relay::PORT).ok()?;
        self.endpoint(port, door, false).ok()
    }

    fn endpoint(&self, port: u16, door: Door, made: bool) -> Result<Endpoint, String> {
        let told = relay::ask(port, &door, "GET", "/json/version")?;
        let version = told["Browser"].as_str().unwrap_or("unknown").to_owned();
        let vnc = self.settings.browser.no_vnc.value;
        Ok(Endpoint { name: self.name.clone(), port, door, made, version, vnc })
    }

    /// Starts the browser unless it answers already. For the container that [`Boxed::browser`] describes.
    pub fn browse(&self, say: &dyn Fn(&str)) -> Result<Endpoint, String> {
        let _making = self.state.making(&self.name)?;
        if let Some(found) = self.found() {
            self.keep_rule()?;
            drop(self.state.using(&self.name)?);
            return Ok(found);
        }
        let (engine, about) = self.cleared(say)?;
        let engine = self.create(engine, &about)?;
        let began = Instant::now();
        let ready = self.started(&engine, &about).and_then(|door| {
            let port = engine.port(&self.name, relay::PORT)?;
            // What counts is that it answers through the relay, from here.
            let endpoint = loop {
                match self.endpoint(port, door.clone(), true) {
                    Err(error) if began.elapsed() > self.timeout() + GRACE => return Err(error),
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                    found => break found?,
                }
            };
            self.noted_as(engine.clone(), about.clone(), Some(door))?;
            drop(self.state.using(&self.name)?);
            Ok(endpoint)
        });
        ready.map_err(|error| {
            let _ = engine.remove(&self.name);
            format!("browser: {error}")
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.settings.browser.timeout_ms.value)
    }

    /// Sends the order, and waits for the answer.
    fn started(&self, engine: &Engine, about: &About) -> Result<Door, String> {
        let mut token = [0; 24];
        random(&mut token)?;
        let token = hexadecimal(&token);
        let browser = &self.settings.browser;
        let env = browser.env.value.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        let wanted =
            Wanted { token: token.clone(), env, timeout_ms: browser.timeout_ms.value, vnc: browser.no_vnc.value };
        let order = serde_json::to_vec(&wanted).map_err(|error| error.to_string())?;
        let mut command = engine.exec(&self.name, &self.made, &["browse"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", engine.program.display()))?;
        let (Some(mut stdin), Some(mut stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("no pipe".to_owned());
        };
        let (send, frames) = channel();
        std::thread::spawn(move || {
            while let Ok(Some(frame)) = wire::receive(&mut stdout) {
                if send.send(frame).is_err() {
                    return;
                }
            }
        });
        let (tell, complaints) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.take(1 << 16).read_to_end(&mut bytes);
            let _ = tell.send(bytes);
        });
        let next = |patience: Duration| match frames.recv_timeout(patience) {
            Ok(frame) => Ok(frame),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("nothing was heard from the container for {} s", patience.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(format!(
                "{} exec: {}",
                engine.kind.name(),
                complaint(&complaints.recv_timeout(Duration::from_secs(5)).unwrap_or_default())
            )),
        };
        let mut talk = || {
            let (kind, bytes) = next(GRACE)?;
            let seen = serde_json::from_slice(&bytes).ok().filter(|_| kind == Kind::Alive);
            let seen = seen.ok_or("what answers in the container is not gatekeeper")?;
            let compared = compare(&seen, &self.made, engine, about);
            if !compared.broken.is_empty() {
                return Err(format!(
                    "{} is not the container that the configuration asks for: {}",
                    self.name,
                    compared.broken.join("; ")
                ));
            }
            wire::send(&mut stdin, Kind::Order, &order).map_err(|error| error.to_string())?;
            match next(self.timeout() + GRACE)? {
                (Kind::Report, bytes) => serde_json::from_slice::<Ready>(&bytes).map_err(|error| error.to_string()),
                (_, bytes) => Err(String::from_utf8_lossy(&bytes).into_owned()),
            }
        };
        let ready = talk();
        drop(stdin);
        let _ = child.kill();
        let _ = child.wait();
        match ready? {
            Ready { path } if Ready::is_plain(&path) => Ok(Door { token, path }),
            _ => Err("what answers in the container is not gatekeeper".to_owned()),
        }
    }
}

/// Whether clients are connected to a browser, and for how many seconds nobody used it.
pub fn in_use(state: &State, name: &str) -> Option<(bool, u64)> {
    let note = state.note(name)?;
    let port = note.engine.port(name, relay::PORT).ok()?;
    let told = relay::ask(port, note.door.as_ref()?, "GET", relay::USE).ok()?;
    Some((told["clients"].as_u64()? > 0, told["idle_seconds"].as_u64()?))
}
