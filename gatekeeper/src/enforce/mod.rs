//! Carries out a plan: prepares each operation, starts the command, and says what each layer achieves. If anything fails, nothing
//! runs.

pub mod cgroup;
pub mod landlock;
pub mod leftovers;
pub mod limits;
pub mod mounts;
pub mod rundir;

use self::landlock::Reused;
use crate::operation::Operation;
use crate::plan::environment::announcing;
use crate::plan::table::{Answers, Secrets, Table, Template};
use crate::plan::{Landlock, Plan, Seccomp};
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::sys::child::{Arguments, Filter, Group, Launch};
use crate::sys::guardian::{Backstop, Started};
use crate::warden::{self, Warden};
use cgroup::Cgroup;
use rundir::RunDir;
use sandbox_contract::bpf::{Insn, ret};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// What to leave out after a first try has shown that this host cannot do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Without {
    /// An outer sandbox has taken the listener; a process tree can have only one.
    pub listener: bool,
    /// No user or mount namespace can be made.
    pub namespaces: bool,
}

/// A command that was started, or is about to fail in an operation that it will name.
pub struct Running {
    pub started: Started,
    pub table: Arc<Table>,
    pub layers: Vec<LayerReport>,
    pub cgroup: Option<Cgroup>,
}

#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    #[error("landlock: {0}")]
    Landlock(#[from] landlock::LandlockError),
    #[error("seccomp: the policy needs a longer filter than the kernel takes ({0:?})")]
    Filter(sandbox_contract::bpf::CompileError),
    #[error("an argument or variable holds a NUL byte")]
    Nul(#[from] std::ffi::NulError),
    #[error("limits: {0}")]
    Limits(io::Error),
    #[error("start: {0}")]
    Start(#[from] io::Error),
}

/// How the command is started, beside what the plan says.
pub struct Start {
    /// What becomes descriptors 0, 1 and 2; `None` leaves the caller's.
    pub streams: [Option<OwnedFd>; 3],
    pub group: Group,
    /// The signals that are blocked when the command starts.
    pub mask: libc::sigset_t,
    pub without: Without,
    /// The guardian program that starts the command; `None` forks this process.
    pub warden: Option<Arc<Warden>>,
    /// The lock on the run's stage.
    pub lock: Option<OwnedFd>,
    /// The rules of an earlier run of the same plan; or where to keep those of this one.
    pub reused: Option<Arc<Reused>>,
    /// Whether the command's process waits for [`Started::let_go`] before anything is executed.
    pub waits: bool,
    /// Whether this process does nothing beside this run.
    pub alone: bool,
}

/// Prepares every operation of the plan and starts the command.
pub fn start(plan: &Plan, run_dir: &RunDir, start: Start) -> Result<Running, EnforceError> {
    let without = start.without;
    let mut prepared = Preparation { layers: plan.layers.clone(), ..Preparation::default() };
    let wanted = mounts::Wanted::of(plan);
    let mut operations = plan.operations();
    if without.namespaces {
        operations.retain(|operation| !matches!(operation, Operation::Namespaces | Operation::Mounts));
    }
    if let Some(planned) = &plan.landlock {
        prepared.landlock(plan, planned, &wanted, run_dir, &start)?;
    }
    prepared.layers.push(wanted.report(without.namespaces));
    let cgroup = Cgroup::new(&plan.policy.limits);
    prepared.layers.push(limits::report(&plan.policy.limits, &cgroup));
    let cgroup = cgroup.ok();
    if cgroup.is_none() {
        operations.retain(|operation| *operation != Operation::Cgroup);
    }
    let supervised = matches!(plan.seccomp, Seccomp::Filter { notify: true }) && !without.listener;
    let table = match start.reused.as_ref().filter(|_| supervised) {
        Some(reused) => reused.table(|| plan.watched_table(true)),
        None => plan.watched_table(supervised).into(),
    };
    let arguments = arguments(plan, supervised, start.warden.as_ref())?;
    match plan.seccomp {
        Seccomp::Off { marked: false } => {}
        // It confines nothing, so the layer stays reported as off.
        Seccomp::Off { marked: true } => prepared.filter = Some(mark()),
        Seccomp::Filter { .. } => {
            prepared.filter(plan, &table, &arguments, start.reused.as_deref().filter(|_| supervised), supervised)?;
        }
    }
    let mounts = if without.namespaces { None } else { wanted.into_mounts(run_dir, &prepared.rights)? };
    let (mounts, watched) = mounts.map_or((None, None), |(mounts, watched)| (Some(mounts), watched));
    let stage = mounts::staging(plan, prepared.staged)?;
    let launch = Launch {
        operations,
        program: plan.target.file.try_clone()?.into(),
        directory: CString::new(plan.directory.as_os_str().as_bytes())?,
        streams: start.streams,
        limits: limits::rlimits(&plan.policy.limits).map_err(EnforceError::Limits)?,
        group: start.group,
        mask: start.mask,
        mounts,
        stage,
        lock: start.lock,
        watched,
        ruleset: prepared.ruleset,
        filter: prepared.filter,
        arguments,
        place: run_dir.place(prepared.late)?,
        stubs: Vec::new(),
        cgroup: cgroup.as_ref().map(Cgroup::joined).transpose()?,
        kept: Vec::new(),
        numbers: plan.inherited(),
        waits: start.waits,
        backstop: backstop(plan, start.alone && start.warden.is_none()),
        progress: warden::progress(start.warden.as_ref())?,
    };
    let started = warden::start(launch, start.warden)?;
    let mut layers = prepared.layers;
    layers.sort_by_key(|report| report.layer as u8);
    Ok(Running { started, table, layers, cgroup })
}

/// Landlock keeps the command from signalling this process since ABI 6. Inside bubblewrap this is process 1, which nothing stops.
fn backstop(plan: &Plan, alone: bool) -> Option<Backstop> {
    let scoped = plan.landlock.as_ref().is_some_and(|landlock| landlock.abi >= landlock::SIGNALS);
    let stoppable = !scoped && plan.inside.is_none();
    stoppable.then_some(Backstop { timeout: plan.policy.timeout, continues: alone })
}

/// What the operations need, made before the fork, and what each layer will achieve by it.
#[derive(Default)]
struct Preparation {
    layers: Vec<LayerReport>,
    ruleset: Option<OwnedFd>,
    /// Landlock rules on the run directory. The guardian makes that directory, so it also adds the rules.
    late: Vec<(PathBuf, u64)>,
    /// Landlock rights on private mounts, added once they are mounted.
    rights: Vec<(PathBuf, u64)>,
    /// Landlock rights below a staged working directory, added once it is mounted.
    staged: Vec<(PathBuf, u64)>,
    filter: Option<Filter>,
}

impl Preparation {
    fn landlock(
        &mut self,
        plan: &Plan,
        planned: &Landlock,
        wanted: &mounts::Wanted,
        run_dir: &RunDir,
        start: &Start,
    ) -> Result<(), EnforceError> {
        let without = start.without;
        let private = if without.namespaces { &[][..] } else { wanted.private() };
        let grants = planned.paths.grants(!without.namespaces);
        let stage = plan.stage.as_ref().filter(|_| plan.mounts_stage()).map(|stage| stage.tree.as_path());
        // Rules that something is added to later are not kept, so there is nothing to compare.
        let whole = run_dir.path().is_none() && private.is_empty() && stage.is_none();
        let build = |facts: Option<&_>| {
            landlock::build(planned.abi, &grants, run_dir.path(), private, stage, facts.filter(|_| whole))
        };
        let rules = match start.reused.as_ref().filter(|_| !without.namespaces) {
            Some(reused) => reused.rules(build)?,
            None => build(None)?,
        };
        let mut open = planned.paths.open.clone();
        if without.namespaces {
            open.extend(wanted.left_writable());
        }
        let readable = if without.namespaces { wanted.left_readable() } else { Vec::new() };
        let shared = wanted.shared(without.namespaces);
        let fixed = if without.namespaces { wanted.left_fixed() } else { Vec::new() };
        self.layers.push(landlock_report(
            plan,
            planned,
            &rules,
            &Gaps { writable: &open, readable: &readable, shared: &shared, fixed: &fixed },
        ));
        (self.ruleset, self.late, self.rights) = (Some(rules.ruleset), rules.late, rules.private);
        self.staged = rules.staged;
        Ok(())
    }

    fn filter(
        &mut self,
        plan: &Plan,
        table: &Table,
        arguments: &Arguments,
        reused: Option<&Reused>,
        supervised: bool,
    ) -> Result<(), EnforceError> {
        let secrets = Secrets { exec: arguments.exec(), sendmsg: arguments.sendmsg() };
        let answers = Answers::new(plan.policy.on_violation, supervised);
        let again = reused.and_then(|reused| reused.filter(&secrets, || Template::new(table, &answers)));
        let program = match again {
            Some(program) => program,
            None => table.program(&answers, Some(&secrets)).map_err(EnforceError::Filter)?,
        };
        debug_assert!(table.program(&answers, Some(&secrets)).is_ok_and(|made| made == program));
        self.layers.push(filter_report(plan, supervised));
        self.filter = Some(Filter { program, listener: supervised });
        Ok(())
    }
}

/// A filter that allows every call. exec keeps it, and the process cannot get rid of it.
fn mark() -> Filter {
    const RETURN: u16 = 0x06;
    Filter { program: vec![Insn { code: RETURN, jt: 0, jf: 0, k: ret::ALLOW }], listener: false }
}

/// argv and the environment, in memory whose addresses only the filter knows.
fn arguments(plan: &Plan, supervised: bool, warden: Option<&Arc<Warden>>) -> Result<Arguments, EnforceError> {
    let announcing = (supervised && plan.preload.is_some()).then(|| announcing(&plan.environment));
    let environment = announcing.as_ref().unwrap_or(&plan.environment);
    let (argv, envp) = (strings(plan.argv.iter().cloned())?, strings(variables(environment))?);
    Ok(warden::arguments(warden, argv, envp)?)
}

fn strings(words: impl IntoIterator<Item = OsString>) -> Result<Vec<CString>, EnforceError> {
    words.into_iter().map(|word| Ok(CString::new(word.into_vec())?)).collect()
}

fn variables(environment: &[(OsString, OsString)]) -> impl Iterator<Item = OsString> {
    environment.iter().map(|(name, value)| {
        let mut text = name.clone();
        text.push("=");
        text.push(value);
        text
    })
}

/// What the path layers do not cover in this run.
struct Gaps<'a> {
    writable: &'a [PathBuf],
    /// Closed paths that nothing closes.
    readable: &'a [PathBuf],
    /// Directories in memory that are shared with processes outside.
    shared: &'a [PathBuf],
    /// Directories in which nothing can be created, although they are writable.
    fixed: &'a [PathBuf],
}

fn landlock_report(plan: &Plan, planned: &Landlock, rules: &landlock::Rules, gaps: &Gaps<'_>) -> LayerReport {
    let abi = planned.abi;
    let mut detail = format!("ABI {abi}");
    let lost = landlock::GAINS.iter().filter(|(since, _)| abi < *since).map(|(_, what)| *what);
    let lost: Vec<&str> = lost.filter(|what| *what != landlock::TRUNCATION || !plan.covers_truncation()).collect();
    if !lost.is_empty() {
        detail.push_str(&format!("; this kernel does not cover {}", lost.join(", ")));
    }
    let list = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    if !gaps.writable.is_empty() {
        detail.push_str(&format!("; stays writable: {}", list(gaps.writable)));
    }
    if !gaps.readable.is_empty() {
        detail.push_str(&format!("; stays readable and writable: {}", list(gaps.readable)));
    }
    if !gaps.fixed.is_empty() {
        let fixed = list(gaps.fixed);
        detail.push_str(&format!(
            "; nothing can be created, because a denied path is in it and nothing can be mounted: {fixed}"
        ));
    }
    for path in gaps.shared {
        detail.push_str(&format!("; {} is shared with processes outside", path.display()));
    }
    if let Some(limit) = plan.commands_limit() {
        detail.push_str(&format!("; {limit}"));
    }
    for path in &planned.paths.missing {
        detail.push_str(&format!("; {} is not there", path.display()));
    }
    for note in &planned.paths.notes {
        detail.push_str(&format!("; {note}"));
    }
    for (path, why) in &rules.skipped {
        detail.push_str(&format!("; {} could not be granted: {why}", path.display()));
    }
    let partial = !gaps.writable.is_empty()
        || !gaps.readable.is_empty()
        || !lost.is_empty()
        || !gaps.shared.is_empty()
        || planned.paths.incomplete;
    let status = if partial { LayerStatus::Partial } else { LayerStatus::Enforced };
    LayerReport { layer: Layer::Landlock, status, detail }
}

/// Part of the detail of the seccomp layer if every denial of the filter is recorded.
pub const RECORDED: &str = ", denials recorded";

fn filter_report(plan: &Plan, supervised: bool) -> LayerReport {
    let mut detail = format!("profile {}, before exec", plan.policy.profile_name());
    if supervised {
        detail.push_str(RECORDED);
    } else {
        detail.push_str(", denials not itemised: an outer sandbox has the listener, or the kernel cannot notify");
        let writes =
            plan.landlock.iter().flat_map(|landlock| &landlock.paths.grants).any(|grant| grant.access.writes());
        if writes {
            detail.push_str("; chmod, chown, times and attributes are refused everywhere");
        }
    }
    let widened = plan.widened() && !plan.policy.syscalls.allow.is_empty();
    if widened {
        detail.push_str("; the preload cannot get in, so the list is widened by what starting a program needs");
    }
    let status = if widened { LayerStatus::Partial } else { LayerStatus::Enforced };
    LayerReport { layer: Layer::Seccomp, status, detail }
}
