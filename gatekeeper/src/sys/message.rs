//! What the command's process and its guardian tell the front process, over one socket each.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One message, as it travels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    pub kind: u32,
    pub a: i32,
    /// User and system time in microseconds, peak memory in KiB.
    pub usage: [i64; 3],
}

impl Message {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a plain value of integers without padding that matters, borrowed as long as itself.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Message>()) }
    }

    /// The filter is on and this is its listener.
    pub const LISTENER: u32 = 2;
    /// The command's process id.
    pub const PID: u32 = 3;
    /// The command ended: its wait status, and what it used with all its children.
    pub const EXITED: u32 = 4;
    pub const STOPPED: u32 = 5;
    /// Both in one: the command ended, and nobody was left of its tree.
    pub const EXITED_ALONE: u32 = 10;
    /// The whole tree has ended, and this is what it used.
    pub const DONE: u32 = 7;
    /// From inside of bubblewrap: this is gatekeeper, and from now on it decides.
    pub const ALIVE: u32 = 9;
    /// Somebody outside replaced what the mount `a` protected, and it was protected again so many microseconds after it
    /// was noticed.
    pub const RENEWED: u32 = 11;
    /// What the mount `a` protected is not there any more.
    pub const GONE: u32 = 12;
    /// It could not be protected again, with this errno: the tree is being ended.
    pub const LOST: u32 = 13;
    /// Changes from outside cannot be watched, with this errno.
    pub const UNWATCHED: u32 = 14;
    /// To the guardian: end the tree now.
    pub const KILL: u32 = 8;
}

/// A connected pair, closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0i32; 2];
    // SAFETY: the kernel writes two descriptors into `fds`, which are then owned here and nowhere else.
    unsafe {
        check(i64::from(libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Reads one message, with the descriptor that came with it. `None`: the other side has closed.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut message = Message::default();
    let mut part = libc::iovec { iov_base: (&raw mut message).cast(), iov_len: size_of::<Message>() };
    let mut control = [0u64; 8];
    // SAFETY: all pointers are to live locals of the sizes given; a descriptor received is owned by the result alone.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let read = loop {
            match check(libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) as i64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                other => break other?,
            }
        };
        let first = libc::CMSG_FIRSTHDR(&header);
        let fd = (!first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<i32>().read_unaligned()));
        Ok((read as usize == size_of::<Message>()).then_some((message, fd)))
    }
}

/// Sends one message with a descriptor: a listener, for who receives it to accept on.
pub fn pass(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let message = Message { kind: Message::LISTENER, ..Message::default() };
    let part = [io::IoSlice::new(message.bytes())];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    let fds = [descriptor];
    control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(socket, &part, &mut control, rustix::net::SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends one message; only the guardian's side reads them.
pub fn send(socket: BorrowedFd<'_>, message: &Message) -> io::Result<()> {
    // SAFETY: pointer and size are those of one live value without padding that matters.
    check(unsafe {
        libc::send(socket.as_raw_fd(), (message as *const Message).cast(), size_of::<Message>(), libc::MSG_NOSIGNAL)
            as i64
    })
    .map(drop)
}
