//! Supervision: follows a started command until its whole process tree has ended, and says how it ended.
//!
//! | file | part |
//! |---|---|
//! | `events` | the event loop |
//! | `ending` | signals, stops, time and resource limits, the end of the tree |
//! | `clerk`, `judge`, `deny`, `trail` | the thread that answers notified syscalls, its decisions, how it denies, and what the audit trail gets |
//! | `connect`, `reach`, `listen`, `send`, `metadata`, `change`, `maps` | syscalls that the supervisor performs for the program |
//! | `rights` | with which rights it performs them |
//! | `quick`, `names`, `foresee`, `closed`, `files`, `resolve`, `target`, `cwd` | which files a syscall names, and what Landlock and the mounts will say |
//! | `ask/` | refused calls that wait for a decision |
//! | `denials`, `reason`, `remedy`, `decode` | the record of a denied call, the rule, and the grant that would allow it |

pub mod ask;
pub mod browser;
pub mod capture;
mod change;
pub(crate) mod clerk;
mod closed;
pub mod connect;
mod cwd;
pub mod decode;
pub mod denials;
mod deny;
pub(crate) mod ending;
mod events;
mod fails;
pub mod files;
pub mod foresee;
pub mod judge;
mod length;
pub mod lesson;
mod listen;
mod maps;
pub mod metadata;
pub mod meter;
mod names;
mod quick;
mod reach;
mod reason;
mod refused;
pub mod remedy;
pub(crate) mod replaced;
mod resolve;
mod rights;
mod send;
mod spent;
pub(crate) mod status;
pub mod target;
mod trail;
pub mod tree;
mod waiting;

use crate::enforce::rundir::RunDir;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::report::BrowserReport;
use crate::report::Exceeded;
use crate::sys::guardian::{Leaving, Started};
use crate::sys::signals::Signals;
use browser::Look;
use capture::Stream;
use clerk::Record;
use denials::Denials;
use events::Loop;
use judge::Judge;
use lesson::Lesson;
use meter::{Meter, Peaks};
use replaced::Changed;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// What a program that embeds the library passes to a run. The run leaves that program's signals, children and terminal
/// alone.
pub struct Embedding {
    /// The standard streams of the command, where they are not those of this process. A captured stream is a pipe
    /// regardless.
    pub streams: [Option<OwnedFd>; 3],
    /// Becomes readable when the caller cancels the run.
    pub cancel: OwnedFd,
}

/// What the supervisor needs to know about the run.
pub struct Watch<'a> {
    pub policy: &'a Policy,
    /// Decides notified calls. Taken by the clerk's thread when it starts.
    pub judge: Option<Judge>,
    /// The questions of this run, if it asks.
    pub asking: Option<std::sync::Arc<ask::hub::Hub>>,
    /// Set by `learn`: every call is allowed and noted.
    pub lesson: Option<Lesson>,
    pub signals: Option<&'a Signals>,
    /// Whether the command shares the caller's process group and terminal.
    pub shares_terminal: bool,
    /// Whether the command is bubblewrap. It does not forward signals, so its child gets them directly.
    pub wrapped: bool,
    /// The outer gatekeeper, if this one runs inside bubblewrap.
    pub outside: Option<BorrowedFd<'a>>,
    pub streams: Option<[Stream; 2]>,
    /// Watches the limits of the whole tree, if the policy sets any.
    pub meter: Option<Meter>,
    /// Set for a browser: observes whether its own sandbox is on.
    pub browser: Option<Look>,
    /// The paths that bubblewrap protects; the guardian's messages refer to them by index.
    pub held: Vec<std::path::PathBuf>,
    /// The run's private directory, removed after the tree has ended.
    pub run_dir: &'a RunDir,
    /// Set if this process does other things beside this run.
    pub embedding: Option<&'a Embedding>,
}

/// The result of a supervised run.
pub struct Ended {
    pub end: End,
    pub denials: Denials,
    /// Whether libsandbox.so loaded its exact syscall list, which it does right before main.
    pub reached_main: bool,
    pub lesson: Option<Lesson>,
    /// User and system time in microseconds, and the peak memory of the largest process in KiB.
    pub usage: Option<[i64; 3]>,
    pub peaks: Peaks,
    pub browser: Option<BrowserReport>,
    /// Whether every refused read is among the denials.
    pub reads_recorded: bool,
    pub streams: Option<[Stream; 2]>,
    pub duration: Duration,
    /// Why the run's private directory could not be removed.
    pub left: Option<io::Error>,
    /// Protected paths that a process outside the sandbox changed during the run.
    pub changed: Changed,
    /// The guardian, if it has not been reaped yet.
    pub guardian: Option<Leaving>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The wait status of the command.
    Status(i32),
    /// Killed because it made a denied call.
    Violation {
        call: String,
    },
    Timeout,
    /// Killed because the tree exceeded a limit.
    Limit(Exceeded),
    /// An operation before exec failed; the program did not start.
    Setup {
        operation: Operation,
        errno: i32,
        /// Which mount failed, if it was one.
        mount: Option<Mounting>,
    },
    /// A process outside the sandbox changed a protected path, and it could not be protected again, so the tree was
    /// killed.
    Unprotected {
        why: String,
    },
    /// The guardian died. `ended`: so the tree was killed. In a program that embeds us, orphans of the command cannot be found.
    GuardianLost {
        ended: bool,
    },
}

/// A mount that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounting {
    pub path: std::path::PathBuf,
    /// Whether the path was still what the plan had found there.
    pub found: bool,
}

impl Mounting {
    pub fn described(&self) -> String {
        let how = if self.found { "" } else { "is not what was planned; it has just been changed: " };
        format!("{} {how}", self.path.display())
    }
}

/// Supervises a started command until its whole process tree has ended.
pub fn supervise(started: Started, watch: Watch<'_>) -> io::Result<Ended> {
    let mut state = Loop::new(started, watch);
    match state.follow() {
        Ok(done) => finish(state, done),
        Err(error) => {
            // The guardian kills the tree and cleans up once this end of the socket is closed.
            drop(state.started.leave());
            Err(error)
        }
    }
}

/// Cleans up after the loop and collects the result. `done`: the guardian reported the end of the tree, rather than
/// dying.
fn finish(mut state: Loop<'_>, done: bool) -> io::Result<Ended> {
    if !done {
        state.end_orphans();
    }
    let (kernel, peaks) = state.watch.meter.as_mut().map(Meter::finish).unwrap_or_default();
    let left = remove_run_dir(state.watch.run_dir);
    let Record { denials, violated, lesson, reached_main, reads_recorded } = record(&mut state);
    let failed = setup_failure(&state);
    // Where this user may not enter, no directory was made.
    let left = left.filter(|_| failed != Some((Operation::RunDirectory, libc::EACCES)));
    let mount =
        state.started.progress.mounted().and_then(|(at, found)| {
            Some(Mounting { path: replaced::place(state.started.mounts.as_ref(), at)?, found })
        });
    let (guardian, progress) = state.started.leave();
    if done {
        // The guardian has reported the end of every process that could write to it, and does not do so itself any more.
        progress.give_back();
    }
    // A try that failed before exec may be repeated under the same names: what the guardian removes must be gone by then.
    let (guardian, reaped) = match failed.is_none() && state.status.is_some() {
        true => (Some(guardian), Ok(())),
        false => (None, guardian.reap()),
    };
    if let Some(streams) = &mut state.watch.streams {
        streams.iter_mut().for_each(Stream::drain);
    }
    let lost = End::GuardianLost { ended: state.watch.embedding.is_none() };
    let end = match (failed, state.status) {
        (Some((operation, errno)), _) => {
            Ok(End::Setup { operation, errno, mount: mount.filter(|_| operation == Operation::Mounts) })
        }
        _ if state.changed.lost.is_some() => {
            Ok(End::Unprotected { why: state.changed.lost.clone().unwrap_or_default() })
        }
        _ if violated.is_some() => Ok(End::Violation { call: violated.unwrap_or_default() }),
        _ if state.timed_out.is_some() => Ok(End::Timeout),
        _ if state.exceeded.or(kernel).is_some() => Ok(state.exceeded.or(kernel).map_or(lost, End::Limit)),
        (_, Some(status)) => Ok(End::Status(status)),
        (_, None) if !done => Ok(lost),
        (_, None) => reaped.map(|()| lost),
    }?;
    Ok(Ended {
        end,
        denials,
        reached_main,
        lesson,
        usage: state.usage,
        peaks,
        browser: state.watch.browser.map(Look::report),
        reads_recorded: reads_recorded && (state.heard || !state.confines_paths),
        left,
        streams: state.watch.streams,
        duration: state.began.elapsed(),
        changed: state.changed,
        guardian,
    })
}

/// Removes the run's private directory, unless it is to be kept. Returns why it is still there.
fn remove_run_dir(run_dir: &RunDir) -> Option<io::Error> {
    if run_dir.keeps() {
        return None;
    }
    run_dir.remove().err().map(io::Error::from)
}

/// What the clerk recorded; nothing, if no call was ever notified.
fn record(state: &mut Loop<'_>) -> Record {
    match state.clerk.take() {
        Some(clerk) => clerk.finish(),
        None => Record {
            denials: Denials::default(),
            violated: None,
            lesson: state.watch.lesson.take(),
            reached_main: false,
            reads_recorded: state.watch.judge.as_ref().is_none_or(|judge| judge.foresight.sees_reads()),
        },
    }
}

/// The operation that failed and its errno. An outer sandbox may kill the process with SIGSYS for an operation: then the
/// operation that it had reached.
fn setup_failure(state: &Loop<'_>) -> Option<(Operation, i32)> {
    let (operation, errno) = state.started.progress.reached();
    let killed =
        || state.status.is_some_and(|status| libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS);
    match errno {
        0 => (operation != Operation::Exec && killed()).then_some((operation, libc::ECANCELED)),
        errno => Some((operation, errno)),
    }
}
