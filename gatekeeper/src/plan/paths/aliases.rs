//! Other mounts of the same file system. If a home is mounted twice, its keys have two paths, and leaving one path out of
//! the grants does not close the other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// `major:minor`.
    pub device: Vec<u8>,
    /// The mounted directory of the file system.
    pub root: PathBuf,
    pub at: PathBuf,
}

/// The lines of /proc/self/mountinfo (proc_pid_mountinfo(5)).
pub fn parse(text: &[u8]) -> Vec<Mounted> {
    let line = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ').skip(2);
        let device = words.next()?.to_owned();
        let (root, at) = (unescaped(words.next()?), unescaped(words.next()?));
        Some(Mounted { device, root, at })
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// Other paths to what lies at a real path, or to a part of it, as pairs of the other path and the real path it may be.
pub fn of(path: &Path, mounts: &[Mounted]) -> Vec<(PathBuf, PathBuf)> {
    // The deepest mount is visible; of several at one place, the last.
    let over = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    let Some(here) = over.max_by_key(|mount| mount.at.components().count()) else { return Vec::new() };
    let Ok(below) = path.strip_prefix(&here.at) else { return Vec::new() };
    let inside = joined(&here.root, below);
    let others = mounts.iter().filter(|mount| mount.device == here.device && *mount != here);
    let found = others.filter_map(|mount| match inside.strip_prefix(&mount.root) {
        Ok(rest) => Some((joined(&mount.at, rest), path.to_owned())),
        Err(_) => Some((mount.at.clone(), joined(path, mount.root.strip_prefix(&inside).ok()?))),
    });
    found.filter(|(other, _)| other != path).collect()
}

/// `join` without a trailing slash if there is nothing to join.
fn joined(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

/// Decodes the octal escapes of mountinfo, such as `\\040` for a space.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut at = 0;
    while let Some(byte) = word.get(at) {
        let digits = word.get(at + 1..at + 4).filter(|_| *byte == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*byte));
        at += if code.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        23 22 8:2 / /home rw shared:2 - ext4 /dev/sda2 rw\n\
        24 22 8:2 /a /mnt/a\\040b rw - ext4 /dev/sda2 rw\n\
        25 22 8:2 /a/.ssh /keys rw - ext4 /dev/sda2 rw\n\
        26 22 8:2 /c /mnt/c rw - ext4 /dev/sda2 rw\nbroken\n";

    #[test]
    fn a_path_is_found_by_every_other_mount_of_it_and_of_what_is_in_it() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 5);
        let paths = |pairs: &[(&str, &str)]| -> Vec<(PathBuf, PathBuf)> {
            pairs.iter().map(|(other, is)| (PathBuf::from(other), PathBuf::from(is))).collect()
        };
        let ssh = "/home/a/.ssh";
        assert_eq!(of(Path::new(ssh), &mounts), paths(&[("/mnt/a b/.ssh", ssh), ("/keys", ssh)]));
        assert_eq!(of(Path::new("/home/a"), &mounts), paths(&[("/mnt/a b", "/home/a"), ("/keys", "/home/a/.ssh")]));
        assert_eq!(of(Path::new("/mnt/a b/x"), &mounts), paths(&[("/home/a/x", "/mnt/a b/x")]));
        assert_eq!(of(Path::new("/etc/shadow"), &mounts), []);
        assert_eq!(of(Path::new("/home/b"), &mounts), []);
    }
}
