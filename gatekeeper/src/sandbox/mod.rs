//! The library's front door: a [`Sandbox`] is described, run, and answers with a [`Report`]. Whatever goes wrong on the
//! way is a report as well: there is no path on which the command runs less confined than was asked.
//!
//! ```
//! use gatekeeper::{Outcome, Sandbox};
//!
//! let report = Sandbox::builder().command(["echo", "hello"]).run();
//! assert_eq!(report.outcome, Outcome::Exited);
//! assert_eq!(report.captured.unwrap().stdout, "hello\n");
//! ```
//!
//! What was denied comes as values, each with the grant that would allow it; [`Builder::grant`] takes that grant, once
//! somebody has said yes to it:
//!
//! ```
//! use gatekeeper::Sandbox;
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path().canonicalize().unwrap();
//! let touch = Sandbox::builder().cwd(&directory).command(["touch", "new"]);
//! let report = touch.clone().run();
//! let denial = &report.denials[0];
//! assert_eq!(denial.path.as_deref(), directory.join("new").to_str());
//!
//! let asked = denial.allow_with.as_deref().unwrap();
//! assert_eq!(asked, format!("--write {}", directory.display()));
//! assert_eq!(touch.grant(asked).run().exit_code, 0);
//! assert!(directory.join("new").exists());
//! ```
//!
//! [`Builder::spawn`] runs it on a thread of its own. The [`Running`] that it gives is a plain future, for tokio or any
//! other executor; to drop it is to end the command with everything that it started.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use gatekeeper::{Outcome, Sandbox};
//! use std::time::Duration;
//!
//! let running = Sandbox::builder().timeout(Duration::from_millis(100)).command(["sleep", "60"]).spawn();
//! assert_eq!(running.await.outcome, Outcome::Timeout);
//! # });
//! ```
//!
//! # What an embedding program gives up
//!
//! A library leaves the process that it is in as it found it: no signal mask, handler, subreaper, dumpability, working
//! directory or variable is changed. The program `gatekeeper` may change those of its own process, so that beside it
//! the library is weaker in three things:
//!
//! - If the guardian (the process between this one and the command) is killed by somebody outside, `gatekeeper` ends
//!   everything that is left. Here only the command's process group, and its cgroup where a limit made one, are ended:
//!   what had left the group goes on, as confined as it was.
//! - `gatekeeper` makes itself undumpable. This process stays readable to others of the same user; the command is kept
//!   out of it by Landlock and by the filter, not by that third wall.
//! - Signals that this process gets are not passed on to the command.
//!
//! Namespaces by bubblewrap need the program `gatekeeper`, for inside: [`Builder::gatekeeper`] names it.
//!
//! Each run forks this process once, without running its `atfork` handlers: with a large heap, that takes the time to
//! copy its page tables. A program that waits for any child (`waitpid(-1)`) may take the guardian's end away from here;
//! the report does not depend on it.

mod builder;
mod running;

pub use builder::Builder;
pub use running::Running;

use crate::plan::{Plan, refusal::Refusal};
use crate::policy::Document;
use crate::report::Report;
use crate::request::{Asked, Purpose, Request};
use crate::run::{self, Options};
use crate::supervise::Embedding;
use crate::trust::{self, Hostile, Untrusted};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A command and its confinement, described and ready to run as often as one likes.
#[derive(Debug, Clone)]
pub struct Sandbox {
    asked: Asked,
    flags: Document,
    config: Option<PathBuf>,
    cwd: Option<PathBuf>,
    starts_in: Option<PathBuf>,
    helper: Option<PathBuf>,
    explain: bool,
    input: Input,
    /// Where both streams go; `None`: into the report.
    output: Option<[Arc<OwnedFd>; 2]>,
    /// The first thing that was described wrongly: nothing runs.
    wrong: Option<String>,
    /// Trees that other runs of the same session may write.
    also_written: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
enum Input {
    Nothing,
    Bytes(Arc<[u8]>),
    From(Arc<OwnedFd>),
}

impl Sandbox {
    /// Describes a sandbox: as it stands, one that may read files that hold no credentials, and compute.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// One for a request that was made elsewhere, with what the command is to read.
    #[cfg(feature = "mcp")]
    pub(crate) fn of(request: Request, input: Vec<u8>) -> Sandbox {
        Sandbox {
            asked: request.asked,
            flags: request.flags,
            config: request.config,
            cwd: Some(request.cwd),
            starts_in: request.starts_in,
            helper: request.helper,
            explain: request.purpose == Purpose::Explain,
            input: Input::Bytes(input.into()),
            output: None,
            wrong: None,
            also_written: request.also_written,
        }
    }

    /// Runs the command to the end of its whole tree. Blocks the calling thread.
    pub fn run(&self) -> Report {
        match cancel() {
            // Nobody else has it.
            Ok(never) => self.run_until(never),
            Err(error) => self.failed(&format!("start: {error}")),
        }
    }

    /// The steps that a run would take, and changes nothing; or the report of a run that would not take place.
    ///
    /// # Errors
    /// What is described wrongly, a command that is not found or not allowed, a layer that this machine lacks.
    pub fn plan(&self) -> Result<Plan, Box<Report>> {
        let wrong = self.wrong.clone().map_or(Ok(()), Err);
        let request = wrong.and_then(|()| self.request()).map_err(|error| Box::new(self.failed(&error)))?;
        run::prepare(&request, false)
            .and_then(|prepared| {
                // Nothing runs by it, so there is no other holder.
                Arc::into_inner(prepared.plan).ok_or_else(|| Box::new(Refusal::setup("the plan is in use".to_owned())))
            })
            .map_err(|refusal| Box::new(refusal.report(run::lossy(&request.words()), Duration::ZERO)))
    }

    /// Runs the command on a thread of its own.
    pub fn spawn(&self) -> Running {
        Running::start(self.clone())
    }

    fn run_until(&self, cancel: OwnedFd) -> Report {
        if let Some(wrong) = &self.wrong {
            return self.failed(wrong);
        }
        let prepared = self.request().and_then(|request| Ok((request, self.streams()?)));
        let (request, streams) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.failed(&error),
        };
        let embedding = Embedding { streams, cancel };
        run::run(
            &request,
            &Options {
                capture: self.output.is_none(),
                spill: None,
                signals: None,
                // Every warning is a layer in the report, too.
                warn: &|_| {},
                outside: None,
                embedding: Some(&embedding),
            },
        )
    }

    fn request(&self) -> Result<Request, String> {
        let here = std::env::current_dir().map_err(|error| format!("working directory: {error}"))?;
        let cwd = self.cwd.as_ref().map_or(Ok(here.clone()), |given| {
            let mut hostile = Hostile::here();
            self.also_written.iter().for_each(|tree| hostile.add(tree));
            let found = trust::walk(&here.join(given), &hostile);
            found.map(|found| found.real).map_err(|error| match error {
                Untrusted::Io { error, .. } => format!("cwd {}: {error}", given.display()),
                error => format!("cwd {}: {error}", given.display()),
            })
        })?;
        if !cwd.is_dir() {
            return Err(format!("cwd {}: not a directory", cwd.display()));
        }
        Ok(Request {
            asked: self.asked.clone(),
            cwd,
            starts_in: self.starts_in.clone(),
            environment: std::env::vars_os().collect(),
            home: std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()),
            flags: self.flags.clone(),
            config: self.config.clone(),
            keep_tmp: false,
            helper: self.helper.clone(),
            purpose: if self.explain { Purpose::Explain } else { Purpose::Confine },
            inside: None,
            browser: None,
            also_written: self.also_written.clone(),
        })
    }

    fn streams(&self) -> Result<[Option<OwnedFd>; 3], String> {
        let copy = |stream: &Arc<OwnedFd>| stream.try_clone().map_err(|error| format!("streams: {error}"));
        let input = match &self.input {
            Input::Nothing => std::fs::File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?.into(),
            Input::Bytes(bytes) => holding(bytes).map_err(|error| format!("input: {error}"))?,
            Input::From(stream) => copy(stream)?,
        };
        let [stdout, stderr] = match &self.output {
            Some([stdout, stderr]) => [Some(copy(stdout)?), Some(copy(stderr)?)],
            None => [None, None],
        };
        Ok([Some(input), stdout, stderr])
    }

    fn failed(&self, error: &str) -> Report {
        Refusal::setup(error).report(run::lossy(&self.asked.words()), Duration::ZERO)
    }
}

/// What a run watches; whoever writes to it ends the run, however many processes hold a copy.
fn cancel() -> std::io::Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// A file in memory with these bytes, open for reading only.
fn holding(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, Mode, OFlags};
    use std::os::fd::AsRawFd;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
