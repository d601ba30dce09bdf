//! /tmp and /var/tmp: private to a command that may write, if a mount can replace them. Some programs ignore TMPDIR: Java,
//! ed, and whatever calls tmpfile(3).

use super::{Access, Grant, PathPlan, Places, Tree};
use crate::policy::Policy;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The first one decides: if the run uses something in /tmp, the second one stays as it is too.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// What a run uses, and what would be gone in an empty directory.
pub struct Used<'a> {
    pub policy: &'a Policy,
    pub places: &'a Places,
    /// The program, the directory in which the command starts, a stage.
    pub paths: Vec<PathBuf>,
    /// The words and variables of the command, which may name files.
    pub texts: Vec<&'a [u8]>,
}

impl PathPlan {
    /// Makes the directories for temporary files private, unless the run uses something in them.
    pub fn make_temporary(&mut self, used: &Used<'_>, tree: &dyn Tree) {
        let access = if used.policy.limits_execution() { Access::WriteOnly } else { Access::Write };
        for place in TEMPORARY {
            let real = tree.resolve(Path::new(place)).filter(|real| tree.is_directory(real));
            let Some(real) = real.filter(|real| real.parent().is_some()) else { break };
            let nested = |known: &Grant| known.path.starts_with(&real) || real.starts_with(&known.path);
            if self.temporary.iter().any(nested) {
                continue;
            }
            if self.uses(used, &real, tree) || used.texts.iter().any(|text| names(text, Path::new(place), tree)) {
                break;
            }
            self.temporary.push(Grant { path: real, access });
        }
    }

    fn uses(&self, used: &Used<'_>, place: &Path, tree: &dyn Tree) -> bool {
        let (policy, places) = (used.policy, used.places);
        let inside = |path: &Path| path.starts_with(place);
        // The run directory is mounted again, at the same path, if it is directly in the private one.
        let own: BTreeSet<&Path> = places.tmp.as_deref().and_then(Path::parent).into_iter().collect();
        if own.iter().any(|run| inside(run) && run.parent() != Some(place)) {
            return true;
        }
        let is_own = |path: &Path| own.iter().any(|run| path.starts_with(run));
        let granted = self.grants.iter().filter(|grant| grant.access.writes() && !is_own(&grant.path));
        let granted = granted.map(|grant| &grant.path);
        let kept = self.protected.iter().chain(&self.covered).chain(&self.links);
        let named = [&policy.paths.write, &policy.paths.also_read, &policy.network.unix, &policy.sources];
        let lists = policy.paths.read.iter().chain(&policy.paths.execute);
        let named = named.into_iter().chain(lists).flatten().map(|path| places.absolute(path));
        let also = places.also_written.iter().chain(&places.home).cloned().chain([places.cwd.clone()]);
        let mut all = granted.chain(kept).cloned().chain(used.paths.iter().cloned()).chain(named).chain(also);
        // A denied /tmp stays denied, and a tree that is writable as a whole stays what it is.
        let around = self.writable().chain(policy.paths.deny.iter().map(|path| places.absolute(path)));
        let around: Vec<PathBuf> = around.filter(|path| !is_own(path)).collect();
        all.any(|path| inside(&path) || tree.resolve(&path).is_some_and(|real| inside(&real)))
            || around.iter().any(|path| place.starts_with(path) || inside(path))
    }
}

/// Whether a text names an entry of a directory that exists, or may name one with a wildcard or variable.
fn names(text: &[u8], directory: &Path, tree: &dyn Tree) -> bool {
    let prefix = [directory.as_os_str().as_bytes(), b"/"].concat();
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) || byte >= 0x80;
    // What a shell puts in place of `$x` and `*` is not known; what is in front of it stays.
    let begins = |front: Option<&[u8]>| {
        let front = front.unwrap_or_default();
        front.is_empty()
            || tree.names(directory).is_none_or(|names| names.iter().any(|name| name.as_bytes().starts_with(front)))
    };
    let mut starts = text.windows(prefix.len()).enumerate().filter(|(_, window)| *window == prefix);
    starts.any(|(at, _)| {
        if at.checked_sub(1).and_then(|before| text.get(before)).is_some_and(|before| of_name(*before)) {
            return false;
        }
        let rest = text.get(at + prefix.len()..).unwrap_or_default();
        let rest = rest.iter().position(|byte| *byte != b'/').map_or(&[][..], |first| &rest[first..]);
        // An entry may hold any byte: try every length at which it could end.
        let name = rest.split(|byte| b"/\n\0".contains(byte)).next().unwrap_or_default();
        let ends = (1..=name.len()).filter(|end| name.get(*end).is_none_or(|next| !of_name(*next)));
        let mut entries = ends.take(MOST_ENDS).filter_map(|end| name.get(..end));
        entries.any(|name| tree.look(&directory.join(std::ffi::OsStr::from_bytes(name))).is_some())
            || word(name).iter().position(|byte| b"*?[{$".contains(byte)).is_some_and(|at| begins(word(name).get(..at)))
    })
}

/// The part of a text up to where a shell would end a word.
fn word(text: &[u8]) -> &[u8] {
    text.split(|byte| byte.is_ascii_whitespace() || b"'\";|&<>()`".contains(byte)).next().unwrap_or_default()
}

/// A name with more places at which it could end is not looked for in full.
const MOST_ENDS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::disk::Disk;

    #[test]
    fn only_what_is_there_counts_as_named() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().canonicalize().expect("just made");
        for name in ["script.py", "with space", "deep"] {
            std::fs::write(top.join(name), "").expect("own");
        }
        let at = top.to_str().expect("text");
        let is = |text: &str| names(text.replace("TOP", at).as_bytes(), &top, &Disk);
        for named in [
            "TOP/script.py",
            "python3 TOP/script.py >out",
            "--file=TOP/script.py",
            "a:TOP/deep/er:b",
            "cat 'TOP/with space'",
            "ls TOP/*",
            "ls TOP/scr*",
            "cat TOP//deep",
            "x TOP/none TOP/deep",
            "ls TOP/d$x",
            "ls TOP/$x TOP/none",
            "ls TOP/{none,deep}",
        ] {
            assert!(is(named), "{named}");
        }
        for other in [
            "TOP",
            "TOP/",
            "TOP/none",
            "/x/TOP/deep",
            "TOPdeep",
            "TOP/script.pyc",
            "ls TOP",
            "cat TOP/none; ls $HOME *",
            "f=TOP/build-$$.log; echo hi > $f",
            "rm -f TOP/x-*.o; echo a > TOP/a8.o",
            "rm -f TOP/none[0-9]",
            "",
        ] {
            assert!(!is(&other.replacen("/x/TOP", &format!("/x{at}"), 1)), "{other}");
        }
    }
}
