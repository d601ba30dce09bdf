//! The command's own mount namespace: an ordered list of mounts, made by the command's process between fork and exec.
//!
//! Runs after fork: raw syscalls on memory prepared before, no allocation. Nothing here follows a symbolic link in the
//! last component of a path: the command may have put one there.

use super::capabilities;
use super::child::{errno, write_file};
use std::ffi::{CStr, CString};

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
    /// A symbolic link mounted over itself: it goes on leading where it led, and cannot be removed or replaced.
    Link(CString),
    /// A place mounted over itself read-only; `kept` are the mount flags that must not be dropped.
    ReadOnly { path: CString, kept: u64 },
    /// An empty file or directory that hides what is there.
    Covered { by: CString, path: CString },
}

impl Mounts {
    /// Makes the namespaces.
    pub(super) fn enter(&self) -> bool {
        // SAFETY: unshare and prctl pass no memory; the files written are named by literals.
        unsafe {
            let Some(maps) = &self.user else { return libc::unshare(libc::CLONE_NEWNS) == 0 };
            libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0
                // New capabilities made the process undumpable, and its /proc files root's.
                && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
                && write_file(c"/proc/self/setgroups", c"deny")
                && write_file(c"/proc/self/uid_map", &maps.uid)
                && write_file(c"/proc/self/gid_map", &maps.gid)
        }
    }

    /// Mounts everything, and gives up the right to mount anything more.
    pub(super) fn apply(&self) -> bool {
        mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE)
            && self.mounts.iter().all(Mount::apply)
            && (self.user.is_none() || capabilities::drop_all())
    }
}

impl Mount {
    fn apply(&self) -> bool {
        match self {
            // With what is mounted below it: inside of another namespace, a part of that cannot be left out.
            Mount::Pinned(path) => bind_itself(path, AT_RECURSIVE) || bind(path, path, None),
            Mount::Link(path) => bind_itself(path, 0),
            Mount::ReadOnly { path, kept } => bind(path, path, Some(*kept)),
            Mount::Covered { by, path } => bind(by, path, None),
        }
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

/// Of linux/fcntl.h.
const AT_RECURSIVE: u32 = 0x8000;

/// Mounts a place over itself, also a symbolic link. mount(2) would follow it, so older kernels have no way to do that.
fn bind_itself(link: &CStr, recursive: u32) -> bool {
    let clone = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_SYMLINK_NOFOLLOW as u32 | recursive;
    // SAFETY: paths are NUL-terminated and live through the calls, the descriptor is closed once.
    unsafe {
        let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, link.as_ptr(), clone) as i32;
        if tree < 0 {
            return false;
        }
        let empty = libc::MOVE_MOUNT_F_EMPTY_PATH;
        let moved = libc::syscall(libc::SYS_move_mount, tree, c"".as_ptr(), libc::AT_FDCWD, link.as_ptr(), empty);
        let error = errno();
        libc::close(tree);
        *libc::__errno_location() = error;
        moved == 0
    }
}

/// Mounts `from` over `over`, read-only where `read_only` gives the flags that a remount must keep.
fn bind(from: &CStr, over: &CStr, read_only: Option<u64>) -> bool {
    let clone = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_SYMLINK_NOFOLLOW as u32;
    // SAFETY: paths are NUL-terminated, the attributes are a live value of the size given, the descriptor is closed once.
    unsafe {
        let tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, from.as_ptr(), clone) as i32;
        if tree < 0 {
            // Before Linux 5.2, and where an outer sandbox does not know the call.
            return matches!(errno(), libc::ENOSYS | libc::EPERM) && bind_by_path(from, over, read_only);
        }
        let attributes = Attributes { set: libc::MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
        let size = size_of::<Attributes>();
        let set = || libc::syscall(libc::SYS_mount_setattr, tree, c"".as_ptr(), libc::AT_EMPTY_PATH, &attributes, size);
        // Read-only before it can be reached.
        let ready = read_only.is_none() || set() == 0;
        let mounted = ready
            && libc::syscall(
                libc::SYS_move_mount,
                tree,
                c"".as_ptr(),
                libc::AT_FDCWD,
                over.as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH,
            ) == 0;
        let error = errno();
        libc::close(tree);
        // mount_setattr came with Linux 5.12.
        if !mounted && matches!(error, libc::ENOSYS | libc::EPERM) {
            return bind_by_path(from, over, read_only);
        }
        *libc::__errno_location() = error;
        mounted
    }
}

/// The same by mount(2), which has been there for ever.
fn bind_by_path(from: &CStr, over: &CStr, read_only: Option<u64>) -> bool {
    mount(Some(from), over, libc::MS_BIND)
        && read_only.is_none_or(|kept| mount(None, over, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY | kept))
}

fn mount(from: Option<&CStr>, to: &CStr, flags: u64) -> bool {
    let none = std::ptr::null();
    // SAFETY: every string is NUL-terminated and lives through the call; null is allowed where it is given.
    unsafe { libc::mount(from.map_or(none, CStr::as_ptr), to.as_ptr(), none, flags, none.cast()) == 0 }
}
