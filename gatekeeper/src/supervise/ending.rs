//! How a run is ended or held: signals passed on, stops shared with the shell, the time limit, the end of the tree.

use super::Loop;
use crate::sys::message::{self, Message};
use crate::sys::process;
use crate::sys::signals::Arrived;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(2);

impl Loop<'_> {
    /// The shell that started us waits for us to stop, not for the command.
    pub(super) fn stop_too(&self) {
        let _ = process::kill(rustix::process::getpid().as_raw_nonzero().get(), libc::SIGSTOP);
        if let Some(command) = self.command {
            let _ = process::kill(command, libc::SIGCONT);
        }
    }

    pub(super) fn forward(&self, arrived: Arrived) {
        let Some(command) = self.command else { return };
        match arrived.signal {
            // The terminal told the whole group, the command too.
            _ if self.watch.shares_terminal && arrived.by_kernel => {}
            libc::SIGWINCH | libc::SIGCONT if self.watch.shares_terminal => {}
            signal if self.watch.shares_terminal => drop(process::kill(command, signal)),
            signal => drop(process::kill(-command, signal)),
        }
    }

    pub(super) fn enforce_time(&mut self, deadline: Option<Instant>) {
        let now = Instant::now();
        match (self.timed_out, deadline) {
            (None, Some(deadline)) if now >= deadline && self.status.is_none() => {
                self.timed_out = Some(now);
                self.forward(Arrived { signal: libc::SIGTERM, by_kernel: false });
                // A stopped process takes TERM only when it goes on.
                self.forward(Arrived { signal: libc::SIGCONT, by_kernel: false });
            }
            (Some(since), _) if now >= since + GRACE => self.end_tree(),
            _ => {}
        }
    }

    pub(super) fn next_deadline(&self, deadline: Option<Instant>) -> Option<Instant> {
        match self.timed_out {
            Some(_) if self.killed => None,
            Some(since) => Some(since + GRACE),
            None if self.status.is_some() => None,
            None => deadline,
        }
    }

    pub(super) fn end_tree(&mut self) {
        if !self.killed {
            self.killed = true;
            let _ = message::send(self.started.tree.as_fd(), &Message { kind: Message::KILL, ..Message::default() });
        }
    }
}
