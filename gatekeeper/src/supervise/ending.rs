//! How a run is stopped or ended: forwarded signals, job control, time and resource limits, killing the tree.

use super::clerk::Clerk;
use super::events::Loop;
use super::tree;
use crate::sys::message::{self, Message};
use crate::sys::process;
use crate::sys::signals::Arrived;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Time between SIGTERM at the deadline and killing the tree.
const GRACE: Duration = Duration::from_secs(2);

impl Loop<'_> {
    /// Stops this process when the command has stopped: the shell waits for us, not for the command.
    pub(super) fn stop_too(&mut self) {
        match (self.watch.outside, self.command) {
            // Inside bubblewrap the outer gatekeeper stops for the shell, and continues the whole group.
            (Some(outside), _) => {
                let _ = message::send(outside, &Message { kind: Message::STOPPED, ..Message::default() });
            }
            (None, Some(command)) => {
                // SIGSTOP the tree first: the rest of it would run on unsupervised, and stopped processes cannot fork.
                let halted = tree::halt(self.started.guardian);
                stop_with(command, self.deadline);
                // If the deadline has passed meanwhile, SIGTERM must be pending before any of them runs again.
                self.enforce_time();
                halted.into_iter().for_each(|pid| drop(process::kill(pid, libc::SIGCONT)));
            }
            (None, None) => {}
        }
    }

    /// Whether the command was stopped for a question on the terminal, and not by job control. The message may arrive when
    /// the command runs again.
    pub(super) fn stopped_to_ask(&self) -> bool {
        let runs = || self.command.is_some_and(|command| !tree::is_stopped(command));
        self.watch.asking.as_ref().is_some_and(|hub| hub.holds() || runs())
    }

    pub(super) fn forward(&mut self, arrived: Arrived) {
        // The guardian never stops itself. If it is stopped, the command sent it SIGSTOP.
        if arrived.signal == libc::SIGCHLD {
            return process::wake(self.started.guardian);
        }
        let Some(command) = self.command else { return self.early.push(arrived) };
        match arrived.signal {
            // A terminal that is closed signals the leader of the session alone.
            libc::SIGHUP if self.watch.shares_terminal && arrived.by_kernel && process::leads_session() => {
                self.send(libc::SIGHUP)
            }
            // The terminal has signalled the whole process group, the command included.
            _ if self.watch.shares_terminal && arrived.by_kernel => {}
            libc::SIGWINCH | libc::SIGCONT if self.watch.shares_terminal => {}
            signal if self.watch.shares_terminal => drop(process::kill(self.recipient(command), signal)),
            // A child that has not yet called setpgid has no group to signal.
            signal => drop(process::kill(-command, signal).or_else(|_| process::kill(command, signal))),
        }
    }

    /// The process to signal: the command, or bubblewrap's only child (the inner gatekeeper), since bubblewrap forwards
    /// none.
    fn recipient(&self, command: i32) -> i32 {
        let child = || {
            let children = std::fs::read_to_string(format!("/proc/{command}/task/{command}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        self.watch.wrapped.then(child).flatten().unwrap_or(command)
    }

    /// Sends a signal of the supervisor's own to the command's process group, or to the command alone if it shares
    /// ours.
    fn send(&self, signal: i32) {
        if let Some(command) = self.command {
            let recipient = if self.watch.shares_terminal { self.recipient(command) } else { -command };
            let _ = process::kill(recipient, signal);
        }
    }

    /// Sends SIGTERM at the deadline, and kills the tree after [`GRACE`].
    pub(super) fn enforce_time(&mut self) {
        let now = Instant::now();
        match (self.timed_out, self.deadline) {
            (None, Some(deadline)) if now >= deadline && self.status.is_none() && !self.killed => {
                self.timed_out = Some(now);
                self.send(libc::SIGTERM);
                // A stopped process acts on SIGTERM only once it continues.
                self.send(libc::SIGCONT);
            }
            (Some(since), _) if now >= since + GRACE => self.end_tree(),
            _ => {}
        }
    }

    /// Kills the tree after its guardian has died. Its orphans are reparented to this process. If a program embeds us,
    /// they cannot be told apart from that program's own children, so only the cgroup and the command's process group
    /// are killed.
    pub(super) fn end_orphans(&self) {
        if self.watch.embedding.is_none() {
            return process::end_children();
        }
        if let Some(meter) = &self.watch.meter {
            meter.kill();
        }
        self.send(libc::SIGKILL);
    }

    /// Whether the limits of the tree still have to be watched.
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

    /// When the loop has to act next, even if nothing becomes ready.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let time = match self.timed_out {
            _ if self.killed => None,
            Some(since) => Some(since + GRACE),
            None if self.status.is_some() => None,
            None => self.deadline,
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

    /// Asks the guardian to kill the tree.
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

/// Stops this process, and sends SIGCONT to `command` once it continues. `command` is 0, the caller's process group, if
/// the command is inside bubblewrap and has no PID out here. A timer continues this process at the deadline, to end the
/// run.
pub fn stop_with(command: i32, deadline: Option<Instant>) {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let wake = left.map(process::Wake::after).transpose();
    // Do not stop without the timer: the time limit would not be enforced until the shell continues us.
    let stopped = wake.is_ok() && process::stop();
    if stopped && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let _ = process::kill(command, libc::SIGCONT);
    }
}
