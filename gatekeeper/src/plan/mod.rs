//! Plan: what a run will do, decided before anything is done. `run` executes it and `plan` prints it.
//!
//! Takes a request, a policy, a verdict and a host; gives a plan or a refusal. Reads the file system and changes nothing.

mod assemble;
pub mod browser;
pub mod caches;
pub mod commands;
mod derived;
pub mod disk;
pub mod doubts;
pub mod environment;
pub mod paths;
pub mod refusal;
mod search;
pub mod steps;
pub mod summary;
pub mod table;

use crate::check::{Target, Verdict};
use crate::host::User;
use crate::policy::{NetworkMode, Policy};
use crate::report::LayerReport;
use crate::request::{Browser, Inside, Purpose};
use paths::{PathPlan, Places, Tree};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
    /// The library that applies an exact list at main.
    pub preload: Option<PathBuf>,
    pub user: User,
    pub purpose: Purpose,
    /// The layers whose outcome is known before the run.
    pub layers: Vec<LayerReport>,
    /// Printed on stderr before the command starts.
    pub warnings: Vec<String>,
}

pub enum Seccomp {
    /// The profile asks for no filter, or the policy runs static programs without one.
    Off,
    /// Loaded before exec. `notify`: with a listener, unless an outer sandbox already has one.
    Filter { notify: bool },
}

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
}

impl Plan {
    /// Real paths of the trees in which the command may write.
    pub fn writable(&self) -> Vec<PathBuf> {
        self.landlock.iter().flat_map(|landlock| landlock.paths.writable()).collect()
    }

    /// Real paths inside those trees that the command may not change.
    pub fn protected(&self) -> Vec<PathBuf> {
        let paths = self.landlock.iter().map(|landlock| &landlock.paths);
        paths.flat_map(|paths| paths.protected.iter().chain(&paths.covered).cloned()).collect()
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

    /// What a list of commands cannot enforce, if the policy has one.
    pub fn commands_limit(&self) -> Option<&'static str> {
        self.policy.limits_execution().then_some(COMMANDS_LIMIT)
    }

    pub fn table(&self, supervised: bool) -> Table {
        let table = Table::new(&self.policy, &self.network, self.starts_programs, supervised);
        let table = table.for_user(&self.policy, self.user);
        let table = if self.landlock.is_some() { table } else { table.without_paths(&self.policy) };
        // Without the preload nothing narrows the list at main, so its denials apply from the first instruction.
        if self.widened() { table.without_main().denying(&self.policy) } else { table }
    }

    /// Whether an exact list stays widened by what program start-up needs, because no preload narrows it at main.
    pub fn widened(&self) -> bool {
        self.policy.starts_at_main() && self.preload.is_none()
    }

    /// Which read-only opens the supervisor watches, to record those that the path layers deny.
    pub fn reads(&self) -> Reads {
        match self.purpose {
            Purpose::Explain => Reads::All,
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
