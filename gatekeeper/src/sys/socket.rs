//! Calls on sockets that belong to the command or to the caller, with socket addresses as raw bytes.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// connect(2) with the bytes of a socket address, which the kernel validates.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads at most `len` bytes, which is the length of the slice.
    check(i64::from(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) })).map(drop)
}

/// The bytes of the address that a socket is bound to.
pub fn name(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = [0u8; 128];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `bytes`.
    check(i64::from(unsafe { libc::getsockname(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), &mut len) }))?;
    Ok(bytes.get(..len as usize).unwrap_or_default().to_vec())
}

/// The process that connected a UNIX socket, and its user. The process is 0 if it is in a PID namespace that is not below this one.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `peer`.
    check(i64::from(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut len)
    }))?;
    Ok((peer.pid, peer.uid))
}

/// Binds a socket to the loopback device, so that only packets of this machine reach it.
pub fn keep_local(socket: BorrowedFd<'_>) -> io::Result<()> {
    let device = b"lo";
    let len = device.len() as libc::socklen_t;
    // SAFETY: the kernel reads at most `len` bytes, which is the length of the literal.
    check(i64::from(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_ptr().cast(), len)
    }))
    .map(drop)
}

/// The address family and the type of a socket.
pub fn kind(socket: BorrowedFd<'_>) -> io::Result<(i32, i32)> {
    Ok((option(socket, libc::SO_DOMAIN)?, option(socket, libc::SO_TYPE)?))
}

fn option(socket: BorrowedFd<'_>, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `value`.
    check(i64::from(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut value).cast(), &mut len)
    }))?;
    Ok(value)
}

/// Replaces a standard stream by a descriptor.
pub fn becomes(descriptor: OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: callers pass 0, 1 or 2, which no OwnedFd of this program owns.
    check(i64::from(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })).map(drop)
}

/// Takes ownership of a descriptor that this process inherited.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD proves that the number is open; only the code that reads the command line calls this, once a number.
    unsafe {
        check(i64::from(libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC)))?;
        Ok(OwnedFd::from_raw_fd(number))
    }
}
