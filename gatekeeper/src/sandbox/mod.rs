//! Run commands confined, from Rust. Describe a [`Sandbox`], run it, and read its [`Report`]. Errors are reports too: the
//! command never runs with less protection than you asked for.
//!
//! ```
//! use gatekeeper::{Outcome, Sandbox};
//!
//! let report = Sandbox::builder().command(["echo", "hello"]).run();
//! assert_eq!(report.outcome, Outcome::Exited);
//! assert_eq!(report.captured.unwrap().stdout, "hello\n");
//! ```
//!
//! Each denial names the grant that would allow it. Ask the user, then pass it to [`Builder::grant`]:
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
//! [`Builder::spawn`] runs the command on a new thread and returns a [`Running`], a future for any executor. Dropping it
//! kills the command and every process that the command started.
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
//! # Differences from the `gatekeeper` program
//!
//! The library does not change its host process: signal mask, signal handlers, subreaper, dumpable flag, working directory
//! and environment stay as they are. One exception: in a program of root whose command becomes another user (`--allow @identity`),
//! the kernel clears the dumpable flag when a thread takes over that user's ids. The `gatekeeper` program may change its own process, so the library is weaker in
//! two ways:
//!
//! - `gatekeeper` clears its dumpable flag (prctl(2), `PR_SET_DUMPABLE`). Your process stays readable for other processes
//!   of the same user. Landlock and the seccomp filter keep the command out; that third barrier is missing.
//! - The library does not forward signals from your process to the command.
//!
//! Isolation by bubblewrap runs the `gatekeeper` program inside; set its path with [`Builder::gatekeeper`].
//!
//! # The guardian program
//!
//! Your process is not forked. The first run starts a small program, from bytes that this library carries, as a child of your
//! process; that program starts each command, whatever the size of your process. It ends with your process. If it is killed,
//! running commands end, and the next run starts another. A command inherits from your thread what it would inherit by a fork
//! (user, capabilities, namespaces, limits, filters and so on): if any of it has changed since the program was started,
//! another one is started. If your program reaps any child (`waitpid(-1)`), it may reap that one; no report depends on it.
//!
//! Where memory files cannot be executed (`vm.memfd_noexec=2`), each run forks your process, as it did before; with a large heap
//! the fork takes as long as copying the page tables takes. A process that has left the command's process group then outlives a
//! guardian that is killed, still confined.

mod builder;
mod running;

pub use builder::Builder;
pub use running::Running;

use crate::plan::{Plan, refusal::Refusal};
use crate::report::{Outcome, Report};
use crate::request::{Request, working_directory};
use crate::run::{self, Options};
use crate::supervise::Embedding;
use crate::supervise::ask::hub::Answerer;
use crate::trust::Hostile;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A command and how to confine it. Can be run any number of times.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Complete except for the working directory and the environment, which are this process's when the run starts.
    request: Request,
    /// `None` for this process's working directory.
    cwd: Option<PathBuf>,
    input: Input,
    /// Where stdout and stderr go; `None` captures them for the report.
    output: Option<[Arc<OwnedFd>; 2]>,
    /// The first invalid setting. If there is one, nothing runs.
    wrong: Option<String>,
    answerer: Option<Answers>,
}

/// Who decides about refused calls.
#[derive(Clone)]
pub(crate) struct Answers(pub(crate) Arc<dyn Answerer>);

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answers")
    }
}

#[derive(Debug, Clone)]
enum Input {
    Nothing,
    Bytes(Arc<[u8]>),
    From(Arc<OwnedFd>),
}

impl Sandbox {
    /// Starts a description. By default the command may read files that hold no credentials, and nothing else.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A sandbox for an existing request, with the command's standard input.
    pub(crate) fn of(request: Request, input: Vec<u8>) -> Sandbox {
        let cwd = Some(request.cwd.clone());
        Sandbox { request, cwd, input: Input::Bytes(input.into()), output: None, wrong: None, answerer: None }
    }

    /// The same sandbox, with refused calls decided by `answerer`.
    pub(crate) fn asking(mut self, answerer: Arc<dyn Answerer>) -> Sandbox {
        self.request.ask.get_or_insert_default();
        self.answerer = Some(Answers(answerer));
        self
    }

    /// Runs the command and waits until it and every process that it started have ended. Blocks the calling thread.
    pub fn run(&self) -> Report {
        match cancel() {
            // No other copy exists, so this run cannot be cancelled.
            Ok(never) => self.run_until(never),
            Err(error) => self.failed(&format!("start: {error}")),
        }
    }

    /// The steps that a run would take. Changes nothing.
    ///
    /// # Errors
    /// The report of the run that would be refused: a setting is invalid, the command is missing or denied, or this machine
    /// lacks a layer.
    pub fn plan(&self) -> Result<Plan, Box<Report>> {
        let wrong = self.wrong.clone().map_or(Ok(()), Err);
        let request = wrong.and_then(|()| self.request()).map_err(|error| Box::new(self.failed(&error)))?;
        run::prepare(&request, false)
            .and_then(|prepared| {
                // Only a run clones the plan.
                Arc::into_inner(prepared.plan).ok_or_else(|| Box::new(Refusal::setup("the plan is in use".to_owned())))
            })
            .map_err(|refusal| Box::new(refusal.report(run::lossy(&request.words()), Duration::ZERO)))
    }

    /// Runs the command on a new thread.
    pub fn spawn(&self) -> Running {
        Running::start(self.clone())
    }

    /// Runs the command until it ends, or until `cancel` becomes readable.
    pub(crate) fn run_until(&self, cancel: OwnedFd) -> Report {
        if let Some(wrong) = &self.wrong {
            return self.failed(wrong);
        }
        let prepared = self.request().and_then(|mut request| {
            let streams = self.streams()?;
            let audit = run::trail::open(&mut request)?;
            Ok((request, streams, audit))
        });
        let (request, streams, audit) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return self.failed(&error),
        };
        let embedding = Embedding { streams, cancel };
        let report = run::run(
            &request,
            &Options {
                capture: self.output.is_none(),
                spill: None,
                signals: None,
                // The report's layers state every warning, too.
                warn: &|_| {},
                outside: None,
                embedding: Some(&embedding),
                answerer: self.answerer.clone().map(|answerer| answerer.0),
                audit: audit.clone(),
                refused: None,
            },
        );
        run::trail::end(report, audit)
    }

    fn request(&self) -> Result<Request, String> {
        let here = || std::env::current_dir().map_err(|error| format!("working directory: {error}"));
        let cwd = match &self.cwd {
            Some(given) => {
                let mut hostile = Hostile::here();
                self.request.also_written.iter().for_each(|tree| hostile.add(tree));
                // The current directory, which may have been removed, is not needed for a full path.
                let base = if given.is_absolute() { PathBuf::new() } else { here()? };
                working_directory(given, &base, &hostile).map_err(|error| format!("cwd {error}"))?
            }
            None => here()?,
        };
        Ok(Request { cwd, ..self.request.clone() }.with_environment(std::env::vars_os().collect()))
    }

    pub(crate) fn asked(&self) -> &Request {
        &self.request
    }

    /// The same with these write ends as stdout and stderr.
    pub(crate) fn printing_to(self, [stdout, stderr]: [OwnedFd; 2]) -> Sandbox {
        Sandbox { output: Some([Arc::new(stdout), Arc::new(stderr)]), ..self }
    }

    fn streams(&self) -> Result<[Option<OwnedFd>; 3], String> {
        let copy = |stream: &Arc<OwnedFd>| stream.try_clone().map_err(|error| format!("streams: {error}"));
        let input = match &self.input {
            Input::Nothing => empty()?,
            Input::Bytes(bytes) => holding(bytes).map_err(|error| format!("input: {error}"))?,
            Input::From(stream) => copy(stream)?,
        };
        let [stdout, stderr] = match &self.output {
            Some([stdout, stderr]) => [Some(copy(stdout)?), Some(copy(stderr)?)],
            None => [None, None],
        };
        Ok([Some(input), stdout, stderr])
    }

    pub(crate) fn failed(&self, error: &str) -> Report {
        let report = Refusal::setup(error).report(run::lossy(&self.request.words()), Duration::ZERO);
        if self.output.is_none() { report.with_output() } else { report }
    }
}

/// The report of a run that the caller cancelled. One that ended by itself before stays as it is.
pub(crate) fn cancelled(mut report: Report) -> Report {
    if report.outcome == Outcome::Signaled && report.signal == Some(libc::SIGKILL) {
        report.error = Some("cancelled by the caller".to_owned());
    }
    report
}

/// The descriptor that cancels a run: writing to any copy of it ends the run.
fn cancel() -> std::io::Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// An input that ends at once.
fn empty() -> Result<OwnedFd, String> {
    Ok(std::fs::File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?.into())
}

/// A memory file with these bytes, opened read-only.
fn holding(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, Mode, OFlags};
    use std::os::fd::AsRawFd;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
