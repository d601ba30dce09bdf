//! Denies a notified syscall as the policy asks: with an errno, by killing the tree, or by recording alone.

use super::clerk::Desk;
use super::judge::mounted;
use super::remedy::Remedy;
use super::target::Target;
use super::{decode, denials};
use crate::plan::table::{Decision, Verb, Why};
use crate::policy::{NetworkMode, OnViolation};
use crate::report::{Denial, KILLED};
use crate::sys::notify::{Answer, Call};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

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

/// Whether a denial enforces network mode `loopback` or `hosts`. Like paths and limits, those stay in force under
/// `on_violation = log`.
fn holds_addresses(why: Why, network: &NetworkMode) -> bool {
    matches!(why, Why::Socket | Why::Pair | Why::Detour) && *network != NetworkMode::None
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
}
