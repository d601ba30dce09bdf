//! connect to a UNIX socket, made by the supervisor in the program's place.
//!
//! Landlock does not see it below ABI 9, and a docker.sock is root. The socket file is opened here, where it really is
//! decides, and the program's own socket is connected to that very file.

use super::target::{Target, by_descriptor, place};
use crate::sys::notify::{Answer, Call};
use rustix::fs::FileType;
use rustix::net::SocketAddrUnix;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is to be done about a connect.
pub enum Connect {
    Answered(Answer),
    /// Refused, with the socket's file if it has one.
    Refused(Option<PathBuf>),
    /// To be made on this socket, to this file.
    Make {
        socket: OwnedFd,
        file: OwnedFd,
    },
}

const LONGEST_ADDRESS: usize = 128;
const FAMILY: usize = 2;

/// Judges a connect of a program that has no network: only sockets in these trees, and these listed, are reachable.
pub fn judge(call: &Call, trees: &[PathBuf]) -> Connect {
    let target = Target { tid: call.tid };
    match try_judge(call, &target, trees) {
        Ok(connect) => connect,
        Err(error) => Connect::Answered(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))),
    }
}

fn try_judge(call: &Call, target: &Target, trees: &[PathBuf]) -> io::Result<Connect> {
    let size = (call.args[2] as usize).min(LONGEST_ADDRESS);
    let address = target.bytes(call.args[1], size)?;
    let Some((family, name)) = address.split_at_checked(FAMILY) else {
        return Ok(Connect::Answered(Answer::Errno(libc::EINVAL)));
    };
    if family != (libc::AF_UNIX as u16).to_ne_bytes() {
        return Ok(Connect::Refused(None));
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
        return Ok(Connect::Refused(Some(at)));
    }
    Ok(Connect::Make { socket: target.descriptor(call.args[0] as i32)?, file })
}

/// Makes the connection; may wait for the other side.
pub fn make(socket: &OwnedFd, file: &OwnedFd) -> Answer {
    let connected = SocketAddrUnix::new(by_descriptor(file)).and_then(|address| rustix::net::connect(socket, &address));
    match connected {
        Ok(()) => Answer::Value(0),
        Err(error) => Answer::Errno(error.raw_os_error()),
    }
}
