//! Plan: what a run will do, decided before anything is done. `run` executes it and `plan` prints it.
//!
//! Takes a request, a policy, a verdict and a host; gives a plan or a refusal. Reads the file system and changes nothing.

pub mod again;
mod assemble;
pub mod browser;
pub mod caches;
pub mod commands;
mod derived;
pub mod disk;
pub mod doubts;
pub mod environment;
pub mod facts;
pub mod glance;
mod listing;
pub mod paths;
pub mod record;
pub mod refusal;
mod search;
pub mod steps;
pub mod summary;
pub mod table;

use crate::check::{Target, Verdict};
use crate::host::User;
use crate::policy::{NetworkMode, Policy, Profile};
use crate::report::LayerReport;
use crate::request::{Ask, Browser, Inside, Purpose};
use paths::{PathPlan, Places, Tree};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use table::{Reads, Table};

/// Everything that a run will do. `steps` describes it, `enforce` carries it out.
pub struct Plan {
    pub policy: Policy,
    pub verdict: Verdict,
    pub target: Target,
    /// The argv that exec gets: the checked target's words, then the caller's.
    pub argv: Vec<OsString>,
    /// The command as the caller gave it.
    pub command: Vec<OsString>,
    pub places: Places,
    /// The working directory in which the command starts.
    pub directory: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    pub network: NetworkMode,
    /// The address of the proxy, in network mode `hosts`.
    pub proxy: Option<SocketAddr>,
    pub inside: Option<Inside>,
    pub browser: Option<Browser>,
    /// Why the browser starts without its own sandbox; `None` if it has one.
    pub no_inner_sandbox: Option<String>,
    /// Whether the command may start programs and processes.
    pub starts_programs: bool,
    pub seccomp: Seccomp,
    pub landlock: Option<Landlock>,
    /// The stage that replaces the working directory.
    pub stage: Option<Staged>,
    /// The library that applies an exact list at main.
    pub preload: Option<PathBuf>,
    pub user: User,
    pub purpose: Purpose,
    /// Set if refused calls wait for a decision.
    pub ask: Option<Ask>,
    /// The layers whose outcome is known before the run.
    pub layers: Vec<LayerReport>,
    /// Printed on stderr before the command starts.
    pub warnings: Vec<String>,
    /// Whether the command goes without any network, because this host makes no network namespace for it.
    pub lost_network: bool,
    /// Set once this host has shown that it makes no mounts.
    pub unmounted: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seccomp {
    /// The profile asks for no filter, or the policy runs static programs without one.
    ///
    /// `marked`: one that allows everything is loaded, by which a `gatekeeper serve` recognises a confined command. Landlock shows
    /// nowhere, but the kernel counts the filters of a process. `false` where this host loads none.
    Off { marked: bool },
    /// Loaded before exec. `notify`: with a listener, unless an outer sandbox already has one.
    Filter { notify: bool },
}

/// A stage, by the paths that the run mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    pub name: String,
    /// The real path of the working directory that the caller named.
    pub tree: PathBuf,
    pub source: StageSource,
    /// The directory of all stages. The command can neither read nor write it.
    pub store: PathBuf,
}

impl Staged {
    /// The copy in which the command works instead of the working directory.
    pub fn copy(&self) -> Option<PathBuf> {
        match &self.source {
            StageSource::Elsewhere(copy) => Some(copy.clone()),
            _ => None,
        }
    }

    /// What a mount covers: every stage, where mounts can be made.
    fn covered(&self) -> Option<PathBuf> {
        let mounts = matches!(self.source, StageSource::Overlay { .. } | StageSource::Copy(_));
        mounts.then(|| self.store.clone())
    }

    /// What the command must not read: every stage. Of a copy in which it starts, everything but the copy.
    fn closed(&self, tree: &dyn Tree) -> Vec<PathBuf> {
        match &self.source {
            StageSource::Unmade => Vec::new(),
            StageSource::Overlay { .. } | StageSource::Copy(_) => vec![self.store.clone()],
            StageSource::Elsewhere(copy) => {
                let own = copy.parent().unwrap_or(copy);
                let beside = |directory: &Path| tree.entries(directory).unwrap_or_default();
                let others = beside(&self.store).into_iter().filter(|other| other != own);
                others.chain(beside(own).into_iter().filter(|part| part != copy)).collect()
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageSource {
    /// overlayfs over the working directory; changes go to `upper`.
    Overlay { upper: PathBuf, work: PathBuf },
    /// A copy, mounted over the working directory.
    Copy(PathBuf),
    /// A copy in which the command starts, because nothing can be mounted.
    Elsewhere(PathBuf),
    /// A stage that does not exist yet, in a plan that is only printed.
    Unmade,
}

#[derive(Debug, Clone)]
pub struct Landlock {
    pub abi: i32,
    pub paths: PathPlan,
}

/// What a run creates before it is planned. `plan` creates nothing and passes placeholders.
#[derive(Default)]
pub struct Made {
    /// The private temporary directory, if the profile gives one.
    pub tmp: Option<PathBuf>,
    /// libsandbox.so as a file, if an exact list needs it.
    pub library: Option<PathBuf>,
    /// The proxy's address, in network mode `hosts`.
    pub proxy: Option<SocketAddr>,
    /// Why a browser cannot use its own sandbox on this host.
    pub no_inner_sandbox: Option<String>,
    /// The stage, if the caller named one.
    pub stage: Option<Staged>,
    /// What makes clients trust the proxy, if the policy has rules for requests.
    pub trust: Option<Trust>,
    /// Why the command gets no network where the policy gives it one of its own.
    pub no_own_network: Option<String>,
}

/// The files by which clients trust the certificates of a run, and the variables that hold placeholders for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// PEM.
    pub bundle: PathBuf,
    /// A Java keystore.
    pub java: PathBuf,
    /// The settings of wget, which with GnuTLS reads no variable for certificates.
    pub wget: PathBuf,
    pub variables: Vec<(String, String)>,
}

impl Plan {
    /// Real paths of the trees in which the command may write.
    pub fn writable(&self) -> Vec<PathBuf> {
        self.landlock.iter().flat_map(|landlock| landlock.paths.writable()).collect()
    }

    /// Whether it is known that nothing can be mounted for this run.
    pub fn is_unmounted(&self) -> bool {
        self.unmounted.load(Ordering::Relaxed)
    }

    /// Real paths of the directories for temporary files that are private to the command.
    pub fn temporary(&self) -> Vec<PathBuf> {
        let paths = self.landlock.iter().filter(|_| !self.is_unmounted()).map(|landlock| &landlock.paths);
        paths.flat_map(|paths| paths.temporary.iter().map(|grant| grant.path.clone())).collect()
    }

    /// Everything that the command may write: trees that stay, and private directories.
    pub fn written(&self) -> Vec<PathBuf> {
        self.writable().into_iter().chain(self.temporary()).collect()
    }

    /// Real paths inside those trees that the command may not change.
    pub fn protected(&self) -> Vec<PathBuf> {
        let paths = self.landlock.iter().map(|landlock| &landlock.paths);
        paths.flat_map(|paths| paths.protected.iter().chain(&paths.covered).cloned()).collect()
    }

    /// Real paths of directories on which a stage or a private directory is mounted for the command.
    pub fn mounted(&self) -> Vec<PathBuf> {
        let private = self.landlock.iter().flat_map(|landlock| &landlock.paths.private);
        let private = private.cloned().chain(self.temporary());
        private.chain(self.stage.iter().map(|stage| stage.tree.clone())).collect()
    }

    /// The real path of a path in the policy; `None` if a link that a command could have made lies on the way.
    pub fn real(&self, path: &Path) -> Option<PathBuf> {
        let hostile = self.places.hostile(&disk::Disk, &self.writable());
        disk::Disk.reach(&self.places.absolute(path), &hostile).ok().flatten()
    }

    /// The caller's descriptors that the command inherits: the pipe that drives a browser.
    pub fn inherited(&self) -> Vec<i32> {
        let driven = self.browser.as_ref().is_some_and(|browser| browser.pipe);
        if driven { vec![3, 4] } else { Vec::new() }
    }

    /// Whether this run makes a network namespace. Inside bubblewrap the gatekeeper outside may have made it already.
    pub fn makes_own_network(&self) -> bool {
        let has = self.inside.is_some_and(|inside| inside.own_network);
        self.network == NetworkMode::Own && self.purpose != Purpose::Learn && !has
    }

    /// Whether the command has a network namespace that holds only processes of the run.
    pub fn has_own_network(&self) -> bool {
        self.inside.is_some_and(|inside| inside.own_network) || self.makes_own_network()
    }

    /// Whether `--net own` can be added to the flags of this run, and takes no network away but the machine's loopback.
    pub fn takes_own_network(&self) -> bool {
        let network = &self.policy.network;
        let reaches_none = matches!(self.network, NetworkMode::None | NetworkMode::Loopback);
        reaches_none && network.ports.is_empty() && self.inside.is_none() && self.browser.is_none()
    }

    /// What a list of commands cannot enforce, if the policy has one.
    pub fn commands_limit(&self) -> Option<&'static str> {
        self.policy.limits_execution().then_some(COMMANDS_LIMIT)
    }

    pub fn table(&self, supervised: bool) -> Table {
        let table = Table::new(&self.policy, &self.network, self.starts_programs, supervised);
        let table = table.for_user(&self.policy, self.user);
        let table = if self.landlock.is_some() { table } else { table.without_paths(&self.policy) };
        let table = if self.covers_truncation() { table.covering_truncation(supervised) } else { table };
        // Without the preload nothing narrows the list at main, so its denials apply from the first instruction.
        if self.widened() { table.without_main().denying(&self.policy) } else { table }
    }

    /// Whether the filter and the supervisor keep truncation to the granted paths, because Landlock does not: before ABI 3.
    pub fn covers_truncation(&self) -> bool {
        let exact = |profile: &Profile| matches!(profile, Profile::Unrestricted | Profile::Custom);
        self.landlock.as_ref().is_some_and(|landlock| landlock.abi < 3) && !self.policy.profiles.iter().any(exact)
    }

    /// Whether an exact list stays widened by what program start-up needs, because no preload narrows it at main.
    pub fn widened(&self) -> bool {
        self.policy.starts_at_main() && self.preload.is_none()
    }

    /// Which read-only opens the supervisor watches, to record those that the path layers deny.
    pub fn reads(&self) -> Reads {
        match self.purpose {
            Purpose::Explain => Reads::All,
            // Every refused read is asked.
            _ if self.ask.is_some() => Reads::All,
            // A browser opens files all the time, and its sandboxed processes see another root.
            _ if self.browser.is_some() => Reads::Unseen,
            _ => Reads::ByPath,
        }
    }

    /// The table with notifications for the calls that the path layers may deny, so that the denials are recorded.
    pub fn watched_table(&self, supervised: bool) -> Table {
        match self.purpose {
            Purpose::Learn => Table::learning(),
            _ if supervised && self.landlock.is_some() => self.table(supervised).watching(self.reads()),
            _ => self.table(supervised),
        }
    }
}

const COMMANDS_LIMIT: &str = "only listed programs can be executed; this does not limit what they read and run \
                              themselves (scripts, libraries, a file given to ld.so)";
