//! Builds a Landlock ruleset from the grants of a plan. The parent adds the rules; the command's process enforces them.

use crate::plan::facts::Facts;
use crate::plan::paths::{Access, Grant};
use crate::plan::table::{Secrets, Table, Template};
use crate::sys::landlock::add_rule;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope,
    make_bitflags,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use sandbox_contract::bpf::Insn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A ruleset ready to be enforced, and the rights still missing from it.
pub struct Rules {
    pub ruleset: OwnedFd,
    /// Granted paths that could not be opened, and so stay denied.
    pub skipped: Vec<(PathBuf, String)>,
    /// Rights on the run directory, which the guardian creates later.
    pub late: Vec<(PathBuf, u64)>,
    /// Rights on the private directories, which the command's process mounts later.
    pub private: Vec<(PathBuf, u64)>,
    /// Rights below a staged working directory, which the command's process mounts later.
    pub staged: Vec<(PathBuf, u64)>,
    /// Whether each rule was compared with the facts of the plan, and is for what was there when the plan was made.
    as_planned: bool,
}

impl Rules {
    /// Whether nothing is added later, by the guardian or by the command's process. What they add to a ruleset stays in it.
    pub fn is_complete(&self) -> bool {
        self.skipped.is_empty() && self.late.is_empty() && self.private.is_empty() && self.staged.is_empty()
    }

    /// The same complete rules for another run.
    pub fn again(&self) -> io::Result<Rules> {
        let ruleset = self.ruleset.try_clone()?;
        let (late, private, staged) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Rules { ruleset, skipped: Vec::new(), late, private, staged, as_planned: true })
    }
}

/// The rules of a plan that is used again, made once.
pub struct Reused {
    /// What the plan was made from.
    pub facts: Facts,
    rules: OnceLock<Rules>,
    /// What its filter does about each syscall, if a supervisor answers.
    table: OnceLock<Arc<Table>>,
    /// The filter that follows from the table.
    filter: OnceLock<Option<Template>>,
}

impl Reused {
    pub fn new(facts: Facts) -> Reused {
        Reused { facts, rules: OnceLock::new(), table: OnceLock::new(), filter: OnceLock::new() }
    }

    /// Whether the rules were made, and nothing is added to them for one run.
    pub fn has_rules(&self) -> bool {
        self.rules.get().is_some()
    }

    /// The table of the plan, which depends on nothing but the plan.
    pub fn table(&self, make: impl FnOnce() -> Table) -> Arc<Table> {
        self.table.get_or_init(|| Arc::new(make())).clone()
    }

    /// The filter with these secrets, put into the one that `make` makes once.
    pub fn filter(&self, secrets: &Secrets, make: impl FnOnce() -> Option<Template>) -> Option<Vec<Insn>> {
        self.filter.get_or_init(make).as_ref().map(|template| template.with(secrets))
    }

    /// The same rules as before, or those that `build` makes.
    pub fn rules(
        &self,
        build: impl FnOnce(Option<&Facts>) -> Result<Rules, LandlockError>,
    ) -> Result<Rules, LandlockError> {
        if let Some(rules) = self.rules.get() {
            return Ok(rules.again()?);
        }
        let rules = build(Some(&self.facts))?;
        // They are kept only if nothing was changed while they were made. Another run may have been faster.
        if rules.is_complete() && rules.as_planned && self.facts.hold() {
            let _ = self.rules.set(rules.again()?);
        }
        Ok(rules)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    #[error("the kernel made no ruleset")]
    NoRuleset,
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
    #[error("the kernel refused a rule for {}: {source}", .path.display())]
    Rule { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The first ABI that keeps signals inside.
pub const SIGNALS: i32 = 6;

pub const TRUNCATION: &str = "truncation";

/// What each Landlock ABI added, for reports on older kernels.
pub const GAINS: [(i32, &str); 5] = [
    (2, "renames between directories"),
    (3, TRUNCATION),
    (4, "TCP ports"),
    (5, "device controls"),
    (6, "signals and abstract sockets"),
];

/// Builds the ruleset. `run_dir`, the `private` directories and what is in a `stage` do not exist yet, so the
/// rights on them are returned. With the `facts` of a plan that is used again, each rule is compared with them.
pub fn build(
    abi: i32,
    grants: &[Grant],
    run_dir: Option<&Path>,
    private: &[PathBuf],
    stage: Option<&Path>,
    facts: Option<&Facts>,
) -> Result<Rules, LandlockError> {
    // Name the rights of each ABI explicitly, so that a newer kernel or crate does not silently change what is handled.
    let known = match abi {
        ..=1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    };
    let all = AccessFs::from_all(known);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    let ruleset = if abi >= SIGNALS { ruleset.scope(Scope::from_all(known))? } else { ruleset };
    let ruleset = Option::<OwnedFd>::from(ruleset.create()?).ok_or(LandlockError::NoRuleset)?;
    let mut skipped = Vec::new();
    let mut late = Vec::new();
    let mut mounted = Vec::new();
    let mut staged = Vec::new();
    let mut opener = Opener::default();
    let mut as_planned = facts.is_some();
    for grant in grants {
        if private.contains(&grant.path) {
            mounted.push((grant.path.clone(), (rights(grant.access) & all).bits()));
            continue;
        }
        if run_dir.is_some_and(|run_dir| grant.path.starts_with(run_dir)) {
            let directory = grant.access.writes();
            let most = if directory { all } else { all & AccessFs::from_file(known) };
            late.push((grant.path.clone(), (rights(grant.access) & most).bits()));
            continue;
        }
        match opener.open(&grant.path) {
            Ok(place) => {
                as_planned &= facts.is_none_or(|facts| facts.is_granted(&grant.path, place.as_fd()));
                let rights = rights(grant.access) & all;
                let of_file = rights & AccessFs::from_file(known);
                let refused = |source: io::Error| LandlockError::Rule { path: grant.path.clone(), source };
                if stage.is_some_and(|tree| grant.path.starts_with(tree)) {
                    let directory = is_directory(&place).map_err(refused)?;
                    staged.push((grant.path.clone(), if directory { rights } else { of_file }.bits()));
                    continue;
                }
                // The kernel takes rights of directories for directories only (EINVAL): asking first what it is would
                // take another call for each rule.
                let added = match add_rule(ruleset.as_fd(), place.as_fd(), rights.bits()) {
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) && of_file != rights => {
                        add_rule(ruleset.as_fd(), place.as_fd(), of_file.bits())
                    }
                    other => other,
                };
                added.map_err(refused)?;
            }
            Err(error) => skipped.push((grant.path.clone(), error.to_string())),
        }
    }
    Ok(Rules { ruleset, skipped, late, private: mounted, staged, as_planned })
}

/// Opens the paths of a plan. Their order puts those of one directory next to each other, and there may be thousands, so
/// the way to a directory is walked once for all of them.
#[derive(Default)]
struct Opener {
    /// The directory of the path before, and that directory itself if it was needed.
    above: PathBuf,
    directory: Option<OwnedFd>,
}

impl Opener {
    fn open(&mut self, path: &Path) -> io::Result<OwnedFd> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return open(path) };
        if above.as_os_str() != self.above.as_os_str() {
            *self = Opener { above: above.to_owned(), directory: None };
            return open(path);
        }
        if self.directory.is_none() {
            self.directory = open(above).ok();
        }
        let Some(directory) = &self.directory else { return open(path) };
        match openat2(directory, name, PLACE, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH) {
            Err(Errno::NOSYS | Errno::PERM) => open(path),
            other => Ok(other?),
        }
    }
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens a real path of the plan. If a link has taken its place since, following it would grant the link's target.
fn open(path: &Path) -> io::Result<OwnedFd> {
    match openat2(CWD, path, PLACE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // An outer sandbox may deny openat2. Then open the path, and compare where that led.
        Err(Errno::NOSYS | Errno::PERM) => {
            let file = rustix::fs::open(path, PLACE | OFlags::NOFOLLOW, Mode::empty())?;
            if crate::trust::place(&file)? != path {
                return Err(Errno::LOOP.into());
            }
            Ok(file)
        }
        other => Ok(other?),
    }
}

fn is_directory(place: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode).is_dir())
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    let list = make_bitflags!(AccessFs::{ReadDir});
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let execute = make_bitflags!(AccessFs::{Execute});
    let write = AccessFs::from_all(ABI::V6) & !make_bitflags!(AccessFs::{MakeBlock | MakeChar | IoctlDev});
    match access {
        Access::List => list,
        Access::Read => read,
        Access::ReadExecute => read | execute,
        Access::Write => write,
        Access::WriteOnly => write & !execute,
        Access::Device => read | make_bitflags!(AccessFs::{WriteFile | Truncate | IoctlDev}),
    }
}
