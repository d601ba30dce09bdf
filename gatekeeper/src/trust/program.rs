//! Finds the helper programs that gatekeeper executes unconfined, such as bwrap. PATH often contains a directory of the
//! project (`.venv/bin`, `node_modules/.bin`), where an earlier run may have put a program of any name. So a helper must
//! belong to the system: root owns the file and every directory on its path and on the paths of its links, and only root
//! may write to them.

use super::walk::{Found, walk_seen};
use super::{Hostile, Untrusted, is_system_owner, odd_kind};
use rustix::fs::{Mode, Stat};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Searched after PATH.
const PLACES: &[&str] =
    &["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin", "/run/wrappers/bin"];

/// Where the system installs programs. If gatekeeper runs as root, root also owns the project, so ownership alone would
/// prove nothing.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/opt", "/nix", "/gnu/store", "/run/current-system", "/run/wrappers", "/snap"];

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoProgram {
    #[error("no program of this name is installed")]
    NotFound,
    #[error("{} is not an executable file", .0.display())]
    NotExecutable(PathBuf),
    #[error("{} is not used: {why}. gatekeeper executes it unconfined, so it must belong to the system: install it with \
             the package manager, or as root below /usr/local/bin", path.display())]
    Unsafe { path: PathBuf, why: String },
    #[error(transparent)]
    Unreached(#[from] Untrusted),
}

/// Finds a helper by name in the absolute directories of PATH, then in the usual ones. Programs that do not belong to the
/// system are skipped; the error names the first of them if there is no other.
pub fn find(name: &OsStr, path: Option<&OsStr>, hostile: &Hostile) -> Result<PathBuf, NoProgram> {
    let searched = path.into_iter().flat_map(std::env::split_paths).filter(|directory| directory.is_absolute());
    let mut passed_over = None;
    for directory in searched.chain(PLACES.iter().map(PathBuf::from)) {
        let file = directory.join(name);
        match named(&file, hostile) {
            Ok(real) if SYSTEM.iter().any(|top| real.starts_with(top)) => return Ok(real),
            Ok(path) => {
                let why = format!("it is outside the directories where programs are installed ({})", SYSTEM.join(" "));
                passed_over = passed_over.or(Some(NoProgram::Unsafe { path, why }));
            }
            Err(NoProgram::Unreached(_) | NoProgram::NotFound | NoProgram::NotExecutable(_)) => {}
            // Report only a file that could have been executed.
            Err(error) if is_executable(&file) => passed_over = passed_over.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(passed_over.unwrap_or(NoProgram::NotFound))
}

/// Checks a helper that the policy names by path. It must belong to the system too, but may be anywhere.
pub fn named(file: &Path, hostile: &Hostile) -> Result<PathBuf, NoProgram> {
    let found = system_file(file)?;
    // A command that ran as root may have put it there, and then root owns it too.
    match rustix::process::geteuid().is_root() && super::walk(&found.real, hostile)?.hostile {
        true => Err(below_commands(found.real)),
        false => Ok(found.real),
    }
}

fn below_commands(path: PathBuf) -> NoProgram {
    NoProgram::Unsafe { path, why: "it is in a tree that confined commands may write".to_owned() }
}

/// Checks a helper that may belong to this user, such as gatekeeper itself: it must not be in a tree that commands write.
pub fn own(file: &Path, hostile: &Hostile) -> Result<PathBuf, NoProgram> {
    let found = super::walk(file, hostile)?;
    if found.hostile { Err(below_commands(found.real)) } else { Ok(found.real) }
}

fn system_file(file: &Path) -> Result<Found, NoProgram> {
    let refuse = |path: &Path, stat: &Stat| match open_to_others(stat) {
        Some(why) => Err(Untrusted::Kind { path: path.to_owned(), kind: why }),
        None => Ok(()),
    };
    let found = match walk_seen(file, &refuse) {
        Err(Untrusted::Kind { path, kind }) => {
            return Err(NoProgram::Unsafe { path: file.to_owned(), why: format!("{} {kind}", path.display()) });
        }
        other => other?,
    };
    if let Some(why) = open_to_others(&found.stat) {
        return Err(NoProgram::Unsafe { path: file.to_owned(), why: format!("{} {why}", found.real.display()) });
    }
    if odd_kind(&found.stat).is_some() || found.stat.st_mode & 0o111 == 0 {
        return Err(NoProgram::NotExecutable(found.real));
    }
    Ok(found)
}

/// Why a user other than root could change the file.
fn open_to_others(stat: &Stat) -> Option<&'static str> {
    match () {
        () if !is_system_owner(stat.st_uid) => Some("does not belong to root"),
        () if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) => {
            Some("is writable by users other than root")
        }
        () => None,
    }
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::stat(file).is_ok_and(|stat| odd_kind(&stat).is_none() && stat.st_mode & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_the_system_keeps_it_and_nowhere_else() {
        let real = std::fs::canonicalize("/usr/bin/env").expect("env");
        for path in [None, Some(""), Some(".:bin::/usr/bin"), Some("/nowhere:/usr/bin")] {
            assert_eq!(
                find(OsStr::new("env"), path.map(OsStr::new), &Hostile::default()).expect("there"),
                real,
                "{path:?}"
            );
        }
        assert!(matches!(find(OsStr::new("no-such-program"), None, &Hostile::default()), Err(NoProgram::NotFound)));
        let planted = tempfile::tempdir().expect("temporary directory");
        let file = planted.path().join("no-such-program");
        std::os::unix::fs::symlink("/usr/bin/env", &file).expect("new");
        let path = Some(planted.path().as_os_str());
        let error = find(OsStr::new("no-such-program"), path, &Hostile::default())
            .expect_err("a user's link to a program of the system");
        assert!(matches!(error, NoProgram::Unsafe { .. }), "{error}");
        std::fs::copy("/usr/bin/env", planted.path().join("env")).expect("new");
        assert_eq!(find(OsStr::new("env"), path, &Hostile::default()).expect("the system's"), real);
        let mut hostile = Hostile::default();
        hostile.add(planted.path());
        assert!(matches!(named(&planted.path().join("env"), &hostile), Err(NoProgram::Unsafe { .. })));
        assert!(named(&real, &hostile).is_ok(), "the control");
    }
}
