//! connect, made by the supervisor in the program's place.
//!
//! Landlock does not see UNIX sockets below ABI 9, and a docker.sock is root. The socket file is opened here, where it
//! really is decides, and the program's own socket is connected to that very file. An internet address is copied once,
//! and the copy is what the socket is connected to: letting the program's own call go on would let it change its mind.

use super::target::{Target, by_descriptor, place};
use crate::sys::notify::{Answer, Call};
use rustix::fs::FileType;
use rustix::net::SocketAddrUnix;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is to be done about a connect.
pub enum Connect {
    Answered(Answer),
    /// Refused, with the socket's file if it has one.
    Refused(Option<PathBuf>),
    Make(Connection),
}

/// One to be made on this socket.
pub struct Connection {
    socket: OwnedFd,
    to: To,
}

enum To {
    File(OwnedFd),
    /// A socket address as the program gave it.
    Address(Vec<u8>),
}

/// Services that answer for users and hosts, asked by the C library before it reads the files itself. What they know
/// would come from outside the sandbox, and their absence is no violation: they are as if they did not run.
const NAME_SERVICES: [&str; 3] = ["/run/nscd", "/run/systemd/userdb", "/run/systemd/resolve"];

const LONGEST_ADDRESS: usize = 128;
const FAMILY: usize = 2;

/// Judges a connect: only sockets in these trees, and these listed, are reachable, and the internet where it is granted.
pub fn judge(call: &Call, trees: &[PathBuf], internet: bool) -> Connect {
    let target = Target { tid: call.tid };
    match try_judge(call, &target, trees, internet) {
        Ok(connect) => connect,
        Err(error) => Connect::Answered(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))),
    }
}

fn try_judge(call: &Call, target: &Target, trees: &[PathBuf], internet: bool) -> io::Result<Connect> {
    let size = (call.args[2] as usize).min(LONGEST_ADDRESS);
    let address = target.bytes(call.args[1], size)?;
    let Some((family, name)) = address.split_at_checked(FAMILY) else {
        return Ok(Connect::Answered(Answer::Errno(libc::EINVAL)));
    };
    let family = u16::from_ne_bytes([family[0], family[1]]);
    if i32::from(family) != libc::AF_UNIX {
        let is_granted =
            matches!(i32::from(family), libc::AF_INET | libc::AF_INET6 | libc::AF_NETLINK | libc::AF_UNSPEC);
        if !internet || !is_granted {
            return Ok(Connect::Refused(None));
        }
        let socket = target.descriptor(call.args[0] as i32)?;
        return Ok(Connect::Make(Connection { socket, to: To::Address(address) }));
    }
    // An abstract name begins with a NUL, and is reachable from anywhere: none of ours.
    if name.first().is_none_or(|byte| *byte == 0) {
        return Ok(Connect::Refused(None));
    }
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let file = target.open(libc::AT_FDCWD, Path::new(OsStr::from_bytes(name)), true)?;
    let at = place(&file)?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_socket() {
        return Ok(Connect::Answered(Answer::Errno(libc::ECONNREFUSED)));
    }
    if !trees.iter().any(|top| at.starts_with(top)) {
        if NAME_SERVICES.iter().any(|service| at.starts_with(service)) {
            return Ok(Connect::Answered(Answer::Errno(libc::ECONNREFUSED)));
        }
        return Ok(Connect::Refused(Some(at)));
    }
    Ok(Connect::Make(Connection { socket: target.descriptor(call.args[0] as i32)?, to: To::File(file) }))
}

impl Connection {
    /// Whether making it may wait for the other side.
    pub fn waits(&self) -> bool {
        !rustix::fs::fcntl_getfl(&self.socket).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    pub fn make(&self) -> Answer {
        let connected = match &self.to {
            To::File(file) => SocketAddrUnix::new(by_descriptor(file))
                .and_then(|address| rustix::net::connect(&self.socket, &address))
                .map_err(io::Error::from),
            To::Address(address) => crate::sys::socket::connect(self.socket.as_fd(), address),
        };
        match connected {
            Ok(()) => Answer::Value(0),
            Err(error) => Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM)),
        }
    }
}
