//! Request: what was asked, before anything is decided about it.

use crate::policy::Document;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Request {
    pub asked: Asked,
    /// Where the policy is anchored: what it grants for the working directory, and its relative paths.
    pub cwd: PathBuf,
    /// Where the command starts, if elsewhere; grants nothing.
    pub starts_in: Option<PathBuf>,
    /// The caller's environment, of which the command gets what the policy passes on.
    pub environment: Vec<(OsString, OsString)>,
    pub home: Option<PathBuf>,
    /// The flags, as a policy laid over the file's.
    pub flags: Document,
    pub config: Option<PathBuf>,
    /// Whether the run's own directory is left behind, for debugging.
    pub keep_tmp: bool,
    /// The gatekeeper program, for what takes a process of its own: to clean up after a front that was killed, and
    /// namespaces. `None` in a program that embeds the library and has none at hand.
    pub helper: Option<PathBuf>,
    pub purpose: Purpose,
    /// What was done around this process already, where it runs inside of bubblewrap.
    pub inside: Option<Inside>,
    /// Where the command is a browser.
    pub browser: Option<Browser>,
    /// Trees that other runs of the same session may write: what they left there is not trusted here.
    pub also_written: Vec<PathBuf>,
}

/// What a browser has beside what its policy grants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Browser {
    /// Descriptors 3 and 4 stay open: the pipe by which it is driven.
    pub pipe: bool,
    /// It is driven by a port of this machine.
    pub port: bool,
    /// Told to do without its own sandbox.
    pub without_sandbox: bool,
    /// Where it keeps itself; without one, in the private temporary directory.
    pub profile: Option<PathBuf>,
    pub downloads: Option<PathBuf>,
    /// What it sees of /etc, by the names that it has there.
    pub etc: Vec<PathBuf>,
    pub devices: Vec<PathBuf>,
}

/// What bubblewrap has made for a gatekeeper inside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// A network namespace with nothing but a loopback of its own.
    pub own_network: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A program and its arguments.
    Command(Vec<OsString>),
    /// A line for the shell.
    Line(OsString),
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    #[default]
    Confine,
    /// And refused reads are recorded as well.
    Explain,
    /// Not to be confined, but to be learned from.
    Learn,
}

impl Asked {
    pub(crate) fn words(&self) -> Vec<OsString> {
        match self {
            Asked::Command(words) => words.clone(),
            Asked::Line(line) => vec![OsString::from("sh"), OsString::from("-c"), line.clone()],
        }
    }
}

impl Request {
    /// The words that are executed.
    pub fn words(&self) -> Vec<OsString> {
        self.asked.words()
    }

    /// Where the command starts.
    pub fn directory(&self) -> &Path {
        self.starts_in.as_deref().unwrap_or(&self.cwd)
    }

    pub fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
