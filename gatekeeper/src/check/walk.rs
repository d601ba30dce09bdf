//! Many files: directories walked and their programs checked, on all cores.
//!
//! Takes commands and directories, gives verdicts in the order asked, those of a directory by path. Symbolic links in a
//! directory are not followed, so there are no circles; what nobody may execute is counted and left out.

use super::files::Files;
use super::{Checker, Context, Disk, Verdict};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One thing to look at.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A path or a command name.
    Command(OsString),
    /// A word that only may be what runs.
    Guess(OsString),
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Done {
    pub verdicts: Vec<Verdict>,
    /// Files in directories without any execute permission.
    pub skipped: usize,
    /// Directories that could not be read.
    pub errors: Vec<String>,
}

/// Called with the number of files done and of all.
pub type Progress = dyn Fn(usize, usize) + Sync;

const GUESS: &str = "a guess: the first word of a line for a shell, which can do anything";

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
    let context = Context { detail: context.detail && !directories, ..context.clone() };
    done.verdicts = check_each(&commands, &context, disk, progress.filter(|_| directories));
    done
}

fn is_directory(path: &Path, context: &Context) -> bool {
    context.cwd.join(path).is_dir()
}

/// Every regular file under a directory that anybody may execute.
fn list(root: &Path, context: &Context, done: &mut Done) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = match std::fs::read_dir(context.cwd.join(&directory)) {
            Ok(entries) => entries,
            Err(error) => {
                done.errors.push(format!("{}: {error}", directory.display()));
                continue;
            }
        };
        for entry in entries {
            // A file that vanished meanwhile is no error.
            let Ok(entry) = entry else { continue };
            let Ok(file_type) = entry.file_type() else { continue };
            if file_type.is_dir() {
                waiting.push(directory.join(entry.file_name()));
            } else if file_type.is_file() {
                match entry.metadata() {
                    Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => done.skipped += 1,
                    Ok(_) => found.push(directory.join(entry.file_name())),
                    Err(_) => {}
                }
            }
        }
    }
    found
}

/// Few enough to balance the threads, many enough that they seldom meet.
const BATCH: usize = 32;

fn check_each(
    commands: &[(OsString, bool)],
    context: &Context,
    disk: &Disk,
    progress: Option<&Progress>,
) -> Vec<Verdict> {
    let files: &(dyn Files + Sync) = disk;
    let threads =
        std::thread::available_parallelism().map_or(1, |count| count.get()).min(commands.len().div_ceil(BATCH));
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let batches: Mutex<Vec<(usize, Vec<Verdict>)>> = Mutex::new(Vec::new());
    let work = || {
        let checker = Checker::new(context, files);
        loop {
            let start = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) = commands.get(start..commands.len().min(start.saturating_add(BATCH))) else { break };
            if batch.is_empty() {
                break;
            }
            let verdicts = batch.iter().map(|(command, guess)| {
                let mut verdict = checker.check(command).verdict;
                if *guess {
                    verdict.note(GUESS);
                }
                verdict
            });
            let verdicts = verdicts.collect();
            batches.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((start, verdicts));
            let count = finished.fetch_add(batch.len(), Ordering::Relaxed) + batch.len();
            if let Some(progress) = progress {
                progress(count, commands.len());
            }
        }
    };
    if threads <= 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| {
                scope.spawn(work);
            })
        });
    }
    let mut batches = batches.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    batches.sort_unstable_by_key(|(start, _)| *start);
    batches.into_iter().flat_map(|(_, verdicts)| verdicts).collect()
}
