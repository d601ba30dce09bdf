//! Turns the protected, hidden and private paths of a plan into mounts for the command's mount namespace.

use super::rundir::{RunDir, TMP};
use crate::plan::{Plan, StageSource, Staged};
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::sys::keeper::{Directory, Name, Watched};
use crate::sys::mounts::{Kept, Mount, Mounts, UserMaps};
use crate::sys::probe::{self, Attempt};
use crate::sys::stage::{Source, Staging};
use rustix::fs::StatVfsMountFlags;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The paths of a plan that need a mount.
pub struct Wanted {
    read_only: Vec<PathBuf>,
    links: Vec<PathBuf>,
    covered: Vec<PathBuf>,
    /// Those of `covered` that Landlock denies if nothing can be mounted.
    closed_without: BTreeSet<PathBuf>,
    /// Directories in which nothing can be created if nothing can be mounted, because they hold a denied path.
    fixed_without: Vec<PathBuf>,
    /// Directories that are empty for the command, such as /dev/shm.
    private: Vec<PathBuf>,
    /// Those for temporary files. Without mounts the command may not write in them at all.
    temporary: Vec<PathBuf>,
    /// Directories that would be private, but hold a file that the run uses.
    shared: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    /// Whether this gatekeeper runs inside bubblewrap, where each writable tree is a mount of its own. The directories
    /// above such a tree are private, so moving them has no effect outside.
    inside: bool,
    /// Whether the run gets a network namespace too.
    network: bool,
    /// The size limit of a private directory.
    memory: Option<u64>,
    /// Whether it was to get one, and goes without any network.
    lost_network: bool,
    /// Whether a stage is mounted over the working directory.
    staged: bool,
}

const LOST_NETWORK: &str = "no network namespace can be created here, so there is no network at all";

impl Wanted {
    pub fn of(plan: &Plan) -> Wanted {
        let all = plan.landlock.as_ref().map(|landlock| &landlock.paths);
        // Inside bubblewrap the outer mounts hold already, except for links, because bubblewrap follows them.
        let paths = all.filter(|_| plan.inside.is_none());
        let temporary: Vec<PathBuf> =
            paths.iter().flat_map(|paths| paths.temporary.iter().map(|grant| grant.path.clone())).collect();
        let memory = paths.iter().flat_map(|paths| &paths.private);
        Wanted {
            links: all.map(|paths| paths.links.clone()).unwrap_or_default(),
            read_only: paths.map(|paths| paths.protected.clone()).unwrap_or_default(),
            covered: paths.map(|paths| paths.covered.clone()).unwrap_or_default(),
            closed_without: paths
                .and_then(|paths| paths.without_mounts.as_ref().map(|(_, closed)| closed.clone()))
                .unwrap_or_default(),
            fixed_without: paths.map(|paths| paths.fixed_without_mounts()).unwrap_or_default(),
            private: memory.chain(&temporary).cloned().collect(),
            temporary,
            shared: paths.map(|paths| paths.shared.clone()).unwrap_or_default(),
            writable: plan.writable(),
            inside: plan.inside.is_some(),
            network: plan.makes_own_network(),
            lost_network: plan.lost_network,
            memory: plan.policy.limits.memory,
            staged: plan.mounts_stage(),
        }
    }

    fn is_empty(&self) -> bool {
        let paths = [&self.read_only, &self.covered, &self.private, &self.links];
        !self.network && !self.staged && paths.into_iter().all(Vec::is_empty)
    }

    pub fn private(&self) -> &[PathBuf] {
        &self.private
    }

    /// Directories in memory that the command shares with processes outside the sandbox.
    pub fn shared(&self, without_namespaces: bool) -> Vec<PathBuf> {
        let private = self.private.iter().filter(|path| without_namespaces && !self.temporary.contains(path));
        self.shared.iter().chain(private).cloned().collect()
    }

    /// Protected paths that stay writable if no namespace can be created.
    pub fn left_writable(&self) -> Vec<PathBuf> {
        self.read_only.iter().chain(&self.links).cloned().collect()
    }

    /// Closed paths that stay readable and writable if no namespace can be created: Landlock grants the tree around them, and
    /// cannot take a part of it away.
    pub fn left_readable(&self) -> Vec<PathBuf> {
        self.covered.iter().filter(|path| !self.closed_without.contains(*path)).cloned().collect()
    }

    /// Directories of writable trees in which nothing can be created if no namespace can be.
    pub fn left_fixed(&self) -> Vec<PathBuf> {
        self.fixed_without.clone()
    }

    pub fn report(&self, unavailable: bool) -> LayerReport {
        let (status, detail) = match (self.is_empty(), unavailable) {
            (true, _) => (LayerStatus::Off, "nothing to protect by mounts".to_owned()),
            (false, true) => (LayerStatus::Unavailable, "no user namespace can be created here".to_owned()),
            (false, false) => {
                let shown = |paths: &[PathBuf]| crate::plan::paths::shown(paths, 100);
                let mut parts = Vec::new();
                if self.network {
                    parts.push("its own network: a loopback interface and nothing else".to_owned());
                }
                if self.staged {
                    parts.push("the staged working directory".to_owned());
                }
                if !self.read_only.is_empty() {
                    parts.push(format!("read-only: {}", shown(&self.read_only)));
                }
                if !self.links.is_empty() {
                    parts.push(format!("links kept in place: {}", shown(&self.links)));
                }
                if !self.covered.is_empty() {
                    parts.push(format!("unreadable: {}", shown(&self.covered)));
                }
                if !self.private.is_empty() {
                    parts.push(format!("private and discarded at the end: {}", shown(&self.private)));
                }
                (LayerStatus::Enforced, parts.join("; "))
            }
        };
        let (status, detail) = match (self.lost_network, status) {
            (false, status) => (status, detail),
            (true, LayerStatus::Enforced) => (LayerStatus::Partial, format!("{LOST_NETWORK}; {detail}")),
            (true, _) => (LayerStatus::Unavailable, LOST_NETWORK.to_owned()),
        };
        LayerReport { layer: Layer::Namespaces, status, detail }
    }

    /// The mounts, and the names to watch. `rights` are the Landlock rights on the private directories.
    pub fn into_mounts(
        self,
        run_dir: &RunDir,
        rights: &[(PathBuf, u64)],
    ) -> io::Result<Option<(Mounts, Option<Watched>)>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut mounts = Vec::new();
        for path in &self.private {
            let rights = rights.iter().filter(|(granted, _)| granted == path).fold(0, |all, (_, rights)| all | rights);
            let size = self.memory.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
            let options = CString::new(format!("mode=1777{size}"))?;
            let kept =
                run_dir.path().filter(|run| run.parent() == Some(path)).map(|run| kept(run, path)).transpose()?;
            mounts.push(Mount::Private { path: cstring(path)?, options, rights, kept });
        }
        for path in self.pinned() {
            mounts.push(Mount::Pinned(cstring(&path)?));
        }
        for path in &self.read_only {
            mounts.push(Mount::ReadOnly { path: cstring(path)?, kept: kept_flags(path)? });
        }
        for path in &self.links {
            mounts.push(Mount::Link(cstring(path)?));
        }
        for path in &self.covered {
            mounts.push(Mount::Covered { by: cstring(&run_dir.cover(path.is_dir()))?, path: cstring(path)? });
        }
        let held = self.read_only.iter().chain(&self.links).chain(&self.covered).cloned().chain(self.pinned());
        let all: HashMap<PathBuf, usize> =
            mounts.iter().enumerate().map(|(at, mount)| (path_of(mount.path()), at)).collect();
        let names = held.filter_map(|path| all.get(&path).map(|at| (path.clone(), *at))).collect();
        Ok(Some((Mounts { user: user_maps(), network: self.network, mounts }, watched(names)?)))
    }

    /// The directories between the top of a writable tree and the protected paths in it. As mount points they cannot be
    /// renamed, so the command cannot move a protected path away with its parent.
    fn pinned(&self) -> BTreeSet<PathBuf> {
        let mut pinned = BTreeSet::new();
        for path in self.read_only.iter().chain(&self.links).chain(&self.covered) {
            let tops = self.writable.iter().filter(|top| path.starts_with(top));
            let innermost = tops.clone().max_by_key(|top| top.components().count()).filter(|_| self.inside);
            for top in tops.filter(|top| innermost.is_none_or(|innermost| innermost == *top)) {
                pinned.extend(
                    path.ancestors()
                        .skip(1)
                        .take_while(|above| above != top && above.starts_with(top))
                        .map(Path::to_owned),
                );
            }
        }
        pinned
    }
}

/// Tries what a run does: why this host makes no mount namespace, or none with a network of its own; `None` if it does.
pub fn no_namespaces(network: bool) -> Option<String> {
    let tried = probe::namespaces(&Mounts { user: user_maps(), network, mounts: Vec::new() });
    match tried {
        Ok(Attempt::Works) => None,
        Ok(Attempt::Failed { errno, .. }) => Some(io::Error::from_raw_os_error(errno).to_string()),
        Ok(Attempt::Killed(_)) => Some("an outer sandbox kills processes that try".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// The run directory, to be seen in the private directory at the same path. All but its `tmp` stays as the run made it.
fn kept(run: &Path, parent: &Path) -> io::Result<Kept> {
    Ok(Kept { path: cstring(run)?, writable: cstring(&run.join(TMP))?, flags: kept_flags(parent)? })
}

/// The directories to watch for replacements of these names, each of which comes with its index for reports.
pub fn watched(names: Vec<(PathBuf, usize)>) -> io::Result<Option<Watched>> {
    let mut watched = Watched::default();
    let mut directories: HashMap<&Path, usize> = HashMap::new();
    let known: HashSet<&Path> = names.iter().map(|(path, _)| path.as_path()).collect();
    for (path, at) in &names {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let directory = match directories.get(parent) {
            Some(directory) => *directory,
            None => {
                watched.directories.push(Directory::new(cstring(parent)?, known.contains(parent)));
                let new = watched.directories.len() - 1;
                directories.insert(parent, new);
                new
            }
        };
        watched.names.push(Name::new(directory, CString::new(name.as_bytes())?, *at));
    }
    Ok((!watched.names.is_empty()).then_some(watched))
}

pub fn path_of(path: &std::ffi::CStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()))
}

fn cstring(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The stage of a plan as a mount, with the Landlock rights on what is in it.
pub fn staging(plan: &Plan, rights: Vec<(PathBuf, u64)>) -> io::Result<Option<Staging>> {
    let Some(stage) = &plan.stage else { return Ok(None) };
    let source = match &stage.source {
        StageSource::Overlay { upper, work } => Source::Overlay { upper: cstring(upper)?, work: cstring(work)? },
        StageSource::Copy(tree) => Source::Copy(cstring(tree)?),
        StageSource::Elsewhere(_) => return Ok(None),
        StageSource::Unmade => return Err(io::Error::other("the stage was not made")),
    };
    let rules = rights.into_iter().map(|(path, rights)| Ok((cstring(&path)?, rights))).collect::<io::Result<_>>()?;
    let program = staged_program(plan, stage)?.map(|path| cstring(&path)).transpose()?;
    let flags = kept_flags(&stage.tree)? | libc::MS_NOSUID | libc::MS_NODEV;
    Ok(Some(Staging { tree: cstring(&stage.tree)?, source, flags, rules, program }))
}

/// The path of the program inside the stage, from where the checked file really lies.
fn staged_program(plan: &Plan, stage: &Staged) -> io::Result<Option<PathBuf>> {
    let layer = match &stage.source {
        StageSource::Overlay { upper, .. } => upper,
        StageSource::Copy(copy) => copy,
        StageSource::Elsewhere(_) | StageSource::Unmade => return Ok(None),
    };
    let file = crate::trust::place(&plan.target.file.try_clone()?.into())?;
    let inside = file.strip_prefix(layer).or_else(|_| file.strip_prefix(&stage.tree));
    Ok(inside.ok().map(|inside| stage.tree.join(inside)))
}

/// The mount flags that a remount in a user namespace must keep (mount_namespaces(7)).
fn kept_flags(path: &Path) -> io::Result<u64> {
    let flags = rustix::fs::statvfs(path)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, libc::MS_NOSUID),
        (StatVfsMountFlags::NODEV, libc::MS_NODEV),
        (StatVfsMountFlags::NOEXEC, libc::MS_NOEXEC),
        (StatVfsMountFlags::NOATIME, libc::MS_NOATIME),
        (StatVfsMountFlags::NODIRATIME, libc::MS_NODIRATIME),
        (StatVfsMountFlags::RELATIME, libc::MS_RELATIME),
    ];
    Ok(kept.into_iter().filter(|(flag, _)| flags.contains(*flag)).fold(0, |all, (_, flag)| all | flag))
}

/// The id maps for this user. `None` for root, which mounts without a user namespace.
pub fn user_maps() -> Option<UserMaps> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        return None;
    }
    let map = |id: u32| CString::new(format!("{id} {id} 1\n")).ok();
    Some(UserMaps { uid: map(uid.as_raw())?, gid: map(gid.as_raw())? })
}
