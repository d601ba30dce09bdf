//! Plans that are used again, in a process that runs many commands: `serve`, `mcp`, and programs that embed the library.
//!
//! A plan is kept with the facts that it was made from. It is used for another request that differs in nothing but arguments, and
//! only while every fact still holds; otherwise a new one is made. What differs between runs (the arguments, the directory for
//! temporary files) is put in. A plan that depends on anything else of one run, such as the port of its proxy, is not kept.

use super::prepare::{Prepared, around, make_plan, policy_of, temporary};
use crate::check::{Caller, Handler};
use crate::enforce::landlock::Reused;
use crate::enforce::rundir::RunDir;
use crate::host::Host;
use crate::plan::Plan;
use crate::plan::again::Moved;
use crate::plan::facts::Facts;
use crate::plan::paths::SUMMARY;
use crate::plan::refusal::Refusal;
use crate::policy::{Isolate, Policy, Profile};
use crate::request::{Asked, Purpose, Request};
use crate::sys::guardian::Started;
use crate::sys::process;
use crate::warden::{self, Warden};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many plans are kept. A client has a few sets of flags, in a few directories.
const MOST: usize = 32;

static KEPT: Mutex<Vec<Arc<Kept>>> = Mutex::new(Vec::new());

/// What a plan depends on besides the request and files. It is asked for before each run.
#[derive(PartialEq)]
pub struct Around {
    pub host: Host,
    pub caller: Caller,
    pub handlers: Vec<Handler>,
    /// The guardian program. Another one is started when anything has changed of what a command inherits: user, groups, capabilities,
    /// namespaces, root, restrictions.
    pub warden: Option<u64>,
}

struct Kept {
    request: Request,
    /// Whether the whole command counts, not just the program.
    exact: bool,
    around: Around,
    /// Without its program: an open file would keep its file system from being unmounted.
    plan: Plan,
    program: Program,
    run_dir: Option<PathBuf>,
    /// The facts that it was made from, and its Landlock rules.
    reused: Arc<Reused>,
}

fn kept() -> MutexGuard<'static, Vec<Arc<Kept>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn is_for(&self, request: &Request) -> bool {
        let asked = match (&self.request.asked, &request.asked) {
            (one, other) if self.exact => one == other,
            (Asked::Command(one), Asked::Command(other)) => one.first() == other.first(),
            (Asked::Line(_), Asked::Line(_)) => true,
            _ => false,
        };
        asked && self.request.differs_in_command_only(request) && !names_temporary(&self.plan.policy, request)
    }

    /// The plan for this request, whose facts hold.
    fn prepare(&self, request: &Request) -> Result<Option<Prepared>, Box<Refusal>> {
        let run_dir = RunDir::new(temporary(request, &self.plan.policy), request.keep_tmp)
            .map_err(|error| Refusal::setup(format!("run directory: {error}")))?;
        let now = self.run_dir.as_ref().and_then(|_| run_dir.tmp().parent().map(PathBuf::from));
        let moved = self.run_dir.as_deref().zip(now.as_deref()).map(|(from, to)| Moved { from, to });
        // Another base would be another plan: what is in it may not be private, for example.
        if moved.is_some_and(|moved| moved.from.parent() != moved.to.parent()) {
            return Ok(None);
        }
        let Some(program) = self.program.open() else { return Ok(None) };
        let plan = self.plan.again(program, request.words(), moved);
        if plan.places.summary().is_some() {
            run_dir.file(SUMMARY, plan.summary().into_bytes(), 0o400);
        }
        Ok(Some(Prepared::plain(plan, run_dir, self.reused.clone())))
    }
}

/// The file that a plan executes, by its real path.
struct Program {
    path: PathBuf,
    id: (u64, u64),
}

impl Program {
    fn of(plan: &Plan) -> Option<Program> {
        let file = &plan.target.file;
        let found = file.metadata().ok()?;
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(Program { path, id: (found.dev(), found.ino()) })
    }

    fn open(&self) -> Option<File> {
        let open = |flags| OpenOptions::new().read(true).custom_flags(flags | libc::O_NOFOLLOW).open(&self.path);
        // As for a check: a program that cannot be read can still be executed.
        let file = match open(libc::O_NONBLOCK | libc::O_NOCTTY) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(libc::O_PATH),
            other => other,
        };
        file.ok().filter(|file| file.metadata().is_ok_and(|found| (found.dev(), found.ino()) == self.id))
    }
}

fn known(request: &Request) -> Option<Arc<Kept>> {
    kept().iter().find(|known| known.is_for(request)).cloned()
}

/// Whether a plan was made before, right or not.
pub fn is_known(request: &Request) -> bool {
    known(request).is_some()
}

/// A plan that was made before, for a run that executes nothing until [`Supposed::confirm`] has looked at it: nearly always it is
/// right, and looking takes as long as the guardian needs to come so far. Only where nothing has to be undone otherwise.
pub fn suppose(request: &Request) -> Option<Prepared> {
    let (found, warden) = (known(request)?, warden::suppose()?);
    let limits = &found.plan.policy.limits;
    let has_cgroup = limits.memory.is_some() || limits.processes.is_some() || limits.cpu.is_some();
    if !found.reused.has_rules() || found.plan.wants_mounts() || has_cgroup {
        return None;
    }
    warden.expect_launch();
    let prepared = found.prepare(request).ok()??;
    let request = cfg!(debug_assertions).then(|| request.clone());
    let supposed = Supposed { kept: found, warden: warden.clone(), request, confirmed: AtomicBool::new(false) };
    Some(Prepared { warden: Some(warden), supposed: Some(supposed), ..prepared })
}

/// A plan of which it is not known yet whether it is still right.
pub struct Supposed {
    kept: Arc<Kept>,
    warden: Arc<Warden>,
    /// In a debug build, to compare the plan with a new one.
    request: Option<Request>,
    confirmed: AtomicBool,
}

impl Supposed {
    /// Lets the command's process go on, which waits, if the plan by which it was started is still right. Otherwise an error: it ends,
    /// with its guardian.
    pub fn confirm(&self, used: &Prepared, started: &Started) -> Result<(), String> {
        if !self.holds(used) {
            started.hang_up();
            return Err("the plan is not right any more".to_owned());
        }
        match started.let_go() {
            // It has ended meanwhile, and says why.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => Ok(()),
            other => other.map_err(|error| format!("start: {error}")),
        }
    }

    /// Whether this plan, made now and started by this guardian program, would be the same.
    fn holds(&self, used: &Prepared) -> bool {
        let holds = process::has_own_proc()
            && self.warden.serves()
            && self.kept.around == around(Some(self.warden.number()))
            && self.kept.reused.facts.hold();
        self.confirmed.store(holds, Ordering::Relaxed);
        if !holds {
            forget(&self.kept);
        } else if let Some(request) = &self.request {
            compare(request, used);
        }
        holds
    }

    /// Whether it was found to hold. Otherwise nothing was executed, and a new plan has to be made.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed.load(Ordering::Relaxed)
    }
}

fn forget(found: &Arc<Kept>) {
    kept().retain(|known| !Arc::ptr_eq(known, found));
}

/// A plan that was made before and is still right.
pub fn find(request: &Request, warden: Option<u64>) -> Result<Option<Prepared>, Box<Refusal>> {
    let Some(found) = known(request) else { return Ok(None) };
    if found.around == around(warden) && found.reused.facts.hold() {
        return found.prepare(request);
    }
    forget(&found);
    Ok(None)
}

/// Whether a plan may be kept at all.
pub fn is_repeatable(request: &Request, prepared: &Prepared) -> bool {
    let policy = &prepared.plan.policy;
    let special = request.browser.is_some() || request.inside.is_some() || request.stage.is_some();
    // Each of these gives a run something of its own: a proxy and its authority, a library in the run directory, mounts.
    let own =
        prepared.plan.proxy.is_some() || policy.inspects() || policy.starts_at_main() || policy.libsandbox.is_some();
    let plain = request.purpose == Purpose::Confine && policy.bubblewrap.isolate == Isolate::Disabled;
    // The policy was read before its bytes were noted, so it is read once more.
    let same = request.config.is_none() || policy_of(request).is_ok_and(|again| again == *policy);
    plain && !own && !special && same && !names_temporary(policy, request)
}

/// In a debug build, every plan that is used again is compared with a new one.
pub fn compare(request: &Request, used: &Prepared) {
    if !cfg!(debug_assertions) {
        return;
    }
    let Ok(new) = make_plan(request, true, None) else { return assert_stale(request, "refusal") };
    let moved = new.run_dir.path().zip(used.run_dir.path()).map(|(from, to)| Moved { from, to });
    let Ok(program) = new.plan.target.file.try_clone() else { return };
    let plan = new.plan.again(program, request.words(), moved);
    if let Some(part) = plan.difference(&used.plan) {
        assert_stale(request, part);
    }
}

/// Something may have changed between the two. Then the facts no longer hold.
fn assert_stale(request: &Request, part: &str) {
    let found = kept().iter().find(|known| known.is_for(request)).cloned();
    assert!(
        found.is_none_or(|found| !found.reused.facts.hold()),
        "a plan that was used again differs from a new one: {part}"
    );
}

/// Whether arguments may name files in the directories that are private to a command that writes. Then the plan depends on them.
fn names_temporary(policy: &Policy, request: &Request) -> bool {
    let names = |word: &OsStr| word.as_bytes().windows(4).any(|part| part == b"/tmp");
    policy.profiles.contains(&Profile::Write) && request.words().iter().any(|word| names(word))
}

/// The paths for which Landlock has rules, without those that each run makes.
pub fn granted(prepared: &Prepared) -> Vec<PathBuf> {
    let own = |path: &PathBuf| prepared.run_dir.path().is_some_and(|run_dir| path.starts_with(run_dir));
    let grants = prepared.plan.landlock.iter().flat_map(|landlock| landlock.paths.grants(true).into_owned());
    grants.map(|grant| grant.path).filter(|path| !own(path)).collect()
}

/// Keeps a plan.
pub fn keep(request: &Request, prepared: &Prepared, around: Around, facts: Facts) {
    let (plan, run_dir) = (&prepared.plan, prepared.run_dir.path().map(PathBuf::from));
    if run_dir.as_ref().is_some_and(|from| plan.landlock.as_ref().is_some_and(|landlock| !landlock.can_move(from))) {
        return;
    }
    let (Some(program), Ok(none)) = (Program::of(plan), File::open("/dev/null")) else { return };
    let again = plan.again(none, request.words(), None);
    let exact = matches!(request.asked, Asked::Line(_)) && !plan.policy.commands.block.is_empty();
    let reused = Arc::new(Reused::new(facts));
    let new = Kept { request: request.clone(), exact, around, plan: again, program, run_dir, reused };
    let mut kept = kept();
    kept.retain(|known| !known.is_for(request));
    // The oldest first.
    if kept.len() >= MOST {
        kept.remove(0);
    }
    kept.push(Arc::new(new));
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
