//! The event loop: what it waits for, and what it does with each thing that arrives.
//!
//! It never touches anything that the confined program controls (its memory, paths or sockets), because that can block.
//! The thread in `clerk` does that, so time limits, memory limits and signals stay in force meanwhile.

use super::Watch;
use super::clerk::Clerk;
use super::replaced::Changed;
use super::tree;
use crate::operation::Operation;
use crate::report::Exceeded;
use crate::sys::guardian::Started;
use crate::sys::message::{self, Message};
use crate::sys::notify;
use crate::sys::process;
use crate::sys::signals::{Arrived, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// After how long without any news a guardian is continued, in case that it was stopped.
const IDLE: Duration = Duration::from_millis(500);

/// The state of a supervised run.
pub(super) struct Loop<'a> {
    pub(super) watch: Watch<'a>,
    pub(super) started: Started,
    pub(super) began: Instant,
    /// Whether the socket to the command's process, which exec closes, is still open.
    setup_open: bool,
    /// The seccomp listener, until the clerk takes it.
    listener: Option<OwnedFd>,
    pub(super) clerk: Option<Clerk>,
    /// Whether a listener arrived, so that denials could be recorded.
    pub(super) heard: bool,
    pub(super) confines_paths: bool,
    /// The PID of the command, once the guardian has reported it.
    pub(super) command: Option<i32>,
    /// Signals that arrived before the PID of the command was known.
    pub(super) early: Vec<Arrived>,
    /// The wait status of the command, once it has exited.
    pub(super) status: Option<i32>,
    pub(super) exceeded: Option<Exceeded>,
    pub(super) deadline: Option<Instant>,
    /// When the deadline passed and SIGTERM was sent.
    pub(super) timed_out: Option<Instant>,
    /// Whether the guardian was asked to kill the tree.
    pub(super) killed: bool,
    pub(super) usage: Option<[i64; 3]>,
    pub(super) changed: Changed,
}

/// A descriptor in the poll set.
#[derive(Clone, Copy)]
enum Source {
    Tree,
    Setup,
    Listener,
    /// The listener, after the last process under the filter has exited.
    Unused,
    Clerk,
    Signals,
    Cancel,
    Stream(usize),
}

impl<'a> Loop<'a> {
    pub(super) fn new(started: Started, watch: Watch<'a>) -> Loop<'a> {
        let began = Instant::now();
        Loop {
            began,
            deadline: watch.policy.timeout.map(|timeout| began + timeout),
            confines_paths: watch.judge.as_ref().is_some_and(|judge| judge.plan.landlock.is_some()),
            watch,
            started,
            setup_open: true,
            listener: None,
            clerk: None,
            heard: false,
            command: None,
            early: Vec::new(),
            status: None,
            exceeded: None,
            timed_out: None,
            killed: false,
            usage: None,
            changed: Changed::default(),
        }
    }

    /// Runs until the guardian reports the end of the tree (`true`) or dies (`false`).
    pub(super) fn follow(&mut self) -> io::Result<bool> {
        loop {
            self.enforce_time();
            self.enforce_limits();
            self.look_at_browser();
            let wait = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
            // In a program that embeds us no SIGCHLD tells that the command has stopped its guardian: see `forward`.
            let wait = match self.watch.embedding {
                Some(_) => Some(wait.map_or(IDLE, |wait| wait.min(IDLE))),
                None => wait,
            };
            if let Some(done) = self.turn(wait)? {
                return Ok(done);
            }
        }
    }

    /// Waits once and handles what became ready. Returns what [`Loop::follow`] returns, once it is known.
    fn turn(&mut self, wait: Option<Duration>) -> io::Result<Option<bool>> {
        let ready = self.poll(wait)?;
        if ready.is_empty() && self.watch.embedding.is_some() && self.started.guardian > 0 {
            if self.killed {
                // What stops the guardian again and again has to be stopped first. SIGKILL ends it even so.
                tree::halt(self.started.guardian);
            }
            let _ = process::kill(self.started.guardian, libc::SIGCONT);
        }
        // The same for the guardian program, which has yet to start the guardian.
        if let Some(program) = self.started.program.filter(|_| ready.is_empty() && self.started.guardian == 0) {
            let _ = process::kill(program, libc::SIGCONT);
        }
        for source in ready {
            match source {
                Source::Tree => {
                    if let Some(done) = self.hear_guardian()? {
                        return Ok(Some(done));
                    }
                }
                Source::Setup => self.hear_child()?,
                Source::Listener => self.start_clerk()?,
                // Once the last process under the filter has exited, poll reports POLLHUP on it for ever.
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
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
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
                self.started.guardian = message.usage[0] as i32;
                std::mem::take(&mut self.early).into_iter().for_each(|arrived| self.forward(arrived));
            }
            Message::EXITED => {
                self.status = Some(message.a);
                self.usage = Some(message.usage);
                // The guardian is killing the rest of the tree: pending calls need no answer.
                self.listener = None;
                self.clerk.iter().for_each(Clerk::no_more_answers);
            }
            Message::NOT_STARTED => {
                self.started.progress.fail(Operation::Start, message.a);
                return Ok(Some(true));
            }
            Message::STOPPED if self.watch.shares_terminal && !self.watch.wrapped && !self.stopped_to_ask() => {
                self.stop_too();
            }
            Message::OVERDUE => self.timed_out = self.timed_out.or_else(|| Some(Instant::now())),
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
                // The kernel drops it if this process has no descriptor left. Each notified call would then fail with ENOSYS, and
                // the report would have none of them.
                let listener = listener.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
                notify::hand_over(listener.as_fd());
                self.heard = true;
                self.listener = Some(listener);
                // Nearly every program opens a file at once (its libraries). Starting the thread takes about as long as
                // the exec that the command is about to make, so it is ready in time.
                if self.watch.judge.as_ref().is_some_and(|judge| judge.foresight.notifies_reads()) {
                    self.start_clerk()?;
                }
            }
            Some(_) => {}
            // exec closed it, or the process died.
            None => self.setup_open = false,
        }
        Ok(())
    }

    /// Starts the thread that answers notified calls. If opens for reading are not notified, this is done at the first
    /// call: then most short runs need no thread.
    fn start_clerk(&mut self) -> io::Result<()> {
        if let (Some(listener), Some(judge)) = (self.listener.take(), self.watch.judge.take()) {
            self.clerk = Some(Clerk::start(
                judge,
                self.watch.lesson.take(),
                listener,
                self.command,
                self.watch.embedding.is_some(),
            )?);
        }
        Ok(())
    }
}
