//! How a run is ended or held: signals passed on, stops shared with the shell, the time limit, the end of the tree.

use super::Loop;
use super::clerk::Clerk;
use super::tree;
use crate::sys::message::{self, Message};
use crate::sys::process;
use crate::sys::signals::Arrived;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(2);

impl Loop<'_> {
    /// The shell that started us waits for us to stop, not for the command.
    pub(super) fn stop_too(&mut self, deadline: Option<Instant>) {
        match (self.watch.outside, self.command) {
            // The shell is outside, and so is whoever stops for it; it continues the whole group.
            (Some(outside), _) => {
                let _ = message::send(outside, &Message { kind: Message::STOPPED, ..Message::default() });
            }
            (None, Some(command)) => {
                // The command may have stopped itself alone, and the rest of its tree would run on unwatched.
                let halted = tree::halt(self.started.guardian);
                stop_with(command, deadline);
                // Told to end before anything of it runs again, if the time is up.
                self.enforce_time(deadline);
                halted.into_iter().for_each(|pid| drop(process::kill(pid, libc::SIGCONT)));
            }
            (None, None) => {}
        }
    }

    pub(super) fn forward(&mut self, arrived: Arrived) {
        // A guardian never stops by itself: the command did it, where nothing keeps its signals in.
        if arrived.signal == libc::SIGCHLD {
            return process::wake(self.started.guardian);
        }
        let Some(command) = self.command else { return self.early.push(arrived) };
        match arrived.signal {
            // The terminal told the whole group, the command too.
            _ if self.watch.shares_terminal && arrived.by_kernel => {}
            libc::SIGWINCH | libc::SIGCONT if self.watch.shares_terminal => {}
            signal if self.watch.shares_terminal => drop(process::kill(self.whom(command), signal)),
            // A process that has not come to make its group has no other way.
            signal => drop(process::kill(-command, signal).or_else(|_| process::kill(command, signal))),
        }
    }

    /// Who takes a signal: bubblewrap's one child in its place, the gatekeeper inside.
    fn whom(&self, command: i32) -> i32 {
        let child = || {
            let children = std::fs::read_to_string(format!("/proc/{command}/task/{command}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        self.watch.wrapped.then(child).flatten().unwrap_or(command)
    }

    /// What a supervisor sends by itself: to the command's group, or where that is the caller's own, to the command.
    fn send(&self, signal: i32) {
        if let Some(command) = self.command {
            let whom = if self.watch.shares_terminal { self.whom(command) } else { -command };
            let _ = process::kill(whom, signal);
        }
    }

    pub(super) fn enforce_time(&mut self, deadline: Option<Instant>) {
        let now = Instant::now();
        match (self.timed_out, deadline) {
            (None, Some(deadline)) if now >= deadline && self.status.is_none() && !self.killed => {
                self.timed_out = Some(now);
                self.send(libc::SIGTERM);
                // A stopped process takes TERM only when it goes on.
                self.send(libc::SIGCONT);
            }
            (Some(since), _) if now >= since + GRACE => self.end_tree(),
            _ => {}
        }
    }

    /// The guardian is gone, and what it would have ended is not to be told from other children of this process.
    pub(super) fn end_group(&self) {
        if let Some(meter) = &self.watch.meter {
            meter.kill();
        }
        self.send(libc::SIGKILL);
    }

    /// Whether the limits of the tree have still to be watched.
    fn measures(&self) -> bool {
        self.command.is_some() && self.status.is_none() && !self.killed
    }

    pub(super) fn enforce_limits(&mut self) {
        let measures = self.measures();
        let guardian = self.started.guardian;
        let Some(meter) = self.watch.meter.as_mut().filter(|meter| measures && Instant::now() >= meter.due()) else {
            return;
        };
        if let Some(exceeded) = meter.look(guardian) {
            self.exceeded = Some(exceeded);
            self.end_tree();
        }
    }

    pub(super) fn next_deadline(&self, deadline: Option<Instant>) -> Option<Instant> {
        let time = match self.timed_out {
            _ if self.killed => None,
            Some(since) => Some(since + GRACE),
            None if self.status.is_some() => None,
            None => deadline,
        };
        let look = self.watch.meter.as_ref().filter(|_| self.measures()).map(|meter| meter.due());
        let seen = self.watch.browser.as_ref().filter(|_| self.status.is_none()).and_then(|look| look.due());
        time.into_iter().chain(look).chain(seen).min()
    }

    pub(super) fn look_at_browser(&mut self) {
        if let (Some(look), Some(command), None) = (&mut self.watch.browser, self.command, self.status) {
            look.look(self.started.guardian, command);
        }
    }

    pub(super) fn end_tree(&mut self) {
        if !self.killed {
            self.killed = true;
            self.clerk.iter().for_each(Clerk::no_more_answers);
            if let Some(meter) = &self.watch.meter {
                meter.kill();
            }
            let _ = message::send(self.started.tree.as_fd(), &Message { kind: Message::KILL, ..Message::default() });
        }
    }
}

/// Stops with the command, or with the whole group (0) where that is inside of bubblewrap and has no number out here; and
/// lets it go on when this process goes on. Time goes on meanwhile: at the deadline this process does too, to end the run.
pub fn stop_with(command: i32, deadline: Option<Instant>) {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let wake = left.map(process::Wake::after).transpose();
    // Without the timer the limit would be lost for as long as the stop lasts: then it is not shared.
    let stopped = wake.is_ok() && process::stop();
    if stopped && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let _ = process::kill(command, libc::SIGCONT);
    }
}
