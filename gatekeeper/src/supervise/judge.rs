//! What becomes of a call that the filter notified: done for the program, let through, or refused and recorded.

use super::{Loop, connect, denials, metadata, target};
use crate::plan::table::Verb;
use crate::policy::OnViolation;
use crate::sys::notify::{self, Answer, Call};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

impl Loop<'_> {
    pub(super) fn judge(&mut self, call: &Call) -> io::Result<()> {
        let verb = self.watch.table.decide(call.number as u32, &call.args);
        let refused = match verb {
            Verb::Supervise if i64::from(call.number) == libc::SYS_connect => {
                match connect::judge(call, &self.watch.sockets) {
                    connect::Connect::Answered(answer) => return self.answer(call, answer),
                    connect::Connect::Make { socket, file } => return self.connect(call, socket, file),
                    connect::Connect::Refused(name) => Some(name),
                }
            }
            Verb::Supervise => match metadata::change(call, &metadata::Writable(&self.watch.writable)) {
                metadata::Done::Answered(answer) => return self.answer(call, answer),
                metadata::Done::Refused(path) => Some(target::shown(&path)),
            },
            _ => None,
        };
        let denial = denials::of_call(call, self.watch.policy, self.watch.network, refused);
        // Read before the call was found to wait still: it was that process.
        if let Some(listener) = &self.listener
            && notify::still_waits(listener.as_fd(), call.id)
        {
            self.denials.add(denial);
        }
        match self.watch.policy.on_violation {
            OnViolation::Errno => self.answer(call, Answer::Errno(libc::EPERM)),
            OnViolation::Log if verb == Verb::Deny => self.answer(call, Answer::Continue),
            OnViolation::Log => self.answer(call, Answer::Errno(libc::EPERM)),
            OnViolation::Kill => {
                self.violated = true;
                self.end_tree();
                Ok(())
            }
        }
    }

    fn answer(&self, call: &Call, answer: Answer) -> io::Result<()> {
        self.listener.as_ref().map_or(Ok(()), |listener| notify::answer(listener.as_fd(), call.id, answer))
    }

    /// A connection may wait for its other side, which may wait for us: it is made on a thread of its own.
    fn connect(&self, call: &Call, socket: OwnedFd, file: OwnedFd) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let listener = listener.try_clone()?;
        let id = call.id;
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let answer = connect::make(&socket, &file);
            let _ = notify::answer(listener.as_fd(), id, answer);
        })?;
        Ok(())
    }
}
