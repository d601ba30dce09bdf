//! Opens for a browser the few files in /proc that its own sandbox writes.
//!
//! A process that has created a user namespace writes its ID maps, and a browser raises the OOM score of its renderers.
//! Landlock could grant that only together with all of /proc: every process of the user and, as root, every sysctl. So
//! /proc stays closed, and the supervisor opens exactly these files.

use super::status::Status;
use super::target::{Memory, Target};
use crate::sys::ids;
use crate::sys::notify::Call;
use crate::trust::{by_descriptor, place};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Component;

/// Files of the calling process only.
const OWN: [&str; 3] = ["uid_map", "gid_map", "setgroups"];
/// Likewise, but not an ID map: a browser resets its peak memory.
const PLAIN: &str = "clear_refs";
/// A file of any process of the run.
const SCORE: &str = "oom_score_adj";

/// The answer to the call.
pub enum Answered {
    File(Opened),
    /// Refused without a record. A browser knows its children by their PIDs in a nested namespace, which mean other
    /// processes in this /proc.
    Refused,
}

/// A file to pass to the program.
pub struct Opened {
    pub file: OwnedFd,
    pub close_on_exec: bool,
}

/// Opens the file, if it is one of these. `None` leaves the call to the path layers, which refuse it.
pub fn open(call: &Call) -> Option<Answered> {
    let (directory, path, flags) = match i64::from(call.number) {
        libc::SYS_openat => (call.args[0] as i32, call.args[1], call.args[2] as i32),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (libc::AT_FDCWD, call.args[0], call.args[1] as i32),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => (libc::AT_FDCWD, call.args[0], libc::O_WRONLY),
        _ => return None,
    };
    if flags & libc::O_ACCMODE != libc::O_WRONLY {
        return None;
    }
    let target = Target { tid: call.tid };
    let path = target.path(path).ok()?;
    let known = |name: &str| OWN.contains(&name) || name == PLAIN || name == SCORE;
    path.file_name()?.to_str().filter(|name| known(name))?;
    // From here on only the descriptor counts, not what the path leads to by now.
    let file = target.open(directory, &path, true).ok()?;
    let (pid, name) = named(&file)?;
    let own = pid == call.tid || pid == target.pid().ok()?;
    let file = match name.as_str() {
        SCORE if same_run(pid, call.tid) => reopen(&file).ok()?,
        SCORE => return Some(Answered::Refused),
        PLAIN if own => reopen(&file).ok()?,
        name if own && OWN.contains(&name) => open_map(&target, &file).ok()?,
        _ => return None,
    };
    Some(Answered::File(Opened { file, close_on_exec: flags & libc::O_CLOEXEC != 0 }))
}

/// The PID and the name of a file in /proc/PID.
fn named(file: &OwnedFd) -> Option<(i32, String)> {
    // In the /proc of another PID namespace the PIDs mean other processes.
    let device = std::fs::metadata("/proc").ok()?.dev();
    if rustix::fs::fstat(file).ok()?.st_dev != device {
        return None;
    }
    let at = place(file).ok()?;
    let below: Vec<&str> = at
        .strip_prefix("/proc")
        .ok()?
        .components()
        .map(|part| if let Component::Normal(name) = part { name.to_str() } else { None })
        .collect::<Option<_>>()?;
    match below[..] {
        [pid, name] | [_, "task", pid, name] => Some((pid.parse().ok()?, name.to_owned())),
        _ => None,
    }
}

/// Opens an ID map. The kernel checks that the file was opened in the parent of the namespace to be mapped.
fn open_map(target: &Target, file: &OwnedFd) -> io::Result<OwnedFd> {
    let made = File::open(format!("/proc/{}/ns/user", target.tid))?;
    let above = ids::parent_of(made.as_fd())?;
    let own = std::fs::metadata("/proc/self/ns/user")?;
    let stat = rustix::fs::fstat(&above)?;
    match (stat.st_dev, stat.st_ino) == (own.dev(), own.ino()) {
        true => reopen(file),
        false => ids::open_from(above.as_fd(), file.as_fd()),
    }
}

fn reopen(file: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(by_descriptor(file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether both processes belong to the same run, that is, have the same guardian, which is a child of this process.
fn same_run(one: i32, other: i32) -> bool {
    let guardian = guardian_of(one);
    guardian.is_some() && guardian == guardian_of(other)
}

fn guardian_of(pid: i32) -> Option<i32> {
    let own = std::process::id() as i32;
    let mut at = pid;
    // More generations than any process tree has.
    for _ in 0..10_000 {
        match Status::of(at).ok()?.number("PPid")? {
            0 => return None,
            parent if parent == own => return Some(at).filter(|guardian| *guardian != pid),
            parent => at = parent,
        }
    }
    None
}
