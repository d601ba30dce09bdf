//! Checks many files, and all programs in directories, on all cores.
//!
//! Takes commands and directories, gives verdicts in the given order, and by path within a directory. Does not follow
//! symbolic links in directories, so there are no loops. Files without an execute bit are only counted.

use super::files::Files;
use super::{Checker, Context, Disk, Verdict};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, open, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// One item to check.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A path or a command name.
    Command(OsString),
    /// The first word of a shell line, which may or may not be the program that runs.
    Guess(OsString),
}

/// The results.
#[derive(Debug, Default)]
pub struct Done {
    pub verdicts: Vec<Verdict>,
    /// Files in directories without any execute bit.
    pub skipped: usize,
    /// Directories that could not be read.
    pub errors: Vec<String>,
}

/// Called with the number of checked files and of all files.
pub type Progress = dyn Fn(usize, usize) + Sync;

/// Above this number of files, skip the details (DT_NEEDED, links, notes), which cost more than the verdict.
const MANY: usize = 64;

/// Room for the entries of a directory that one syscall reads, as much as the standard library takes.
const LISTING: usize = 32 << 10;

const GUESS: &str = "a guess: the first word of a shell line, which can run anything";

pub fn check_all(
    asked: &[Asked],
    recursive: bool,
    context: &Context,
    disk: &Disk,
    progress: Option<&Progress>,
) -> Done {
    let mut done = Done::default();
    let mut commands: Vec<(OsString, bool)> = Vec::new();
    let mut directories = false;
    for asked in asked {
        match asked {
            Asked::Guess(word) => commands.push((word.clone(), true)),
            Asked::Command(name) if recursive && is_directory(Path::new(name), context) => {
                directories = true;
                let mut found = list(Path::new(name), context, &mut done);
                found.sort_unstable();
                commands.extend(found.into_iter().map(|path| (path.into_os_string(), false)));
            }
            Asked::Command(name) => commands.push((name.clone(), false)),
        }
    }
    let many = directories || commands.len() > MANY;
    let context = Context { detail: context.detail && !many, ..context.clone() };
    done.verdicts = check_each(&commands, &context, disk, progress.filter(|_| directories));
    done
}

fn is_directory(path: &Path, context: &Context) -> bool {
    context.cwd.join(path).is_dir()
}

/// Directories to read, and how many threads are reading one.
#[derive(Default)]
struct Waiting {
    directories: Vec<PathBuf>,
    busy: usize,
}

/// Every regular file below a directory with an execute bit.
fn list(root: &Path, context: &Context, done: &mut Done) -> Vec<PathBuf> {
    let waiting = Mutex::new(Waiting { directories: vec![root.to_owned()], busy: 0 });
    let more = Condvar::new();
    let work = || {
        let (mut part, mut found) = (Done::default(), Vec::new());
        let mut lock = unpoisoned(waiting.lock());
        loop {
            let Some(directory) = lock.directories.pop() else {
                if lock.busy == 0 {
                    more.notify_all();
                    return (part, found);
                }
                lock = unpoisoned(more.wait(lock));
                continue;
            };
            lock.busy += 1;
            drop(lock);
            let below = list_one(&directory, context, &mut part, &mut found);
            lock = unpoisoned(waiting.lock());
            lock.busy -= 1;
            lock.directories.extend(below);
            more.notify_all();
        }
    };
    let mut all = Vec::new();
    for (part, found) in on_all_cores(usize::MAX, work) {
        done.skipped += part.skipped;
        done.errors.extend(part.errors);
        all.extend(found);
    }
    done.errors.sort_unstable();
    all
}

/// Adds the programs of one directory, and returns its subdirectories. Asks for files by their names in the open directory:
/// with musl, the standard library would have the kernel walk the whole path for each.
fn list_one(directory: &Path, context: &Context, done: &mut Done, found: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let mut below = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |error: Errno| format!("{}: {}", directory.display(), io::Error::from(error));
    let opened = match open(context.cwd.join(directory), flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(error) => {
            done.errors.push(failed(error));
            return below;
        }
    };
    let mut buffer = Vec::with_capacity(LISTING);
    let mut entries = RawDir::new(&opened, buffer.spare_capacity_mut());
    // A file, or the directory itself, that was removed meanwhile is no error.
    let note = |error: Errno, hidden: &mut Option<Errno>| {
        *hidden = hidden.or(Some(error).filter(|error| *error != Errno::NOENT));
    };
    // One line for a directory whose files cannot be looked at, for example one that may be listed and not searched.
    let mut hidden = None;
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                note(error, &mut hidden);
                break;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mode = || statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_mode);
        let path = || directory.join(OsStr::from_bytes(name.to_bytes()));
        // Some file systems do not store the type in the directory.
        let kind = match entry.file_type() {
            FileType::Unknown => mode().map(FileType::from_raw_mode),
            known => Ok(known),
        };
        match kind {
            Ok(FileType::Directory) => below.push(path()),
            Ok(FileType::RegularFile) => match mode() {
                Ok(mode) if mode & 0o111 == 0 => done.skipped += 1,
                Ok(_) => found.push(path()),
                Err(error) => note(error, &mut hidden),
            },
            Ok(_) => {}
            Err(error) => note(error, &mut hidden),
        }
    }
    done.errors.extend(hidden.map(failed));
    below
}

/// Runs the same work on every core, at most `most` times in parallel.
fn on_all_cores<T: Send>(most: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    let cores = || std::thread::available_parallelism().map_or(1, |count| count.get());
    let threads = if most <= 1 { 1 } else { cores().min(most) };
    if threads <= 1 {
        return vec![work()];
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Small enough to balance the threads, large enough to avoid contention.
const BATCH: usize = 32;

fn check_each(
    commands: &[(OsString, bool)],
    context: &Context,
    disk: &Disk,
    progress: Option<&Progress>,
) -> Vec<Verdict> {
    let files: &(dyn Files + Sync) = disk;
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let checker = Checker::new(context, files);
        let mut batches = Vec::new();
        loop {
            let start = next.fetch_add(BATCH, Ordering::Relaxed);
            let end = commands.len().min(start.saturating_add(BATCH));
            let Some(batch) = commands.get(start..end).filter(|batch| !batch.is_empty()) else { return batches };
            let verdicts = batch.iter().map(|(command, guess)| {
                let mut verdict = checker.check(command).verdict;
                if *guess {
                    verdict.note(GUESS);
                }
                verdict
            });
            batches.push((start, verdicts.collect::<Vec<_>>()));
            let count = finished.fetch_add(batch.len(), Ordering::Relaxed) + batch.len();
            if let Some(progress) = progress {
                progress(count, commands.len());
            }
        }
    };
    let mut batches: Vec<_> = on_all_cores(commands.len().div_ceil(BATCH), work).into_iter().flatten().collect();
    batches.sort_unstable_by_key(|(start, _)| *start);
    batches.into_iter().flat_map(|(_, verdicts)| verdicts).collect()
}
