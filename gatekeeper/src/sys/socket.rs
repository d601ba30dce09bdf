//! Sockets of somebody else, taken as descriptors: what they are, and calls on them with an address as it was written.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// connect(2) with the bytes of a socket address; the kernel checks them as it does for everybody.
pub fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    let len = address.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of a live slice, and no more.
    check(i64::from(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), len) })).map(drop)
}

/// The bytes of the address that a socket is bound to.
pub fn name(socket: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = [0u8; 128];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into a live buffer of that size.
    check(i64::from(unsafe { libc::getsockname(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), &mut len) }))?;
    Ok(bytes.get(..len as usize).unwrap_or_default().to_vec())
}

/// Holds a socket to packets of this machine's own: those that come by its loopback device.
pub fn keep_local(socket: BorrowedFd<'_>) -> io::Result<()> {
    let device = b"lo";
    let len = device.len() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of a literal.
    check(i64::from(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_ptr().cast(), len)
    }))
    .map(drop)
}

/// The family and the type of a socket, as the kernel has them.
pub fn kind(socket: BorrowedFd<'_>) -> io::Result<(i32, i32)> {
    Ok((option(socket, libc::SO_DOMAIN)?, option(socket, libc::SO_TYPE)?))
}

fn option(socket: BorrowedFd<'_>, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes one int into `value`.
    check(i64::from(unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut value).cast(), &mut len)
    }))?;
    Ok(value)
}

/// Makes a descriptor a standard stream.
pub fn becomes(descriptor: OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: dup2 passes no memory; nobody owns the standard streams.
    check(i64::from(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })).map(drop)
}

/// Takes over a descriptor that this process was started with.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD passes no memory; each inherited number is taken over once, by whoever reads the command line.
    unsafe {
        check(i64::from(libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC)))?;
        Ok(OwnedFd::from_raw_fd(number))
    }
}
