//! The proxy's door: it lets in only connections that the supervisor has announced, so that other users of this machine
//! who find the port are turned away.
//!
//! A connection is known by its source address. The kernel may give that address to another process later, so an
//! announcement counts for one connection, and only for a short time.

use super::gate::Guest;
use super::listens::Listens;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long an announced connection may take to arrive. On loopback it arrives at once, unless the accept queue is
/// full: then the client retransmits its SYN after 1, 3 and 7 seconds.
const LIFETIME: Duration = Duration::from_secs(10);

/// Connections that the supervisor has announced and the proxy has not accepted yet.
#[derive(Clone, Default)]
pub struct Door {
    announced: Arc<Mutex<HashMap<SocketAddr, Announced>>>,
    /// The listen calls that the supervisor has made for the command.
    pub listens: Listens,
}

struct Announced {
    guest: Guest,
    at: Instant,
}

impl Door {
    /// Announces a connection from this address and makes it by `connect`. If that fails, the announcement is
    /// withdrawn. `failed` is asked whether an attempt that is in progress has failed already.
    pub fn announce(
        &self,
        from: SocketAddr,
        guest: Guest,
        connect: impl FnOnce() -> io::Result<()>,
        failed: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let repeated = self.announced().insert(from, Announced { guest, at: Instant::now() }).is_some();
        let connected = connect();
        let withdraw = match connected.as_ref().map_err(io::Error::raw_os_error) {
            Ok(()) => false,
            Err(Some(libc::EINPROGRESS | libc::EINTR)) => failed(),
            // connect(2) called again on the same socket: the first announcement, if the proxy has not used it yet,
            // stays.
            Err(Some(libc::EALREADY | libc::EISCONN)) => !repeated,
            Err(_) => true,
        };
        if withdraw {
            self.announced().remove(&from);
        }
        connected
    }

    /// Uses up the announcement of a connection that arrived.
    pub(super) fn enter(&self, from: SocketAddr) -> Option<Guest> {
        let announced = self.announced().remove(&from)?;
        announced.counts().then_some(announced.guest)
    }

    /// Does not count time in which the proxy accepted nothing: announced connections waited in the accept queue. Also
    /// forgets announcements that have expired.
    pub(super) fn paused(&self, time: Duration) {
        self.announced().retain(|_, announced| {
            announced.at += time;
            announced.counts()
        });
    }

    fn announced(&self) -> MutexGuard<'_, HashMap<SocketAddr, Announced>> {
        self.announced.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Announced {
    fn counts(&self) -> bool {
        self.at.elapsed() < LIFETIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from() -> SocketAddr {
        "127.0.0.1:4000".parse().expect("an address")
    }

    fn announce(door: &Door, errno: Option<i32>, failed: bool) {
        let connect = || errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)));
        let _ = door.announce(from(), Guest::default(), connect, || failed);
    }

    fn enters(door: &Door) -> bool {
        door.enter(from()).is_some()
    }

    fn age(door: &Door, by: Duration) {
        door.announced()
            .values_mut()
            .for_each(|announced| announced.at = announced.at.checked_sub(by).expect("uptime"));
    }

    #[test]
    fn an_announcement_lets_one_connection_in() {
        let door = Door::default();
        announce(&door, None, false);
        assert!(enters(&door));
        assert!(!enters(&door), "used");
    }

    #[test]
    fn an_announcement_expires() {
        for errno in [None, Some(libc::EINPROGRESS)] {
            let door = Door::default();
            announce(&door, errno, false);
            age(&door, LIFETIME / 2);
            door.paused(Duration::ZERO);
            assert_eq!(door.announced().len(), 1);
            age(&door, LIFETIME / 2);
            assert!(!enters(&door), "{errno:?}");
            announce(&door, errno, false);
            age(&door, LIFETIME);
            door.paused(Duration::ZERO);
            assert_eq!(door.announced().len(), 0);
        }
    }

    #[test]
    fn time_in_the_accept_queue_does_not_count() {
        let door = Door::default();
        announce(&door, None, false);
        age(&door, LIFETIME * 2);
        door.paused(LIFETIME * 2);
        assert!(enters(&door));
    }

    #[test]
    fn a_failed_attempt_lets_nobody_in() {
        for (errno, failed) in [(libc::ECONNREFUSED, false), (libc::EINPROGRESS, true), (libc::EINTR, true)] {
            let door = Door::default();
            announce(&door, Some(errno), failed);
            assert!(!enters(&door), "{errno}");
        }
    }

    #[test]
    fn a_repeated_connect_keeps_the_first_announcement_and_makes_no_second() {
        for again in [libc::EALREADY, libc::EISCONN] {
            let door = Door::default();
            announce(&door, Some(libc::EINPROGRESS), false);
            announce(&door, Some(again), false);
            assert!(enters(&door), "{again}: the proxy had not accepted it yet");
            announce(&door, Some(again), false);
            assert!(!enters(&door), "{again}: the proxy had accepted it");
        }
    }
}
