//! Decides each notified syscall: perform it for the program, let it through, or deny and record it.

use super::ask::{Asking, view::View};
use super::clerk::Desk;
use super::deny::Found;
use super::foresee::Foresight;
use super::quick::Quick;
use super::rights::{self, Rights, Start};
use super::target::Target;
use super::{connect, cwd, decode, denials, maps, metadata, send};
use crate::audit::Audit;
use crate::plan::Plan;
use crate::plan::table::{Decision, Table, Verb, Why};
use crate::report::{Denial, Layer};
use crate::sys::notify::{self, Answer, Call};
use crate::sys::process::has_ordinary_policy;
use std::io;
use std::os::fd::AsFd;
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

/// Refuses here too what a mount refuses. When a process outside the sandbox replaces the file, the mount is gone for a
/// moment; and root may write to the file that covers a closed one.
pub(super) fn mounted(denial: &Denial) -> Answer {
    match (denial.layer, denial.errno.as_str()) {
        (Layer::Namespaces, "EROFS") => Answer::Errno(libc::EROFS),
        (Layer::Namespaces, "EACCES") => Answer::Errno(libc::EACCES),
        _ => Answer::Continue,
    }
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
        libc::SYS_sched_setscheduler | libc::SYS_sched_setparam => Some(word(0)),
        _ => None,
    }
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
            _ if decision.why == Why::Profile && self.keeps_parameters(call) => {
                self.note_made(call)?;
                self.answer(call, Answer::Continue).map(drop)
            }
            // No process has a negative number: that is a mistake, which the kernel answers so.
            _ if decision.why == Why::Others && named_process(call).is_some_and(|named| named < 0) => {
                let scheduler = i64::from(call.number) == libc::SYS_sched_setscheduler;
                let errno = if scheduler { libc::EINVAL } else { libc::ESRCH };
                self.answer(call, Answer::Errno(errno)).map(drop)
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

    /// Whether a process sets its own scheduling parameters and has an ordinary policy, whose only priority is 0: this changes
    /// nothing. With a real-time policy, which it can only have inherited, it could raise its priority.
    fn keeps_parameters(&self, call: &Call) -> bool {
        let named = match named_process(call) {
            _ if i64::from(call.number) != libc::SYS_sched_setparam => return false,
            Some(0) => call.tid,
            Some(named) if self.means_itself(call) => named,
            _ => return false,
        };
        has_ordinary_policy(named)
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
        // An audit trail notes granted calls too, with their paths. What does not exist in an isolated run may exist outside.
        let in_full = self.judge.audit.is_some() || matches!(self.judge.asking, Some(Asking::Outside(_)));
        if !in_full && quick.passes(call, &self.judge.foresight, &|| self.still_waits(call)) {
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

    fn start(&self) -> &Start {
        self.start.get_or_init(|| {
            let start = Start::of_run(&self.judge.table, &self.judge.plan.policy);
            match &self.judge.asking {
                Some(Asking::Here(asking)) if asking.view == View::Outside => start.inside_bubblewrap(),
                _ => start,
            }
        })
    }

    /// The rights with which a call of this thread has to be made. `None`: those of the supervisor.
    pub(super) fn rights(&self, tid: i32) -> io::Result<Option<Arc<Rights>>> {
        self.start().rights(tid).map(|rights| rights.map(Arc::new))
    }

    /// Whether a thread still has everything that the command started with.
    pub(super) fn keeps_rights(&self, tid: i32) -> bool {
        self.start().has_all(tid)
    }

    fn connect_or_listen(self: &Arc<Desk>, call: &Call, decision: Decision) -> io::Result<()> {
        let judged = self.rights(call.tid).and_then(|rights| {
            let judge = || Ok(connect::judge(call, &self.judge.reach, &|| self.still_waits(call)));
            rights::with(rights.as_deref(), judge).map(|judged| judged.made_with(rights))
        });
        let found = match judged.unwrap_or(connect::Connect::Answered(Answer::Errno(libc::EPERM))) {
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

    fn change_metadata(self: &Arc<Desk>, call: &Call, decision: Decision) -> io::Result<()> {
        let change = |quick: &mut Quick| {
            let recent = (quick, &self.judge.foresight);
            metadata::change(call, &self.judge.writable, recent, &|| self.still_waits(call))
        };
        let done = match self.rights(call.tid) {
            Ok(None) => change(&mut self.quick.lock().unwrap_or_else(|poisoned| poisoned.into_inner())),
            // Not with what is known: the thread may have no access to the directories that were looked at.
            rights => rights
                .and_then(|rights| rights::with(rights.as_deref(), || Ok(change(&mut Quick::default()))))
                .unwrap_or(metadata::Done::Answered(Answer::Errno(libc::EPERM))),
        };
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
        // Before the answer: a command that ends at once must not end the record before this is in it.
        let mut notes = self.notes();
        if self.answer(call, answer)? {
            denials.into_iter().for_each(|denial| notes.denials.add(denial));
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
