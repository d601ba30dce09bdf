//! Decides each notified syscall: perform it for the program, let it through, or deny and record it.

use super::ask::Asking;
use super::clerk::Desk;
use super::foresee::Foresight;
use super::remedy::Remedy;
use super::target::Target;
use super::{connect, cwd, decode, denials, maps, metadata, send};
use crate::audit::{Audit, Entry, Kind};
use crate::plan::Plan;
use crate::plan::table::{Decision, Table, Verb, Why};
use crate::policy::{NetworkMode, OnViolation};
use crate::report::{Denial, KILLED, Layer};
use crate::sys::notify::{self, Answer, Call};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What calls are judged by.
pub struct Judge {
    pub plan: Arc<Plan>,
    pub table: Arc<Table>,
    pub foresight: Foresight,
    /// The files whose mode, owner, times and attributes may be changed.
    pub writable: metadata::Writable,
    /// The addresses and sockets that may be connected to.
    pub reach: connect::Reach,
    /// Set if refused calls are asked about.
    pub asking: Option<Asking>,
    /// Notes every decision.
    pub audit: Option<Arc<Audit>>,
}

/// Newer syscalls for which C libraries and programs fall back to an older one on ENOSYS.
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

/// The errno of a denied call.
fn errno(verb: Verb, call: &Call, name: &str) -> i32 {
    let internet = || {
        let target = Target { tid: call.tid };
        matches!(decode::peer(name, call, &target), Some(decode::address::Peer::Internet(_)))
    };
    match verb {
        Verb::DenyWith(errno) | Verb::Refuse(errno) => i32::from(errno),
        // Clients give up on ENETUNREACH, but retry on EPERM.
        Verb::Supervise if name == "connect" && internet() => libc::ENETUNREACH,
        // What Landlock answers on kernels where it restricts truncation.
        Verb::Supervise if name == "truncate" => libc::EACCES,
        _ if FALLS_BACK.contains(&name) || name.starts_with("syscall ") => libc::ENOSYS,
        _ => libc::EPERM,
    }
}

/// Refuses here too what a mount refuses. When a process outside the sandbox replaces the file, the mount is gone for a
/// moment; and root may write to the file that covers a closed one.
fn mounted(denial: &Denial) -> Answer {
    match (denial.layer, denial.errno.as_str()) {
        (Layer::Namespaces, "EROFS") => Answer::Errno(libc::EROFS),
        (Layer::Namespaces, "EACCES") => Answer::Errno(libc::EACCES),
        _ => Answer::Continue,
    }
}

/// Whether a denial enforces network mode `loopback` or `hosts`. Like paths and limits, those stay in force under
/// `on_violation = log`.
fn holds_addresses(why: Why, network: &NetworkMode) -> bool {
    matches!(why, Why::Socket | Why::Pair | Why::Detour) && *network != NetworkMode::None
}

/// linux/ioprio.h
const IOPRIO_WHO_PROCESS: i32 = 1;

/// The number of the process or thread that a call acts on.
fn named_process(call: &Call) -> Option<i32> {
    let word = |at: usize| call.args.get(at).map_or(0, |value| *value as u32 as i32);
    match i64::from(call.number) {
        libc::SYS_setpriority if word(0) == libc::PRIO_PROCESS as i32 => Some(word(1)),
        libc::SYS_ioprio_set if word(0) == IOPRIO_WHO_PROCESS => Some(word(1)),
        libc::SYS_prlimit64 | libc::SYS_sched_setaffinity => Some(word(0)),
        _ => None,
    }
}

/// What the supervisor found when it looked at a call that it denies.
#[derive(Default)]
pub(super) struct Found {
    /// The file that the call names.
    pub(super) path: Option<PathBuf>,
    /// The address that a listening socket is bound to.
    pub(super) host: Option<String>,
    /// Why no grant would allow the call.
    pub(super) never: Option<&'static str>,
    /// Why only a network namespace of its own would.
    pub(super) not_shared: Option<&'static str>,
}

impl Desk {
    /// Decides one notified call, answers it, and records it if it was denied.
    pub(super) fn judge(self: &Arc<Desk>, call: &Call) -> io::Result<()> {
        if self.ending.load(Ordering::SeqCst) {
            return Ok(());
        }
        if self.learn(call) {
            return self.answer(call, Answer::Continue).map(drop);
        }
        if self.judge.foresight.keeps_root {
            Target { tid: call.tid }.keep_root(|| self.still_waits(call));
        }
        let moves = cwd::hear(call);
        let decision = self.judge.table.decision(call.number as u32, &call.args);
        match decision.verb {
            // Notified only so that the working directory is known.
            Verb::Watch if moves => self.answer(call, Answer::Continue).map(drop),
            Verb::Watch => self.watch(call),
            Verb::Supervise if matches!(i64::from(call.number), libc::SYS_connect | libc::SYS_listen) => {
                self.connect_or_listen(call, decision)
            }
            Verb::Supervise if send::is_send(i64::from(call.number)) => self.send(call, decision),
            Verb::Supervise => self.change_metadata(call, decision),
            Verb::UntilMain if self.grants_start(call) => self.answer(call, Answer::Continue).map(drop),
            // The filter knows the calling process by 0 only. The number is in a register, which the process cannot change
            // while the call waits.
            _ if decision.why == Why::Others && self.means_itself(call) => {
                self.note_made(call)?;
                self.answer(call, Answer::Continue).map(drop)
            }
            // No process has a negative number: that is a mistake, which the kernel answers so.
            _ if decision.why == Why::Others && named_process(call).is_some_and(|named| named < 0) => {
                self.answer(call, Answer::Errno(libc::ESRCH)).map(drop)
            }
            _ if self.asks_instead(call, decision)? => Ok(()),
            _ => self.deny(call, decision, Found::default()),
        }
    }

    /// Whether a call that could act on other processes names the calling process or thread by its number. Not in a browser,
    /// whose processes count from 1 in namespaces of their own.
    fn means_itself(&self, call: &Call) -> bool {
        let Some(named) = named_process(call) else { return false };
        let own = named == call.tid || Target { tid: call.tid }.pid().is_ok_and(|pid| pid == named);
        own && !self.judge.plan.policy.maps_ids() && self.still_waits(call)
    }

    /// Denies a call that names this file or address.
    pub(super) fn deny_found(
        &self,
        call: &Call,
        decision: Decision,
        path: Option<PathBuf>,
        host: Option<String>,
    ) -> io::Result<()> {
        self.deny(call, decision, Found { path, host, ..Found::default() })
    }

    /// Notes the call, if this run is for `learn`.
    fn learn(&self, call: &Call) -> bool {
        let mut lesson = self.lesson.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lesson.as_mut().map(|lesson| lesson.hear(call)).is_some()
    }

    /// A call that names files: the path layers decide, this only records what they will refuse. The exception are the
    /// files in /proc that a browser's own sandbox writes, which the supervisor opens for it.
    fn watch(self: &Arc<Desk>, call: &Call) -> io::Result<()> {
        if self.judge.plan.policy.maps_ids()
            && let Some(answered) = maps::open(call)
        {
            return match answered {
                maps::Answered::File(opened) => self.give(call, &opened),
                maps::Answered::Refused => self.answer(call, Answer::Errno(libc::EACCES)).map(drop),
            };
        }
        let mut quick = self.quick.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // An audit trail notes granted calls too, with their paths.
        if self.judge.audit.is_none() && quick.passes(call, &self.judge.foresight, &|| self.still_waits(call)) {
            return self.answer(call, Answer::Continue).map(drop);
        }
        drop(quick);
        if let Some(asking) = &self.judge.asking {
            return self.watch_asking(call, asking);
        }
        let denial = self.foreseen(call);
        let answer = denial.as_ref().map_or(Answer::Continue, mounted);
        self.note(call, denial.as_ref())?;
        self.answer_and_record(call, answer, denial)
    }

    /// A call that a path layer will refuse.
    pub(super) fn refuse_path(&self, call: &Call, denial: Denial) -> io::Result<()> {
        self.note(call, Some(&denial))?;
        self.answer_and_record(call, mounted(&denial), [denial])
    }

    /// Notes the decision about a call in the audit trail, before the call is answered.
    pub(super) fn note(&self, call: &Call, denial: Option<&Denial>) -> io::Result<()> {
        // Left to the kernel: if the file's own permissions refuse it, nothing was allowed.
        let kernels = self.judge.audit.is_some() && denial.is_none();
        let fails = kernels.then(|| super::fails::fails(call, &Target { tid: call.tid })).flatten();
        self.note_result(call, denial, fails)
    }

    /// The same for a call that the supervisor carries out itself.
    pub(super) fn note_made(&self, call: &Call) -> io::Result<()> {
        self.note_result(call, None, None)
    }

    fn note_result(&self, call: &Call, denial: Option<&Denial>, fails: Option<i32>) -> io::Result<()> {
        let Some(audit) = &self.judge.audit else { return Ok(()) };
        let name = denials::name(call.number);
        let target = Target { tid: call.tid };
        let kind = match name.as_str() {
            "execve" | "execveat" => Kind::Exec,
            "open" | "openat" | "openat2" | "creat" => Kind::Open,
            _ if denial.is_some_and(|denial| denial.host.is_some()) => Kind::Host,
            _ => Kind::Call,
        };
        let allowed = denial.is_none_or(Denial::was_let_through);
        let path = match denial {
            Some(denial) => denial.path.clone(),
            None => denials::first_path(call, &target).map(|path| super::target::shown(&path)),
        };
        let entry = match fails {
            Some(errno) => Entry::attempted(kind).with("errno", crate::sys::errno_name(errno)),
            None => Entry::decided(kind, allowed),
        };
        let entry = entry.with("syscall", name).with("path", path);
        let entry = entry.with("host", denial.and_then(|denial| denial.host.clone()));
        let entry = entry.with("rule", denial.map(|denial| denial.rule.clone()));
        audit.note(entry.with("pid", target.pid().unwrap_or(call.tid)).with("comm", target.comm()))
    }

    fn connect_or_listen(self: &Arc<Desk>, call: &Call, decision: Decision) -> io::Result<()> {
        let found = match connect::judge(call, &self.judge.reach, &|| self.still_waits(call)) {
            connect::Connect::Answered(answer) if self.asks_absent(call, answer) => return Ok(()),
            connect::Connect::Answered(answer) => return self.answer(call, answer).map(drop),
            connect::Connect::Make(connection) => {
                self.note_connection(call, &connection)?;
                return self.connect(call, connection);
            }
            connect::Connect::Refused(mut refused) => {
                if self.asks_reach(call, decision, &mut refused)? {
                    return Ok(());
                }
                let listens = i64::from(call.number) == libc::SYS_listen;
                Found { path: refused.path, host: refused.host.filter(|_| listens), ..Found::default() }
            }
            connect::Connect::Never(why) => Found { never: Some(why), ..Found::default() },
            connect::Connect::NotShared(why) => Found { not_shared: Some(why), ..Found::default() },
        };
        self.deny(call, decision, found)
    }

    /// Notes a connection that is allowed. The proxy notes those that go through it.
    pub(super) fn note_connection(&self, call: &Call, connection: &connect::Connection) -> io::Result<()> {
        let (Some(audit), Some(to)) = (&self.judge.audit, connection.shown()) else { return Ok(()) };
        let target = Target { tid: call.tid };
        let entry = Entry::allowed(Kind::Host).with("syscall", "connect").with("host", to);
        audit.note(entry.with("pid", target.pid().unwrap_or(call.tid)).with("comm", target.comm()))
    }

    fn change_metadata(self: &Arc<Desk>, call: &Call, decision: Decision) -> io::Result<()> {
        let mut quick = self.quick.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let recent = (&mut *quick, &self.judge.foresight);
        let done = metadata::change(call, &self.judge.writable, recent, &|| self.still_waits(call));
        drop(quick);
        let found = match done {
            metadata::Done::Answered(answer) if self.asks_absent(call, answer) => return Ok(()),
            metadata::Done::Answered(answer) => {
                // Only now is it known whether the change was allowed.
                if matches!(answer, Answer::Value(_)) {
                    self.note_made(call)?;
                }
                return self.answer(call, answer).map(drop);
            }
            metadata::Done::Refused(path, prepared) => {
                if self.asks_change(call, decision, path.clone(), prepared)? {
                    return Ok(());
                }
                Found { path: Some(path), ..Found::default() }
            }
            metadata::Done::Never(path, why) => Found { path: Some(path), never: Some(why), ..Found::default() },
        };
        self.deny(call, decision, found)
    }

    /// Denies a call in the way that `on_violation` asks for.
    pub(super) fn deny(&self, call: &Call, decision: Decision, found: Found) -> io::Result<()> {
        let Decision { verb, why } = decision;
        let name = denials::name(call.number);
        let errno = errno(verb, call, &name);
        let denial = self.denial(call, decision, found, errno);
        self.note(call, Some(&denial))?;
        match self.judge.plan.policy.on_violation {
            _ if matches!(verb, Verb::Refuse(_)) => self.answer_and_record(call, Answer::Errno(errno), [denial]),
            // Never let through a call that the supervisor performs itself: it would go unchecked.
            OnViolation::Log if verb != Verb::Supervise && !holds_addresses(why, &self.judge.plan.network) => {
                self.let_through(call, denial)
            }
            OnViolation::Errno | OnViolation::Log => self.answer_and_record(call, Answer::Errno(errno), [denial]),
            OnViolation::Kill => {
                self.kill_for(call, denial, name);
                Ok(())
            }
        }
    }

    fn denial(&self, call: &Call, decision: Decision, found: Found, errno: i32) -> Denial {
        let Decision { verb, why } = decision;
        // After main it is the exact list that denies what the loader was granted.
        let exact = self.at_main.get().filter(|_| verb == Verb::UntilMain);
        let why = exact.map_or(why, |exact| exact.decision(call.number as u32, &call.args).why);
        let mut denial = denials::of_call(call, why, &self.judge.plan, found.path, errno);
        denial.host = found.host.or(denial.host);
        if let Some(never) = found.never {
            (denial.rule, denial.allow_with, denial.allow_with_policy) = (never.to_owned(), None, None);
        }
        if let Some(rule) = found.not_shared {
            let plan = &self.judge.plan;
            // The mounts of this run show that namespaces can be made here.
            let helps = self.judge.foresight.mounts && plan.takes_own_network();
            let remedy = if helps { Remedy::OwnNetwork } else { Remedy::Nothing };
            denial.rule = rule.to_owned();
            (denial.allow_with, denial.allow_with_policy) = (remedy.flag(plan), remedy.line(&plan.policy));
        }
        denial
    }

    /// `on_violation = log`: records the denial and lets the call through. A path layer may still refuse it.
    fn let_through(&self, call: &Call, mut denial: Denial) -> io::Result<()> {
        denial.let_through();
        let foreseen = self.foreseen(call);
        let answer = foreseen.as_ref().map_or(Answer::Continue, mounted);
        self.answer_and_record(call, answer, [denial].into_iter().chain(foreseen))
    }

    /// `on_violation = kill`: records the denial and has the event loop kill the tree. If the call no longer waits, its
    /// process has died, or a signal interrupted the call and it will be judged when it is retried.
    fn kill_for(&self, call: &Call, mut denial: Denial, name: String) {
        if !self.still_waits(call) {
            return;
        }
        denial.errno = KILLED.to_owned();
        let mut notes = self.notes();
        notes.denials.add(denial);
        notes.violated.get_or_insert(name);
        drop(notes);
        // Stop judging now: a call retried before the loop has killed its process must not be recorded twice.
        self.ending.store(true, Ordering::SeqCst);
        self.wake_loop();
    }

    /// Whether an exact syscall list allows this call. Everything that the loader needs is allowed until libsandbox.so
    /// loads its filter, right before main; from then on the list holds for the whole tree.
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

    /// Records the denials only if the kernel accepted our reply. Otherwise the process has died, or (before Linux
    /// 5.19, which has SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) a signal interrupted the call and it will be retried.
    pub(super) fn answer_and_record(
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

    /// What a path layer will refuse of this call.
    pub(super) fn foreseen(&self, call: &Call) -> Option<Denial> {
        let target = Target { tid: call.tid };
        let refused = if i64::from(call.number) == libc::SYS_bind {
            let peer = decode::address::read(&target, call.args[1], call.args[2])?;
            self.judge.foresight.look_at_bind(peer.path()?, &target)?
        } else {
            self.judge.foresight.glance(call, &target)?
        };
        let denial = denials::of_path(call, &self.judge.plan, refused);
        let in_passing = self.judge.plan.browser.is_some() && super::browser::tries_in_passing(&denial);
        (!in_passing).then_some(denial)
    }

    /// Whether the call still waits. If so, what was read so far was read from its process, and not from another one
    /// that has been given the same PID.
    pub(super) fn still_waits(&self, call: &Call) -> bool {
        notify::still_waits(self.listener.as_fd(), call.id)
    }

    fn give(&self, call: &Call, opened: &maps::Opened) -> io::Result<()> {
        match notify::give(self.listener.as_fd(), call.id, opened.file.as_fd(), opened.close_on_exec) {
            Ok(_) => Ok(()),
            // The program is at its descriptor limit, or the kernel is older than 5.9: the path layers decide.
            Err(_) => self.answer(call, Answer::Continue).map(drop),
        }
    }

    /// Answers a call. Returns whether the kernel accepted the reply.
    pub(super) fn answer(&self, call: &Call, answer: Answer) -> io::Result<bool> {
        notify::answer(self.listener.as_fd(), call.id, answer)
    }
}
