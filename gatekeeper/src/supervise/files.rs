//! Which arguments of a syscall name files, and what it does to them. Only `Shape::named` reads the program's memory.

use super::target::{Memory, Target};
use crate::sys::notify::{Call, FCHMODAT2};
use std::io;
use std::path::PathBuf;

/// What a call does to a file that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Open {
        read: bool,
        write: bool,
        create: bool,
        exclusive: bool,
    },
    /// Creates an unnamed file in this directory (O_TMPFILE).
    OpenUnnamed,
    /// Creates a directory, link, device or socket, which must not exist yet.
    Make,
    /// The target of a rename, which may exist.
    Replace,
    Remove,
    /// The source of a rename.
    Move,
    /// The source of a hard link.
    Link,
    Execute,
    /// Changes mode, owner, times or attributes.
    Change,
}

/// The positions of the arguments that name a file.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    directory: Option<usize>,
    pub(super) path: usize,
    pub follow: bool,
    pub does: Does,
}

/// A file as named by the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub directory: i32,
    pub path: PathBuf,
    pub follow: bool,
    pub does: Does,
}

const fn shape(directory: Option<usize>, path: usize, does: Does) -> Shape {
    Shape { directory, path, follow: false, does }
}

fn opening(directory: Option<usize>, path: usize, flags: u64) -> Option<Shape> {
    let flags = flags as i32;
    let has = |flag: i32| flags & flag == flag;
    if has(libc::O_PATH) {
        return None;
    }
    let mode = flags & libc::O_ACCMODE;
    let (create, exclusive) = (has(libc::O_CREAT), has(libc::O_EXCL));
    let does = if has(libc::O_TMPFILE) {
        Does::OpenUnnamed
    } else {
        let write = mode != libc::O_RDONLY || has(libc::O_TRUNC);
        Does::Open { read: mode != libc::O_WRONLY, write, create, exclusive: create && exclusive }
    };
    let follow = !(has(libc::O_NOFOLLOW) || create && exclusive);
    Some(Shape { follow, ..shape(directory, path, does) })
}

const TRUNCATE: Does = Does::Open { read: false, write: true, create: false, exclusive: false };
/// Of creat(2), which newer machines do not have.
#[cfg(target_arch = "x86_64")]
const CREATE: Does = Does::Open { read: false, write: true, create: true, exclusive: false };

/// The files that a call names, in argument order.
pub fn shapes(call: &Call) -> [Option<Shape>; 2] {
    use Does::{Change, Execute, Link, Make, Move, Remove, Replace};
    let args = &call.args;
    let at = |path: usize, does| Some(shape(None, path, does));
    let within = |directory: usize, does| Some(shape(Some(directory), directory + 1, does));
    let following = |shape: Option<Shape>| shape.map(|shape| Shape { follow: true, ..shape });
    let unless = |flags: u64, bit: i32, shape: Option<Shape>| {
        shape.map(|shape| Shape { follow: flags & bit as u64 == 0, ..shape })
    };
    let nofollow = libc::AT_SYMLINK_NOFOLLOW;
    match i64::from(call.number) {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => [opening(None, 0, args[1]), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => [following(at(0, CREATE)), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink | libc::SYS_rmdir => [at(0, Remove), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir | libc::SYS_mknod => [at(0, Make), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink => [at(1, Make), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => [at(0, Link), at(1, Make)],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => [at(0, Move), at(1, Replace)],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod | libc::SYS_chown | libc::SYS_utime | libc::SYS_utimes => [following(at(0, Change)), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => [at(0, Change), None],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => [following(within(0, Change)), None],
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        libc::SYS_renameat => [within(0, Move), within(2, Replace)],
        libc::SYS_openat => [opening(Some(0), 1, args[2]), None],
        libc::SYS_unlinkat => [within(0, Remove), None],
        libc::SYS_mkdirat | libc::SYS_mknodat => [within(0, Make), None],
        libc::SYS_symlinkat => [within(1, Make), None],
        libc::SYS_linkat => {
            let from =
                within(0, Link).map(|from| Shape { follow: args[4] as i32 & libc::AT_SYMLINK_FOLLOW != 0, ..from });
            [from, within(2, Make)]
        }
        libc::SYS_renameat2 => [within(0, Move), within(2, Replace)],
        libc::SYS_truncate => [following(at(0, TRUNCATE)), None],
        libc::SYS_execve => [following(at(0, Execute)), None],
        libc::SYS_execveat => [unless(args[4], nofollow, within(0, Execute)), None],
        libc::SYS_fchmodat => [following(within(0, Change)), None],
        FCHMODAT2 => [unless(args[3], nofollow, within(0, Change)), None],
        libc::SYS_fchownat => [unless(args[4], nofollow, within(0, Change)), None],
        libc::SYS_utimensat => [unless(args[3], nofollow, within(0, Change)), None],
        libc::SYS_setxattr | libc::SYS_removexattr => [following(at(0, Change)), None],
        libc::SYS_lsetxattr | libc::SYS_lremovexattr => [at(0, Change), None],
        _ => [None, None],
    }
}

/// The descriptor whose file a call changes, if it names the file by descriptor.
pub fn descriptor(call: &Call) -> Option<i32> {
    match i64::from(call.number) {
        libc::SYS_fchmod | libc::SYS_fchown | libc::SYS_fsetxattr | libc::SYS_fremovexattr => Some(call.args[0] as i32),
        libc::SYS_utimensat if call.args[1] == 0 => Some(call.args[0] as i32),
        _ => None,
    }
}

impl Shape {
    /// The descriptor of the directory that a relative path starts from.
    pub(super) fn directory(&self, call: &Call) -> i32 {
        self.directory.map_or(libc::AT_FDCWD, |at| call.args[at] as i32)
    }

    pub fn named(&self, call: &Call, target: &Target) -> io::Result<Named> {
        let directory = self.directory(call);
        let path = target.path(call.args[self.path])?;
        // Only these take an empty path, with AT_EMPTY_PATH.
        let may_be_empty = matches!(self.does, Does::Execute | Does::Link | Does::Change);
        if path.as_os_str().is_empty() && !may_be_empty {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(Named { directory, path, follow: self.follow, does: self.does })
    }
}
