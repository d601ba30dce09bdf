//! What becomes of a call that the filter notified: done for the program, let through, or refused and recorded.

use super::clerk::Desk;
use super::foresee::Foresight;
use super::target::Target;
use super::{connect, decode, denials, maps, metadata};
use crate::plan::Plan;
use crate::plan::table::{Decision, Table, Verb, Why};
use crate::policy::{NetworkMode, OnViolation};
use crate::report::{Denial, KILLED, Layer};
use crate::sys::notify::{self, Answer, Call};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// By what calls are judged.
pub struct Judge {
    pub plan: Arc<Plan>,
    pub table: Arc<Table>,
    pub foresight: Foresight,
    /// Whose modes, owners and times may be changed.
    pub writable: metadata::Writable,
    /// Which sockets may be reached.
    pub reach: connect::Reach,
}

/// Connections that wait for their other side at the same time. Each holds a thread and two descriptors.
const MOST_CONNECTING: usize = 128;

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

/// What a denied call answers.
fn errno(verb: Verb, call: &Call, name: &str) -> i32 {
    let internet = || {
        let target = Target { tid: call.tid };
        matches!(decode::peer(name, call, &target), Some(decode::address::Peer::Internet(_)))
    };
    match verb {
        Verb::DenyWith(errno) | Verb::Refuse(errno) => i32::from(errno),
        // Told that the network cannot be reached, a client gives up; told that it may not, it tries again.
        Verb::Supervise if name == "connect" && internet() => libc::ENETUNREACH,
        _ if FALLS_BACK.contains(&name) || name.starts_with("syscall ") => libc::ENOSYS,
        _ => libc::EPERM,
    }
}

/// What a mount refuses is refused here too: the mount is gone for a moment when somebody outside replaces the file, and
/// root may write to what covers a closed one.
fn mounted(denial: &Denial) -> Answer {
    match (denial.layer, denial.errno.as_str()) {
        (Layer::Namespaces, "EROFS") => Answer::Errno(libc::EROFS),
        (Layer::Namespaces, "EACCES") => Answer::Errno(libc::EACCES),
        _ => Answer::Continue,
    }
}

/// Whether a refusal keeps the command to the addresses of `loopback` or `hosts`, which `on_violation = log` leaves in force
/// like paths and limits.
fn holds_addresses(why: Why, network: &NetworkMode) -> bool {
    matches!(why, Why::Socket | Why::Pair | Why::Detour) && *network != NetworkMode::None
}

impl Desk {
    pub(super) fn judge(self: &Arc<Desk>, call: &Call) -> io::Result<()> {
        if self.ending.load(Ordering::SeqCst) {
            // It waits until its end comes.
            return Ok(());
        }
        if let Some(lesson) = self.lesson.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).as_mut() {
            lesson.hear(call);
            return self.answer(call, Answer::Continue).map(drop);
        }
        let waits = || self.still_waits(call);
        let Decision { verb, why } = self.judge.table.decision(call.number as u32, &call.args);
        let mut host = None;
        let mut never = None;
        let refused = match verb {
            Verb::Watch => {
                if self.judge.plan.policy.maps_ids()
                    && let Some(answered) = maps::open(call)
                {
                    return match answered {
                        maps::Answered::File(opened) => self.give(call, &opened),
                        maps::Answered::Refused => self.answer(call, Answer::Errno(libc::EACCES)).map(drop),
                    };
                }
                let denial = self.foreseen(call);
                let answer = denial.as_ref().map_or(Answer::Continue, mounted);
                return self.answer_and_record(call, answer, denial);
            }
            Verb::Supervise if matches!(i64::from(call.number), libc::SYS_connect | libc::SYS_listen) => {
                match connect::judge(call, &self.judge.reach, &waits) {
                    connect::Connect::Answered(answer) => return self.answer(call, answer).map(drop),
                    connect::Connect::Make(connection) => return self.connect(call, connection),
                    connect::Connect::Refused(path, address) => {
                        host = address;
                        path
                    }
                    connect::Connect::Never(why) => {
                        never = Some(why);
                        None
                    }
                }
            }
            Verb::Supervise => match metadata::change(call, &self.judge.writable, &waits) {
                metadata::Done::Answered(answer) => return self.answer(call, answer).map(drop),
                metadata::Done::Refused(path) => Some(path),
                metadata::Done::Never(path, why) => {
                    never = Some(why);
                    Some(path)
                }
            },
            Verb::UntilMain if self.grants_start(call) => return self.answer(call, Answer::Continue).map(drop),
            _ => None,
        };
        // What the loader was granted is denied by the exact list from main on.
        let exact = self.at_main.get().filter(|_| verb == Verb::UntilMain);
        let why = exact.map_or(why, |exact| exact.decision(call.number as u32, &call.args).why);
        let name = denials::name(call.number);
        let errno = errno(verb, call, &name);
        let mut denial = denials::of_call(call, why, &self.judge.plan, refused, errno);
        denial.host = host.or(denial.host);
        if let Some(why) = never {
            (denial.rule, denial.allow_with, denial.allow_with_policy) = (why.to_owned(), None, None);
        }
        let answer = match self.judge.plan.policy.on_violation {
            _ if matches!(verb, Verb::Refuse(_)) => Answer::Errno(errno),
            // What the supervisor would have to do itself is not let through: it could not be undone.
            OnViolation::Log if verb != Verb::Supervise && !holds_addresses(why, &self.judge.plan.network) => {
                denial.let_through();
                // The path layers may refuse what the filter lets through.
                let foreseen = self.foreseen(call);
                let answer = foreseen.as_ref().map_or(Answer::Continue, mounted);
                return self.answer_and_record(call, answer, [denial].into_iter().chain(foreseen));
            }
            OnViolation::Errno | OnViolation::Log => Answer::Errno(errno),
            OnViolation::Kill => {
                // Else its process is dead already, or a signal came and it is made again: then it is judged again.
                if self.still_waits(call) {
                    denial.errno = KILLED.to_owned();
                    let mut notes = self.notes();
                    notes.denials.add(denial);
                    notes.violated.get_or_insert(name);
                    drop(notes);
                    // A signal may have the call made again before the loop has killed anything: it is not counted twice.
                    self.ending.store(true, Ordering::SeqCst);
                    self.tell();
                }
                return Ok(());
            }
        };
        self.answer_and_record(call, answer, [denial])
    }

    /// Whether a call is still the loader's, or is one that the exact list grants. libsandbox.so loads its filter right
    /// before main: from then on the list holds, for the whole tree.
    fn grants_start(&self, call: &Call) -> bool {
        let (number, set_filter) = (i64::from(call.number), u64::from(libc::SECCOMP_SET_MODE_FILTER));
        match self.at_main.get() {
            Some(exact) => exact.decide(call.number as u32, &call.args).passes(),
            None => {
                if number == libc::SYS_seccomp && call.args[0] & 0xffff_ffff == set_filter {
                    let _ = self.at_main.set(Table::exact(&self.judge.plan.policy));
                }
                true
            }
        }
    }

    /// What was read of the process counts if the answer was taken: then it was that process, and it made this call once.
    fn answer_and_record(
        &self,
        call: &Call,
        answer: Answer,
        denials: impl IntoIterator<Item = Denial>,
    ) -> io::Result<()> {
        if self.answer(call, answer)? {
            denials.into_iter().for_each(|denial| self.notes().denials.add(denial));
        }
        Ok(())
    }

    /// What a path layer is about to refuse of a call that goes on whatever is found here.
    fn foreseen(&self, call: &Call) -> Option<Denial> {
        let target = Target { tid: call.tid };
        let refused = if i64::from(call.number) == libc::SYS_bind {
            let peer = decode::address::read(&target, call.args[1], call.args[2])?;
            self.judge.foresight.look_at_bind(peer.path()?, &target)?
        } else {
            self.judge.foresight.glance(call, &target)?
        };
        Some(denials::of_path(call, &self.judge.plan, refused))
    }

    /// What was read of the process before was read of that process.
    fn still_waits(&self, call: &Call) -> bool {
        notify::still_waits(self.listener.as_fd(), call.id)
    }

    fn give(&self, call: &Call, opened: &maps::Opened) -> io::Result<()> {
        match notify::give(self.listener.as_fd(), call.id, opened.file.as_fd(), opened.close_on_exec) {
            Ok(_) => Ok(()),
            // As many descriptors as it may have, or a kernel before 5.9: the path layers answer for it.
            Err(_) => self.answer(call, Answer::Continue).map(drop),
        }
    }

    /// Whether the answer was taken.
    fn answer(&self, call: &Call, answer: Answer) -> io::Result<bool> {
        notify::answer(self.listener.as_fd(), call.id, answer)
    }

    /// A connection may wait for its other side, which may wait for us: then it is made on a thread of its own.
    fn connect(self: &Arc<Desk>, call: &Call, connection: connect::Connection) -> io::Result<()> {
        if !connection.waits() {
            return self.answer(call, connection.make()).map(drop);
        }
        if self.connecting.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTING {
            self.connecting.fetch_sub(1, Ordering::SeqCst);
            return self.answer(call, Answer::Errno(libc::EAGAIN)).map(drop);
        }
        let (desk, id) = (self.clone(), call.id);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let _ = notify::answer(desk.listener.as_fd(), id, connection.make());
            desk.connecting.fetch_sub(1, Ordering::SeqCst);
        });
        if thread.is_err() {
            // As many processes as this user may have: the program is told what the kernel told us.
            self.connecting.fetch_sub(1, Ordering::SeqCst);
            return self.answer(call, Answer::Errno(libc::EAGAIN)).map(drop);
        }
        Ok(())
    }
}
