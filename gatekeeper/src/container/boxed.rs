//! Makes, finds and removes containers. The name of a container has the hash of everything that decides what it is, so a
//! changed configuration never runs in the old container: it gets a new one, and the old one goes when it is idle.

use super::engine::{About, Engine, Listed, Made, Mount};
use super::settings::{Prune, Scope, Settings};
use super::state::{self, Lock, Note, State, hexadecimal, own_program};
use super::workspace::{self, Identity};
use crate::policy::Word;
use sandbox_contract::sha256;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LABEL: &str = "gatekeeper.box";
const PREFIX: &str = "gatekeeper-box";

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
    /// The hash of what decides the container.
    hash: String,
    /// The hash of those who share it.
    key: String,
}

/// A container of ours.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub name: String,
    pub kind: String,
    pub agent: String,
    pub session: String,
    pub scope: String,
    pub image: String,
    pub running: bool,
    pub in_use: bool,
    pub config: String,
    /// Seconds since 1970.
    pub created: u64,
    pub last_used: u64,
}

/// What removed a container, or why it stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removal {
    pub name: String,
    pub removed: bool,
    pub why: String,
}

impl Boxed {
    pub fn new(
        settings: Settings,
        identity: Identity,
        workspace: Option<&Path>,
        engine: (Option<String>, Vec<String>),
        for_real: bool,
    ) -> Result<Boxed, String> {
        let state = State::open()?;
        let mut mounts = vec![Mount { host: own_program()?, inside: super::PROGRAM.into(), writable: false }];
        mounts.extend(workspace::mounts(&settings, &identity, workspace, &state.path, for_real)?);
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
        let shown = if settings.scope.value == Scope::Shared { "shared" } else { &identity.agent };
        let slug: String = shown.chars().filter(char::is_ascii_alphanumeric).take(24).collect();
        let name = format!("{PREFIX}-{}-{key}-{hash}", slug.to_ascii_lowercase());
        let (asked, arguments) = engine;
        Ok(Boxed { state, settings, identity, made, asked, arguments, name, hash, key })
    }

    /// The note of the container, if it was made completely, and its use. The container may have died since.
    pub fn noted(&self) -> Result<Option<(Note, Lock)>, String> {
        let lock = self.state.using(&self.name)?;
        Ok(self.state.note(&self.name).map(|note| (note, lock)))
    }

    fn engine(&self) -> Result<(Engine, About), String> {
        match &self.asked {
            None => Engine::that_works(&self.arguments),
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
        if let Some(note) = self.state.note(&self.name)
            && note.engine.is_running(&self.name)? == Some(true)
        {
            return Ok((note, self.state.using(&self.name)?, false));
        }
        let (engine, about) = self.engine()?;
        // One that died, or that was never finished.
        self.state.forget(&self.name);
        engine.remove(&self.name)?;
        self.replaced(&engine, say);
        if let Some(told) = workspace::hand_over(&self.made.mounts, self.made.user, engine.kind, &about)? {
            say(&told);
        }
        let engine = self.create(engine, &about)?;
        if let Some(line) = &self.settings.docker.setup.value {
            self.set_up(&engine, line).inspect_err(|_| drop(engine.remove(&self.name)))?;
        }
        let note = Note { engine, about, token: None };
        self.state.write_note(&self.name, &note)?;
        let using = self.state.using(&self.name)?;
        drop(making);
        Ok((note, using, true))
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        let session = match self.settings.scope.value {
            Scope::Session => self.identity.session.clone(),
            _ => "*".to_owned(),
        };
        let agent =
            if self.settings.scope.value == Scope::Shared { "*".to_owned() } else { self.identity.agent.clone() };
        vec![
            (LABEL, "main".to_owned()),
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
    fn create(&self, engine: Engine, about: &About) -> Result<Engine, String> {
        let labels = self.labels();
        let error = match engine.create(&self.name, &self.made, &labels, about) {
            Ok(_) => return Ok(engine),
            Err(error) => error,
        };
        let _ = engine.remove(&self.name);
        let runtime = ["cgroup", "crun", "OCI runtime"].iter().any(|word| error.contains(word));
        if runtime && engine.kind == super::engine::Kind::Podman && engine.arguments.is_empty() {
            let arguments = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"].map(str::to_owned).to_vec();
            let other = Engine { arguments, ..engine };
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
            if old.name == self.name {
                continue;
            }
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

/// Removes a container unless something runs in it. `false`: it stays.
fn take_away(state: &State, engine: &Engine, name: &str, force: bool) -> Result<bool, String> {
    let _making = state.making(name)?;
    let unused = state.unused(name);
    if unused.is_none() && !force {
        return Ok(false);
    }
    state.forget(name);
    engine.remove(name).map(|()| true)
}

fn ours(engine: &Engine) -> Result<Vec<Listed>, String> {
    let owner = format!("gatekeeper.owner={}", rustix::process::geteuid().as_raw());
    let mut all = engine.list(&owner)?;
    all.retain(|listed| listed.labels.contains_key(LABEL));
    Ok(all)
}

/// The containers of this user.
pub fn list(engine: &Engine) -> Result<Vec<Entry>, String> {
    let state = State::open()?;
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let entry = |listed: Listed| {
        let label = |name: &str| listed.labels.get(name).cloned().unwrap_or_default();
        let created = label("gatekeeper.created").parse().unwrap_or(0);
        let in_use = state.making(&listed.name).ok().is_some_and(|_making| state.unused(&listed.name).is_none());
        Entry {
            kind: label(LABEL),
            agent: label("gatekeeper.agent"),
            session: label("gatekeeper.session"),
            scope: label("gatekeeper.scope"),
            config: label("gatekeeper.config"),
            image: listed.image.clone(),
            running: listed.running,
            in_use,
            created,
            last_used: state.last_used(&listed.name).map_or(created, seconds),
            name: listed.name.clone(),
        }
    };
    Ok(ours(engine)?.into_iter().map(entry).collect())
}

/// Removes containers that are idle or old, that died, or that were never finished. One in use stays.
pub fn prune(engine: &Engine, rule: &Prune) -> Result<Vec<Removal>, String> {
    let state = State::open()?;
    let now = state::now();
    let hours = |count: u64| Duration::from_secs(count.saturating_mul(3600)).as_secs();
    let mut removals = Vec::new();
    for entry in list(engine)? {
        let idle = now.saturating_sub(entry.last_used);
        let age = now.saturating_sub(entry.created);
        let (idle_hours, days) = (rule.idle_hours.value, rule.max_age_days.value);
        let why = match () {
            () if !entry.running => "it does not run",
            () if state.note(&entry.name).is_none() => "it was never finished",
            () if idle_hours > 0 && idle >= hours(idle_hours) => "idle for longer than prune.idleHours",
            () if days > 0 && age >= hours(days.saturating_mul(24)) => "older than prune.maxAgeDays",
            () => continue,
        };
        let removed = take_away(&state, engine, &entry.name, false)?;
        let why = if removed { why.to_owned() } else { format!("{why}, but commands run in it") };
        removals.push(Removal { name: entry.name, removed, why });
    }
    Ok(removals)
}

/// Removes the containers that match. Without `force`, one in use stays.
pub fn remove(engine: &Engine, matches: &dyn Fn(&Entry) -> bool, force: bool) -> Result<Vec<Removal>, String> {
    let state = State::open()?;
    let mut removals = Vec::new();
    for entry in list(engine)?.into_iter().filter(|entry| matches(entry)) {
        let removed = take_away(&state, engine, &entry.name, force)?;
        let why = if removed { "as asked" } else { "commands run in it; --force ends them" };
        removals.push(Removal { name: entry.name, removed, why: why.to_owned() });
    }
    Ok(removals)
}
