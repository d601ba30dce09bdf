//! Supervision: from a started command to what became of it. One loop over everything that can happen.

pub mod browser;
pub mod capture;
mod clerk;
mod closed;
pub mod connect;
pub mod decode;
pub mod denials;
pub(crate) mod ending;
pub mod files;
pub mod foresee;
pub mod judge;
pub mod lesson;
mod listen;
mod maps;
pub mod metadata;
pub mod meter;
mod reason;
pub mod remedy;
pub(crate) mod replaced;
mod resolve;
pub mod target;
pub mod tree;

use crate::enforce::rundir::RunDir;
use crate::operation::Operation;
use crate::policy::Policy;
use crate::report::BrowserReport;
use crate::report::Exceeded;
use crate::sys::guardian::Started;
use crate::sys::message::{self, Message};
use crate::sys::notify;
use crate::sys::process;
use crate::sys::signals::{Arrived, Signals};
use browser::Look;
use capture::Stream;
use clerk::{Clerk, Left};
use denials::Denials;
use judge::Judge;
use lesson::Lesson;
use meter::{Meter, Peaks};
use replaced::Changed;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a program that embeds the library gives to a run. Its own signals, children and terminal are left alone.
pub struct Embedding {
    /// What the command gets in place of this process's own streams; captured ones are pipes all the same.
    pub streams: [Option<OwnedFd>; 3],
    /// Readable when the run is to be ended.
    pub cancel: OwnedFd,
}

/// What the loop needs to know of the run.
pub struct Watch<'a> {
    pub policy: &'a Policy,
    /// By what the calls of the command are judged; `None` once they are.
    pub judge: Option<Judge>,
    /// Where the run is not to be confined but learned from.
    pub lesson: Option<Lesson>,
    pub signals: Option<&'a Signals>,
    /// Whether the command shares the caller's process group and terminal.
    pub shares_terminal: bool,
    /// Whether the command is bubblewrap, which passes no signals on: its child gets them.
    pub wrapped: bool,
    /// The gatekeeper outside, where this one runs inside of bubblewrap.
    pub outside: Option<BorrowedFd<'a>>,
    pub streams: Option<[Stream; 2]>,
    /// The limits of the whole tree, where there are any.
    pub meter: Option<Meter>,
    /// Whose own sandbox is to be seen.
    pub browser: Option<Look>,
    /// What bubblewrap protects, in the order in which it is watched.
    pub held: Vec<std::path::PathBuf>,
    /// The run's own directory, removed when the tree has ended.
    pub run_dir: &'a RunDir,
    /// Where this process has other things to do than this run.
    pub embedding: Option<&'a Embedding>,
}

/// What became of it.
pub struct Ended {
    pub end: End,
    pub denials: Denials,
    /// Whether an exact list came into force.
    pub reached_main: bool,
    pub lesson: Option<Lesson>,
    /// User and system time in microseconds, peak memory of the largest process in KiB.
    pub usage: Option<[i64; 3]>,
    pub peaks: Peaks,
    pub browser: Option<BrowserReport>,
    /// Whether every refused read is among the denials.
    pub reads_recorded: bool,
    pub streams: Option<[Stream; 2]>,
    pub duration: Duration,
    /// Why the run's own directory is still there, although it was to be removed.
    pub left: Option<io::Error>,
    /// What was changed from outside of what the mounts protect.
    pub changed: Changed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Its wait status.
    Status(i32),
    /// Killed because it made a denied call.
    Violation {
        call: String,
    },
    Timeout,
    /// Ended for a limit of the whole tree.
    Limit(Exceeded),
    /// An operation before exec failed; the program did not start.
    Setup {
        operation: Operation,
        errno: i32,
        /// Which mount failed, if it was one.
        mount: Option<Mounting>,
    },
    /// A protected place was changed from outside and could not be protected again; the tree was ended for it.
    Unprotected {
        why: String,
    },
    /// The guardian died, and the tree with it.
    GuardianLost,
}

/// A mount that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounting {
    pub path: std::path::PathBuf,
    /// Whether its place was found as it was planned.
    pub found: bool,
}

impl Mounting {
    pub fn described(&self) -> String {
        let how = if self.found { "" } else { "is not what was planned, it has just been changed: " };
        format!("{} {how}", self.path.display())
    }
}

struct Loop<'a> {
    watch: Watch<'a>,
    started: Started,
    setup_open: bool,
    /// Until the first call comes.
    listener: Option<OwnedFd>,
    clerk: Option<Clerk>,
    /// Whether denials could be heard.
    heard: bool,
    confines_paths: bool,
    command: Option<i32>,
    /// Signals that came before the command was known.
    early: Vec<Arrived>,
    status: Option<i32>,
    exceeded: Option<Exceeded>,
    deadline: Option<Instant>,
    timed_out: Option<Instant>,
    killed: bool,
    usage: Option<[i64; 3]>,
    changed: Changed,
}

/// Follows a started command to the end of its whole tree.
pub fn supervise(started: Started, watch: Watch<'_>) -> io::Result<Ended> {
    let began = Instant::now();
    let deadline = watch.policy.timeout.map(|timeout| began + timeout);
    let confines_paths = watch.judge.as_ref().is_some_and(|judge| judge.plan.landlock.is_some());
    let mut state = Loop {
        watch,
        started,
        setup_open: true,
        listener: None,
        clerk: None,
        heard: false,
        confines_paths,
        command: None,
        early: Vec::new(),
        status: None,
        exceeded: None,
        deadline,
        timed_out: None,
        killed: false,
        usage: None,
        changed: Changed::default(),
    };
    let done = loop {
        state.enforce_time(deadline);
        state.enforce_limits();
        state.look_at_browser();
        let wait = state.next_deadline(deadline).map(|at| at.saturating_duration_since(Instant::now()));
        match state.turn(wait) {
            Ok(None) => {}
            Ok(Some(done)) => break done,
            Err(error) => {
                // The guardian ends the tree and cleans up when nobody listens any more.
                let Started { guardian, tree, .. } = state.started;
                drop(tree);
                let _ = process::wait(guardian);
                return Err(error);
            }
        }
    };
    if !done {
        match state.watch.embedding {
            None => process::end_children(),
            // Other children of this process are none of ours.
            Some(_) => state.end_group(),
        }
    }
    let (kernel, peaks) = state.watch.meter.as_mut().map(Meter::finish).unwrap_or_default();
    let left = match state.watch.run_dir.keeps() {
        true => None,
        false => state.watch.run_dir.remove().err().map(io::Error::from),
    };
    let Left { denials, violated, lesson, reached_main, reads_recorded } = match state.clerk.take() {
        Some(clerk) => clerk.dismiss(),
        None => Left {
            denials: Denials::default(),
            violated: None,
            lesson: state.watch.lesson.take(),
            reached_main: false,
            reads_recorded: state.watch.judge.as_ref().is_none_or(|judge| judge.foresight.sees_reads()),
        },
    };
    let failed = setup_failure(&state);
    let mount =
        state.started.progress.mounted().and_then(|(at, found)| {
            Some(Mounting { path: replaced::place(state.started.mounts.as_ref(), at)?, found })
        });
    let Started { guardian, tree, .. } = state.started;
    drop(tree);
    // Without a guardian its orphans were this process's, and have been waited for.
    let guardian = process::wait(guardian);
    if let Some(streams) = &mut state.watch.streams {
        streams.iter_mut().for_each(Stream::drain);
    }
    let end = match (failed, state.status) {
        (Some((operation, errno)), _) => {
            Ok(End::Setup { operation, errno, mount: mount.filter(|_| operation == Operation::Mounts) })
        }
        _ if state.changed.lost.is_some() => {
            Ok(End::Unprotected { why: state.changed.lost.clone().unwrap_or_default() })
        }
        _ if violated.is_some() => Ok(End::Violation { call: violated.unwrap_or_default() }),
        _ if state.timed_out.is_some() => Ok(End::Timeout),
        _ if state.exceeded.or(kernel).is_some() => Ok(state.exceeded.or(kernel).map_or(End::GuardianLost, End::Limit)),
        (_, Some(status)) => Ok(End::Status(status)),
        (_, None) if !done => Ok(End::GuardianLost),
        (_, None) => guardian.map(|_| End::GuardianLost),
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
        duration: began.elapsed(),
        changed: state.changed,
    })
}

/// The operation that failed or, where an outer sandbox killed the process for it, the one that it had come to.
fn setup_failure(state: &Loop<'_>) -> Option<(Operation, i32)> {
    let (operation, errno) = state.started.progress.reached();
    let killed =
        || state.status.is_some_and(|status| libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSYS);
    match errno {
        0 => (operation != Operation::Exec && killed()).then_some((operation, libc::ECANCELED)),
        errno => Some((operation, errno)),
    }
}

/// Who is ready, by place in the poll set.
#[derive(Clone, Copy)]
enum Source {
    Tree,
    Setup,
    Listener,
    /// The listener, of which nothing more will come.
    Unused,
    Clerk,
    Signals,
    Cancel,
    Stream(usize),
}

impl Loop<'_> {
    /// Waits once and deals with what came. `Some(true)`: all ended in order; `Some(false)`: the guardian is gone.
    fn turn(&mut self, wait: Option<Duration>) -> io::Result<Option<bool>> {
        let ready = self.poll(wait)?;
        for source in ready {
            match source {
                Source::Tree => {
                    if let Some(done) = self.hear_guardian()? {
                        return Ok(Some(done));
                    }
                }
                Source::Setup => self.hear_child()?,
                Source::Listener => self.start_clerk()?,
                // The last process under the filter is gone; polled on, it would be ready for ever.
                Source::Unused => self.listener = None,
                Source::Clerk => {
                    if self.clerk.as_ref().map_or(Ok(false), Clerk::heard)? {
                        self.end_tree();
                    }
                }
                Source::Signals => {
                    while let Some(arrived) = self.watch.signals.and_then(Signals::next) {
                        self.forward(arrived);
                    }
                }
                Source::Cancel => self.end_tree(),
                Source::Stream(at) => {
                    if let Some(stream) = self.watch.streams.as_mut().and_then(|streams| streams.get_mut(at)) {
                        stream.drain();
                    }
                }
            }
        }
        Ok(None)
    }

    fn poll(&self, wait: Option<Duration>) -> io::Result<Vec<Source>> {
        let mut sources = vec![(Source::Tree, self.started.tree.as_fd())];
        sources.extend(self.setup_open.then(|| (Source::Setup, self.started.setup.as_fd())));
        sources.extend(self.listener.iter().map(|listener| (Source::Listener, listener.as_fd())));
        sources.extend(self.clerk.iter().map(|clerk| (Source::Clerk, clerk.news())));
        sources.extend(self.watch.signals.map(|signals| (Source::Signals, signals.as_fd())));
        let cancel = self.watch.embedding.filter(|_| !self.killed).map(|embedding| embedding.cancel.as_fd());
        sources.extend(cancel.map(|cancel| (Source::Cancel, cancel)));
        let streams = self.watch.streams.iter().flatten().enumerate();
        sources.extend(streams.filter_map(|(at, stream)| Some((Source::Stream(at), stream.pipe()?))));
        let mut polled: Vec<PollFd<'_>> = sources.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        let timeout = wait.map(|wait| rustix::event::Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(sources
            .iter()
            .zip(&polled)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((source, _), fd)| match source {
                Source::Listener if !fd.revents().contains(PollFlags::IN) => Source::Unused,
                source => *source,
            })
            .collect())
    }

    fn hear_guardian(&mut self) -> io::Result<Option<bool>> {
        let Some((message, _)) = message::receive(self.started.tree.as_fd())? else { return Ok(Some(false)) };
        match message.kind {
            Message::PID => {
                self.command = Some(message.a);
                std::mem::take(&mut self.early).into_iter().for_each(|arrived| self.forward(arrived));
            }
            Message::EXITED => {
                self.status = Some(message.a);
                self.usage = Some(message.usage);
                // Calls that still wait belong to a tree that is being ended.
                self.listener = None;
                self.clerk.iter().for_each(Clerk::no_more_answers);
            }
            Message::STOPPED if self.watch.shares_terminal && !self.watch.wrapped => self.stop_too(self.deadline),
            Message::DONE | Message::EXITED_ALONE => {
                if message.kind == Message::EXITED_ALONE {
                    self.status = Some(message.a);
                }
                self.usage = Some(message.usage);
                return Ok(Some(true));
            }
            kind => self.changed.hear(kind, &message, self.started.mounts.as_ref(), &self.watch.held),
        }
        Ok(None)
    }

    fn hear_child(&mut self) -> io::Result<()> {
        match message::receive(self.started.setup.as_fd())? {
            Some((Message { kind: Message::LISTENER, .. }, listener)) => {
                listener.iter().for_each(|listener| notify::hand_over(listener.as_fd()));
                self.heard |= listener.is_some();
                self.listener = listener;
            }
            Some(_) => {}
            // Closed by exec, or by death.
            None => self.setup_open = false,
        }
        Ok(())
    }

    /// The first call of the command: from here on a thread of its own looks at them, because they may make it wait.
    fn start_clerk(&mut self) -> io::Result<()> {
        if let (Some(listener), Some(judge)) = (self.listener.take(), self.watch.judge.take()) {
            self.clerk = Some(Clerk::start(judge, self.watch.lesson.take(), listener)?);
        }
        Ok(())
    }
}
