//! Keeps the limits of a run in force where the command can stop the front process, which enforces them, and the guardian.
//!
//! Job control stops the front process too, but before that the whole tree. So it is continued while anything in the tree runs, and at
//! the deadline. Whatever it is stopped by, the guardian ends a tree that is long past its deadline.

use super::{Launch, Message, process, send};
use crate::sys::proc::is_stopped;
use crate::sys::reap::tree_runs;
use std::time::Duration;

/// How often to look whether the front process is stopped.
const LOOK: Duration = Duration::from_millis(250);
/// After the deadline the front process asks the command to end, and kills the tree two seconds later. This is longer.
const LATE: Duration = Duration::from_secs(3);

/// What the guardian needs to keep the limits in force if the command stops the front process, which enforces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backstop {
    pub timeout: Option<Duration>,
    /// Whether to continue the front process. One that does other things beside the run may have been stopped by its user.
    pub continues: bool,
}

/// A timer works once: a process that is stopped again before it has run sets none. The last one is set to half an hour.
const WAKES: usize = 14;

pub(super) struct Front {
    /// Its process id, if it may be continued.
    pid: Option<i32>,
    /// The time of the next look and the deadline, on the monotonic clock.
    next: Duration,
    deadline: Option<Duration>,
    /// Continue this process if it is stopped as well: after `LOOK`, and each after twice the time of the one before.
    wakes: [Option<process::Wake>; WAKES],
}

impl Front {
    pub fn begin(launch: &Launch) -> Option<Front> {
        let Backstop { timeout, continues } = launch.backstop?;
        let now = now();
        // SAFETY: getppid takes no pointers.
        let pid = continues.then(|| unsafe { libc::getppid() }).filter(|pid| *pid > 1);
        let deadline = timeout.map(|timeout| now + timeout);
        let mut front = Front { pid, next: now + LOOK, deadline, wakes: [const { None }; WAKES] };
        front.set_timers(1);
        Some(front)
    }

    /// Sets all timers. They take some microseconds, for which no command should wait.
    pub fn set_all_timers(&mut self) {
        self.set_timers(WAKES);
    }

    fn set_timers(&mut self, count: usize) {
        let mut time = LOOK;
        for wake in self.wakes.iter_mut().take(count) {
            // Without a timer the front process continues this one, unless both are stopped.
            match wake {
                Some(wake) => drop(wake.again(time)),
                None => *wake = process::Wake::after(time).ok(),
            }
            time *= 2;
        }
    }

    /// How long poll(2) may wait, in milliseconds.
    pub fn patience(&self) -> i32 {
        self.next.saturating_sub(now()).as_millis() as i32 + 1
    }

    /// Continues the front process if that is stopped and should not be. Returns whether the tree may go on.
    pub fn look(&mut self, front: i32) -> bool {
        let now = now();
        if now < self.next {
            return true;
        }
        self.next = now + LOOK;
        self.set_all_timers();
        let past = self.deadline.map(|deadline| now.saturating_sub(deadline));
        if past.is_some_and(|past| past >= LATE) {
            send(front, Message { kind: Message::OVERDUE, ..Message::default() });
            return false;
        }
        let is_past = past.is_some_and(|past| !past.is_zero());
        if let Some(pid) = self.parent().filter(|pid| is_stopped(*pid) && (is_past || tree_runs())) {
            let _ = process::kill(pid, libc::SIGCONT);
        }
        true
    }

    /// The tree has ended: the front process has to learn of it. Also if it runs, because a SIGSTOP may be pending.
    pub fn end(&self) {
        self.parent().into_iter().for_each(|pid| drop(process::kill(pid, libc::SIGCONT)));
    }

    /// The front process, if it may be continued and lives: it is the parent of this one.
    fn parent(&self) -> Option<i32> {
        // SAFETY: getppid takes no pointers.
        self.pid.filter(|pid| unsafe { libc::getppid() } == *pid)
    }
}

fn now() -> Duration {
    // SAFETY: all zeroes is a valid timespec, and the call fills it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time
    };
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}
