//! The files of a stage, its lock and its clock.

use super::StageError;
use super::kept::Description;
use super::lifted::Lifts;
use super::means;
use super::tree::{Dir, Time, is_absent};
use crate::trust::{self, Hostile};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

pub(super) const ABOUT: &str = "stage.json";
pub(super) const BASES: &str = "bases.json";
pub(super) const COPIED: &str = "copied.json";
pub(super) const LOCK: &str = "lock";
pub(super) const UPPER: &str = "upper";
pub(super) const WORK: &str = "work";
pub(super) const COPY: &str = "tree";

pub(super) fn refuse_mounts(tree: &Path) -> Result<(), StageError> {
    let mounts = means::mounts_below(tree).map_err(|error| StageError::io("/proc/self/mountinfo".to_owned(), error))?;
    if mounts.is_empty() {
        return Ok(());
    }
    let shown = crate::plan::paths::shown(&mounts, 5);
    Err(StageError::Unusable(format!(
        "other file systems are mounted inside the working directory, and a stage cannot hold them: {shown}"
    )))
}

pub(super) fn open_tree(tree: &Path) -> Result<Dir, StageError> {
    let failed = |error: io::Error| StageError::io(tree.display().to_string(), error);
    let found = trust::walk(tree, &Hostile::default()).map_err(|error| failed(error.into()))?;
    // The path was real when the stage was made. A link on it now leads to another tree.
    if found.real != tree {
        return Err(failed(Errno::LOOP.into()));
    }
    Ok(Dir::new(found.reopen(OFlags::RDONLY | OFlags::DIRECTORY).map_err(|error| failed(error.into()))?, false))
}

/// Refuses a store in the working directory, or around it. What of its path does not exist yet is made below what does.
pub(super) fn refuse_overlap(store: &Path, tree: &Path) -> Result<(), StageError> {
    let there = |above: &Path| std::fs::canonicalize(above).ok().zip(store.strip_prefix(above).ok());
    let real = store.ancestors().find_map(there).map(|(above, rest)| above.join(rest));
    let real = real.unwrap_or_else(|| store.to_owned());
    if !real.starts_with(tree) && !tree.starts_with(&real) {
        return Ok(());
    }
    Err(StageError::Unusable(format!(
        "the stages are kept in {}, inside the working directory {}, where the command could change them; work in a \
         project directory (--cwd DIR), or set XDG_STATE_HOME to a directory elsewhere",
        real.display(),
        tree.display()
    )))
}

pub(super) fn open_part(directory: &OwnedFd, part: &str, lifts: Option<Arc<Lifts>>) -> io::Result<Dir> {
    let directory = directory.try_clone()?;
    let directory = match lifts {
        Some(lifts) => Dir::of_stage(directory, lifts),
        None => Dir::new(directory, true),
    };
    directory.child(OsStr::new(part))
}

pub(super) fn check_private(directory: &OwnedFd, path: &Path) -> Result<(), StageError> {
    let stat = rustix::fs::fstat(directory).map_err(|error| StageError::io(path.display().to_string(), error))?;
    if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0 {
        return Ok(());
    }
    Err(StageError::Unusable(format!("{}: must belong to you, with mode 0700", path.display())))
}

pub(super) fn remove_below(directory: &OwnedFd, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    Ok(trust::remove::remove_tree(directory.as_fd(), &name)?)
}

pub(super) fn read(directory: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>, StageError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(|error| StageError::io(name, error))?,
    };
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes).map_err(|error| StageError::io(name, error))?;
    Ok(Some(bytes))
}

/// Replaces a file as a whole.
pub(super) fn write(directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(bytes)?;
    Ok(renameat(directory, &new, directory, name)?)
}

pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Description, StageError> {
    serde_json::from_slice(bytes).map_err(|error| StageError::io(damaged(name), io::Error::from(error)))
}

pub(super) fn damaged(name: &str) -> String {
    format!("stage {name} is damaged, and gatekeeper stage discard {name} removes it")
}

/// The holder of a lock, as it writes itself down: its process id, then the command.
pub(super) fn said(command: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let command: String = command.chars().take(200).map(plain).collect();
    format!("{} {command}", std::process::id())
}

/// Writes the holder, and when the run began whose changes are not recorded yet. One write of less than a page: a process
/// that is killed leaves the text before or the text after.
pub(super) fn write_lock(lock: &File, holder: &str, running: Option<Time>) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let running = running.map_or("-".to_owned(), |(seconds, nanoseconds)| format!("{seconds} {nanoseconds}"));
    lock.write_all_at(format!("{holder}\n{running}\n").as_bytes(), 0)
}

/// The holder and the beginning of a run, as `write_lock` wrote them. A longer text of an earlier holder may follow.
pub(super) fn read_lock(lock: &File) -> (String, Option<Time>) {
    use std::os::unix::fs::FileExt;
    let mut text = [0u8; 1024];
    let read = lock.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default()).into_owned();
    let mut lines = text.split('\n');
    let holder = lines.next().unwrap_or_default().to_owned();
    let time = lines.next().and_then(|line| line.split_once(' '));
    let time = time.and_then(|(seconds, nanoseconds)| Some((seconds.parse().ok()?, nanoseconds.parse().ok()?)));
    (holder, time)
}

/// Whether the process that took the lock still exists.
pub(super) fn holds(lock: &File) -> bool {
    let (holder, _) = read_lock(lock);
    let pid = holder.split(' ').next().and_then(|pid| pid.parse::<u32>().ok());
    pid.is_none_or(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

pub(super) fn holder_of(lock: &File) -> String {
    match read_lock(lock).0.split_once(' ') {
        Some((pid, command)) => format!("process {pid} ({command})"),
        None => "another process".to_owned(),
    }
}

pub(super) fn now() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

/// Changes with each start of the machine.
pub(super) fn boot() -> Result<String, StageError> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(FILE).map_err(|error| StageError::io(FILE, error))?;
    Ok(text.trim().to_owned())
}

/// Removes the mark of a volatile overlay, with which the kernel refuses a second mount. What else is in this directory, the
/// kernel removes itself. The directories have no permissions at all.
pub(super) fn forget_volatile(directory: &OwnedFd) -> io::Result<()> {
    let mut at = match Dir::new(directory.try_clone()?, true).child(OsStr::new(WORK)) {
        Err(error) if is_absent(&error) => return Ok(()),
        other => other?,
    };
    let mut above = Vec::new();
    for name in ["work", "incompat", "volatile"] {
        let next = match at.child(OsStr::new(name)) {
            Err(error) if is_absent(&error) => break,
            other => other?,
        };
        above.push((at, name));
        at = next;
    }
    if above.len() == 3 {
        unlink(&at, "dirty", AtFlags::empty())?;
        drop(at);
        while let Some((dir, name)) = above.pop().filter(|(_, name)| *name != "work") {
            unlink(&dir, name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

fn unlink(dir: &Dir, name: &str, flags: AtFlags) -> io::Result<()> {
    match unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Never earlier than the st_ctime of a file that changed before.
pub(super) fn precise_now() -> Time {
    let now = clock_gettime(ClockId::Realtime);
    (now.tv_sec, now.tv_nsec)
}

/// The clock of st_ctime, which moves in steps. Never later than the st_ctime of a file that changes from now on.
pub(super) fn coarse_now() -> Time {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}
