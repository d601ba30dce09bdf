//! The few files of /proc that the sandbox of a browser writes, opened for it here.
//!
//! A process that has made a user namespace maps its own ids in it, and a browser lets the kernel kill its pages before
//! itself. Landlock could grant that only together with all of /proc: for root that is every setting of the machine, for a
//! user every process of theirs. So nothing of /proc is granted, and exactly these files are opened by the supervisor.

use super::target::{Memory, Target};
use crate::sys::ids;
use crate::sys::notify::Call;
use crate::trust::{by_descriptor, place};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

/// Of the calling process alone.
const OWN: [&str; 3] = ["uid_map", "gid_map", "setgroups"];
/// Of the calling process alone, and no map: a browser sets its peak of memory back.
const PLAIN: &str = "clear_refs";
/// Of every process of the run.
const SCORE: &str = "oom_score_adj";

/// What the program that called gets.
pub enum Answered {
    File(Opened),
    /// Refused, and not recorded. A browser counts its children in a PID namespace of their own and looks for them by those
    /// numbers in a /proc where they mean others.
    Refused,
}

/// A file for it.
pub struct Opened {
    pub file: OwnedFd,
    pub close_on_exec: bool,
}

/// What a call opens, if it is one of these files; `None` leaves the call to the other layers, which refuse it.
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
    // From here on the file is held: what its path leads to by now is of no interest.
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

/// Whose file of this process's own /proc it is, and which.
fn named(file: &OwnedFd) -> Option<(i32, String)> {
    // Numbers in the /proc of another PID namespace mean other processes.
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

/// The kernel takes a map from a process in the namespace above the one that is mapped, and from no other.
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

/// Whether both processes are below the same child of this one: the guardian of the run.
fn same_run(one: i32, other: i32) -> bool {
    let guardian = guardian_of(one);
    guardian.is_some() && guardian == guardian_of(other)
}

fn guardian_of(pid: i32) -> Option<i32> {
    let own = std::process::id() as i32;
    let mut at = pid;
    // Deeper than any tree of processes.
    for _ in 0..10_000 {
        let status = std::fs::read_to_string(Path::new("/proc").join(at.to_string()).join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        match parent {
            0 => return None,
            parent if parent == own => return Some(at).filter(|guardian| *guardian != pid),
            parent => at = parent,
        }
    }
    None
}
