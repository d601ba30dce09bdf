//! File handles, which name an inode of a file system for as long as that inode exists (name_to_handle_at(2)).

use super::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel's MAX_HANDLE_SZ.
const LONGEST: usize = 128;

/// Of linux/fcntl.h; the libc crate has it for some targets only.
const F_SETSIG: libc::c_int = 10;

/// A struct file_handle with room for every handle.
#[repr(C)]
struct Raw {
    bytes: u32,
    kind: i32,
    handle: [u8; LONGEST],
}

/// The type and the bytes of a handle. Both depend on the file system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    pub kind: i32,
    pub bytes: Vec<u8>,
}

/// The handle of an entry, without following a link; `None` if the file system has no handles. An empty name means the
/// directory itself.
pub fn of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Handle>> {
    let mut room = Raw { bytes: LONGEST as u32, kind: 0, handle: [0; LONGEST] };
    let mut mount = 0i32;
    // SAFETY: the kernel reads `name` up to its NUL, writes at most `room.bytes` bytes behind the two fields of `room`, and one
    // int; all three outlive the call.
    let made = check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            name.as_ptr(),
            &raw mut room,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    });
    match made {
        Ok(_) => {
            let bytes = room.handle.get(..room.bytes as usize).unwrap_or_default().to_vec();
            Ok(Some(Handle { kind: room.kind, bytes }))
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EOVERFLOW)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether this is the only open descriptor of its file: only then the kernel gives a write lease (fcntl(2)). `false` also where
/// the file system has no leases.
pub fn is_only_one(file: BorrowedFd<'_>) -> bool {
    let file = file.as_raw_fd();
    // A program that opens the file before the lease is given back breaks it, and the kernel tells us by SIGIO, which would end
    // this process. SIGURG has no effect by default.
    // SAFETY: both operations take an int.
    unsafe {
        libc::fcntl(file, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(file, libc::F_SETLEASE, libc::F_WRLCK) == 0
            && libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}
