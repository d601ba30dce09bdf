//! Messages between the front process, the guardian and the command's process, and descriptors sent along with them.
//!
//! `send_rights` and `receive_rights` also run after fork: they do not allocate.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// One message, in the layout in which it is sent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    pub kind: u32,
    pub a: i32,
    /// User time and system time in microseconds, and peak memory in KiB.
    pub usage: [i64; 3],
}

impl Message {
    /// The attached descriptor is a listener: that of the installed filter, or a socket to accept connections on.
    pub const LISTENER: u32 = 2;
    /// The process id of the command, in `a`, and that of its guardian, in `usage[0]`.
    pub const PID: u32 = 3;
    /// The command ended: its wait status in `a`, and what it and its children used.
    pub const EXITED: u32 = 4;
    pub const STOPPED: u32 = 5;
    /// The command ended and left no other process: `EXITED` and `DONE` in one message.
    pub const EXITED_ALONE: u32 = 10;
    /// Every process of the tree has ended, and this is what they used together.
    pub const DONE: u32 = 7;
    /// From the gatekeeper inside bubblewrap: it has started, and its report decides from now on.
    pub const ALIVE: u32 = 9;
    /// A process outside replaced the file that mount `a` protects. The mount is in place again; `usage[0]` is the time
    /// that took, in microseconds.
    pub const RENEWED: u32 = 11;
    /// The file that mount `a` protected no longer exists.
    pub const GONE: u32 = 12;
    /// The file of mount `a` could not be protected again, with the errno in `usage[0]`. The guardian ends the tree.
    pub const LOST: u32 = 13;
    /// The protected files cannot be watched for changes from outside, with the errno in `a`.
    pub const UNWATCHED: u32 = 14;
    /// The guardian program could not start a guardian, with the errno in `a`.
    pub const NOT_STARTED: u32 = 15;
    /// The time limit has passed, and the front process did nothing. The guardian ends the tree.
    pub const OVERDUE: u32 = 17;
    /// To the command's process, if its launch says that it waits: go on.
    pub const GO: u32 = 16;
    /// To the guardian: end the tree now.
    pub const KILL: u32 = 8;

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the fields fill the 32 bytes without padding, so every byte is initialised; the borrow is of `self`.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Message>()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; all fields are integers, so any bytes written are a valid value.
        unsafe { std::slice::from_raw_parts_mut((&raw mut *self).cast(), size_of::<Message>()) }
    }
}

/// A connected pair of sockets that keeps message boundaries. Both are closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Reads one message and the descriptor that came with it. `None`: the other side has closed.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut message = Message::default();
    let (read, [descriptor, ..]) = loop {
        match receive_rights(socket, message.bytes_mut(), RecvFlags::empty()) {
            // The other side has closed with something of ours unread. The kernel says so once, and before what it has sent.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            other => break other?,
        }
    };
    Ok((read == size_of::<Message>()).then_some((message, descriptor)))
}

/// Sleeps until a message has arrived, or the other side is closed, but no longer than this.
pub fn expect(socket: BorrowedFd<'_>, longest: Duration) {
    let timeout = Timespec::try_from(longest).ok();
    // The caller goes on in any case.
    let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], timeout.as_ref());
}

/// Sends a listening socket, for the receiver to accept connections on.
pub fn pass(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let message = Message { kind: Message::LISTENER, ..Message::default() };
    Ok(send_rights(socket, message.bytes(), &[descriptor])?)
}

/// Sends one message without a descriptor.
pub fn send(socket: BorrowedFd<'_>, message: &Message) -> io::Result<()> {
    rustix::net::send(socket, message.bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

/// As many descriptors as one message carries: a mount namespace, its mountinfo and a user namespace.
const MOST_RIGHTS: usize = 3;

/// Sends bytes with at most `MOST_RIGHTS` descriptors attached (SCM_RIGHTS).
pub fn send_rights(socket: BorrowedFd<'_>, bytes: &[u8], rights: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_RIGHTS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(rights)) {
        return Err(Errno::INVAL);
    }
    let sent = rustix::net::sendmsg(socket, &[io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives bytes with the descriptors attached to them, in the order in which they were sent. Each is closed on exec.
pub fn receive_rights(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, [Option<OwnedFd>; MOST_RIGHTS]), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_RIGHTS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let read = rustix::net::recvmsg(socket, &mut [io::IoSliceMut::new(bytes)], &mut control, flags)?.bytes;
    let mut rights = [const { None }; MOST_RIGHTS];
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            rights.iter_mut().zip(received).for_each(|(right, descriptor)| *right = Some(descriptor));
        }
    }
    Ok((read, rights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_arrive_with_their_message_and_in_order() {
        let (here, there) = pair().expect("sockets");
        let files = ["/dev/null", "/proc/self/stat"].map(|path| std::fs::File::open(path).expect("there"));
        send_rights(here.as_fd(), b"x", &[files[0].as_fd(), files[1].as_fd()]).expect("sent");
        let mut byte = [0u8; 1];
        let (read, rights) = receive_rights(there.as_fd(), &mut byte, RecvFlags::DONTWAIT).expect("received");
        let inode =
            |file: BorrowedFd<'_>| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).expect("open");
        let received: Vec<_> = rights.iter().flatten().map(|right| inode(right.as_fd())).collect();
        assert_eq!((read, byte), (1, *b"x"));
        assert_eq!(received, files.each_ref().map(|file| inode(file.as_fd())));

        let sent = Message { kind: Message::EXITED, a: 256, usage: [1, 2, 3] };
        send(here.as_fd(), &sent).expect("sent");
        assert!(matches!(receive(there.as_fd()).expect("received"), Some((message, None)) if message == sent));
        drop(here);
        assert!(receive(there.as_fd()).expect("closed").is_none());
    }

    #[test]
    fn what_was_sent_before_a_close_arrives_even_if_something_is_unread() {
        let (here, there) = pair().expect("sockets");
        send(here.as_fd(), &Message::default()).expect("sent, and never read");
        let refusal = Message { kind: Message::NOT_STARTED, a: libc::EAGAIN, ..Message::default() };
        send(there.as_fd(), &refusal).expect("sent");
        drop(there);
        assert!(matches!(receive(here.as_fd()).expect("received"), Some((message, None)) if message == refusal));
        assert!(receive(here.as_fd()).expect("closed").is_none());
    }
}
