//! Resolves a path as the program would: from its root, in its mount namespace, but never through a magic link of
//! /proc. Magic links lead to files of other processes and into other mount namespaces.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The kernel's limit on symbolic links (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// openat2(2) fails with EAGAIN if a rename or mount anywhere on the machine races with resolving `..`. Try again this
/// often.
const TRIES: usize = 16;
const PROC: i64 = 0x9fa0;

fn flags(follow: bool) -> OFlags {
    OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW }
}

/// Opens a path with this directory as root, for absolute links as well.
pub fn in_root(root: &OwnedFd, path: &Path, follow: bool) -> Result<OwnedFd, Errno> {
    match open_retrying(root, path, follow, ResolveFlags::IN_ROOT) {
        // A kernel before 5.6, or an outer sandbox that denies openat2.
        Err(Errno::NOSYS | Errno::PERM) => walk(root, path, follow),
        other => other,
    }
}

/// Opens a path that stays below a directory. `XDEV`: it leaves the directory, or openat2 is missing; resolve it from
/// the root.
pub fn beneath(directory: &OwnedFd, path: &Path, follow: bool) -> Result<OwnedFd, Errno> {
    match open_retrying(directory, path, follow, ResolveFlags::BENEATH) {
        Err(Errno::NOSYS | Errno::PERM) => Err(Errno::XDEV),
        other => other,
    }
}

fn open_retrying(directory: &OwnedFd, path: &Path, follow: bool, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    let open = || openat2(directory, path, flags(follow), Mode::empty(), how | ResolveFlags::NO_MAGICLINKS);
    let mut last = open();
    for _ in 1..TRIES {
        match last {
            Err(Errno::AGAIN) => last = open(),
            other => return other,
        }
    }
    last
}

/// Where a path leads that goes through a link into /proc or /dev, whose links mean another file to each process; with no
/// link before that part. Only for records: the links may change at any time.
pub fn leads_into_proc(root: &OwnedFd, path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let (link, to) = first_link(root, &path)?;
        let rest = path.strip_prefix(&link).ok()?.iter();
        let to = link.parent()?.join(to);
        path = to.iter().chain(rest).collect();
        if path.starts_with("/proc") || path.starts_with("/dev") {
            return Some(path);
        }
    }
    None
}

/// The first link in a path, and its text.
fn first_link(root: &OwnedFd, path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut prefix = PathBuf::new();
    for name in path {
        prefix.push(name);
        let found = in_root(root, &prefix, false).ok()?;
        if FileType::from_raw_mode(fstat(&found).ok()?.st_mode).is_symlink() {
            let text = readlinkat(&found, "", Vec::new()).ok()?;
            return Some((prefix, PathBuf::from(OsString::from_vec(text.into_bytes()))));
        }
    }
    None
}

/// `in_root` without openat2: resolves component by component, holding a descriptor of each directory.
fn walk(root: &OwnedFd, path: &Path, follow: bool) -> Result<OwnedFd, Errno> {
    let mut above = vec![root.try_clone().map_err(|_| Errno::MFILE)?];
    let mut names: VecDeque<OsString> = path.components().filter_map(named).collect();
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        if name == ".." {
            if above.len() > 1 {
                above.pop();
            }
            continue;
        }
        let Some(here) = above.last() else { return Err(Errno::NOENT) };
        let found = openat(here, &name, flags(false), Mode::empty())?;
        let is_link = FileType::from_raw_mode(fstat(&found)?.st_mode).is_symlink();
        if !is_link || names.is_empty() && !follow {
            above.push(found);
            continue;
        }
        links += 1;
        // Links in /proc are magic, or depend on the process that reads them (/proc/self).
        if links > MOST_LINKS || fstatfs(&found)?.f_type as i64 == PROC {
            return Err(Errno::LOOP);
        }
        let to = PathBuf::from(OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes()));
        if to.is_absolute() {
            above.truncate(1);
        }
        to.components().filter_map(named).rev().for_each(|name| names.push_front(name));
    }
    above.pop().ok_or(Errno::NOENT)
}

fn named(component: Component<'_>) -> Option<OsString> {
    match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn both_ways_find_the_same_and_neither_leaves_the_root() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path();
        std::fs::create_dir_all(top.join("a/b")).expect("own directory");
        std::fs::write(top.join("a/file"), "").expect("own directory");
        symlink("/a/file", top.join("absolute")).expect("own directory");
        symlink("../file", top.join("a/b/up")).expect("own directory");
        symlink("../../../../../../etc/passwd", top.join("out")).expect("own directory");
        symlink("loop", top.join("loop")).expect("own directory");
        let root: OwnedFd = std::fs::File::open(top).expect("just made").into();
        let inode = |fd: OwnedFd| fstat(&fd).expect("open").st_ino;
        let file = std::fs::metadata(top.join("a/file")).expect("just made").ino();
        for path in ["/a/file", "a/file", "absolute", "a/b/up", "a/b/../../../absolute", "/../../a/./file"] {
            assert_eq!(in_root(&root, Path::new(path), true).map(inode), Ok(file), "{path}");
            assert_eq!(walk(&root, Path::new(path), true).map(inode), Ok(file), "{path}");
        }
        for (path, errno) in
            [("out", Errno::NOENT), ("loop", Errno::LOOP), ("a/file/x", Errno::NOTDIR), ("none", Errno::NOENT)]
        {
            assert_eq!(in_root(&root, Path::new(path), true).map(inode), Err(errno), "{path}");
            assert_eq!(walk(&root, Path::new(path), true).map(inode), Err(errno), "{path}");
        }
        let link = std::fs::symlink_metadata(top.join("absolute")).expect("just made").ino();
        assert_eq!(in_root(&root, Path::new("absolute"), false).map(inode), Ok(link));
        assert_eq!(walk(&root, Path::new("absolute"), false).map(inode), Ok(link));
    }

    #[test]
    fn a_path_through_links_into_proc_is_told_without_them() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().canonicalize().expect("just made");
        symlink("/proc/self/cwd", top.join("way")).expect("own directory");
        symlink("way", top.join("other")).expect("own directory");
        symlink("circle", top.join("circle")).expect("own directory");
        let root: OwnedFd = std::fs::File::open("/").expect("the root").into();
        let leads = |name: &str| leads_into_proc(&root, &top.join(name));
        assert_eq!(leads("way/a/../b"), Some(PathBuf::from("/proc/self/cwd/a/../b")));
        assert_eq!(leads("other/new"), Some(PathBuf::from("/proc/self/cwd/new")));
        assert_eq!((leads("circle"), leads("none/x"), leads("")), (None, None, None));
    }

    #[test]
    fn magic_links_lead_nowhere() {
        let root: OwnedFd = std::fs::File::open("/").expect("the root").into();
        let own = format!("/proc/{}", std::process::id());
        for path in [format!("{own}/root/etc"), format!("{own}/cwd"), format!("{own}/fd/1"), format!("{own}/exe")] {
            assert_eq!(in_root(&root, Path::new(&path), true).map(drop), Err(Errno::LOOP), "{path}");
            assert_eq!(walk(&root, Path::new(&path), true).map(drop), Err(Errno::LOOP), "{path}");
        }
        assert!(in_root(&root, Path::new(&format!("{own}/status")), true).is_ok());
        assert!(walk(&root, Path::new(&format!("{own}/status")), true).is_ok());
    }
}
