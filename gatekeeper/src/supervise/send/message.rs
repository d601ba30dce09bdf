//! Reads a message that a program wants to send from its memory, and what goes with it.

use crate::supervise::status::Status;
use crate::supervise::target::{Memory, Target};
use crate::sys::notify::Call;
use crate::sys::outgoing;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// sizeof(struct sockaddr_storage)
const LONGEST_NAME: usize = 128;
/// sizeof(struct msghdr)
pub(super) const HEADER: usize = 56;
/// UIO_MAXIOV, which is also the most messages of one sendmmsg.
pub(super) const MOST_PIECES: u64 = 1024;
const LONGEST_CONTROL: usize = 20_480;
/// Extension headers, for which the kernel wants CAP_NET_RAW (ipv6(7)).
const NEED_NET_RAW: [i32; 5] =
    [libc::IPV6_2292HOPOPTS, libc::IPV6_2292DSTOPTS, libc::IPV6_HOPOPTS, libc::IPV6_RTHDRDSTOPTS, libc::IPV6_DSTOPTS];
/// SCM_MAX_FD
const MOST_DESCRIPTORS: usize = 253;

pub(super) fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// A message in the program's memory: addresses and lengths.
pub(super) struct Header {
    pub(super) name: (u64, u32),
    pub(super) pieces: Vec<(u64, usize)>,
    pub(super) control: (u64, usize),
}

impl Header {
    pub(super) fn of_sendto(call: &Call) -> io::Result<Header> {
        let name = (call.args[4], call.args[5] as u32);
        if name.1 as usize > LONGEST_NAME {
            return Err(errno(libc::EINVAL));
        }
        Ok(Header { name, pieces: vec![(call.args[1], call.args[2] as usize)], control: (0, 0) })
    }

    /// Reads a struct msghdr.
    pub(super) fn read(target: &Target, at: u64) -> io::Result<Header> {
        let bytes = target.exactly(at, HEADER)?;
        let word =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word));
        let (count, controls) = (word(24), word(40) as usize);
        if count > MOST_PIECES {
            return Err(errno(libc::EMSGSIZE));
        }
        if (word(8) as i32) < 0 {
            return Err(errno(libc::EINVAL));
        }
        if controls > LONGEST_CONTROL {
            return Err(errno(libc::ENOBUFS));
        }
        let pieces = target.exactly(word(16), count as usize * 16)?;
        let pieces = pieces.chunks_exact(16).map(|piece| {
            let half = |at: usize| {
                piece.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |half| u64::from_ne_bytes(*half))
            };
            (half(0), half(8) as usize)
        });
        let control = (word(32), if word(32) == 0 { 0 } else { controls });
        Ok(Header { name: (word(0), (word(8) as u32).min(LONGEST_NAME as u32)), pieces: pieces.collect(), control })
    }
}

/// The control messages to send in the program's place. Descriptors become copies; credentials, which must be the
/// program's own, are left to the kernel. To internet sockets they are options of the packet, and go on as they are.
pub(super) fn controls(target: &Target, bytes: &[u8], family: i32) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut control, mut passed) = (Vec::new(), Vec::new());
    for (level, kind, data) in outgoing::controls(bytes).ok_or_else(|| errno(libc::EINVAL))? {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) if family == libc::AF_UNIX => {
                if passed.len() + data.len() / 4 > MOST_DESCRIPTORS {
                    return Err(errno(libc::EINVAL));
                }
                let mut numbers = Vec::with_capacity(data.len());
                for number in data.chunks_exact(4) {
                    let number = number.first_chunk().map_or(-1, |number| i32::from_ne_bytes(*number));
                    let copy = target.descriptor(number)?;
                    numbers.extend_from_slice(&copy.as_raw_fd().to_ne_bytes());
                    passed.push(copy);
                }
                control.extend(outgoing::control(level, kind, &numbers));
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => are_own(target, data)?,
            // The kernel would ask for our capability, not for the program's.
            (libc::SOL_SOCKET, _) => return Err(errno(libc::EPERM)),
            (libc::IPPROTO_IPV6, kind) if NEED_NET_RAW.contains(&kind) => return Err(errno(libc::EPERM)),
            _ if matches!(family, libc::AF_INET | libc::AF_INET6) => {
                control.extend(outgoing::control(level, kind, data))
            }
            // Ignored by the kernel too.
            _ => {}
        }
    }
    Ok((control, passed))
}

/// Whether a struct ucred names the sending process, as the kernel demands of a process without privileges.
fn are_own(target: &Target, data: &[u8]) -> io::Result<()> {
    let field = |at: usize| data.get(at..).and_then(|rest| rest.first_chunk()).map(|field| u32::from_ne_bytes(*field));
    let (Some(pid), Some(uid), Some(gid), 12) = (field(0), field(4), field(8), data.len()) else {
        return Err(errno(libc::EINVAL));
    };
    let status = Status::of(target.tid)?;
    let has =
        |name: &str, id: u32| status.words(name).is_some_and(|mut words| words.any(|word| word.parse() == Ok(id)));
    if status.number("Tgid") == Some(pid) && has("Uid", uid) && has("Gid", gid) {
        Ok(())
    } else {
        Err(errno(libc::EPERM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_take_capabilities_are_not_sent() {
        let own = Target { tid: std::process::id() as i32 };
        let sent = |level: i32, kind: i32| {
            let control = outgoing::control(level, kind, &[0; 8]);
            controls(&own, &control, libc::AF_INET6).map(|(sent, _)| sent == control).map_err(|e| e.raw_os_error())
        };
        for kind in NEED_NET_RAW {
            assert_eq!(sent(libc::IPPROTO_IPV6, kind), Err(Some(libc::EPERM)), "{kind}");
        }
        assert_eq!(sent(libc::SOL_SOCKET, libc::SO_MARK), Err(Some(libc::EPERM)));
        assert_eq!(sent(libc::IPPROTO_IPV6, libc::IPV6_TCLASS), Ok(true));
        assert_eq!(
            sent(libc::IPPROTO_IP, libc::IPV6_HOPOPTS),
            Ok(true),
            "a number means another option on another level"
        );
    }
}
