//! Keeps the proxy from taking a listener of the command for a service of this machine.
//!
//! The proxy sends secrets to ports of this machine where the command must not listen. But which port a socket listens on is
//! certain only once it listens: another thread may bind it to another one until then, and accept a connection before the
//! supervisor has looked and closed it. So the supervisor counts such calls, and the proxy uses no connection that was made
//! while one of them was under way.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// How often the proxy connects again.
const TRIES: usize = 100;

/// The calls of listen(2) so far. Locked while one is under way.
#[derive(Clone, Default)]
pub struct Listens(Arc<Mutex<u64>>);

impl Listens {
    /// Listens, and checks the port before it returns.
    pub fn count<T>(&self, listen: impl FnOnce() -> T) -> T {
        let mut count = self.count_now();
        *count += 1;
        listen()
    }

    /// Makes a connection that no listener of the command has got, because none was there.
    pub fn apart<T>(&self, mut connect: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..TRIES {
            let before = *self.count_now();
            let connected = connect()?;
            if *self.count_now() == before {
                return Ok(connected);
            }
        }
        Err(io::Error::other("the command kept listening, perhaps on this port"))
    }

    fn count_now(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_during_a_listen_is_made_again() {
        let listens = Listens::default();
        let mut tries = 0;
        let connected = listens.apart(|| {
            tries += 1;
            if tries < 3 {
                listens.count(|| ());
            }
            Ok(tries)
        });
        assert_eq!(connected.expect("the third try"), 3);
    }

    #[test]
    fn no_connection_is_used_if_the_command_keeps_listening() {
        let listens = Listens::default();
        let mut tries = 0;
        let connected = listens.apart(|| {
            tries += 1;
            listens.count(|| ());
            Ok(())
        });
        assert_eq!((connected.map_err(|error| error.kind()), tries), (Err(io::ErrorKind::Other), TRIES));
        let refused = listens.apart(|| Err::<(), _>(io::Error::from_raw_os_error(libc::ECONNREFUSED)));
        assert_eq!(refused.expect_err("as it failed").raw_os_error(), Some(libc::ECONNREFUSED));
    }
}
