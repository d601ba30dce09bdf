//! The audit trail: one JSON line for each decision of a run, appended to a file that many runs may share.
//!
//! Every line holds the hash of the line before it, so that a changed, removed or inserted line breaks the chain. A second
//! file, `FILE.head`, holds the number and the hash of the last line, so that lines removed at the end are missed too. The
//! command can open neither file. A line is written before the decision takes effect; if it cannot be written, the run
//! ends.

mod entry;
mod head;
pub mod time;
pub mod verify;

use crate::trust::{self, Hostile, Untrusted};
pub use entry::{Entry, Kind};
use head::{Head, Next};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat};
use rustix::io::Errno;
use serde_json::{Map, Value};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// The variable that names the file if the flag does not.
pub const VARIABLE: &str = "GATEKEEPER_AUDIT";
/// What the name of the second file ends with.
pub const HEAD: &str = ".head";
/// The hash in front of the first line.
pub const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// How long to wait for the other runs that write to the same file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The trail of one run.
#[derive(Debug)]
pub struct Audit {
    run: String,
    to: To,
    /// The real path, for messages and to keep the command away from it.
    path: PathBuf,
    broken: OnceLock<String>,
}

/// Where lines go.
#[derive(Debug)]
enum To {
    File {
        directory: OwnedFd,
        name: OsString,
        open: Mutex<Open>,
    },
    /// To a gatekeeper elsewhere, which has the files.
    Elsewhere(Box<dyn Elsewhere>),
}

/// Passes entries to the gatekeeper that has the files, and waits until it has written them.
pub trait Elsewhere: std::fmt::Debug + Send + Sync {
    fn note(&self, entry: &Entry) -> io::Result<()>;
}

#[derive(Debug)]
struct Open {
    file: Option<File>,
    /// Also the lock: it stays the same when the user's tools rotate the file.
    head: File,
    /// Whether the last line of this run was written.
    ended: bool,
}

/// What the gatekeeper inside bubblewrap needs to write to the same files.
#[derive(Debug)]
pub struct Handed {
    pub directory: OwnedFd,
    pub head: OwnedFd,
    pub name: OsString,
    pub run: String,
}

impl Audit {
    /// Opens or creates the file, mode 0600, and appends the line that starts the run. Follows no link below the hostile
    /// trees.
    pub fn open(path: &Path, hostile: &Hostile, command: &[String]) -> Result<Audit, Untrusted> {
        let wrong = |error: Errno| Untrusted::io(path, error);
        let (directory, real, name) = place(path, hostile)?;
        let mut second = name.clone();
        second.push(HEAD);
        let head = File::from(open_in(&directory, &second, OFlags::RDWR).map_err(|error| Untrusted::io(path, error))?);
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(wrong)?;
        let audit = Audit {
            run: format!("{:016x}", u64::from_ne_bytes(random)),
            path: real.join(&name),
            to: To::File { directory, name, open: Mutex::new(Open { file: None, head, ended: false }) },
            broken: OnceLock::new(),
        };
        let program = command.first().cloned().unwrap_or_default();
        let start = Entry::event(Kind::Start).with("command", program).with("uid", rustix::process::geteuid().as_raw());
        audit.note(start).map_err(|error| Untrusted::io(path, error))?;
        Ok(audit)
    }

    /// The same for the file of `--audit`, which the error names.
    pub fn start(path: &Path, hostile: &Hostile, command: &[String]) -> Result<Arc<Audit>, String> {
        let said = |why: &dyn std::fmt::Display| format!("--audit {}: {why}", path.display());
        Audit::open(path, hostile, command).map(Arc::new).map_err(|error| match error {
            Untrusted::Io { error, .. } => said(&error),
            error => said(&error),
        })
    }

    /// Both files, which the command must not open.
    pub fn paths(&self) -> [PathBuf; 2] {
        let mut head = self.path.clone().into_os_string();
        head.push(HEAD);
        [self.path.clone(), PathBuf::from(head)]
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    /// For the gatekeeper inside bubblewrap.
    pub fn hand_over(&self) -> io::Result<Handed> {
        let To::File { directory, name, open } = &self.to else {
            return Err(io::Error::other("audit: the files are those of another gatekeeper"));
        };
        Ok(Handed {
            directory: directory.try_clone()?,
            head: held(open).head.try_clone()?.into(),
            name: name.clone(),
            run: self.run.clone(),
        })
    }

    /// The other end of [`hand_over`](Audit::hand_over). Opens the head again, because a lock belongs to the open file.
    pub fn inherit(handed: Handed) -> io::Result<Audit> {
        let head = File::from(trust::reopen(handed.head.as_fd(), OFlags::RDWR)?);
        // The gatekeeper outside writes the last line.
        let open = Mutex::new(Open { file: None, head, ended: true });
        Ok(Audit {
            run: handed.run,
            path: PathBuf::from(&handed.name),
            to: To::File { directory: handed.directory, name: handed.name, open },
            broken: OnceLock::new(),
        })
    }

    /// A trail whose first and last line and files are those of another gatekeeper.
    pub fn elsewhere(to: Box<dyn Elsewhere>) -> Audit {
        Audit { run: String::new(), path: PathBuf::from("outside"), to: To::Elsewhere(to), broken: OnceLock::new() }
    }

    /// Appends one line. After an error, every further line fails the same way.
    pub fn note(&self, entry: Entry) -> io::Result<()> {
        if let Some(why) = self.broken.get() {
            return Err(io::Error::other(why.clone()));
        }
        let written = match &self.to {
            To::Elsewhere(elsewhere) => elsewhere.note(&entry),
            To::File { directory, name, open } => self.append(&mut held(open), directory, name, entry),
        };
        written.map_err(|error| {
            let why = format!("audit {}: {error}", self.path.display());
            io::Error::other(self.broken.get_or_init(|| why).clone())
        })
    }

    /// Appends the line that ends the run, and waits until all lines are on disk. Fails if any line of the run is missing.
    pub fn finish(&self, outcome: &str, exit_code: i32) -> io::Result<()> {
        let To::File { open, .. } = &self.to else { return Ok(()) };
        self.note(Entry::event(Kind::End).with("outcome", outcome).with("exit_code", exit_code))?;
        let mut open = held(open);
        open.ended = true;
        if let Some(file) = &open.file {
            file.sync_data()?;
        }
        open.head.sync_data()
    }

    fn append(&self, open: &mut Open, directory: &OwnedFd, name: &OsStr, entry: Entry) -> io::Result<()> {
        let Open { file, head, .. } = open;
        lock(head)?;
        let done =
            current(file, directory, name).and_then(|(stat, made)| self.append_locked(file, &stat, made, head, entry));
        let _ = flock(&*head, FlockOperation::Unlock);
        done
    }

    fn append_locked(
        &self,
        file: &Option<File>,
        stat: &Stat,
        made: bool,
        head: &mut File,
        entry: Entry,
    ) -> io::Result<()> {
        let Some(file) = file else { return Err(Errno::BADF.into()) };
        let known = Head::read(head)?;
        let half = known.as_ref().map_or(Ok(None), |known| known.before_half_a_line(file, stat))?;
        let stat = match half {
            Some(end) => file.set_len(end).and_then(|()| Ok(fstat(file)?))?,
            None => *stat,
        };
        let (mut last, rotated) = Head::last(known, file, &stat, made)?;
        let mut announced = Head { inode: stat.st_ino, size: stat.st_size as u64, next: None, ..last.clone() };
        let mut lines = Vec::new();
        for entry in rotated.then(|| Entry::event(Kind::Continued)).into_iter().chain([entry]) {
            let line = self.line(&entry, &last);
            last.count += 1;
            last.hash = hash(line.as_bytes());
            lines.extend_from_slice(line.as_bytes());
            lines.push(b'\n');
        }
        // First, so that a line that nobody announced is known for what it is.
        announced.next = Some(Next { count: last.count, hash: last.hash.clone() });
        announced.write(head)?;
        if let Err(error) = (&*file).write_all(&lines) {
            // Half a line would make the next one look changed.
            file.set_len(announced.size)?;
            return Err(error);
        }
        let after = fstat(file)?;
        (last.inode, last.size) = (after.st_ino, after.st_size as u64);
        last.write(head)
    }

    fn line(&self, entry: &Entry, last: &Head) -> String {
        let mut line = Map::new();
        line.insert("seq".to_owned(), Value::from(last.count + 1));
        line.insert("time".to_owned(), Value::from(time::now()));
        line.insert("run".to_owned(), Value::from(self.run.as_str()));
        line.insert("kind".to_owned(), Value::from(entry.kind.word()));
        if let Some(decision) = entry.decision {
            line.insert("decision".to_owned(), Value::from(decision.word()));
        }
        line.extend(entry.fields.clone());
        line.insert("prev".to_owned(), Value::from(last.hash.as_str()));
        Value::Object(line).to_string()
    }
}

impl Drop for Audit {
    /// A run that ends by an error of ours has an end too.
    fn drop(&mut self) {
        let To::File { open, .. } = &self.to else { return };
        if !held(open).ended && self.broken.get().is_none() {
            let _ = self.finish("setup_failed", 125);
        }
    }
}

fn held(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Opens the file under its name, if this was not done yet or the user's tools have rotated it. Also tells whether it was
/// made by that.
fn current(file: &mut Option<File>, directory: &OwnedFd, name: &OsStr) -> io::Result<(Stat, bool)> {
    if let Some(open) = file {
        let stat = fstat(&*open)?;
        match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) => return Ok((stat, false)),
            Ok(_) | Err(Errno::NOENT) => open.sync_data()?,
            Err(error) => return Err(error.into()),
        }
    }
    let flags = OFlags::RDWR | OFlags::APPEND;
    let is_there = !matches!(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT));
    // A tool that rotates may make the file first.
    let is_made = |error: &io::Error| error.raw_os_error() == Some(Errno::EXIST.raw_os_error());
    let (opened, made) = match (!is_there).then(|| open_in(directory, name, flags | OFlags::EXCL)) {
        Some(Err(error)) if !is_made(&error) => return Err(error),
        Some(Ok(opened)) => (opened, true),
        _ => (open_in(directory, name, flags)?, false),
    };
    let opened = File::from(opened);
    let stat = fstat(&opened)?;
    *file = Some(opened);
    Ok((stat, made))
}

/// The hash of a line, without its newline, in hexadecimal digits.
pub fn hash(line: &[u8]) -> String {
    sandbox_contract::sha256(line).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The directory of a file that may not exist yet: a descriptor, its real path, and the name of the file in it.
fn place(path: &Path, hostile: &Hostile) -> Result<(OwnedFd, PathBuf, OsString), Untrusted> {
    let real = match trust::walk(path, hostile) {
        Ok(found) if found.is_directory() => return Err(Untrusted::io(path, Errno::ISDIR)),
        Ok(found) => match trust::odd_kind(&found.stat) {
            Some(kind) => return Err(Untrusted::NotAFile { path: path.to_owned(), kind }),
            None => found.real,
        },
        Err(error) if error.is_missing() => path.to_owned(),
        Err(error) => return Err(error),
    };
    let name = real.file_name().ok_or_else(|| Untrusted::io(path, Errno::ISDIR))?.to_owned();
    let parent = match real.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let found = trust::walk(parent, hostile)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = found.reopen(flags).map_err(|error| Untrusted::io(path, error))?;
    Ok((directory, found.real, name))
}

/// Opens or creates one of the files: a regular file of this user with one name. A command of an earlier run may have put
/// a link there that leads to another file of the user.
fn open_in(directory: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
        Errno::LOOP => io::Error::other("it is a symbolic link; name its target instead, or remove the link"),
        other => other.into(),
    })?;
    let stat = fstat(&file)?;
    if let Some(kind) = trust::odd_kind(&stat) {
        return Err(io::Error::other(format!("it is a {kind}, not a regular file")));
    }
    if stat.st_nlink > 1 {
        return Err(io::Error::other("it has another name (a hard link), and lines would be added to that file too"));
    }
    if stat.st_mode & 0o077 != 0 && stat.st_uid == rustix::process::geteuid().as_raw() {
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    }
    Ok(file)
}

fn lock(head: &File) -> io::Result<()> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        match flock(head, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => {
                std::thread::sleep(pause);
                // Hundreds of runs that look all the time would keep the one that writes from its work.
                pause = (pause * 2).min(Duration::from_millis(3));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other(format!("another process has locked it for {} s", PATIENCE.as_secs())));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
