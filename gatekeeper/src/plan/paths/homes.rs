//! Home directories according to the system. HOME alone is not enough: it may be unset or changed, and the user's keys
//! are still in the real home.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Homes {
    /// This user's homes.
    pub own: Vec<PathBuf>,
    /// All other users' homes, if this user is root and so can read them.
    pub others: Vec<PathBuf>,
}

/// The user id and the home of each line of /etc/passwd.
pub fn in_passwd(text: &[u8]) -> impl Iterator<Item = (u32, &Path)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':').skip(2);
        let uid = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let home = Path::new(OsStr::from_bytes(fields.nth(2)?));
        home.is_absolute().then_some((uid, home))
    })
}

/// The home of a user by name.
pub fn of(text: &[u8], name: &[u8]) -> Option<PathBuf> {
    let line = text.split(|byte| *byte == b'\n').find(|line| line.split(|byte| *byte == b':').next() == Some(name))?;
    let home = Path::new(OsStr::from_bytes(line.split(|byte| *byte == b':').nth(5)?));
    home.is_absolute().then(|| home.to_owned())
}

/// Homes of system accounts. They hold programs, not keys, and some are very large.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/nonexistent"];

/// Whether to look for credentials in another user's home.
pub fn may_hold_keys(home: &Path) -> bool {
    home != Path::new("/") && !PROGRAMS.iter().any(|top| home.starts_with(top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_passwd_gives_its_home_and_a_broken_one_nothing() {
        let text = b"root:x:0:0:root:/root:/bin/bash\n\nbroken\nodd:x:many:1::/odd:\n\
                     a:x:1000:1000:A, B:/home/a:/bin/sh\nrelative:x:1001:1001::home:/bin/sh\n+nis\nlast:x:7:7::/srv/l";
        let homes: Vec<_> = in_passwd(text).collect();
        let expected = [(0, "/root"), (1000, "/home/a"), (7, "/srv/l")];
        assert_eq!(homes, expected.map(|(uid, home)| (uid, Path::new(home))));
        assert_eq!(of(text, b"a"), Some(PathBuf::from("/home/a")));
        assert!([&b"nobody"[..], b"", b"broken", b"relative"].iter().all(|name| of(text, name).is_none()));
    }

    #[test]
    fn homes_of_system_accounts_hold_no_keys() {
        assert!(!["/", "/usr/sbin", "/bin", "/dev", "/nonexistent"].iter().any(|home| may_hold_keys(Path::new(home))));
        assert!(["/root", "/home/a", "/var/lib/x", "/srv"].iter().all(|home| may_hold_keys(Path::new(home))));
    }
}
