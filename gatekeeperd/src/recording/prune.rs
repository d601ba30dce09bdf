//! Removes recordings whose time is over, and what a killed daemon left of transient ones.

use super::{FOLDER, MODE, is_picture};
use rustix::fs::{self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub sessions: usize,
    pub pictures: usize,
}

/// Removes audit pictures that are older than `kept`. Younger ones are never removed, whatever they take: the quota refuses
/// new ones instead, so that a tenant cannot push out the evidence of another. The directory of an open session stays, for
/// its next picture. Can be repeated at any time.
pub fn clean(dir: &Path, kept: Duration) -> io::Result<Pruned> {
    let root = match fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(root) => root,
        Err(rustix::io::Errno::NOENT) => return Ok(Pruned::default()),
        Err(error) => return Err(error.into()),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let oldest = i64::try_from(now.saturating_sub(kept).as_secs()).unwrap_or(i64::MAX);
    let mut pruned = Pruned::default();
    for tenant in names(&root) {
        let Ok(above) = fs::openat(&root, &tenant, FOLDER, Mode::empty()) else { continue };
        for session in names(&above) {
            let Ok(opened) = fs::openat(&above, &session, FOLDER, Mode::empty()) else { continue };
            // The recorder of an open session, of whatever daemon, holds a lock. A new one waits for ours.
            let open = fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err();
            pruned.pictures += remove_older(&opened, oldest, open);
            if !open && fs::unlinkat(&above, &session, AtFlags::REMOVEDIR).is_ok() {
                pruned.sessions += 1;
            }
        }
        // Only an empty one goes.
        let _ = fs::unlinkat(&root, &tenant, AtFlags::REMOVEDIR);
    }
    Ok(pruned)
}

/// Removes what a killed daemon left of a transient recording. Audit material stays, whatever the caller believes.
pub fn discard(dir: &Path, tenant: &str, session: &str) {
    let Ok(Some(opened)) = super::open_session(dir, tenant, session) else { return };
    if mode(&opened).as_deref() != Some("transient") {
        return;
    }
    clear(&opened);
    let above = fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|root| fs::openat(&root, tenant, FOLDER, Mode::empty()));
    if let Ok(above) = above {
        let _ = fs::unlinkat(&above, session, AtFlags::REMOVEDIR);
    }
}

/// Removes the half of a picture that a killed daemon was writing. Whole pictures stay.
pub fn tidy(dir: &Path, tenant: &str, session: &str) {
    let Ok(Some(opened)) = super::open_session(dir, tenant, session) else { return };
    for name in names(&opened).iter().filter(|name| name.ends_with(".part")) {
        let _ = fs::unlinkat(&opened, name, AtFlags::empty());
    }
}

/// How long a count of all recordings is good for. There may be a hundred thousand pictures.
const RECOUNT: Duration = Duration::from_secs(10);

/// When a directory was counted, and its bytes then, with the pictures that this process has written since.
static COUNTED: Mutex<BTreeMap<PathBuf, (Instant, u64)>> = Mutex::new(BTreeMap::new());

/// The bytes of all recordings, as of at most ten seconds ago; what this process writes is known at once.
pub fn counted(dir: &Path) -> io::Result<u64> {
    let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, sum)) = counted.get(dir)
        && at.elapsed() < RECOUNT
    {
        return Ok(*sum);
    }
    let sum = used(dir)?;
    counted.insert(dir.to_owned(), (Instant::now(), sum));
    Ok(sum)
}

/// Adds what was just written, and subtracts what was just removed.
pub fn count(dir: &Path, written: u64, removed: u64) {
    if let Some((_, sum)) = COUNTED.lock().unwrap_or_else(PoisonError::into_inner).get_mut(dir) {
        *sum = sum.saturating_add(written).saturating_sub(removed);
    }
}

/// The bytes of all recordings.
fn used(dir: &Path) -> io::Result<u64> {
    let root = fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut sum = 0u64;
    for tenant in names(&root) {
        let Ok(above) = fs::openat(&root, &tenant, FOLDER, Mode::empty()) else { continue };
        for session in names(&above) {
            let Ok(opened) = fs::openat(&above, &session, FOLDER, Mode::empty()) else { continue };
            let size =
                |name: String| fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_size);
            let sizes = names(&opened).into_iter().map(size);
            sum = sum.saturating_add(sizes.map(|size| u64::try_from(size).unwrap_or(0)).sum());
        }
    }
    Ok(sum)
}

/// The names in a directory, without `.` and `..`.
pub fn names(directory: &OwnedFd) -> Vec<String> {
    let Ok(entries) = Dir::read_from(directory) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    names.filter(|name| name != "." && name != "..").collect()
}

/// Removes every file of a directory, and returns how many pictures there were.
pub fn clear(session: &OwnedFd) -> usize {
    let all = names(session);
    for name in &all {
        let _ = fs::unlinkat(session, name, AtFlags::empty());
    }
    all.iter().filter(|name| is_picture(name)).count()
}

fn remove_older(session: &OwnedFd, oldest: i64, open: bool) -> usize {
    let mut removed = 0;
    let mut left = false;
    let all = names(session);
    for name in all.iter().filter(|name| *name != MODE) {
        let Ok(stat) = fs::statat(session, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && stat.st_mtime < oldest && fs::unlinkat(session, name, AtFlags::empty()).is_ok() {
            removed += usize::from(is_picture(name));
        } else {
            left = true;
        }
    }
    // A session that has just been opened has no picture yet.
    let begun = fs::statat(session, MODE, AtFlags::SYMLINK_NOFOLLOW).map_or(0, |stat| stat.st_mtime);
    if !left && !open && begun < oldest {
        let _ = fs::unlinkat(session, MODE, AtFlags::empty());
    }
    removed
}

fn mode(session: &OwnedFd) -> Option<String> {
    let file = fs::openat(session, MODE, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).take(64).read_to_string(&mut text).ok()?;
    Some(text)
}
