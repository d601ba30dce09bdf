//! Makes, finds and removes containers. The name of a container has the hash of everything that decides what it is, so a
//! changed configuration never runs in the old container: it gets a new one, and the old one goes when it is idle.

use super::engine::{About, Engine, Made, Mount};
use super::listing::take_away;
use super::settings::{Scope, Settings};
use super::state::{self, Door, Lock, Note, State, hexadecimal, own_program};
use super::workspace::{self, Identity};
use crate::policy::Word;
use sandbox_contract::sha256;
use serde::Serialize;
use std::path::Path;

/// The label whose value is the kind of a container.
pub const LABEL: &str = "gatekeeper.box";
/// How the names of all containers start.
pub const PREFIX: &str = "gatekeeper-box-";

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    Main,
    Browser,
}

impl Sort {
    pub fn word(self) -> &'static str {
        match self {
            Sort::Main => "main",
            Sort::Browser => "browser",
        }
    }
}

/// The container of one agent and session: what it is, whether or not it exists yet.
pub struct Boxed {
    pub state: State,
    pub settings: Settings,
    pub identity: Identity,
    pub made: Made,
    /// What the caller said about the engine.
    asked: Option<String>,
    arguments: Vec<String>,
    pub name: String,
    pub kind: Sort,
    /// The hash of what decides the container.
    hash: String,
    /// The hash of those who share it.
    key: String,
}

impl Boxed {
    pub fn new(
        settings: Settings,
        identity: Identity,
        engine: (Option<String>, Vec<String>),
        for_real: bool,
    ) -> Result<Boxed, String> {
        let state = State::open()?;
        let (device, inode, _) = own_identity()?;
        let program = Mount {
            host: own_program()?,
            inside: super::PROGRAM.into(),
            writable: false,
            id: Some((device, inode)),
            key: "default".to_owned(),
        };
        let mut mounts = vec![program];
        mounts.extend(workspace::mounts(&settings, &identity, &state.path, for_real)?);
        let docker = &settings.docker;
        let made = Made {
            image: docker.image.value.clone(),
            network: docker.network.value.clone(),
            read_only_root: docker.read_only_root.value,
            tmpfs: docker.tmpfs.value.clone(),
            user: settings.user(),
            cap_drop: docker.cap_drop.value.clone(),
            memory: docker.memory.value,
            cpus: docker.cpus.value,
            pids: docker.pids.value,
            mounts,
            workdir: workspace::INSIDE.to_owned(),
            published: Vec::new(),
        };
        let key = hashed(&state, &shared_by(&settings, &identity))?;
        let hash = hashed(&state, &(&made, &docker.setup.value, own_identity()?, &engine))?;
        let name = named(&settings, &identity, "", &key, &hash);
        let (asked, arguments) = engine;
        Ok(Boxed { state, settings, identity, made, asked, arguments, name, kind: Sort::Main, hash, key })
    }

    /// The browser's container, for those who share this one. It sees no workspace, and has its own variables.
    pub fn browser(&self) -> Result<Boxed, String> {
        let browser = &self.settings.browser;
        if !browser.enabled.value {
            return Err(format!("there is no browser: browser.enabled is false ({})", browser.enabled.decided_by()));
        }
        let network = &self.settings.docker.network;
        if ["none", "host"].contains(&network.value.as_str()) {
            return Err(format!(
                "the browser's debugging port is published from a network of the engine, and docker.network is {} ({}); set it to bridge, or browser.enabled to false",
                network.value,
                network.decided_by()
            ));
        }
        let program = self.made.mounts.iter().filter(|mount| mount.inside == Path::new(super::PROGRAM));
        let made = Made {
            image: browser.image.value.clone(),
            mounts: program.cloned().collect(),
            pids: self.made.pids.max(BROWSER_PIDS),
            memory: self.made.memory.max(BROWSER_MEMORY),
            workdir: "/".to_owned(),
            published: vec![super::relay::PORT],
            ..self.made.clone()
        };
        let state = State::open()?;
        let env: Vec<(&String, &String)> = browser.env.value.iter().map(|(name, value)| (name, &value.0)).collect();
        let engine = (&self.asked, &self.arguments);
        let hash = hashed(&state, &(&made, Sort::Browser, env, browser.no_vnc.value, own_identity()?, engine))?;
        let (settings, identity) = (self.settings.clone(), self.identity.clone());
        let name = named(&settings, &identity, "browser-", &self.key, &hash);
        let (asked, arguments, key) = (self.asked.clone(), self.arguments.clone(), self.key.clone());
        Ok(Boxed { state, settings, identity, made, asked, arguments, name, kind: Sort::Browser, hash, key })
    }

    /// The note of the container, if it was made completely, and its use. The container may have died since.
    pub fn noted(&self) -> Result<Option<(Note, Lock)>, String> {
        let lock = self.state.using(&self.name)?;
        let Some(note) = self.state.note(&self.name) else { return Ok(None) };
        if note.prune != Some(self.rule()) {
            let _making = self.state.making(&self.name)?;
            self.keep_rule()?;
        }
        Ok(Some((note, lock)))
    }

    /// What `prune` keeps to for this container.
    fn rule(&self) -> (u64, u64) {
        let prune = &self.settings.prune;
        (prune.idle_hours.value, prune.max_age_days.value)
    }

    /// Writes this configuration's rule into the note. Only while holding `making`.
    pub(super) fn keep_rule(&self) -> Result<(), String> {
        match self.state.note(&self.name) {
            Some(note) if note.prune != Some(self.rule()) => {
                self.state.write_note(&self.name, &Note { prune: Some(self.rule()), ..note })
            }
            _ => Ok(()),
        }
    }

    /// The note of a container that was just made.
    pub(super) fn noted_as(&self, engine: Engine, about: About, door: Option<Door>) -> Result<Note, String> {
        let note = Note { engine, about, files: self.files(), prune: Some(self.rule()), door };
        self.state.write_note(&self.name, &note)?;
        Ok(note)
    }

    fn files(&self) -> Vec<Option<(u64, u64)>> {
        self.made.mounts.iter().map(|mount| mount.id).collect()
    }

    fn engine(&self) -> Result<(Engine, About), String> {
        match &self.asked {
            None => Engine::that_works(&self.arguments, |engine| engine),
            Some(name) => {
                let engine = Engine::named(name, &self.arguments)?;
                let about = engine.about()?;
                Ok((engine, about))
            }
        }
    }

    /// Makes the container unless it runs already. `say` gets what the user should know. Two processes at once make one
    /// container: the second waits for the first.
    pub fn ensure(&self, say: &dyn Fn(&str)) -> Result<(Note, Lock, bool), String> {
        let making = self.state.making(&self.name)?;
        let mut unused = None;
        if let Some(note) = self.state.note(&self.name)
            && note.engine.is_running(&self.name)? == Some(true)
        {
            // One with another directory than the configuration means is of no use, but what runs in it may end.
            unused = self.state.unused(&self.name).filter(|_| !note.files.is_empty() && note.files != self.files());
            if unused.is_none() {
                self.keep_rule()?;
                return Ok((note, self.state.using(&self.name)?, false));
            }
            say(&format!("{}: a directory that it has was replaced: it is made anew", self.name));
        }
        let (engine, about) = self.cleared(say)?;
        drop(unused);
        if let Some(told) = workspace::hand_over(&self.made.mounts, self.made.user, engine.kind, &about)? {
            say(&told);
        }
        let engine = self.create(engine, &about)?;
        if let Some(line) = &self.settings.docker.setup.value {
            self.set_up(&engine, line).inspect_err(|_| drop(engine.remove(&self.name)))?;
        }
        let note = self.noted_as(engine, about, None)?;
        let using = self.state.using(&self.name)?;
        drop(making);
        Ok((note, using, true))
    }

    /// The engine, without a container of this name that died or was never finished, and without idle ones of an older
    /// configuration. Only while holding `making`.
    pub(super) fn cleared(&self, say: &dyn Fn(&str)) -> Result<(Engine, About), String> {
        let (engine, about) = self.engine()?;
        self.state.forget(&self.name);
        engine.remove(&self.name)?;
        self.replaced(&engine, say);
        Ok((engine, about))
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        let session = match self.settings.scope.value {
            Scope::Session => self.identity.session.clone(),
            _ => "*".to_owned(),
        };
        let agent =
            if self.settings.scope.value == Scope::Shared { "*".to_owned() } else { self.identity.agent.clone() };
        vec![
            (LABEL, self.kind.word().to_owned()),
            ("gatekeeper.owner", rustix::process::geteuid().as_raw().to_string()),
            ("gatekeeper.agent", agent),
            ("gatekeeper.session", session),
            ("gatekeeper.scope", self.settings.scope.value.word().to_owned()),
            ("gatekeeper.key", self.key.clone()),
            ("gatekeeper.config", self.hash.clone()),
            ("gatekeeper.created", state::now().to_string()),
        ]
    }

    /// Creates the container. If the engine's default runtime does not work here, tries once more with runc and without
    /// systemd, neither of which weakens anything.
    pub(super) fn create(&self, engine: Engine, about: &About) -> Result<Engine, String> {
        let labels = self.labels();
        let error = match engine.create(&self.name, &self.made, &labels, about) {
            Ok(_) => return Ok(engine),
            Err(error) => error,
        };
        let _ = engine.remove(&self.name);
        let runtime = ["cgroup", "crun", "OCI runtime"].iter().any(|word| error.contains(word));
        for other in engine.variants().into_iter().skip(1).filter(|_| runtime) {
            if other.create(&self.name, &self.made, &labels, about).is_ok() {
                return Ok(other);
            }
            let _ = other.remove(&self.name);
        }
        Err(error)
    }

    /// Removes the containers that an older configuration made for the same agents and sessions, if nothing runs in them.
    fn replaced(&self, engine: &Engine, say: &dyn Fn(&str)) {
        for old in engine.list(&format!("gatekeeper.key={}", self.key)).unwrap_or_default() {
            if old.name == self.name
                || !old.name.starts_with(PREFIX)
                || old.labels.get(LABEL).map(String::as_str) != Some(self.kind.word())
            {
                continue;
            }
            self.state.mark_replaced(&old.name);
            match take_away(&self.state, engine, &old.name, false) {
                Ok(true) => say(&format!("the configuration changed: {} was replaced", old.name)),
                Ok(false) => say(&format!(
                    "the configuration changed: commands still run in {}, which will be removed when it is idle",
                    old.name
                )),
                Err(error) => say(&error),
            }
        }
    }

    /// setupCommand, once, by the image's sh. It is the operator's own, so only the container confines it.
    fn set_up(&self, engine: &Engine, line: &str) -> Result<(), String> {
        let user = format!("{}:{}", self.made.user.0, self.made.user.1);
        let mut words = vec!["exec", "--user", &user, &self.name];
        words.extend(["sh", "-lc", line]);
        let output = engine.command(words).output().map_err(|error| format!("setupCommand: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let read_only =
                    if self.made.read_only_root { " (the root is read-only: docker.readOnlyRoot)" } else { "" };
                Err(format!("setupCommand: {}: {}{read_only}", output.status, super::engine::complaint(&output.stderr)))
            }
        }
    }
}

/// Chromium has about 200 threads with one page.
const BROWSER_PIDS: u64 = 1024;
/// Less ends it while it starts.
const BROWSER_MEMORY: u64 = 1 << 30;

fn named(settings: &Settings, identity: &Identity, kind: &str, key: &str, hash: &str) -> String {
    let shown = if settings.scope.value == Scope::Shared { "shared" } else { &identity.agent };
    let slug: String = shown.chars().filter(char::is_ascii_alphanumeric).take(24).collect();
    format!("{PREFIX}{kind}{}-{key}-{hash}", slug.to_ascii_lowercase())
}

/// Who shares a container.
fn shared_by(settings: &Settings, identity: &Identity) -> Vec<String> {
    let owner = rustix::process::geteuid().as_raw().to_string();
    let scope = settings.scope.value.word().to_owned();
    match settings.scope.value {
        Scope::Shared => vec![owner, scope],
        Scope::Agent => vec![owner, scope, identity.agent.clone()],
        Scope::Session => vec![owner, scope, identity.agent.clone(), identity.session.clone()],
    }
}

/// Changes when gatekeeper itself is updated: both sides must speak the same protocol.
fn own_identity() -> Result<(u64, u64, i64), String> {
    let stat = rustix::fs::stat("/proc/self/exe").map_err(|error| format!("gatekeeper itself: {error}"))?;
    Ok((stat.st_dev, stat.st_ino, stat.st_mtime as i64))
}

fn hashed(state: &State, value: &impl Serialize) -> Result<String, String> {
    let mut bytes = state.key()?.to_vec();
    bytes.extend(serde_json::to_vec(value).map_err(|error| error.to_string())?);
    Ok(hexadecimal(sha256(&bytes).get(..6).unwrap_or_default()))
}
