//! From a command name to a file, by the rules of execvp(3).
//!
//! Takes a name, PATH and the working directory; gives the open file to execute and the name that the kernel would get.
//! Checks permissions and types, not the contents.

use super::Context;
use super::files::{Failure, FileType, Files, Opened};
use super::verdict::{Reason, ReasonCode};
use crate::sys::is_shortage;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What glibc searches when PATH is not set.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

pub struct Found {
    /// The path that the kernel gets; relative if the command was.
    pub path: PathBuf,
    pub file: Box<dyn Opened>,
}

pub fn find(command: &OsStr, context: &Context, files: &dyn Files) -> Result<Found, (PathBuf, Reason)> {
    let bytes = command.as_bytes();
    let shown = Path::new(command);
    if bytes.is_empty() {
        return Err((shown.into(), Reason::new(ReasonCode::NotFound, "an empty command name")));
    }
    if bytes.contains(&0) {
        return Err((shown.into(), Reason::new(ReasonCode::NotFound, "a name with a NUL byte cannot exist")));
    }
    if bytes.contains(&b'/') {
        return open(shown, context, files).map_err(|reason| (shown.into(), reason));
    }
    let search = context.path.as_ref().map_or(DEFAULT_PATH, |path| path.as_bytes());
    let mut refused = None;
    for directory in search.split(|byte| *byte == b':') {
        let candidate = if directory.is_empty() {
            PathBuf::from(command)
        } else {
            Path::new(OsStr::from_bytes(directory)).join(command)
        };
        let file = match files.open(&context.cwd.join(&candidate)) {
            Ok(file) => file,
            // It may be there: this process has no descriptor or memory left to look.
            Err(Failure::Other(error)) if is_shortage(&error) => {
                let reason = failed(&candidate, &Failure::Other(error));
                return Err((candidate, reason));
            }
            // Skip a file that does not exist, and a directory that may not be searched.
            Err(_) => continue,
        };
        match executable(&candidate, file) {
            Ok(found) => return Ok(found),
            // Like execvp on EACCES: continue, and report the first such file if no other is found.
            Err(reason) => {
                refused.get_or_insert((candidate, reason));
            }
        }
    }
    Err(refused.unwrap_or_else(|| {
        let is_here = files.open(&context.cwd.join(shown)).is_ok_and(|file| unexecutable(file.as_ref()).is_none());
        let here = if is_here { format!("; write ./{0} for the file here", shown.display()) } else { String::new() };
        let text = format!("{} is in no directory of PATH{here}", shown.display());
        (shown.into(), Reason::new(ReasonCode::NotFound, text))
    }))
}

/// Opens what the kernel's open_exec() would open, or gives the reason why it would not.
pub fn open(path: &Path, context: &Context, files: &dyn Files) -> Result<Found, Reason> {
    if path.as_os_str().is_empty() {
        return Err(Reason::new(ReasonCode::NotFound, "has an empty name"));
    }
    let file = files.open(&context.cwd.join(path)).map_err(|failure| failed(path, &failure))?;
    executable(path, file)
}

fn executable(path: &Path, file: Box<dyn Opened>) -> Result<Found, Reason> {
    match unexecutable(file.as_ref()) {
        Some(why) => Err(Reason::new(ReasonCode::NotExecutable, format!("{} {why}", path.display()))),
        None => Ok(Found { path: path.into(), file }),
    }
}

fn failed(path: &Path, failure: &Failure) -> Reason {
    let path = path.display();
    match failure {
        Failure::NotFound => Reason::new(ReasonCode::NotFound, format!("{path} does not exist")),
        Failure::Loop => Reason::new(ReasonCode::NotFound, format!("{path} leads into a loop of symbolic links")),
        Failure::TooLong => Reason::new(ReasonCode::NotFound, format!("{path}: the name is too long")),
        Failure::Denied => {
            Reason::new(ReasonCode::NotExecutable, format!("{path} cannot be reached: permission denied"))
        }
        Failure::Other(error) => Reason::new(ReasonCode::NotExecutable, format!("{path} cannot be opened: {error}")),
    }
}

fn unexecutable(file: &dyn Opened) -> Option<String> {
    let facts = file.facts();
    if facts.file_type == FileType::Directory {
        return Some("is a directory, not a program; check -r checks the programs in it".into());
    }
    if facts.file_type != FileType::Regular {
        return Some(format!("is {}, and only a regular file can be executed", facts.file_type));
    }
    if facts.noexec {
        return Some("lies on a filesystem mounted noexec".into());
    }
    if !facts.executable {
        return Some(match facts.mode & 0o111 {
            0 => "has no execute permission; chmod +x adds it".into(),
            _ => format!("may not be executed by you (mode {:04o})", facts.mode & 0o7777),
        });
    }
    None
}
