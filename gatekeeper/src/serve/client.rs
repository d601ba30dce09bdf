//! Who may give orders through the socket file: processes of the same user that are confined no more than the server.
//!
//! A confined command that could give orders would be as free as the server. The supervisor makes the connections of its command, so
//! the process that connected is often that supervisor. It is known by its thread that makes calls for the command.

use crate::supervise::clerk::CLERK;
use crate::supervise::status::Status;
use crate::sys::socket;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Why this client is not served.
pub(super) fn refusal(client: &UnixStream) -> Option<&'static str> {
    let Ok((pid, uid)) = socket::peer(client.as_fd()) else { return Some(UNKNOWN) };
    if uid != rustix::process::geteuid().as_raw() {
        return Some("the socket serves only the user who started the server");
    }
    match is_confined(pid) {
        Ok(false) => None,
        Ok(true) => Some(CONFINED),
        Err(_) => Some(UNKNOWN),
    }
}

const CONFINED: &str =
    "a confined command may not give orders to this server: they would run with the rights of the server";
const UNKNOWN: &str = "the process that connected is not to be seen here: it has ended, or is in another PID namespace";

/// Whether a process is confined more than this one, or makes calls for a command that is.
fn is_confined(pid: i32) -> io::Result<bool> {
    let own = std::process::id() as i32;
    Ok(pid == own || Confinement::of(pid)?.exceeds(&Confinement::of(own)?) || supervises(pid)?)
}

/// What a process cannot get rid of: no_new_privs, and the number of its filters.
struct Confinement {
    no_new_privs: u32,
    filters: u32,
}

impl Confinement {
    fn of(pid: i32) -> io::Result<Confinement> {
        let status = Status::of(pid)?;
        let missing = || io::Error::from(io::ErrorKind::InvalidData);
        let no_new_privs = status.number("NoNewPrivs").ok_or_else(missing)?;
        // Kernels before 5.9 do not count the filters: the mode is 2 if there is one.
        let filters = status.number("Seccomp_filters").or_else(|| status.number("Seccomp")).ok_or_else(missing)?;
        Ok(Confinement { no_new_privs, filters })
    }

    fn exceeds(&self, other: &Confinement) -> bool {
        self.no_new_privs > other.no_new_privs || self.filters > other.filters
    }
}

/// Whether the process answers the calls of a command.
fn supervises(pid: i32) -> io::Result<bool> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = std::fs::read(thread?.path().join("comm"));
        // A thread that has ended since has made no call that still waits.
        if name.is_ok_and(|name| name.trim_ascii_end() == CLERK.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}
