//! Who may give orders through the socket file: processes of the same user that are confined no more than the server.
//!
//! A confined command that could give orders would be as free as the server. The supervisor makes the connections of its command, so
//! the process that connected is often that supervisor. It is known by its thread that makes calls for the command.
//!
//! A command without a supervisor is known by no_new_privs or, if the server itself has that, by its number of filters: each command has at
//! least one, if only as a mark ([`crate::plan::Seccomp::Off`]).

use crate::supervise::clerk::CLERK;
use crate::supervise::status::Status;
use crate::sys::{seccomp, socket};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Why this client is not served.
pub(super) fn refusal(client: &UnixStream) -> Option<&'static str> {
    let Ok((pid, uid)) = socket::peer(client.as_fd()) else { return Some(UNKNOWN) };
    if uid != rustix::process::geteuid().as_raw() {
        return Some("the socket serves only the user who started the server");
    }
    is_confined(pid).unwrap_or(Some(UNKNOWN))
}

const CONFINED: &str =
    "a confined command may not give orders to this server: they would run with the rights of the server";
const UNKNOWN: &str = "the process that connected is not to be seen here: it has ended, or is in another PID namespace";
const ALIKE: &str = "the server cannot tell confined commands from other programs: it runs with no_new_privs itself, on a kernel \
                     before 5.9 with a seccomp filter, or where an outer sandbox denies seccomp";

/// Why a process may give no orders: it is confined more than this one, makes calls for a command that is, or could be.
fn is_confined(pid: i32) -> io::Result<Option<&'static str>> {
    let own = std::process::id() as i32;
    let (client, server) = (Confinement::of(pid)?, Confinement::of(own)?);
    if pid == own || client.exceeds(&server) || supervises(pid)? {
        return Ok(Some(CONFINED));
    }
    Ok((!server.tells_apart(|| seccomp::probe().is_ok())).then_some(ALIKE))
}

/// What a process cannot get rid of: no_new_privs, and its filters.
#[derive(Debug, Clone, Copy)]
struct Confinement {
    no_new_privs: u32,
    filtered: bool,
    /// How many filters it has. `None`: this kernel, before 5.9, does not count them.
    filters: Option<u32>,
}

impl Confinement {
    fn of(pid: i32) -> io::Result<Confinement> {
        let status = Status::of(pid)?;
        let missing = || io::Error::from(io::ErrorKind::InvalidData);
        let no_new_privs = status.number("NoNewPrivs").ok_or_else(missing)?;
        let filtered = status.number::<u32>("Seccomp").ok_or_else(missing)? != 0;
        Ok(Confinement { no_new_privs, filtered, filters: status.number("Seccomp_filters") })
    }

    fn exceeds(&self, other: &Confinement) -> bool {
        let filtered = self.filtered && !other.filtered;
        self.no_new_privs > other.no_new_privs || filtered || self.filters > other.filters
    }

    /// Whether every command started by gatekeeper exceeds a server that is confined like this.
    fn tells_apart(&self, loads_filters: impl FnOnce() -> bool) -> bool {
        self.no_new_privs == 0 || (self.filters.is_some() || !self.filtered) && loads_filters()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_exceeds_every_server_that_tells_them_apart() {
        let (mut told, mut alike) = (0, 0);
        for (no_new_privs, own_filters, counts) in [0, 1]
            .into_iter()
            .flat_map(|nnp| [0, 1, 3].map(|filters| [true, false].map(|counts| (nnp, filters, counts))))
            .flatten()
        {
            let counted = |filters: u32| counts.then_some(filters);
            let server = Confinement { no_new_privs, filtered: own_filters > 0, filters: counted(own_filters) };
            let command = Confinement { no_new_privs: 1, filtered: true, filters: counted(own_filters + 1) };
            if server.tells_apart(|| true) {
                assert!(command.exceeds(&server), "{server:?}");
                assert!(!server.exceeds(&server), "{server:?}");
                told += 1;
            } else {
                assert!(!command.exceeds(&server), "{server:?}");
                alike += 1;
            }
            // A command that could not be marked.
            let unmarked = Confinement { no_new_privs: 1, ..server };
            assert!(unmarked.exceeds(&server) || !server.tells_apart(|| false), "{server:?}");
        }
        assert_eq!((told, alike), (10, 2));
    }
}
