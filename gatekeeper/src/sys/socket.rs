//! Sockets: connected to an address as somebody else wrote it.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// connect(2) with the bytes of a socket address; the kernel checks them as it does for everybody.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of a live slice, and no more.
    check(i64::from(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) })).map(drop)
}
