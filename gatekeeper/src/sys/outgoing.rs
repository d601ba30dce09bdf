//! sendmsg(2) on a copy of the program's socket, with everything that goes with the message as raw bytes.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A message as it goes to the kernel.
pub struct Message<'a> {
    /// The bytes of a socket address; empty: the peer that the socket is connected to.
    pub name: &'a [u8],
    pub data: &'a [u8],
    /// Control messages (cmsg(3)); descriptors in them are this process's.
    pub control: &'a [u8],
}

/// Sends a message. Never waits, and raises no SIGPIPE in this process.
pub fn send(socket: BorrowedFd<'_>, message: &Message<'_>, flags: i32) -> io::Result<usize> {
    let mut data = libc::iovec { iov_base: message.data.as_ptr().cast_mut().cast(), iov_len: message.data.len() };
    // SAFETY: all zeroes is a valid header. The kernel reads the three slices and the one iovec, and writes to none of them.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        if !message.name.is_empty() {
            header.msg_name = message.name.as_ptr().cast_mut().cast();
            header.msg_namelen = message.name.len() as libc::socklen_t;
        }
        (header.msg_iov, header.msg_iovlen) = (&raw mut data, 1);
        if !message.control.is_empty() {
            header.msg_control = message.control.as_ptr().cast_mut().cast();
            header.msg_controllen = message.control.len() as _;
        }
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // The syscall itself: musl's function copies the control messages, at most 1024 bytes of them.
        check(libc::syscall(libc::SYS_sendmsg, socket.as_raw_fd(), &raw const header, flags)).map(|sent| sent as usize)
    }
}

/// One control message: the header of cmsg(3), the data, and padding to its alignment.
pub fn control(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = (HEADER + data.len()).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&level.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes
}

const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGNMENT: usize = size_of::<usize>();

/// Splits control messages into level, type and data, as the kernel does. `None`: the kernel refuses them (EINVAL).
pub fn controls(bytes: &[u8]) -> Option<Vec<(i32, i32, &[u8])>> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while rest.len() >= HEADER {
        let (length, fields) = rest.split_first_chunk::<ALIGNMENT>()?;
        let (level, fields) = fields.split_first_chunk::<4>()?;
        let (kind, _) = fields.split_first_chunk::<4>()?;
        let length = usize::from_ne_bytes(*length);
        found.push((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), rest.get(HEADER..length)?));
        rest = rest.get(length.checked_next_multiple_of(ALIGNMENT)?..).unwrap_or_default();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_split_as_they_are_made() {
        let two = [control(1, 1, &[1, 2, 3, 4]), control(0, 8, &[])].concat();
        assert_eq!(controls(&two), Some(vec![(1, 1, &[1u8, 2, 3, 4][..]), (0, 8, &[][..])]));
        assert_eq!(controls(&two[..7]), Some(vec![]), "too short for a header: the kernel ignores it");
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for length in [0, 15, 21, usize::MAX, usize::MAX - 6] {
            let mut one = control(1, 1, &[0; 4]);
            one[..8].copy_from_slice(&length.to_ne_bytes());
            one.truncate(20);
            assert_eq!(controls(&one), None, "{length}");
        }
    }
}
