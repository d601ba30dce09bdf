//! Helper programs: what gatekeeper itself executes, with no filter and no Landlock around it. PATH often has a directory
//! of the project in it (`.venv/bin`, `node_modules/.bin`), where an earlier run may have put a program under any name.
//! So a helper is taken only from a place of the system: root owns the file and every directory on the way, also on the
//! way of its links, and nobody else may write to them.

use super::walk::{Found, walk_seen};
use super::{Hostile, Untrusted, is_system_owner, odd_kind};
use rustix::fs::{Mode, Stat};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Searched after PATH.
const PLACES: &[&str] =
    &["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/run/current-system/sw/bin", "/run/wrappers/bin"];

/// Where the system keeps programs. As root every project is root's own, so that ownership alone would prove nothing.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/opt", "/nix", "/gnu/store", "/run/current-system", "/run/wrappers", "/snap"];

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoProgram {
    #[error("no program of this name is installed")]
    NotFound,
    #[error("{} is not an executable file", .0.display())]
    NotExecutable(PathBuf),
    #[error("{} is not used: {why}. gatekeeper executes it unconfined, so it has to be the system's own: install it with \
             the package manager, or as root below /usr/local/bin", path.display())]
    Unsafe { path: PathBuf, why: String },
    #[error(transparent)]
    Unreached(#[from] Untrusted),
}

/// Finds a helper by its name: in the absolute directories of PATH that are the system's, then in the usual places. What
/// else PATH leads to is passed over, and named where there is nothing better.
pub fn find(name: &OsStr, path: Option<&OsStr>, hostile: &Hostile) -> Result<PathBuf, NoProgram> {
    let searched = path.into_iter().flat_map(std::env::split_paths).filter(|directory| directory.is_absolute());
    let mut passed_over = None;
    for directory in searched.chain(PLACES.iter().map(PathBuf::from)) {
        let file = directory.join(name);
        match named(&file, hostile) {
            Ok(real) if SYSTEM.iter().any(|top| real.starts_with(top)) => return Ok(real),
            Ok(path) => {
                let why = format!("it is outside of the places where programs are installed ({})", SYSTEM.join(" "));
                passed_over = passed_over.or(Some(NoProgram::Unsafe { path, why }));
            }
            Err(NoProgram::Unreached(_) | NoProgram::NotFound | NoProgram::NotExecutable(_)) => {}
            // Only what would have been executed is worth a word.
            Err(error) if is_executable(&file) => passed_over = passed_over.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(passed_over.unwrap_or(NoProgram::NotFound))
}

/// A helper that the policy names: root's own like every other, but anywhere.
pub fn named(file: &Path, hostile: &Hostile) -> Result<PathBuf, NoProgram> {
    let found = system_file(file)?;
    // Where root owns everything on the way, only a command of root's can have put it there.
    match rustix::process::geteuid().is_root() && super::walk(&found.real, hostile)?.hostile {
        true => Err(below_commands(found.real)),
        false => Ok(found.real),
    }
}

fn below_commands(path: PathBuf) -> NoProgram {
    NoProgram::Unsafe { path, why: "it is below a tree that confined commands may write".to_owned() }
}

/// A program of this user's own that is about to be started as a helper, such as this one: it must not lie where commands
/// write.
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

/// Why somebody beside root could change it.
fn open_to_others(stat: &Stat) -> Option<&'static str> {
    match () {
        () if !is_system_owner(stat.st_uid) => Some("does not belong to root"),
        () if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) => {
            Some("can be written by others than root")
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
            .expect_err("a link of anybody's to a program of the system");
        assert!(matches!(error, NoProgram::Unsafe { .. }), "{error}");
        std::fs::copy("/usr/bin/env", planted.path().join("env")).expect("new");
        assert_eq!(find(OsStr::new("env"), path, &Hostile::default()).expect("the system's"), real);
        let mut hostile = Hostile::default();
        hostile.add(planted.path());
        assert!(matches!(named(&planted.path().join("env"), &hostile), Err(NoProgram::Unsafe { .. })));
        assert!(named(&real, &hostile).is_ok(), "the control");
    }
}
