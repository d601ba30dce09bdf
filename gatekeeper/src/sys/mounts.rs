//! The command's own mount namespace: an ordered list of mounts, made by the command's process between fork and exec.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation. The plan names real paths. Each is opened here
//! without following a single symbolic link, and mounted by that descriptor: a link that a command put there since, in
//! the middle or at the end, makes the step fail.

use super::child::errno;
use super::progress::Progress;
use super::{capabilities, ids};
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

/// What is mounted, in this order, in a mount namespace that only the command and its children see.
pub struct Mounts {
    /// The maps of a new user namespace; `None` where this process may mount without one.
    pub user: Option<UserMaps>,
    pub mounts: Vec<Mount>,
}

pub struct UserMaps {
    pub uid: CString,
    pub gid: CString,
}

/// One mount.
pub enum Mount {
    /// A directory mounted over itself: a mount point cannot be renamed away. Outermost first.
    Pinned(CString),
    /// A place mounted over itself read-only; `kept` are the mount flags that must not be dropped.
    ReadOnly { path: CString, kept: u64 },
    /// A symbolic link mounted over itself: it can be followed, but neither removed nor replaced.
    Link(CString),
    /// An empty file or directory that hides what is there.
    Covered { by: CString, path: CString },
    /// A new and empty file system in memory. Landlock rules are on inodes, so its rule is added when it is there.
    Private { path: CString, options: CString, rights: u64 },
}

impl Mounts {
    /// Makes the namespaces.
    pub(super) fn enter(&self) -> bool {
        // SAFETY: unshare passes no memory.
        unsafe {
            let Some(maps) = &self.user else { return libc::unshare(libc::CLONE_NEWNS) == 0 };
            libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0 && ids::map_own(&maps.uid, &maps.gid)
        }
    }

    /// Mounts everything, and gives up the right to mount anything more.
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

    /// Gives up the right to mount anything more.
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

    /// Where it goes. `None` with errno set: it is not there, or a link leads to it.
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
            Mount::Private { path, options, rights } => {
                let flags = libc::MS_NOSUID | libc::MS_NODEV;
                mount(Some(c"tmpfs"), place.name().as_c_str(), Some(c"tmpfs"), flags, Some(options))
                    && Place::find(path).is_some_and(|made| grant(ruleset, &made, *rights))
            }
        }
    }
}

/// A file or directory as it was found, no link followed; closed with the value.
pub(super) struct Place(RawFd);

#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// A name in a directory is at most this long; one byte more ends it.
const LONGEST_NAME: usize = 255;

impl Place {
    /// Opens a real path. `None` with errno set: it is not there, or a link leads to it.
    pub(super) fn find(path: &CStr) -> Option<Place> {
        Place::at(path, 0)
    }

    /// Opens a symbolic link itself; nothing before it is one.
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
        // SAFETY: the path is NUL-terminated, `how` is a live value of the size given.
        let fd = unsafe {
            libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), &raw const how, size_of::<How>()) as RawFd
        };
        match fd {
            // Before Linux 5.6, and where an outer sandbox hides the call.
            ..0 if matches!(errno(), libc::ENOSYS | libc::EPERM) => Place::walk(path, nofollow != 0),
            ..0 => None,
            fd => Some(Place(fd)),
        }
    }

    /// The same, one name at a time.
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
        // SAFETY: the name is NUL-terminated.
        let fd = unsafe { libc::openat(at, name.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) };
        (fd >= 0).then_some(Place(fd))
    }

    fn kind(&self) -> libc::mode_t {
        // SAFETY: the kernel fills a local of its own type; all zeroes is a value of it.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(self.0, &mut stat) == 0 { stat.st_mode & libc::S_IFMT } else { 0 }
        }
    }

    /// Whether something is mounted here; `None` where the kernel does not tell (before 5.8).
    pub(super) fn is_mounted(&self) -> Option<bool> {
        // SAFETY: the kernel fills a local of its own type; the empty path means the descriptor itself.
        unsafe {
            let mut stat: libc::statx = std::mem::zeroed();
            let done = libc::statx(self.0, c"".as_ptr(), libc::AT_EMPTY_PATH, 0, &mut stat) == 0;
            let root = libc::STATX_ATTR_MOUNT_ROOT as u64;
            (done && stat.stx_attributes_mask & root != 0).then_some(stat.stx_attributes & root != 0)
        }
    }

    /// A name by which mount(2) reaches exactly this, and nothing that took its place.
    fn name(&self) -> Name {
        let mut name = Name([0; 32]);
        let mut digits = [0u8; 10];
        let (mut rest, mut first) = (self.0.unsigned_abs(), digits.len());
        while first > 0 && (rest > 0 || first == digits.len()) {
            first -= 1;
            if let Some(digit) = digits.get_mut(first) {
                *digit = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
        }
        let text = b"/proc/self/fd/".iter().chain(digits.get(first..).unwrap_or_default());
        name.0.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        name
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let error = errno();
        // SAFETY: the descriptor is this value's own, and closed once.
        unsafe { libc::close(self.0) };
        set_errno(error);
    }
}

struct Name([u8; 32]);

impl Name {
    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

fn set_errno(error: i32) {
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = error };
}

/// `struct mount_attr` of linux/mount.h.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Mounts `from`, with what is mounted inside of it, over `over`; read-only where `read_only` gives the flags that a
/// remount must keep. `path` is where `over` was found.
fn bind(from: &Place, over: &Place, path: &CStr, read_only: Option<u64>) -> bool {
    let (whole, empty) = (libc::AT_RECURSIVE as u32, libc::AT_EMPTY_PATH as u32);
    let clone = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | whole | empty;
    // SAFETY: the paths are empty literals, the attributes are a live value of the size given, the descriptor is closed once.
    unsafe {
        let tree = libc::syscall(libc::SYS_open_tree, from.0, c"".as_ptr(), clone) as i32;
        if tree < 0 {
            // Before Linux 5.2, and where an outer sandbox does not know the call.
            return matches!(errno(), libc::ENOSYS | libc::EPERM) && bind_by_name(from, over, path, read_only);
        }
        let tree = Place(tree);
        let attributes = Attributes { set: libc::MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
        let size = size_of::<Attributes>();
        let set = || libc::syscall(libc::SYS_mount_setattr, tree.0, c"".as_ptr(), whole | empty, &attributes, size);
        // Read-only before it can be reached.
        let ready = read_only.is_none() || set() == 0;
        let exactly = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
        let mounted =
            ready && libc::syscall(libc::SYS_move_mount, tree.0, c"".as_ptr(), over.0, c"".as_ptr(), exactly) == 0;
        // mount_setattr came with Linux 5.12.
        mounted || matches!(errno(), libc::ENOSYS | libc::EPERM) && bind_by_name(from, over, path, read_only)
    }
}

/// The same by mount(2), which has been there for ever.
fn bind_by_name(from: &Place, over: &Place, path: &CStr, read_only: Option<u64>) -> bool {
    let (from, over) = (from.name(), over.name());
    if !mount(Some(from.as_c_str()), over.as_c_str(), None, libc::MS_BIND | libc::MS_REC, None) {
        return false;
    }
    let Some(kept) = read_only else { return true };
    // What was mounted just now lies over what was found before.
    let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | kept;
    Place::find(path).is_some_and(|made| mount(None, made.name().as_c_str(), None, flags, None))
}

fn mount(from: Option<&CStr>, to: &CStr, kind: Option<&CStr>, flags: u64, options: Option<&CStr>) -> bool {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: every string is NUL-terminated and lives through the call; null is allowed where it is given.
    unsafe { libc::mount(pointer(from), to.as_ptr(), pointer(kind), flags, pointer(options).cast()) == 0 }
}

/// Grants rights on what was found to whoever is confined by the ruleset.
fn grant(ruleset: Option<RawFd>, on: &Place, rights: u64) -> bool {
    #[repr(C, packed)]
    struct PathBeneath {
        allowed_access: u64,
        parent_fd: i32,
    }
    const RULE_PATH_BENEATH: i32 = 1;
    let rule = PathBeneath { allowed_access: rights, parent_fd: on.0 };
    // SAFETY: the kernel reads one rule, laid out as its own.
    ruleset.is_none_or(|ruleset| unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &raw const rule, 0) == 0
    })
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

    /// By both ways, the errno of what was not found; 0 where it was.
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
        // Links are opened as themselves, and then known for what they are.
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
