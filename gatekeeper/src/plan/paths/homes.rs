//! Home directories as the system has them. HOME is only what the caller's environment says: it may be unset, or lead
//! elsewhere, and the keys are still where they were.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Homes {
    /// Of this user.
    pub own: Vec<PathBuf>,
    /// Of all others, where this user is root and reads them.
    pub others: Vec<PathBuf>,
}

/// The user id and the home of each line of /etc/passwd.
pub fn in_passwd(text: &[u8]) -> impl Iterator<Item = (u32, PathBuf)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':').skip(2);
        let uid = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let home = Path::new(OsStr::from_bytes(fields.nth(2)?));
        home.is_absolute().then(|| (uid, home.to_owned()))
    })
}

/// Accounts of the system have these as their homes. Programs are kept there, not keys, and some are very long.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/nonexistent"];

/// Whether credentials are looked for in a home of another user.
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
        assert_eq!(homes, expected.map(|(uid, home)| (uid, PathBuf::from(home))));
    }

    #[test]
    fn directories_of_the_system_are_no_homes_with_keys() {
        assert!(!["/", "/usr/sbin", "/bin", "/dev", "/nonexistent"].iter().any(|home| may_hold_keys(Path::new(home))));
        assert!(["/root", "/home/a", "/var/lib/x", "/srv"].iter().all(|home| may_hold_keys(Path::new(home))));
    }
}
