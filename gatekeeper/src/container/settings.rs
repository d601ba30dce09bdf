//! The settings of a box: every value with the key of the configuration that decided it.

use super::tools::Tools;
use crate::policy::{ValueError, Word};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A value, and the key that decided it; `None`: the default.
#[derive(Debug, Clone, PartialEq)]
pub struct Set<T> {
    pub value: T,
    pub key: Option<String>,
}

impl<T> Set<T> {
    pub fn default(value: T) -> Set<T> {
        Set { value, key: None }
    }

    pub fn put(&mut self, value: T, key: &str) {
        *self = Set { value, key: Some(key.to_owned()) };
    }

    /// The key, for people.
    pub fn decided_by(&self) -> &str {
        self.key.as_deref().unwrap_or("default")
    }
}

/// The value of a variable. Never printed: it may be an API key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Which sessions get a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Off,
    NonMain,
    All,
}

/// Which sessions share a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Session,
    Agent,
    Shared,
}

/// What the container sees of the agent's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    None,
    Ro,
    Rw,
}

impl Word for Mode {
    const WHAT: &'static str = "mode";
    const WORDS: &'static [(&'static str, Mode)] =
        &[("off", Mode::Off), ("non-main", Mode::NonMain), ("all", Mode::All)];
}

impl Word for Scope {
    const WHAT: &'static str = "scope";
    const WORDS: &'static [(&'static str, Scope)] =
        &[("session", Scope::Session), ("agent", Scope::Agent), ("shared", Scope::Shared)];
}

impl Word for Access {
    const WHAT: &'static str = "workspace access";
    const WORDS: &'static [(&'static str, Access)] = &[("none", Access::None), ("ro", Access::Ro), ("rw", Access::Rw)];
}

/// `docker`: the main container.
#[derive(Debug, Clone, PartialEq)]
pub struct Docker {
    pub image: Set<String>,
    pub network: Set<String>,
    pub read_only_root: Set<bool>,
    pub tmpfs: Set<Vec<String>>,
    /// `None`: the caller's own, or 501:501 if that is root.
    pub user: Set<Option<(u32, u32)>>,
    pub cap_drop: Set<Vec<String>>,
    pub memory: Set<u64>,
    pub cpus: Set<f64>,
    pub pids: Set<u64>,
    pub env: Set<BTreeMap<String, Secret>>,
    pub binds: Set<Vec<Set<Bind>>>,
    /// Run once by sh after the container was made.
    pub setup: Set<Option<String>>,
}

/// `browser`: the second container.
#[derive(Debug, Clone, PartialEq)]
pub struct Browser {
    pub enabled: Set<bool>,
    pub image: Set<String>,
    pub auto_start: Set<bool>,
    pub timeout_ms: Set<u64>,
    pub host_control: Set<bool>,
    pub env: Set<BTreeMap<String, Secret>>,
    pub no_vnc: Set<bool>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Prune {
    /// Zero: never.
    pub idle_hours: Set<u64>,
    /// Zero: never.
    pub max_age_days: Set<u64>,
}

/// A directory or file of the host in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub writable: bool,
}

/// Everything that a configuration decides for one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub mode: Set<Mode>,
    pub scope: Set<Scope>,
    pub access: Set<Access>,
    pub root: Set<PathBuf>,
    /// The agent's own workspace.
    pub workspace: Set<Option<PathBuf>>,
    pub docker: Docker,
    pub browser: Browser,
    pub prune: Prune,
    pub tools: Tools,
}

/// The image that the example configuration names; `containers/` builds it.
pub const IMAGE: &str = "openclaw-sandbox-common:bookworm-slim";
pub const BROWSER_IMAGE: &str = "openclaw-sandbox-browser:bookworm-slim";
const ROOT: &str = "~/.openclaw/sandboxes";

impl Default for Settings {
    /// The safe choice for each key that is missing: no network, no workspace of the user, nothing writable but /workspace
    /// and memory file systems.
    fn default() -> Settings {
        let tmpfs = ["/tmp:exec,mode=1777", "/var/tmp", "/run"].map(str::to_owned).to_vec();
        Settings {
            mode: Set::default(Mode::All),
            scope: Set::default(Scope::Agent),
            access: Set::default(Access::None),
            root: Set::default(PathBuf::from(ROOT)),
            workspace: Set::default(None),
            docker: Docker {
                image: Set::default(IMAGE.to_owned()),
                network: Set::default("none".to_owned()),
                read_only_root: Set::default(true),
                tmpfs: Set::default(tmpfs),
                user: Set::default(None),
                cap_drop: Set::default(vec!["ALL".to_owned()]),
                memory: Set::default(1 << 30),
                cpus: Set::default(1.0),
                pids: Set::default(256),
                env: Set::default(BTreeMap::new()),
                binds: Set::default(Vec::new()),
                setup: Set::default(None),
            },
            browser: Browser {
                enabled: Set::default(false),
                image: Set::default(BROWSER_IMAGE.to_owned()),
                auto_start: Set::default(true),
                timeout_ms: Set::default(30_000),
                host_control: Set::default(false),
                env: Set::default(BTreeMap::new()),
                no_vnc: Set::default(false),
            },
            prune: Prune { idle_hours: Set::default(24), max_age_days: Set::default(7) },
            tools: Tools::default(),
        }
    }
}

impl Settings {
    /// Whether this session runs in a container.
    pub fn is_boxed(&self, session: &str) -> bool {
        match self.mode.value {
            Mode::Off => false,
            Mode::NonMain => session != MAIN,
            Mode::All => true,
        }
    }

    /// What the user may not expect: the box gets another workspace than `workspaceAccess` says.
    pub fn without_workspace(&self) -> Option<String> {
        let (access, key) = (self.access.value, self.access.decided_by());
        (access != Access::None && self.workspace.value.is_none()).then(|| {
            format!(
                "workspaceAccess is {} ({key}), and no workspace is named (--workspace, or workspace in the configuration): the box has its own alone",
                access.word()
            )
        })
    }

    /// The user and group in the container.
    pub fn user(&self) -> (u32, u32) {
        let own = rustix::process::geteuid();
        let caller = if own.is_root() { (501, 501) } else { (own.as_raw(), rustix::process::getegid().as_raw()) };
        self.docker.user.value.unwrap_or(caller)
    }
}

/// The session that `non-main` leaves on the host.
pub const MAIN: &str = "main";

/// The name of an agent or session: it becomes part of a path, a label and a container's name.
pub fn name(what: &'static str, text: &str) -> Result<String, ValueError> {
    let more: &[char] =
        if what == "session" { &['.', '_', '-', '@', '+', ':', '#', '='] } else { &['.', '_', '-', '@', '+'] };
    let fits = |letter: char| letter.is_ascii_alphanumeric() || more.contains(&letter);
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if !starts || text.len() > 128 || !text.chars().all(fits) {
        return Err(ValueError::unusable(
            what,
            text,
            "a name starts with a letter or digit and has at most 128 letters, digits and . _ - @ + (a session also : # =)",
        ));
    }
    Ok(text.to_owned())
}
