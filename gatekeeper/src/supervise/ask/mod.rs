//! Asking: a refused call waits while someone decides, and is then carried out by the supervisor or denied.
//!
//! | file | part |
//! |---|---|
//! | `hub` | the questions that wait, their answers, and what was approved for the run |
//! | `approved` | whether an approval covers a call |
//! | `look` | which files a call names, and whether it can be carried out |
//! | `place`, `view` | where a call leads, as descriptors, and through whose mounts |
//! | `act` | carries out an approved call |
//! | `never` | what is not asked, whatever the policy grants |
//! | `pending` | a call that waits for its answer |
//! | `hosts` | a name that the proxy refuses |
//! | `lines`, `terminal`, `callback` | who answers: a descriptor, the user at the terminal, a function |
//! | `screen`, `stopped` | the terminal, and the stopped command, while a question is on it |
//! | `relay`, `outside` | bubblewrap: the gatekeeper inside sends a call out, and the one outside asks and carries it out |
//!
//! The filter is never widened. The supervisor opens, makes or connects what was approved, with descriptors that it opened
//! before the question, and injects the result into the program. What runs without `--ask` does not come here.

pub mod act;
pub mod approved;
pub mod callback;
pub mod hosts;
pub mod hub;
pub mod lines;
mod look;
pub mod never;
pub mod outside;
mod pending;
mod place;
pub mod relay;
mod screen;
mod stopped;
pub mod terminal;
pub mod view;

use super::clerk::Desk;
use super::connect::{Instead, Refused as Unreachable};
use super::decode::address::Peer;
use super::foresee::permitted_by;
use super::refused::{Refused, What, merge};
use super::target::{Target, shown};
use super::{denials, metadata, reason};
use crate::plan::Plan;
use crate::plan::table::{Decision as Ruled, Verb, Why};
use crate::policy::OnViolation;
use crate::report::{AskedAccess, AskedKind, Denial, Layer, Question};
use crate::sys::notify::{Answer, Call};
use act::Action;
use approved::Subject;
use hub::{Draft, Hub};
use look::{Look, Part};
use never::Never;
use pending::{Pending, Refusal};
use relay::{Otherwise, Relay};
use rustix::fs::Access;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use view::View;

/// What a run that asks has in addition.
pub enum Asking {
    Here(Asker),
    /// This gatekeeper runs inside bubblewrap. The one outside asks, and carries out what is approved.
    Outside(Relay),
}

pub struct Asker {
    pub hub: Arc<Hub>,
    pub never: Never,
    pub view: View,
}

/// How much of a command line a question shows.
const LONGEST_ARGV: usize = 4096;

impl Desk {
    /// A watched call: carried out if it was approved, asked if it can be, and left to the kernel if no layer refuses it.
    pub(super) fn watch_asking(self: &Arc<Desk>, call: &Call, asking: &Asking) -> io::Result<()> {
        let asking = match asking {
            Asking::Here(asking) => asking,
            Asking::Outside(relay) => return self.watch_relaying(call, relay),
        };
        match self.look(call, asking).unwrap_or(Look::Passes) {
            Look::Passes => {
                self.note(call, None)?;
                self.answer(call, Answer::Continue).map(drop)
            }
            Look::Refused(refused) => self.refuse_path(call, denials::of_path(call, &self.judge.plan, refused)),
            Look::Asks { parts, action } => {
                let errno = parts.first().map_or(libc::EACCES, |part| part.refused.errno);
                let refusal = |denial| Refusal::Path { denial: Box::new(denial), errno };
                self.ask_parts(call, asking, parts, action, refusal)
            }
        }
    }

    /// A call that the filter denies: asked, if it changes files or their metadata and can be carried out. `false`: deny it.
    pub(super) fn asks_instead(self: &Arc<Desk>, call: &Call, ruled: Ruled) -> io::Result<bool> {
        let Some(asking) = &self.judge.asking else { return Ok(false) };
        let by_profile = ruled.verb == Verb::Deny && ruled.why == Why::Profile;
        if !by_profile || self.judge.plan.policy.on_violation == OnViolation::Log {
            return Ok(false);
        }
        let asking = match asking {
            Asking::Here(asking) => asking,
            Asking::Outside(relay) => {
                relay.ask(self, call, Otherwise::Deny { ruled, path: None, host: None });
                return Ok(true);
            }
        };
        if let Ok((at, prepared)) = metadata::prepare(call, &Target { tid: call.tid }) {
            return self.asks_change(call, ruled, at, prepared);
        }
        match self.look(call, asking) {
            Ok(Look::Asks { parts, action }) => {
                let refusal = |_| Refusal::Call { ruled, path: None, host: None };
                self.ask_parts(call, asking, parts, action, refusal).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// A change of mode, owner, times or attributes outside of the writable trees. `false`: deny it.
    pub(super) fn asks_change(
        self: &Arc<Desk>,
        call: &Call,
        ruled: Ruled,
        at: PathBuf,
        prepared: metadata::Prepared,
    ) -> io::Result<bool> {
        let asking = match &self.judge.asking {
            None => return Ok(false),
            Some(Asking::Here(asking)) => asking,
            Some(Asking::Outside(relay)) => {
                relay.ask(self, call, Otherwise::Deny { ruled, path: Some(at), host: None });
                return Ok(true);
            }
        };
        let refusal = Refusal::Call { ruled, path: Some(at.clone()), host: None };
        self.asks_prepared(call, asking, at, prepared, refusal).map(|asked| asked.is_none())
    }

    /// The same. Returns the refusal if it cannot be asked.
    fn asks_prepared(
        self: &Arc<Desk>,
        call: &Call,
        asking: &Asker,
        at: PathBuf,
        prepared: metadata::Prepared,
        refusal: Refusal,
    ) -> io::Result<Option<Refusal>> {
        let plan = &self.judge.plan;
        let may = permitted_by(plan, &prepared.file, Access::WRITE_OK) || reason::owned(&prepared.file);
        if !may
            || prepared.lends_rights()
            || asking.never.holds_path(&at, &prepared.file)
            || !self.keeps_rights(call.tid)
        {
            return Ok(Some(refusal));
        }
        let errno = libc::EPERM;
        let refused =
            Refused { layer: Layer::Landlock, errno, what: What::Write, path: at.clone(), grant: vec![at.clone()] };
        let subject = Subject::Write(at.clone());
        let known = asking.hub.approves(std::slice::from_ref(&subject), &|path| self.closed(path));
        if !known && !askable(plan, &refused) {
            return Ok(Some(refusal));
        }
        let parts = vec![Part { refused, subject, named: None }];
        self.ask_parts(call, asking, parts, Action::Change(prepared), |_| refusal).map(|()| None)
    }

    /// A connect or listen that the policy does not allow. `false`: deny it.
    pub(super) fn asks_reach(
        self: &Arc<Desk>,
        call: &Call,
        ruled: Ruled,
        refused: &mut Unreachable,
    ) -> io::Result<bool> {
        let Some(asking) = &self.judge.asking else { return Ok(false) };
        let Some(instead) = refused.instead.take() else { return Ok(false) };
        let listens = matches!(instead, Instead::Listen { .. });
        let (path, host) = (refused.path.clone(), refused.host.clone().filter(|_| listens));
        match asking {
            Asking::Here(asking) => {
                let refusal = Refusal::Call { ruled, path, host };
                self.asks_connection(call, asking, refused, instead, refusal).map(|asked| asked.is_none())
            }
            Asking::Outside(relay) => {
                relay.ask(self, call, Otherwise::Deny { ruled, path, host });
                Ok(true)
            }
        }
    }

    /// The same. Returns the refusal if it cannot be asked.
    fn asks_connection(
        self: &Arc<Desk>,
        call: &Call,
        asking: &Asker,
        refused: &Unreachable,
        instead: Instead,
        refusal: Refusal,
    ) -> io::Result<Option<Refusal>> {
        let (plan, target) = (&self.judge.plan, Target { tid: call.tid });
        let listens = matches!(instead, Instead::Listen { .. });
        let never = |path: &PathBuf| asking.never.holds_socket(path);
        if refused.path.as_ref().is_some_and(never) || !self.keeps_rights(call.tid) {
            return Ok(Some(refusal));
        }
        let (subject, kind) = match (&refused.path, &refused.host) {
            (Some(path), _) => (Subject::Socket(path.clone()), AskedKind::Socket),
            (None, Some(host)) if listens => (Subject::Listen(host.clone()), AskedKind::Host),
            (None, Some(host)) => (Subject::Host(host.clone()), AskedKind::Host),
            (None, None) => return Ok(Some(refusal)),
        };
        let action = match instead {
            Instead::Connect(connection) => Action::Connect(connection),
            Instead::Listen { socket, backlog } => Action::Listen { socket, backlog },
        };
        let subjects = vec![subject];
        if asking.hub.approves(&subjects, &|path| self.closed(path)) {
            return self.carry_out(call, action).map(|()| None);
        }
        let peer = refused.host.as_deref().and_then(|host| host.parse().ok()).map(Peer::Internet);
        let syscall = denials::name(call.number);
        let about = reason::Asked {
            syscall: &syscall,
            call,
            target: &target,
            path: refused.path.as_deref(),
            peer: peer.as_ref(),
        };
        let (rule, remedy) = reason::of_call(Why::Reach, &about, plan);
        let (allow_with, allow_with_policy) = (remedy.flag(plan), remedy.line(&plan.policy));
        if !remedy.is_access(plan) {
            return Ok(Some(refusal));
        }
        let question = Question {
            id: 0,
            kind,
            access: AskedAccess::Connect,
            syscall,
            path: refused.path.as_deref().map(shown),
            named: None,
            host: refused.host.clone().filter(|_| kind == AskedKind::Host),
            method: None,
            comm: target.comm(),
            pid: target.pid().unwrap_or(call.tid),
            argv: argv(call.tid),
            allow_with,
            rule,
            allow_with_policy,
        };
        self.hold(call, asking, vec![Draft { question, subjects }], action, refusal);
        Ok(None)
    }

    /// Carries out a call whose parts are approved, or asks about each part that is not, one after the other.
    fn ask_parts(
        self: &Arc<Desk>,
        call: &Call,
        asking: &Asker,
        mut parts: Vec<Part>,
        action: Action,
        refusal: impl FnOnce(Denial) -> Refusal,
    ) -> io::Result<()> {
        let known = |part: &Part| asking.hub.approves(std::slice::from_ref(&part.subject), &|path| self.closed(path));
        parts.retain(|part| !known(part));
        let Some(refused) = merge(parts.iter().map(|part| part.refused.clone()).collect()) else {
            return self.carry_out(call, action);
        };
        let mut drafts = Vec::new();
        for Part { refused, subject, named } in parts {
            let access = if refused.what == What::Read { AskedAccess::Read } else { AskedAccess::Write };
            let askable = askable(&self.judge.plan, &refused);
            let denial = denials::of_path(call, &self.judge.plan, refused);
            if !askable {
                return refusal(denial).carry_out(self, call);
            }
            let question = Question {
                id: 0,
                kind: AskedKind::Path,
                access,
                syscall: denial.syscall,
                path: denial.path,
                named: named.as_deref().map(shown),
                host: None,
                method: None,
                comm: denial.comm,
                pid: denial.pid,
                argv: argv(call.tid),
                allow_with: denial.allow_with,
                rule: denial.rule,
                allow_with_policy: denial.allow_with_policy,
            };
            drafts.push(Draft { question, subjects: vec![subject] });
        }
        let denial = denials::of_path(call, &self.judge.plan, refused);
        self.hold(call, asking, drafts, action, refusal(denial));
        Ok(())
    }

    fn hold(self: &Arc<Desk>, call: &Call, asking: &Asker, mut drafts: Vec<Draft>, action: Action, refusal: Refusal) {
        let rest = drafts.split_off(1);
        if let Some(first) = drafts.pop() {
            asking.hub.ask(first, Box::new(Pending::new(self.clone(), *call, action, refusal, rest)));
        }
    }
}

/// Whether a grant of a path would allow it.
fn askable(plan: &Plan, refused: &Refused) -> bool {
    reason::of_path(plan, refused).1.is_access(plan)
}

/// The command line of a process. The program can change it.
fn argv(tid: i32) -> Vec<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{tid}/cmdline")) {
        let _ = file.take(LONGEST_ARGV as u64).read_to_end(&mut bytes);
    }
    let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
