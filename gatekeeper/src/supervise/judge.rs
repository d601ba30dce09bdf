//! What becomes of a call that the filter notified: done for the program, let through, or refused and recorded.

use super::report::{Denial, Layer};
use super::target::Target;
use super::{Loop, connect, decode, denials, maps, metadata};
use crate::plan::table::Verb;
use crate::policy::OnViolation;
use crate::sys::notify::{self, Answer, Call};
use std::io;
use std::os::fd::AsFd;

/// Newer calls for which the C library and others have an older one at hand, if they are told that it is not there.
const FALLS_BACK: &[&str] = &[
    "fchmodat2",
    "statmount",
    "listmount",
    "setxattrat",
    "getxattrat",
    "listxattrat",
    "removexattrat",
    "file_getattr",
    "file_setattr",
    "open_tree_attr",
    "mseal",
    "map_shadow_stack",
    "futex_wait",
    "futex_wake",
    "futex_requeue",
    "cachestat",
    "set_mempolicy_home_node",
    "epoll_pwait2",
    "close_range",
    "faccessat2",
    "lsm_get_self_attr",
    "lsm_list_modules",
];

impl Loop<'_> {
    pub(super) fn judge(&mut self, call: &Call) -> io::Result<()> {
        if self.killed {
            // It waits until its end comes.
            return Ok(());
        }
        if let Some(lesson) = &mut self.watch.lesson {
            lesson.hear(call);
            return self.answer(call, Answer::Continue).map(drop);
        }
        let verb = self.watch.table.decide(call.number as u32, &call.args);
        let mut host = None;
        let refused = match verb {
            Verb::Watch => {
                if self.watch.plan.policy.maps_ids()
                    && let Some(answered) = maps::open(call)
                {
                    return match answered {
                        maps::Answered::File(opened) => self.give(call, &opened),
                        maps::Answered::Refused => self.answer(call, Answer::Errno(libc::EACCES)).map(drop),
                    };
                }
                let denial = self.foreseen(call);
                // What is read-only by a mount is refused here too: the mount is gone for a moment when somebody outside
                // replaces the file.
                let answer = match &denial {
                    Some(Denial { layer: Layer::Namespaces, errno, .. }) if errno == "EROFS" => {
                        Answer::Errno(libc::EROFS)
                    }
                    _ => Answer::Continue,
                };
                return self.answer_and_record(call, answer, denial);
            }
            Verb::Supervise if matches!(i64::from(call.number), libc::SYS_connect | libc::SYS_listen) => {
                match connect::judge(call, &self.watch.reach) {
                    connect::Connect::Answered(answer) => return self.answer(call, answer).map(drop),
                    connect::Connect::Make(connection) => return self.connect(call, connection),
                    connect::Connect::Refused(path, address) => {
                        host = address;
                        path
                    }
                }
            }
            Verb::Supervise => match metadata::change(call, &self.watch.writable) {
                metadata::Done::Answered(answer) => return self.answer(call, answer).map(drop),
                metadata::Done::Refused(path) => Some(path),
            },
            _ => None,
        };
        let name = denials::name(call.number);
        let errno = match FALLS_BACK.contains(&name.as_str()) || name.starts_with("syscall ") {
            true => libc::ENOSYS,
            false => libc::EPERM,
        };
        let mut denial = denials::of_call(call, self.watch.plan, refused, errno);
        denial.host = host.or(denial.host);
        let answer = match self.watch.policy.on_violation {
            OnViolation::Errno => Answer::Errno(errno),
            OnViolation::Log if verb == Verb::Deny => Answer::Continue,
            OnViolation::Log => Answer::Errno(libc::EPERM),
            OnViolation::Kill => {
                // Else its process is dead already, or a signal came and it is made again: then it is judged again.
                if self.still_waits(call) {
                    self.denials.add(denial);
                    self.violated = Some(name);
                    self.end_tree();
                }
                return Ok(());
            }
        };
        self.answer_and_record(call, answer, Some(denial))
    }

    /// What was read of the process counts if the answer was taken: then it was that process, and it made this call once.
    fn answer_and_record(&mut self, call: &Call, answer: Answer, denial: Option<Denial>) -> io::Result<()> {
        if self.answer(call, answer)? {
            denial.into_iter().for_each(|denial| self.denials.add(denial));
        }
        Ok(())
    }

    /// What a path layer is about to refuse of a call that goes on whatever is found here.
    fn foreseen(&self, call: &Call) -> Option<Denial> {
        let target = Target { tid: call.tid };
        let refused = if i64::from(call.number) == libc::SYS_bind {
            let peer = decode::address::read(&target, call.args[1], call.args[2])?;
            self.watch.foresight.look_at_bind(peer.path()?, &target)?
        } else {
            self.watch.foresight.look(call, &target)?
        };
        Some(denials::of_path(call, self.watch.plan, refused))
    }

    /// What was read of the process before was read of that process.
    fn still_waits(&self, call: &Call) -> bool {
        self.listener.as_ref().is_some_and(|listener| notify::still_waits(listener.as_fd(), call.id))
    }

    fn give(&self, call: &Call, opened: &maps::Opened) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        match notify::give(listener.as_fd(), call.id, opened.file.as_fd(), opened.close_on_exec) {
            Ok(_) => Ok(()),
            // As many descriptors as it may have, or a kernel before 5.9: the path layers answer for it.
            Err(_) => self.answer(call, Answer::Continue).map(drop),
        }
    }

    /// Whether the answer was taken.
    fn answer(&self, call: &Call, answer: Answer) -> io::Result<bool> {
        self.listener.as_ref().map_or(Ok(false), |listener| notify::answer(listener.as_fd(), call.id, answer))
    }

    /// A connection may wait for its other side, which may wait for us: then it is made on a thread of its own.
    fn connect(&self, call: &Call, connection: connect::Connection) -> io::Result<()> {
        if !connection.waits() {
            return self.answer(call, connection.make()).map(drop);
        }
        let Some(listener) = &self.listener else { return Ok(()) };
        let listener = listener.try_clone()?;
        let id = call.id;
        std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let _ = notify::answer(listener.as_fd(), id, connection.make());
        })?;
        Ok(())
    }
}
