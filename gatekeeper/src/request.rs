//! Request: what the caller asked for, before any decision about it.

use crate::policy::{Document, pattern};
use crate::trust::{self, Hostile, Untrusted};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The `helper` of the gatekeeper program: itself.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

/// One run to carry out. [`Request::new`] fills in the defaults; change what differs with `Request { .., ..new }`.
#[derive(Debug, Clone)]
pub struct Request {
    pub asked: Asked,
    /// Anchors the policy: the grants for the working directory and the policy's relative paths start here.
    pub cwd: PathBuf,
    /// Where the command starts, if not in `cwd`. Grants nothing.
    pub starts_in: Option<PathBuf>,
    /// The caller's environment. The policy decides which variables the command gets.
    pub environment: Vec<(OsString, OsString)>,
    pub home: Option<PathBuf>,
    /// The command line's flags as a policy, merged over the policy file.
    pub flags: Document,
    pub config: Option<PathBuf>,
    /// Keep the run's directory afterwards, for debugging.
    pub keep_tmp: bool,
    /// The gatekeeper program, for the parts that need a second process: cleaning up after a killed front end, and
    /// namespaces. `None` in a program that embeds the library without it.
    pub helper: Option<PathBuf>,
    pub purpose: Purpose,
    /// What bubblewrap has already set up, if this process runs inside it.
    pub inside: Option<Inside>,
    /// Set if the command is a browser.
    pub browser: Option<Browser>,
    /// The stage that takes the changes below the working directory.
    pub stage: Option<Staging>,
    /// Trees that other runs of the same session may write. Links found there are not trusted.
    pub also_written: Vec<PathBuf>,
    /// Set if refused calls wait for a decision.
    pub ask: Option<Ask>,
    /// What the gatekeeper outside of bubblewrap has issued, for the one inside.
    pub issued: Option<Issued>,
    /// The file of the audit trail, for a run of the library. The programs open theirs before they make a request.
    pub audit: Option<PathBuf>,
    /// The socket file of the server that was asked. A command that could replace it would be given the orders of other clients.
    pub socket: Option<PathBuf>,
}

/// How a run asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// How long to wait for an answer.
    pub patience: Duration,
    /// Files of gatekeeper that no answer may open for writing: its results, and the directory of its state.
    pub never: Vec<PathBuf>,
}

impl Ask {
    /// The time that a question waits unless the caller sets another one.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}

impl Default for Ask {
    fn default() -> Ask {
        Ask { patience: Ask::PATIENCE, never: Vec::new() }
    }
}

/// The public part of what a run needs to look into requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Certificates as PEM, and as a Java keystore.
    pub bundle: Vec<u8>,
    pub java: Vec<u8>,
    /// The command's variables with their placeholders.
    pub placeholders: Vec<(String, String)>,
}

/// What a browser needs beyond the grants of its policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Browser {
    /// Descriptors 3 and 4 stay open: the caller drives the browser over them.
    pub pipe: bool,
    /// The caller drives the browser over a TCP port on this machine.
    pub port: bool,
    /// The caller asked to run without the browser's own sandbox.
    pub without_sandbox: bool,
    /// The profile directory; without one, the browser uses the private temporary directory.
    pub profile: Option<PathBuf>,
    pub downloads: Option<PathBuf>,
    /// Entries of /etc that the browser may see.
    pub etc: Vec<PathBuf>,
    pub devices: Vec<PathBuf>,
}

/// A stage that the caller named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staging {
    pub name: String,
    /// How many bytes a copy may take, where no overlay can be mounted.
    pub limit: u64,
    /// Whether to show the progress of a copy on the terminal.
    pub progress: bool,
}

/// What bubblewrap has set up for the gatekeeper that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// A network namespace that contains only a loopback interface.
    pub own_network: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A program and its arguments.
    Command(Vec<OsString>),
    /// A command line for `sh -c`.
    Line(OsString),
}

/// Why a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Purpose {
    #[default]
    Confine,
    /// Confine it, and record denied reads as well.
    Explain,
    /// Record what it does, to write a policy from. Nothing is denied.
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
    /// A request to confine a command, with an empty policy. `home` comes from HOME in `environment`, if that is an
    /// absolute path.
    pub fn new(asked: Asked, cwd: PathBuf, environment: Vec<(OsString, OsString)>) -> Request {
        let request = Request {
            asked,
            cwd,
            starts_in: None,
            environment: Vec::new(),
            home: None,
            flags: Document::default(),
            config: None,
            keep_tmp: false,
            helper: None,
            purpose: Purpose::Confine,
            inside: None,
            browser: None,
            stage: None,
            also_written: Vec::new(),
            ask: None,
            issued: None,
            audit: None,
            socket: None,
        };
        request.with_environment(environment)
    }

    /// The same request for a caller with another environment, and so another home directory.
    pub fn with_environment(mut self, environment: Vec<(OsString, OsString)>) -> Request {
        self.environment = environment;
        self.home = self.variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        self
    }

    /// Denies these paths, which are no patterns.
    pub(crate) fn deny(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.flags.paths.deny.extend(paths.into_iter().map(|path| pattern::literal(&path)));
    }

    /// The argument vector to execute.
    pub fn words(&self) -> Vec<OsString> {
        self.asked.words()
    }

    /// The directory in which the command starts.
    pub fn directory(&self) -> &Path {
        self.starts_in.as_deref().unwrap_or(&self.cwd)
    }

    /// Whether two requests are the same but for the command.
    pub(crate) fn differs_in_command_only(&self, other: &Request) -> bool {
        let Request {
            asked: _,
            cwd,
            starts_in,
            environment,
            home,
            flags,
            config,
            keep_tmp,
            helper,
            purpose,
            inside,
            browser,
            stage,
            also_written,
            ask,
            issued,
            audit,
            socket,
        } = self;
        (cwd, starts_in, home, config) == (&other.cwd, &other.starts_in, &other.home, &other.config)
            && (keep_tmp, helper, purpose, inside) == (&other.keep_tmp, &other.helper, &other.purpose, &other.inside)
            && (browser, stage, also_written) == (&other.browser, &other.stage, &other.also_written)
            && (ask, issued) == (&other.ask, &other.issued)
            && (audit, socket) == (&other.audit, &other.socket)
            && (flags, environment) == (&other.flags, &other.environment)
    }

    pub fn variable(&self, name: &str) -> Option<&OsString> {
        variable(&self.environment, name)
    }
}

/// The real path of the working directory that the caller named. A link that a confined command may have planted is an
/// error.
pub fn working_directory(given: &Path, here: &Path, hostile: &Hostile) -> Result<PathBuf, String> {
    let name = given.display();
    match trust::walk(&here.join(given), hostile) {
        Ok(found) if found.is_directory() => Ok(found.real),
        Ok(_) => Err(format!("{name}: not a directory")),
        // The name is already in front.
        Err(Untrusted::Io { error, .. }) => Err(format!("{name}: {error}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The value of a variable in an environment.
pub fn variable<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsString> {
    environment.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}
