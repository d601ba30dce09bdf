//! What the guardian learns from wait4(2) of the command and of the orphans of its tree.

use super::{Message, send, summed};

pub(super) enum Reaped {
    Running,
    /// The command has ended and `EXITED` was sent; other processes of the tree still run.
    Ended,
    /// The command has ended with this wait status, and no other process is left.
    Alone(i32),
}

/// Reaps every child that has ended, and reports what happened to the command.
pub(super) unsafe fn reap(front: i32, command: i32) -> Reaped {
    let mut ended = None;
    // SAFETY: wait4 fills one int and one rusage, for which all zeroes is a valid value.
    unsafe {
        loop {
            let mut status = 0;
            let mut usage: libc::rusage = std::mem::zeroed();
            let pid = libc::wait4(-1, &mut status, libc::WNOHANG | libc::WUNTRACED, &mut usage);
            if pid <= 0 {
                return match ended {
                    None => Reaped::Running,
                    Some(Message { a: status, .. }) if pid < 0 => Reaped::Alone(status),
                    Some(message) => {
                        send(front, message);
                        Reaped::Ended
                    }
                };
            }
            if pid != command {
                continue;
            }
            let message = |kind| Message { kind, a: status, usage: summed(&usage) };
            if libc::WIFSTOPPED(status) {
                send(front, message(Message::STOPPED));
            } else {
                ended = Some(message(Message::EXITED));
            }
        }
    }
}
