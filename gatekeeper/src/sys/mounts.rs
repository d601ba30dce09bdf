//! The command's mount namespace: an ordered list of mounts that the command's process makes between fork and exec.
//!
//! The plan names real paths. Each is opened here without following any symbolic link, and mounted through that
//! descriptor: if a command has put a link anywhere on the path since then, the step fails.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation.

use super::child::errno;
use super::progress::Progress;
use super::{capabilities, ids, landlock, network, set_errno};
use crate::trust::text::StackText;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

/// The mounts, in order, of a mount namespace that only the command and its children are in.
pub struct Mounts {
    /// The id maps of a new user namespace; `None` if this process may mount without one.
    pub user: Option<UserMaps>,
    /// Whether to enter a new network namespace too, and to switch its loopback interface on.
    pub network: bool,
    pub mounts: Vec<Mount>,
}

pub struct UserMaps {
    pub uid: CString,
    pub gid: CString,
}

/// One mount.
pub enum Mount {
    /// A directory mounted over itself, because a mount point cannot be renamed. Outermost first.
    Pinned(CString),
    /// A file or directory mounted over itself read-only; `kept` are the mount flags that a remount must keep.
    ReadOnly { path: CString, kept: u64 },
    /// A symbolic link mounted over itself: it can be followed, but neither removed nor replaced.
    Link(CString),
    /// A file or directory hidden under the unreadable one at `by`.
    Covered { by: CString, path: CString },
    /// An empty tmpfs. Landlock rules attach to inodes, so its rule is added once it is mounted.
    Private { path: CString, options: CString, rights: u64, kept: Option<Kept> },
}

/// The run directory, which lies in a directory that becomes private, and is mounted there again at its path.
pub struct Kept {
    pub path: CString,
    /// The directory in it that is not read-only.
    pub writable: CString,
    /// The mount flags that a remount must keep.
    pub flags: u64,
}

impl Mounts {
    /// Enters the new namespaces.
    pub(super) fn enter(&self) -> bool {
        // SAFETY: unshare takes no pointers.
        unsafe {
            let network = if self.network { libc::CLONE_NEWNET } else { 0 };
            let user = if self.user.is_some() { libc::CLONE_NEWUSER } else { 0 };
            libc::unshare(user | libc::CLONE_NEWNS | network) == 0
                && self.user.as_ref().is_none_or(|maps| ids::map_own(&maps.uid, &maps.gid))
                && (!self.network || network::prepare_loopback())
        }
    }

    /// Makes every mount, and reports each to `progress` as it begins.
    pub(super) fn apply(&self, ruleset: Option<RawFd>, progress: &Progress) -> bool {
        if !mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None) {
            return false;
        }
        for (at, mount) in self.mounts.iter().enumerate() {
            progress.mounts(at, false);
            let Some(place) = mount.find() else { return false };
            progress.mounts(at, true);
            if !mount.apply(&place, ruleset) {
                return false;
            }
        }
        true
    }

    /// Drops the capabilities of the new user namespace, so that the command cannot mount or unmount anything.
    pub(super) fn seal(&self) -> bool {
        self.user.is_none() || capabilities::drop_all()
    }
}

impl Mount {
    pub fn path(&self) -> &CStr {
        match self {
            Mount::Pinned(path) | Mount::Link(path) => path,
            Mount::ReadOnly { path, .. } | Mount::Covered { path, .. } | Mount::Private { path, .. } => path,
        }
    }

    /// Opens the mount point. `None` with errno set: it does not exist, or the path contains a link.
    pub(super) fn find(&self) -> Option<Place> {
        match self {
            Mount::Link(path) => Place::find_link(path),
            other => Place::find(other.path()),
        }
    }

    pub(super) fn apply(&self, place: &Place, ruleset: Option<RawFd>) -> bool {
        match self {
            Mount::Pinned(path) | Mount::Link(path) => bind(place, place, path, None),
            Mount::ReadOnly { path, kept } => bind(place, place, path, Some(*kept)),
            Mount::Covered { by, path } => Place::find(by).is_some_and(|by| bind(&by, place, path, None)),
            Mount::Private { path, options, rights, kept } => {
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                // Opened before the mount hides it.
                let held = kept.as_ref().map(|kept| (kept, Place::find(&kept.path), Place::find(&kept.writable)));
                if matches!(held, Some((_, None, _) | (_, _, None))) {
                    return false;
                }
                mount(Some(c"tmpfs"), place.name().as_c_str(), Some(c"tmpfs"), flags, Some(options))
                    && Place::find(path).is_some_and(|made| {
                        ruleset.is_none_or(|ruleset| landlock::add_path_rule(ruleset, made.0, *rights))
                    })
                    && match held {
                        Some((kept, Some(all), Some(writable))) => kept.restore(&all, &writable),
                        _ => true,
                    }
            }
        }
    }
}

impl Kept {
    /// Mounts the directory, read-only except for one part, in the new and empty one that hides it.
    fn restore(&self, all: &Place, writable: &Place) -> bool {
        let over = |from: &Place, path: &CStr, read_only: Option<u64>| {
            Place::find(path).is_some_and(|place| bind(from, &place, path, read_only))
        };
        // SAFETY: a CStr is NUL-terminated.
        let made = unsafe { libc::mkdir(self.path.as_ptr(), 0o700) == 0 };
        made && over(all, &self.path, Some(self.flags)) && over(writable, &self.writable, None)
    }
}

/// An O_PATH descriptor of a file or directory, opened without following links; closed on drop.
pub(super) struct Place(pub(super) RawFd);

/// `struct open_how` of linux/openat2.h.
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// NAME_MAX of linux/limits.h.
const LONGEST_NAME: usize = 255;

impl Place {
    /// Opens a real path. `None` with errno set: it does not exist, or contains a link.
    pub(super) fn find(path: &CStr) -> Option<Place> {
        Place::at(path, 0)
    }

    /// Opens a symbolic link itself; no other component of the path may be a link.
    fn find_link(path: &CStr) -> Option<Place> {
        let place = Place::at(path, libc::O_NOFOLLOW)?;
        if place.kind() == libc::S_IFLNK {
            return Some(place);
        }
        set_errno(libc::EINVAL);
        None
    }

    fn at(path: &CStr, nofollow: i32) -> Option<Place> {
        let flags = (libc::O_PATH | libc::O_CLOEXEC | nofollow) as u64;
        let how = How { flags, mode: 0, resolve: libc::RESOLVE_NO_SYMLINKS };
        // SAFETY: a CStr is NUL-terminated; `how` has the kernel's layout and its own size is passed.
        let fd = unsafe {
            libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size_of::<How>()) as RawFd
        };
        match fd {
            // openat2 came with Linux 5.6, and an outer sandbox may deny it.
            ..0 if matches!(errno(), libc::ENOSYS | libc::EPERM) => Place::walk(path, nofollow != 0),
            ..0 => None,
            fd => Some(Place(fd)),
        }
    }

    /// The same without openat2, one component at a time.
    fn walk(path: &CStr, link_at_the_end: bool) -> Option<Place> {
        let mut at = Place::open(libc::AT_FDCWD, c"/")?;
        let mut names = path.to_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let mut text = [0u8; LONGEST_NAME + 1];
            match text.get_mut(..name.len()) {
                Some(to) if name.len() <= LONGEST_NAME => to.copy_from_slice(name),
                _ => {
                    set_errno(libc::ENAMETOOLONG);
                    return None;
                }
            }
            at = Place::open(at.0, CStr::from_bytes_until_nul(&text).unwrap_or(c""))?;
            let last = names.peek().is_none();
            if at.kind() == libc::S_IFLNK && !(last && link_at_the_end) {
                set_errno(libc::ELOOP);
                return None;
            }
        }
        Some(at)
    }

    fn open(at: RawFd, name: &CStr) -> Option<Place> {
        // SAFETY: a CStr is NUL-terminated; without O_CREAT there is no further argument.
        let fd = unsafe { libc::openat(at, name.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
        (fd >= 0).then_some(Place(fd))
    }

    fn kind(&self) -> libc::mode_t {
        // SAFETY: all zeroes is a valid `stat`, and the kernel writes no more than that.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(self.0, &mut stat) == 0 { stat.st_mode & libc::S_IFMT } else { 0 }
        }
    }

    /// Whether this is the root of a mount; `None` before Linux 5.8, which does not report it.
    pub(super) fn is_mounted(&self) -> Option<bool> {
        // SAFETY: all zeroes is a valid `statx`.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        let done = super::statx(self.0, c"", libc::AT_EMPTY_PATH, 0, &mut stat);
        let root = libc::STATX_ATTR_MOUNT_ROOT as u64;
        (done && stat.stx_attributes_mask & root != 0).then_some(stat.stx_attributes & root != 0)
    }

    /// A path that leads mount(2) to this very file, even if another took its name since.
    pub(super) fn name(&self) -> StackText {
        StackText::new(format_args!("/proc/self/fd/{}", self.0))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let error = errno();
        // SAFETY: this value owns the descriptor, and `drop` runs once.
        unsafe { libc::close(self.0) };
        set_errno(error);
    }
}

/// `struct mount_attr` of linux/mount.h.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Mounts `from`, with every mount inside it, over `over`, which was found at `path`. Read-only if `read_only` gives the
/// flags that a remount must keep.
pub(super) fn bind(from: &Place, over: &Place, path: &CStr, read_only: Option<u64>) -> bool {
    let (whole, empty) = (libc::AT_RECURSIVE as u32, libc::AT_EMPTY_PATH as u32);
    let clone = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | whole | empty;
    // SAFETY: the paths are literals; `attributes` has the kernel's layout and its own size is passed.
    unsafe {
        let tree = libc::syscall(libc::SYS_open_tree, from.0, c"".as_ptr(), clone) as i32;
        if tree < 0 {
            // open_tree came with Linux 5.2, and an outer sandbox may deny it.
            return matches!(errno(), libc::ENOSYS | libc::EPERM) && bind_by_name(from, over, path, read_only);
        }
        let tree = Place(tree);
        let attributes = Attributes { set: libc::MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
        let size = size_of::<Attributes>();
        let set = || libc::syscall(libc::SYS_mount_setattr, tree.0, c"".as_ptr(), whole | empty, &attributes, size);
        // Read-only before it is attached, so that the command never sees it writable.
        let ready = read_only.is_none() || set() == 0;
        let exactly = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
        let mounted =
            ready && libc::syscall(libc::SYS_move_mount, tree.0, c"".as_ptr(), over.0, c"".as_ptr(), exactly) == 0;
        // mount_setattr came with Linux 5.12.
        mounted || matches!(errno(), libc::ENOSYS | libc::EPERM) && bind_by_name(from, over, path, read_only)
    }
}

/// The same with mount(2), for kernels without the calls above.
fn bind_by_name(from: &Place, over: &Place, path: &CStr, read_only: Option<u64>) -> bool {
    let (from, over) = (from.name(), over.name());
    if !mount(Some(from.as_c_str()), over.as_c_str(), None, libc::MS_BIND | libc::MS_REC, None) {
        return false;
    }
    let Some(kept) = read_only else { return true };
    // Look the path up again: `over` is the file under the new mount.
    let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | kept;
    Place::find(path).is_some_and(|made| mount(None, made.name().as_c_str(), None, flags, None))
}

pub(super) fn mount(from: Option<&CStr>, to: &CStr, kind: Option<&CStr>, flags: u64, options: Option<&CStr>) -> bool {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: a CStr is NUL-terminated; mount(2) takes null for the source, type and data that a call does not use.
    unsafe { libc::mount(pointer(from), to.as_ptr(), pointer(kind), flags, pointer(options).cast()) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn text(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).expect("no NUL")
    }

    /// The errno of a lookup with openat2 and of one without it; 0 for success.
    fn found(path: &Path) -> [i32; 2] {
        let path = text(path);
        [Place::find(&path), Place::walk(&path, false)].map(|place| if place.is_some() { 0 } else { errno() })
    }

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let base = tempfile::tempdir().expect("temporary directory");
        let base = base.path().canonicalize().expect("just made");
        std::fs::create_dir_all(base.join("real/inner")).expect("new");
        std::fs::write(base.join("real/inner/file"), "x").expect("new");
        symlink("real", base.join("link")).expect("new");
        symlink("file", base.join("real/inner/last")).expect("new");
        assert_eq!(found(&base.join("real/inner/file")), [0, 0]);
        assert_eq!(found(&base.join("link/inner/file"))[0], libc::ELOOP);
        // Without openat2 the link itself is opened, and then refused by its type.
        let walked = Place::walk(&text(&base.join("link/inner/file")), false);
        assert!(walked.is_none());
        assert_eq!(found(&base.join("real/inner/last")), [libc::ELOOP, libc::ELOOP]);
        for link in [
            Place::find_link(&text(&base.join("real/inner/last"))),
            Place::walk(&text(&base.join("real/inner/last")), true),
        ] {
            assert_eq!(link.map(|link| link.kind()), Some(libc::S_IFLNK));
        }
        assert!(Place::find_link(&text(&base.join("real/inner/file"))).is_none());
        assert_eq!(found(&base.join("real/none")), [libc::ENOENT, libc::ENOENT]);
    }

    #[test]
    fn a_place_is_named_by_its_descriptor() {
        let place = Place::find(c"/").expect("there");
        let name = place.name();
        assert_eq!(name.as_c_str().to_str().expect("text"), format!("/proc/self/fd/{}", place.0));
        assert_eq!(place.is_mounted(), Some(true));
    }
}
