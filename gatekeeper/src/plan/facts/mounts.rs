//! The mounts that this thread sees.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, statat};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

/// A list of mounts that is watched.
struct Watched {
    file: File,
    /// The mount namespace.
    of: (u64, u64),
    generation: u64,
}

static WATCHED: Mutex<Option<Watched>> = Mutex::new(None);

/// A number that grows with each change of the mounts, of their flags as well (proc_pid_mountinfo(5)), and when another namespace
/// is entered. `None`: they cannot be watched.
pub fn generation() -> Option<u64> {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let of = statat(CWD, "/proc/thread-self/ns/mnt", AtFlags::empty()).ok()?;
    let of = (of.st_dev, of.st_ino);
    if watched.as_ref().is_none_or(|watched| watched.of != of) {
        let generation = watched.as_ref().map_or(0, |watched| watched.generation + 1);
        *watched = Some(Watched { file: File::open("/proc/thread-self/mountinfo").ok()?, of, generation });
    }
    let watched = watched.as_mut()?;
    let mut polled = [PollFd::new(&watched.file, PollFlags::PRI)];
    if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).ok()? > 0 {
        watched.generation += 1;
    }
    Some(watched.generation)
}
