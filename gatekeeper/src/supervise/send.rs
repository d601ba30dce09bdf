//! sendto, sendmsg and sendmmsg, performed by the supervisor for a program that may have UNIX datagram sockets.
//!
//! A datagram names its receiver, and any socket file of the user could be that: Landlock does not restrict it before
//! ABI 9, and a filter sees neither the name nor the kind of the socket. So the supervisor copies the socket and the
//! message, judges the name as it judges a connection, and sends. A call is never left to the kernel: another thread could
//! put a datagram socket in the place of the descriptor that was looked at.
//!
//! One difference remains: a receiver with SO_PASSCRED sees the process ID of the supervisor.

mod message;

use super::clerk::Desk;
use super::connect::{Reach, SocketFile, socket_file};
use super::decode::address::{Peer, is_netlink_of_kernel, parse};
use super::deny::Found;
use super::rights::{self, Rights};
use super::target::{Memory, OTHERS_LINKS, Target};
use super::waiting::{SLICE, Signals};
use crate::plan::table::Decision;
use crate::policy::NetworkMode;
use crate::sys::notify::{Answer, Call};
use crate::sys::outgoing::{self, Message};
use crate::sys::{process, socket};
use crate::trust::by_descriptor;
use message::{HEADER, Header, MOST_PIECES, controls, errno};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::net::sockopt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// sizeof(struct sockaddr_un)
const LONGEST_UNIX: usize = 110;
/// sizeof(struct mmsghdr): a struct msghdr, and the number of sent bytes after it.
const STRIDE: u64 = 64;
/// A stream is copied in parts of this size.
const PART: usize = 256 * 1024;
const LONGEST_DATAGRAM: usize = 8 << 20;
const UNKNOWN_NAMES: &str = "messages are sent to addresses of AF_UNIX, AF_INET and AF_INET6 only";
/// How long to wait for a full receiver, which poll(2) does not wait for unless the socket is connected to it.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a supervised call sends messages.
pub(super) fn is_send(number: i64) -> bool {
    matches!(number, libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_sendmmsg)
}

/// The judgement on a message.
enum Judged {
    Send(Sending),
    /// To a socket file that the policy does not open.
    Refused(PathBuf),
    Never(&'static str),
}

/// A message that is allowed, on a copy of the program's socket.
struct Sending {
    socket: OwnedFd,
    family: i32,
    is_stream: bool,
    /// The file that it goes to, by which it is addressed, so that the name cannot come to mean another one.
    file: Option<OwnedFd>,
    name: Vec<u8>,
    pieces: Vec<(u64, usize)>,
    /// As the program has them. The descriptors in them are copied for each attempt: a call that waits holds none.
    control: Vec<u8>,
    flags: i32,
    sent: usize,
    /// `None`: those of the supervisor.
    rights: Option<Arc<Rights>>,
}

impl Sending {
    fn judge(call: &Call, header: Header, flags: i32, reach: &Reach) -> io::Result<Judged> {
        let target = Target { tid: call.tid };
        let socket = target.descriptor(call.args[0] as i32)?;
        let (family, kind) = socket::kind(socket.as_fd())?;
        // Its pages would be ours, and gone before they are sent. Programs copy instead on this errno.
        if flags & libc::MSG_ZEROCOPY != 0 {
            return Err(errno(libc::ENOBUFS));
        }
        let (at, length) = header.name;
        let mut name = if at == 0 { Vec::new() } else { target.exactly(at, length as usize)? };
        let mut file = None;
        match family {
            libc::AF_UNIX | libc::AF_INET | libc::AF_INET6 => {}
            _ if name.is_empty() => {}
            // The kernel asks the sender of a message that names its receiver for capabilities, and not the process that opened
            // the socket (CVE-2014-0181): that would be this one. A message without a name goes to the kernel as well.
            libc::AF_NETLINK if is_netlink_of_kernel(&name) => name.clear(),
            libc::AF_NETLINK => return Err(errno(libc::EPERM)),
            _ => return Ok(Judged::Never(UNKNOWN_NAMES)),
        }
        if family == libc::AF_UNIX && kind == libc::SOCK_DGRAM && !name.is_empty() {
            match parse(&name) {
                _ if name.len() > LONGEST_UNIX => return Err(errno(libc::EINVAL)),
                Some(Peer::Unix(path)) => match socket_file(&target, &path, reach)? {
                    SocketFile::Open(found) => {
                        name = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
                        name.extend_from_slice(by_descriptor(&found).as_os_str().as_bytes());
                        name.push(0);
                        file = Some(found);
                    }
                    SocketFile::Closed(_, path) => return Ok(Judged::Refused(path)),
                    SocketFile::Elsewhere => return Ok(Judged::Never(OTHERS_LINKS)),
                    SocketFile::Answer(answer) => return Err(errno(answer)),
                },
                // Abstract names belong to a network namespace, and this one was made for the processes of the run.
                Some(Peer::Abstract(_)) if reach.network == NetworkMode::Own => {}
                _ => return Err(errno(libc::EINVAL)),
            }
        }
        let (at, length) = header.control;
        let control = target.exactly(at, length)?;
        let is_stream = kind == libc::SOCK_STREAM;
        let pieces = header.pieces;
        Ok(Judged::Send(Sending {
            socket,
            family,
            is_stream,
            file,
            name,
            pieces,
            control,
            flags,
            sent: 0,
            rights: None,
        }))
    }

    /// The bytes that are not sent yet; of a stream, at most a part of them.
    fn data(&self, target: &Target) -> io::Result<Vec<u8>> {
        let (mut skip, mut data) = (self.sent, Vec::new());
        for (at, length) in &self.pieces {
            let skipped = skip.min(*length);
            skip -= skipped;
            let mut wanted = length - skipped;
            if self.is_stream {
                wanted = wanted.min(PART - data.len());
            } else if data.len().saturating_add(wanted) > LONGEST_DATAGRAM {
                return Err(errno(libc::EMSGSIZE));
            }
            data.extend(target.exactly(at.wrapping_add(skipped as u64), wanted)?);
        }
        Ok(data)
    }

    /// Sends without waiting. `None`: there is no room yet.
    fn attempt(&mut self, call: &Call, waits: &dyn Fn() -> bool) -> Option<Answer> {
        loop {
            let target = Target { tid: call.tid };
            let control = if self.sent == 0 { &self.control[..] } else { &[] };
            let sent = self.data(&target).and_then(|data| {
                let (control, _passed) = controls(&target, control, self.family)?;
                if !waits() {
                    return Err(errno(libc::ESRCH));
                }
                let message = Message { name: &self.name, data: &data, control: &control };
                let send = || outgoing::send(self.socket.as_fd(), &message, self.flags);
                Ok((rights::with(self.rights.as_deref(), send)?, data.len()))
            });
            match sent {
                Ok((sent, wanted)) => {
                    self.sent += sent;
                    let all: usize = self.pieces.iter().fold(0, |sum, (_, length)| sum.saturating_add(*length));
                    if !self.is_stream || sent < wanted || self.sent >= all || sent == 0 {
                        // A stream that took a part only is full. A blocking call goes on.
                        let more = self.is_stream && sent < wanted && self.blocks();
                        return (!more).then_some(Answer::Value(self.sent as i64));
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && self.blocks() => return None,
                Err(_) if self.sent > 0 => return Some(Answer::Value(self.sent as i64)),
                Err(error) => {
                    if error.raw_os_error() == Some(libc::EPIPE)
                        && self.is_stream
                        && self.flags & libc::MSG_NOSIGNAL == 0
                    {
                        let _ = target.pid().and_then(|pid| process::signal_thread(pid, call.tid, libc::SIGPIPE));
                    }
                    return Some(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM)));
                }
            }
        }
    }

    fn blocks(&self) -> bool {
        self.flags & libc::MSG_DONTWAIT == 0
            && !rustix::fs::fcntl_getfl(&self.socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    fn timeout(&self) -> Option<Duration> {
        sockopt::socket_timeout(&self.socket, sockopt::Timeout::Send).ok().flatten()
    }

    /// Waits until there may be room.
    fn pause(&self) {
        let began = Instant::now();
        let slice = Timespec { tv_sec: 0, tv_nsec: SLICE.as_nanos() as _ };
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&slice));
        std::thread::sleep(PAUSE.saturating_sub(began.elapsed()));
    }
}

impl Desk {
    /// Makes a send, or denies it.
    pub(super) fn send(self: &Arc<Desk>, call: &Call, decision: Decision) -> io::Result<()> {
        let target = Target { tid: call.tid };
        match i64::from(call.number) {
            libc::SYS_sendto => self.send_first(call, decision, Header::of_sendto(call), call.args[3] as i32, None),
            libc::SYS_sendmsg => {
                self.send_first(call, decision, Header::read(&target, call.args[1]), call.args[2] as i32, None)
            }
            _ => self.send_many(call, decision),
        }
    }

    /// Sends one message and answers the call. `length_at`: where sendmmsg wants the number of bytes.
    fn send_first(
        self: &Arc<Desk>,
        call: &Call,
        decision: Decision,
        header: io::Result<Header>,
        flags: i32,
        length_at: Option<u64>,
    ) -> io::Result<()> {
        let found = match header.and_then(|header| self.judge_message(call, header, flags)) {
            Ok(Judged::Send(sending)) => return self.send_made(call, sending, length_at),
            Ok(Judged::Refused(path)) => Found { path: Some(path), ..Found::default() },
            Ok(Judged::Never(why)) => Found { never: Some(why), ..Found::default() },
            Err(error) => {
                return self.answer(call, Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))).map(drop);
            }
        };
        self.deny(call, decision, found)
    }

    fn judge_message(&self, call: &Call, header: Header, flags: i32) -> io::Result<Judged> {
        let rights = self.rights(call.tid)?;
        let judged = rights::with(rights.as_deref(), || Sending::judge(call, header, flags, &self.judge.reach))?;
        Ok(match judged {
            Judged::Send(sending) => Judged::Send(Sending { rights, ..sending }),
            other => other,
        })
    }

    fn send_made(self: &Arc<Desk>, call: &Call, mut sending: Sending, length_at: Option<u64>) -> io::Result<()> {
        if sending.file.is_some() {
            self.note_made(call)?;
        }
        if let Some(answer) = sending.attempt(call, &|| self.still_waits(call)) {
            return self.answer(call, counted(call, answer, length_at)).map(drop);
        }
        if !self.waiting.enter() {
            return self.answer(call, Answer::Errno(libc::EAGAIN)).map(drop);
        }
        let (desk, copied) = (self.clone(), *call);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            let answer = desk.wait_to_send(&copied, &mut sending);
            drop(sending);
            desk.waiting.leave();
            if !desk.ending.load(Ordering::SeqCst) {
                let _ = desk.answer(&copied, counted(&copied, answer, length_at));
            }
        });
        if thread.is_err() {
            self.waiting.leave();
            return self.answer(call, Answer::Errno(libc::EAGAIN)).map(drop);
        }
        Ok(())
    }

    /// Sends until everything is sent, the program's send timeout is over, or a signal interrupts the call.
    fn wait_to_send(&self, call: &Call, sending: &mut Sending) -> Answer {
        let (began, timeout, mut signals) = (Instant::now(), sending.timeout(), Signals::of(call.tid));
        let stopped = |sending: &Sending, errno: i32| match sending.sent {
            0 => Answer::Errno(errno),
            sent => Answer::Value(sent as i64),
        };
        loop {
            sending.pause();
            if let Some(answer) = sending.attempt(call, &|| self.still_waits(call)) {
                return answer;
            }
            if timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
                return stopped(sending, libc::EAGAIN);
            }
            if let Some(errno) = signals.errno() {
                // With a send timeout the kernel does not make the call again.
                return stopped(sending, if timeout.is_some() { libc::EINTR } else { errno });
            }
            if !self.still_waits(call) {
                return Answer::Errno(libc::EINTR);
            }
        }
    }

    /// sendmmsg(2): the first message as sendmsg, and the others as far as there is room.
    fn send_many(self: &Arc<Desk>, call: &Call, decision: Decision) -> io::Result<()> {
        let target = Target { tid: call.tid };
        let (count, flags) = (u64::from(call.args[2] as u32).min(MOST_PIECES), call.args[3] as i32);
        let at = |index: u64| call.args[1].wrapping_add(index * STRIDE);
        let mut sent = 0;
        while sent < count {
            // Only the first one waits for room.
            let flags = if sent == 0 { flags } else { flags | libc::MSG_DONTWAIT };
            let judged = Header::read(&target, at(sent)).and_then(|header| self.judge_message(call, header, flags));
            let length_at = at(sent).wrapping_add(HEADER as u64);
            let done = match judged {
                Ok(Judged::Send(sending)) if sent == 0 && count == 1 => {
                    return self.send_made(call, sending, Some(length_at));
                }
                Ok(Judged::Send(mut sending)) => match sending.attempt(call, &|| self.still_waits(call)) {
                    None if sent == 0 => return self.send_made(call, sending, Some(length_at)),
                    done => done,
                },
                _ if sent == 0 => {
                    return self.send_first(call, decision, Header::read(&target, at(0)), flags, Some(length_at));
                }
                _ => None,
            };
            match done.map(|answer| counted_length(call, answer, length_at)) {
                Some(Answer::Value(_)) => sent += 1,
                Some(answer) if sent == 0 => return self.answer(call, answer).map(drop),
                _ => break,
            }
        }
        self.answer(call, Answer::Value(sent as i64)).map(drop)
    }
}

/// The answer of the whole call: of sendmmsg the number of messages.
fn counted(call: &Call, answer: Answer, length_at: Option<u64>) -> Answer {
    match (answer, length_at) {
        (Answer::Value(_), Some(at)) => match counted_length(call, answer, at) {
            Answer::Value(_) => Answer::Value(1),
            other => other,
        },
        (answer, _) => answer,
    }
}

/// Writes the length of a message that was sent into the program's struct mmsghdr.
fn counted_length(call: &Call, answer: Answer, at: u64) -> Answer {
    let Answer::Value(length) = answer else { return answer };
    match process::write_memory(call.tid, at, &(length as u32).to_ne_bytes()) {
        Ok(()) => answer,
        Err(_) => Answer::Errno(libc::EFAULT),
    }
}
