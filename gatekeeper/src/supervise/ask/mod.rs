//! Asking: a refused call waits while someone decides, and is then carried out by the supervisor or denied.
//!
//! | file | part |
//! |---|---|
//! | `hub` | the questions that wait, their answers, and what was approved for the run |
//! | `approved` | whether an approval covers a call |
//! | `place` | where a call leads, as descriptors |
//! | `act` | carries out an approved call |
//! | `never` | what is not asked, whatever the policy grants |
//! | `pending` | a call that waits for its answer |
//! | `hosts` | a name that the proxy refuses |
//! | `lines`, `terminal`, `callback` | who answers: a descriptor, the user at the terminal, a function |
//! | `stopped` | the command, stopped while a question is on the terminal |
//!
//! The filter is never widened. The supervisor opens, makes or connects what was approved, with descriptors that it opened
//! before the question, and injects the result into the program. What runs without `--ask` does not come here.

pub mod act;
pub mod approved;
pub mod callback;
pub mod hosts;
pub mod hub;
pub mod lines;
pub mod never;
mod pending;
mod place;
mod stopped;
pub mod terminal;

use super::clerk::Desk;
use super::connect::{Instead, Refused as Unreachable};
use super::decode::address::{self, Peer};
use super::files::{Does, Named, shapes};
use super::foresee::{Refused, What, merge, permitted_by};
use super::target::{Target, shown};
use super::{denials, metadata, reason};
use crate::plan::table::{Decision as Ruled, Verb, Why};
use crate::policy::OnViolation;
use crate::report::{AskedAccess, AskedKind, Denial, Layer, Question};
use crate::sys::notify::{self, Answer, Call};
use act::Action;
use approved::Subject;
use hub::{Draft, Hub};
use never::{Never, is_same_user};
use pending::{Pending, Refusal};
use place::{Located, Place};
use rustix::fs::{Access, Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a run that asks has in addition.
pub struct Asking {
    pub hub: Arc<Hub>,
    pub never: Never,
}

/// What a call that names files needs.
enum Look {
    /// No layer refuses it, or it fails anyway.
    Passes,
    Refused(Refused),
    /// Refused, and it can be carried out if each part is approved. Without parts, all of it is approved.
    Asks {
        parts: Vec<Part>,
        action: Action,
    },
}

/// A file of a call that is refused, and what an approval of it covers.
struct Part {
    refused: Refused,
    subject: Subject,
    /// The path as the program wrote it, if it leads elsewhere.
    named: Option<PathBuf>,
}

/// The flags in a remedy that grant a path, a host or a socket. Everything else is not asked.
const GRANTS: [&str; 6] = ["--write ", "--read ", "--cache ", "--unix ", "--net ", "--port "];

/// How much of a command line a question shows.
const LONGEST_ARGV: usize = 4096;

impl Desk {
    /// A watched call: carried out if it was approved, asked if it can be, and left to the kernel if no layer refuses it.
    pub(super) fn watch_asking(self: &Arc<Desk>, call: &Call, asking: &Asking) -> io::Result<()> {
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
        let Some(asking) = &self.judge.asking else { return Ok(false) };
        let plan = &self.judge.plan;
        let may = permitted_by(plan, &prepared.file, Access::WRITE_OK) || reason::owned(&prepared.file);
        if !may || prepared.lends_rights() || asking.never.holds_path(&at, &prepared.file) || !is_same_user(call.tid) {
            return Ok(false);
        }
        let errno = libc::EPERM;
        let refused =
            Refused { layer: Layer::Landlock, errno, what: What::Write, path: at.clone(), grant: vec![at.clone()] };
        let subject = Subject::Write(at.clone());
        let known = asking.hub.approves(std::slice::from_ref(&subject), &|path| self.closed(path));
        if !known && !askable(&denials::of_path(call, plan, refused.clone())) {
            return Ok(false);
        }
        let refusal = |_| Refusal::Call { ruled, path: Some(at), host: None };
        let parts = vec![Part { refused, subject, named: None }];
        self.ask_parts(call, asking, parts, Action::Change(prepared), refusal).map(|()| true)
    }

    /// A connect or listen that the policy does not allow. `false`: deny it.
    pub(super) fn asks_reach(
        self: &Arc<Desk>,
        call: &Call,
        ruled: Ruled,
        refused: &mut Unreachable,
    ) -> io::Result<bool> {
        let Some(asking) = &self.judge.asking else { return Ok(false) };
        let (plan, target) = (&self.judge.plan, Target { tid: call.tid });
        let Some(instead) = refused.instead.take().filter(|_| is_same_user(call.tid)) else { return Ok(false) };
        let listens = matches!(instead, Instead::Listen { .. });
        let (subject, kind) = match (&refused.path, &refused.host) {
            (Some(path), _) => (Subject::Socket(path.clone()), AskedKind::Socket),
            (None, Some(host)) if listens => (Subject::Listen(host.clone()), AskedKind::Host),
            (None, Some(host)) => (Subject::Host(host.clone()), AskedKind::Host),
            (None, None) => return Ok(false),
        };
        let action = match instead {
            Instead::Connect(connection) => Action::Connect(connection),
            Instead::Listen { socket, backlog } => Action::Listen { socket, backlog },
        };
        let subjects = vec![subject];
        if asking.hub.approves(&subjects, &|path| self.closed(path)) {
            return self.carry_out(call, action).map(|()| true);
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
        let own = |flag: &String| GRANTS.iter().any(|grant| flag.starts_with(grant));
        if !allow_with.as_ref().is_some_and(own) {
            return Ok(false);
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
        let host = refused.host.clone().filter(|_| listens);
        let refusal = Refusal::Call { ruled, path: refused.path.clone(), host };
        self.hold(call, asking, vec![Draft { question, subjects }], action, refusal);
        Ok(true)
    }

    /// Carries out a call whose parts are approved, or asks about each part that is not, one after the other.
    fn ask_parts(
        self: &Arc<Desk>,
        call: &Call,
        asking: &Asking,
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
            let denial = denials::of_path(call, &self.judge.plan, refused);
            if !askable(&denial) {
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

    fn hold(self: &Arc<Desk>, call: &Call, asking: &Asking, mut drafts: Vec<Draft>, action: Action, refusal: Refusal) {
        let rest = drafts.split_off(1);
        if let Some(first) = drafts.pop() {
            asking.hub.ask(first, Box::new(Pending::new(self.clone(), *call, action, refusal, rest)));
        }
    }

    /// What the layers say to a call that names files. Reads each path once.
    fn look(&self, call: &Call, asking: &Asking) -> io::Result<Look> {
        let target = Target { tid: call.tid };
        if !self.judge.foresight.on {
            return Ok(Look::Passes);
        }
        let mut located = Vec::new();
        for named in named(call, &target)? {
            located.push(Located::find(named, &target)?);
        }
        // What was read and opened so far was the program's own if its call still waits.
        if !notify::still_waits(self.listener.as_fd(), call.id) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let mut parts = Vec::new();
        let approved =
            matches!(located.as_slice(), [file] if self.opens_approved(file, asking)) && is_same_user(call.tid);
        if approved && let Some(action) = Action::of_files(call, &target, std::mem::take(&mut located))? {
            return Ok(Look::Asks { parts, action });
        }
        for file in &mut located {
            let Some(refused) = self.refusal_of(file)? else { continue };
            let subject = match (refused.what, refused.layer) {
                (What::Execute, _) => return Ok(Look::Refused(refused)),
                (What::Read, Layer::Namespaces) if !self.uncover(file) => return Ok(Look::Refused(refused)),
                (What::Write, Layer::Namespaces) => return Ok(Look::Refused(refused)),
                (What::Read, _) => Subject::Read(file.at.clone()),
                (What::Write, _) => Subject::Write(file.at.clone()),
            };
            parts.push(Part { refused, subject, named: file.named_otherwise() });
        }
        let Some(refused) = merge(parts.iter().map(|part| part.refused.clone()).collect()) else {
            return Ok(Look::Passes);
        };
        // A read-only mount stops the supervisor as well.
        let stopped = parts.iter().any(|part| part.refused.errno == libc::EROFS)
            || located.iter().any(|file| asking.never.holds(file));
        if stopped || !is_same_user(call.tid) {
            return Ok(Look::Refused(refused));
        }
        Ok(match Action::of_files(call, &target, located)? {
            Some(action) => Look::Asks { parts, action },
            None => Look::Refused(refused),
        })
    }

    /// Whether a call opens an existing file that was approved for the run: most calls after an approval do. Why the path layers
    /// refuse it does not matter then, and finding out takes as long as the rest.
    fn opens_approved(&self, file: &Located, asking: &Asking) -> bool {
        let subject = match (&file.named.does, &file.place) {
            (Does::Open { write: true, exclusive: false, .. }, Place::File(_)) => Subject::Write(file.at.clone()),
            (Does::Open { write: false, exclusive: false, .. }, Place::File(_)) => Subject::Read(file.at.clone()),
            _ => return false,
        };
        asking.hub.approves(std::slice::from_ref(&subject), &|path| self.closed(path))
            && !self.judge.foresight.covered.iter().any(|top| file.at.starts_with(top))
            && !asking.never.holds(file)
    }

    fn refusal_of(&self, file: &Located) -> io::Result<Option<Refused>> {
        let foresight = &self.judge.foresight;
        match (&file.named.does, &file.place) {
            (Does::Open { exclusive: true, .. }, Place::File(_)) | (Does::Change, _) => Ok(None),
            (Does::Open { read, write, .. }, Place::File(found)) => foresight.look_at_file(found, *read, *write),
            (Does::OpenUnnamed, Place::File(directory)) => {
                Ok(foresight.refuse_change(&file.at, directory, file.at.clone()))
            }
            (Does::Link, Place::File(_)) => {
                let above = file.at.parent().filter(|above| above.is_absolute() && !foresight.changes(above));
                let refused =
                    |above: &Path| foresight.refused(What::Write, Layer::Landlock, file.at.clone(), above.to_owned());
                Ok(above.map(refused))
            }
            (does, Place::Entry { parent, name }) => {
                let above = file.at.parent().unwrap_or(Path::new("/"));
                foresight.judge_entry(*does, parent, above, name)
            }
            (_, Place::File(_)) => Ok(None),
        }
    }

    /// A file that a mount covers for the program is found beneath the cover, in the supervisor's own namespace, if it is
    /// opened for reading only.
    fn uncover(&self, file: &mut Located) -> bool {
        let reads = matches!(file.named.does, Does::Open { read: true, write: false, create: false, .. });
        let outside =
            self.judge.plan.inside.is_none() && self.judge.foresight.covered.iter().any(|top| file.at.starts_with(top));
        if !reads || !outside {
            return false;
        }
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(found) = rustix::fs::openat2(rustix::fs::CWD, &file.at, flags, Mode::empty(), how) else { return false };
        file.place = Place::File(found);
        true
    }

    /// The closed place around a path. An approval of a directory above it does not open it.
    fn closed(&self, path: &Path) -> Option<PathBuf> {
        let paths = self.judge.plan.landlock.iter().map(|landlock| &landlock.paths);
        let mut closed = paths.flat_map(|paths| paths.hidden.iter().chain(&paths.covered));
        closed.find(|closed| path.starts_with(closed)).cloned()
    }
}

/// Whether a grant of a path, a host or a socket would allow it.
fn askable(denial: &Denial) -> bool {
    denial.allow_with.as_ref().is_some_and(|flag| GRANTS.iter().any(|grant| flag.starts_with(grant)))
}

/// The files that a call names, each path read once.
fn named(call: &Call, target: &Target) -> io::Result<Vec<Named>> {
    if i64::from(call.number) == libc::SYS_bind {
        let peer = address::read(target, call.args[1], call.args[2]);
        let path = peer.as_ref().and_then(Peer::path).map(Path::to_owned);
        let named = |path| Named { directory: libc::AT_FDCWD, path, follow: false, does: Does::Make };
        return Ok(path.map(named).into_iter().collect());
    }
    shapes(call).iter().flatten().map(|shape| shape.named(call, target)).collect()
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
