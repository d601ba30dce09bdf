//! truncate(2), performed by the supervisor for the program. Landlock restricts truncation since ABI 3 (Linux 6.2); before that, the
//! filter refuses opens that truncate without write access, and the supervisor checks which file truncate(2) names.

use rustix::fs::FileType;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

/// A length that a program asks for, with its limit on the size of files.
pub struct Length {
    pub bytes: i64,
    pub limit: Option<u64>,
}

impl Length {
    pub fn asked(bytes: u64, tid: i32) -> Length {
        let text = std::fs::read_to_string(format!("/proc/{tid}/limits")).unwrap_or_default();
        Length { bytes: bytes.cast_signed(), limit: limit_in(&text) }
    }

    /// Sets it. The kernel checks the file's own permissions, for this process, which is the same user.
    pub fn set(&self, file: &OwnedFd) -> io::Result<()> {
        let refused = |errno: i32| Err(io::Error::from_raw_os_error(errno));
        let Ok(bytes) = u64::try_from(self.bytes) else { return refused(libc::EINVAL) };
        match FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return refused(libc::EISDIR),
            _ => return refused(libc::EINVAL),
        }
        if self.limit.is_some_and(|limit| bytes > limit) {
            return refused(libc::EFBIG);
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        options.open(crate::trust::by_descriptor(file))?.set_len(bytes)
    }
}

/// The soft limit on file sizes in /proc/PID/limits; `None` if there is none. A file that does not say allows nothing.
fn limit_in(limits: &str) -> Option<u64> {
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max file size")?.split_whitespace().next());
    match soft {
        Some("unlimited") => None,
        soft => Some(soft.and_then(|text| text.parse().ok()).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_set_within_the_limit_on_regular_files_only() {
        let directory = std::env::temp_dir().join(format!("length-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        let file = directory.join("file");
        std::fs::write(&file, "contents").expect("own directory");
        let open = |path: &std::path::Path| OwnedFd::from(std::fs::File::open(path).expect("there"));
        let set = |bytes: i64, limit: Option<u64>, path: &std::path::Path| {
            Length { bytes, limit }.set(&open(path)).map_err(|error| error.raw_os_error())
        };
        assert_eq!(set(3, None, &file), Ok(()));
        assert_eq!(std::fs::read(&file).expect("there"), b"con");
        assert_eq!(set(9, Some(8), &file), Err(Some(libc::EFBIG)));
        assert_eq!(set(-1, None, &file), Err(Some(libc::EINVAL)));
        assert_eq!(set(0, None, &directory), Err(Some(libc::EISDIR)));
        assert_eq!(set(0, None, std::path::Path::new("/dev/null")), Err(Some(libc::EINVAL)));
        assert_eq!(std::fs::read(&file).expect("there"), b"con");
        std::fs::remove_dir_all(&directory).expect("own directory");
    }

    #[test]
    fn the_limit_is_the_soft_one() {
        let row = |soft: &str| {
            format!("Limit   Soft Limit   Hard Limit   Units\nMax file size   {soft}   unlimited   bytes\n")
        };
        assert_eq!(limit_in(&row("unlimited")), None);
        assert_eq!(limit_in(&row("4096")), Some(4096));
        assert_eq!(limit_in(""), Some(0));
        let own = Length::asked(u64::MAX, std::process::id() as i32);
        assert!(own.bytes == -1 && own.limit.is_none_or(|limit| limit > 0));
    }
}
