//! Predicts what the path layers (Landlock and read-only mounts) will refuse, by looking up the real path in the same
//! grants.
//!
//! Landlock does not report its denials to us, so calls that name files are checked here before they continue. The
//! check cannot allow anything: the kernel decides again. A program that changes its memory in between gets a wrong
//! record or a refusal.

use super::files::{Does, Named, shapes};
use super::refused::{Refused, What, merge};
use super::target::Target;
use crate::plan::Plan;
use crate::plan::paths::{Access, Grant};
use crate::plan::table::{Reads, Table};
use crate::policy::OnViolation;
use crate::report::Layer;
use crate::sys::notify::Call;
use crate::trust::{by_descriptor, place};
use rustix::fs::{Access as Permission, AtFlags, FileType};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The path layers that are in force.
#[derive(Default)]
pub struct Foresight {
    /// By path, so that a check costs one lookup per ancestor directory, however many grants there are.
    grants: HashMap<PathBuf, Vec<Access>>,
    pub(super) read_only: Vec<PathBuf>,
    pub(super) covered: Vec<PathBuf>,
    /// Paths that are closed inside readable trees.
    pub(super) closed: Vec<PathBuf>,
    /// Whether the policy lists the readable paths, which closes all others.
    pub(super) listed: bool,
    pub(super) reads: Option<Reads>,
    /// Whether the program got a descriptor through which it can open closed files without a notification.
    pub(super) unseen: AtomicBool,
    /// Whether this runs inside bubblewrap, which mounts everything that is not writable read-only.
    inside: bool,
    pub(super) on: bool,
    /// Whether the run has mounts of its own.
    pub(super) mounts: bool,
    /// Whether no process of the command can change its root directory.
    pub(super) keeps_root: bool,
    /// Whether in addition every change of a working directory is notified.
    pub(super) knows_cwd: bool,
}

/// An error means that the file could not be found, so that the call will fail anyway.
type Found<T> = io::Result<T>;

impl Foresight {
    /// `mounts`: whether the plan's read-only mounts are in force.
    pub fn new(plan: &Plan, table: &Table, mounts: bool) -> Foresight {
        let Some(landlock) = &plan.landlock else { return Foresight::default() };
        let mut grants: HashMap<PathBuf, Vec<Access>> = HashMap::new();
        for Grant { path, access } in landlock.paths.grants(mounts).iter() {
            grants.entry(path.clone()).or_default().push(*access);
        }
        let when = |paths: &Vec<PathBuf>| if mounts { paths.clone() } else { Vec::new() };
        let (mut read_only, covered) = (when(&landlock.paths.protected), when(&landlock.paths.covered));
        read_only.extend(when(&landlock.paths.links));
        let closed = landlock.paths.hidden.iter().chain(&landlock.paths.covered).cloned().collect();
        let listed = plan.policy.paths.read.is_some();
        let (reads, unseen) = (Some(plan.reads()), AtomicBool::new(false));
        let inside = plan.inside.is_some();
        let mounts = mounts && plan.wants_mounts();
        // Under `log`, calls that the table denies are let through.
        let keeps_root = table.keeps_root() && plan.policy.on_violation != OnViolation::Log;
        Foresight {
            grants,
            read_only,
            covered,
            closed,
            listed,
            reads,
            unseen,
            inside,
            on: true,
            mounts,
            keeps_root,
            knows_cwd: keeps_root && table.sees_chdir(),
        }
    }

    /// What will be refused of this call; `None` if it is allowed, or fails for another reason.
    pub fn look(&self, call: &Call, target: &Target) -> Option<Refused> {
        if !self.on {
            return None;
        }
        let shapes = shapes(call);
        let mut refusals = Vec::new();
        for shape in shapes.iter().flatten() {
            let named = shape.named(call, target).ok()?;
            let named_does = named.does;
            let refusal = match self.look_at(&named, target) {
                Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                    let path = target.own_path(named.directory, &named.path)?;
                    self.look_at(&Named { path, ..named }, target)
                }
                other => other,
            };
            // If one of its files does not exist, the call fails without an effect.
            refusals.extend(refusal.ok()?.map(|refused| match named_does {
                Does::Link => refused.of_link_source(),
                _ => refused,
            }));
        }
        merge(refusals)
    }

    /// Whether the filter notifies opens for reading.
    pub fn notifies_reads(&self) -> bool {
        matches!(self.reads, Some(Reads::All | Reads::ByPath))
    }

    /// Whether every refused read has been recorded, provided that a supervisor listened.
    pub fn sees_reads(&self) -> bool {
        match self.reads {
            // No path layer, so no read is refused.
            None => true,
            Some(Reads::All) => true,
            Some(Reads::ByPath) => !self.unseen.load(Ordering::Relaxed),
            Some(Reads::Unseen) => false,
        }
    }

    /// The same for bind(2) to a socket file.
    pub fn look_at_bind(&self, path: &Path, target: &Target) -> Option<Refused> {
        if !self.on {
            return None;
        }
        let named = Named { directory: libc::AT_FDCWD, path: path.to_owned(), follow: false, does: Does::Make };
        self.look_at(&named, target).ok().flatten()
    }

    fn look_at(&self, named: &Named, target: &Target) -> Found<Option<Refused>> {
        match named.does {
            Does::Open { read, write, create, exclusive } => {
                match target.open(named.directory, &named.path, named.follow) {
                    Ok(_) if exclusive => Ok(None),
                    Ok(file) => {
                        let refused = self.look_at_file(&file, read, write)?;
                        if refused.is_none() {
                            self.note_way_in(&file, &place(&file)?, read);
                        }
                        Ok(refused)
                    }
                    Err(error) if create && error.raw_os_error() == Some(libc::ENOENT) => {
                        self.look_at_entry(named, target)
                    }
                    Err(error) => {
                        self.behind_cover(named, write, target).map_or(Err(error), |refused| Ok(Some(refused)))
                    }
                }
            }
            Does::OpenUnnamed => {
                let directory = target.open(named.directory, &named.path, true)?;
                let at = place(&directory)?;
                Ok(self.refuse_change(&at, &directory, at.clone()))
            }
            Does::Execute => {
                let file = if named.path.as_os_str().is_empty() {
                    target.descriptor(named.directory)?
                } else {
                    target.open(named.directory, &named.path, named.follow)?
                };
                let at = place(&file)?;
                let may = self.granted(&at, |access| matches!(access, Access::ReadExecute | Access::Write));
                let refused = !may && at.is_absolute() && permitted(&file, Permission::EXEC_OK);
                Ok(refused.then(|| self.refused(What::Execute, Layer::Landlock, at.clone(), at)))
            }
            Does::Change => Ok(None),
            // Resolve the link: a /proc/PID/fd link is not in the directory of the file that it leads to.
            Does::Link if named.follow => {
                let at = place(&target.open(named.directory, &named.path, true)?)?;
                let above = at.parent().filter(|above| above.is_absolute() && !self.changes(above));
                Ok(above.map(|above| self.refused(What::Write, Layer::Landlock, at.clone(), above.to_owned())))
            }
            Does::Make | Does::Replace | Does::Remove | Does::Move | Does::Link => self.look_at_entry(named, target),
        }
    }

    pub(super) fn look_at_file(&self, file: &OwnedFd, read: bool, write: bool) -> Found<Option<Refused>> {
        let at = undeleted(place(file)?);
        let mounted = |paths: &[PathBuf]| paths.iter().any(|path| at.starts_with(path));
        // Pipes, sockets and memfds have no path.
        if !at.is_absolute() || at.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
            return Ok(None);
        }
        if write && !self.read_only.is_empty() && mounted(&self.read_only) {
            return Ok(Some(self.refused(What::Write, Layer::Namespaces, at.clone(), at)));
        }
        if !self.covered.is_empty() && mounted(&self.covered) {
            // Root as well, although root could open the cover: it would read an empty file, and what it writes would be lost.
            return Ok(Some(self.refused_cover(if write { What::Write } else { What::Read }, at)));
        }
        if write && (!self.writes(&at) || self.mounted_read_only(file)) {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
            let fails_anyway = kind.is_dir() || kind.is_symlink() || kind.is_socket();
            let errno = self.answer(file, Permission::WRITE_OK).filter(|_| !fails_anyway);
            let refused = |errno| Refused { errno, ..self.refused(What::Write, Layer::Landlock, at.clone(), at) };
            return Ok(errno.map(refused));
        }
        if read && !write {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
            let may = self.granted(&at, |access| access != Access::List || kind.is_dir());
            let fails_anyway = kind.is_symlink() || kind.is_socket();
            if !may && !fails_anyway && permitted(file, Permission::READ_OK) {
                return Ok(Some(self.refused(What::Read, Layer::Landlock, at.clone(), at)));
            }
        }
        Ok(None)
    }

    /// The same for a name that is created, removed or replaced in its directory.
    fn look_at_entry(&self, named: &Named, target: &Target) -> Found<Option<Refused>> {
        let (parent, at, name) = target.parent(named.directory, &named.path)?;
        self.judge_entry(named.does, &parent, &at, &name)
    }

    /// `parent`: the directory, at the real path `at`.
    pub(super) fn judge_entry(&self, does: Does, parent: &OwnedFd, at: &Path, name: &OsStr) -> Found<Option<Refused>> {
        let whole = at.join(name);
        let inside = |places: &[PathBuf]| places.iter().any(|place| whole.starts_with(place));
        let (read_only, covered) = (inside(&self.read_only), inside(&self.covered));
        let held = self.held(does, &whole);
        if !read_only && !covered && held.is_empty() && self.changes(at) && !self.mounted_read_only(parent) {
            return Ok(None);
        }
        let there = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let missing = || io::Error::from_raw_os_error(libc::ENOENT);
        match does {
            Does::Make if there => return Err(io::Error::from_raw_os_error(libc::EEXIST)),
            Does::Remove | Does::Move | Does::Link if !there => return Err(missing()),
            _ => {}
        }
        if read_only {
            let layer = Layer::Namespaces;
            return Ok(Some(self.refused(What::Write, layer, whole.clone(), self.covering(&whole))));
        }
        if (covered || !held.is_empty()) && self.changes(at) {
            if !permitted(parent, Permission::WRITE_OK | Permission::EXEC_OK) {
                return Ok(None);
            }
            return Ok(Some(match covered {
                true => self.refused_cover(What::Write, whole),
                false => Refused {
                    layer: Layer::Namespaces,
                    errno: libc::EBUSY,
                    what: What::Write,
                    path: whole,
                    grant: held,
                },
            }));
        }
        Ok(self.refuse_change(at, parent, whole))
    }

    /// The mounts inside a directory, which keep it from being renamed.
    fn held(&self, does: Does, directory: &Path) -> Vec<PathBuf> {
        let places = self.read_only.iter().chain(&self.covered).filter(|_| does == Does::Move);
        places.filter(|place| place.starts_with(directory) && *place != directory).cloned().collect()
    }

    pub(super) fn refuse_change(&self, directory: &Path, opened: &OwnedFd, whole: PathBuf) -> Option<Refused> {
        let errno = self.answer(opened, Permission::WRITE_OK | Permission::EXEC_OK)?;
        if errno != libc::EROFS && self.changes(directory) {
            return None;
        }
        Some(Refused { errno, ..self.refused(What::Write, Layer::Landlock, whole, directory.to_owned()) })
    }

    /// Whether the file is mounted read-only inside bubblewrap. Landlock may grant the path all the same: the working
    /// directory may be in /tmp, which is private there.
    pub(super) fn mounted_read_only(&self, place: &OwnedFd) -> bool {
        self.inside && access(place, Permission::WRITE_OK) == Err(rustix::io::Errno::ROFS)
    }

    /// The errno of a write that no grant allows; `None` if the file's own permissions would refuse it anyway.
    fn answer(&self, file: &OwnedFd, permission: Permission) -> Option<i32> {
        match access(file, permission) {
            Ok(()) => Some(libc::EACCES),
            Err(rustix::io::Errno::ROFS) if self.inside => Some(libc::EROFS),
            Err(_) => None,
        }
    }

    pub(super) fn refused(&self, what: What, layer: Layer, path: PathBuf, grant: PathBuf) -> Refused {
        let errno = match (layer, what) {
            (Layer::Namespaces, What::Write) => libc::EROFS,
            _ => libc::EACCES,
        };
        let grant = match layer {
            Layer::Namespaces => self.covering(&grant),
            _ => grant,
        };
        Refused { layer, errno, what, path, grant: vec![grant] }
    }

    /// A file in a covered directory, which the program cannot see.
    fn behind_cover(&self, named: &Named, write: bool, target: &Target) -> Option<Refused> {
        if self.covered.is_empty() {
            return None;
        }
        let (_, at) = self.opened(target, named.directory, &named.path, named.follow).ok().flatten()?;
        let covered = self.covered.iter().any(|covered| at.starts_with(covered));
        covered.then(|| self.refused_cover(if write { What::Write } else { What::Read }, at))
    }

    /// A covered path is closed to reads and writes alike.
    fn refused_cover(&self, what: What, path: PathBuf) -> Refused {
        Refused { errno: libc::EACCES, ..self.refused(what, Layer::Namespaces, path.clone(), path) }
    }

    /// The protected path that contains this one; it is granted as a whole or not at all.
    fn covering(&self, path: &Path) -> PathBuf {
        let mut all = self.read_only.iter().chain(&self.covered);
        all.find(|place| path.starts_with(place)).cloned().unwrap_or_else(|| path.to_owned())
    }

    pub(super) fn granted(&self, path: &Path, wanted: impl Fn(Access) -> bool) -> bool {
        path.ancestors().filter_map(|above| self.grants.get(above)).flatten().any(|access| wanted(*access))
    }

    fn writes(&self, file: &Path) -> bool {
        self.granted(file, |access| matches!(access, Access::Write | Access::WriteOnly | Access::Device))
    }

    pub(super) fn changes(&self, directory: &Path) -> bool {
        self.granted(directory, |access| matches!(access, Access::Write | Access::WriteOnly))
    }
}

/// Whether the file's own permissions allow it. If not, no grant would help.
pub(super) fn permitted(file: &OwnedFd, permission: Permission) -> bool {
    access(file, permission).is_ok()
}

/// Like [`permitted`], but inside bubblewrap a read-only mount does not count, because a grant would make it writable.
pub(super) fn permitted_by(plan: &Plan, file: &OwnedFd, permission: Permission) -> bool {
    match access(file, permission) {
        Err(rustix::io::Errno::ROFS) => plan.inside.is_some(),
        other => other.is_ok(),
    }
}

fn access(file: &OwnedFd, permission: Permission) -> rustix::io::Result<()> {
    rustix::fs::accessat(rustix::fs::CWD, by_descriptor(file), permission, AtFlags::EACCESS)
}

fn undeleted(at: PathBuf) -> PathBuf {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    match at.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(before) => PathBuf::from(std::ffi::OsString::from_vec(before.to_vec())),
        None => at,
    }
}
