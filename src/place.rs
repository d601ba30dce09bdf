//! Writes the library to a file that no other user can have created, and returns its path.
//!
//! The directory is writable only by this user, and so are those above it. An existing file is compared byte by byte on
//! every use. Any number of processes may do this at the same time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const DIRECTORY: &str = "libsandbox";
const MODE: u32 = 0o500;

/// Writes the library below `XDG_RUNTIME_DIR`, or else below the user's cache directory, unless it is already there.
///
/// The path is usable in `LD_PRELOAD`: absolute, without spaces or colons, and not on a noexec mount.
pub(crate) fn on_disk(bytes: &[u8]) -> io::Result<PathBuf> {
    let user = effective_user()?;
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let bases = [
        variable("XDG_RUNTIME_DIR"),
        variable("XDG_CACHE_HOME"),
        variable("HOME").filter(|home| home.is_dir()).map(|home| home.join(".cache")),
    ];
    let mut reasons = String::from("no private directory for libsandbox.so");
    for base in bases.into_iter().flatten() {
        match below(&base, user, bytes) {
            Ok(path) => return Ok(path),
            Err(error) => reasons.push_str(&format!("; {}: {error}", base.display())),
        }
    }
    Err(io::Error::other(reasons))
}

fn below(base: &Path, user: u32, bytes: &[u8]) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let base = fs::canonicalize(base)?;
    let around = fs::metadata(&base)?;
    if around.uid() != user || around.mode() & 0o022 != 0 {
        return Err(refused("it belongs to another user, or other users may write to it"));
    }
    if let Some(above) = replaceable(&base, user)? {
        return Err(refused(&format!("other users may replace it in {}", above.display())));
    }
    let directory = base.join(DIRECTORY);
    match DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let made = fs::symlink_metadata(&directory)?;
    if !made.is_dir() || made.uid() != user || made.mode() & 0o077 != 0 {
        return Err(refused("the directory libsandbox in it is not private to this user"));
    }
    let text = directory.to_str().ok_or_else(|| refused("its path is not UTF-8"))?;
    if text.contains([' ', ':', '\t', '\n']) {
        return Err(refused("LD_PRELOAD cannot name a path with a space or a colon"));
    }
    if !may_execute(&directory)? {
        return Err(refused("it is mounted noexec"));
    }
    let path = directory.join(format!("libsandbox-{}-{:016x}.so", env!("CARGO_PKG_VERSION"), fingerprint(bytes)));
    if !holds(&path, user, bytes) {
        write(&directory, &path, bytes)?;
        if !holds(&path, user, bytes) {
            return Err(refused("the file changed while it was written"));
        }
    }
    Ok(path)
}

/// The first parent directory in which another user could replace `base` or one of its parents.
fn replaceable(base: &Path, user: u32) -> io::Result<Option<PathBuf>> {
    // In a user namespace, every unmapped user, including root outside, appears as this id.
    let unmapped = match fs::read_to_string("/proc/self/uid_map")?.split_whitespace().nth(2) {
        Some("4294967295") => None,
        _ => fs::read_to_string("/proc/sys/kernel/overflowuid")?.trim().parse().ok(),
    };
    for above in base.ancestors().skip(1) {
        let found = fs::metadata(above)?;
        let trusted = [0, user].contains(&found.uid()) || Some(found.uid()) == unmapped;
        let sticky = found.mode() & 0o1000 != 0;
        if !trusted || (found.mode() & 0o022 != 0 && !sticky) {
            return Ok(Some(above.to_owned()));
        }
    }
    Ok(None)
}

/// Whether the file is private to this user and contains exactly these bytes.
fn holds(path: &Path, user: u32, bytes: &[u8]) -> bool {
    let compare = || -> io::Result<bool> {
        let named = fs::symlink_metadata(path)?;
        if !named.is_file() {
            return Ok(false);
        }
        let mut file = File::open(path)?;
        let opened = file.metadata()?;
        let same = (named.dev(), named.ino()) == (opened.dev(), opened.ino());
        let private = opened.uid() == user && opened.mode() & 0o7777 == MODE && opened.nlink() == 1;
        if !same || !private || opened.len() != bytes.len() as u64 {
            return Ok(false);
        }
        let mut found = Vec::with_capacity(bytes.len());
        file.read_to_end(&mut found)?;
        Ok(found == bytes)
    };
    compare().unwrap_or(false)
}

/// Writes a temporary file and renames it, so that no loader ever maps half a library.
fn write(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    let beside = directory.join(format!(".new-{}-{count}-{time:x}", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        // The umask may have removed bits.
        file.set_permissions(Permissions::from_mode(MODE))?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// From /proc/self/status: the owner of /proc/self is root if the process is not dumpable.
fn effective_user() -> io::Result<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = line.and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
    user.ok_or_else(|| refused("/proc/self/status names no user"))
}

/// Whether the mount of a directory allows executable mappings. The loader skips a library that it cannot map.
fn may_execute(directory: &Path) -> io::Result<bool> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mut best: Option<(usize, bool)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else { continue };
        // mountinfo escapes a space as \040, but paths with spaces were refused above.
        let length = point.len();
        if directory.starts_with(point) && best.is_none_or(|(longest, _)| length >= longest) {
            best = Some((length, !options.split(',').any(|option| option == "noexec")));
        }
    }
    best.map(|(_, may)| may).ok_or_else(|| refused("/proc/self/mountinfo does not list its mount"))
}

/// Distinguishes builds in the file's name. Not a security check: `holds` compares the bytes.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
