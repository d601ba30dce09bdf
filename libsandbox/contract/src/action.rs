//! `SECCOMP_DEFAULT_ACTION`: what happens on a denied call.

use crate::bpf::ret;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The process dies by SIGSYS.
    Kill,
    /// The kernel logs the call and makes it.
    Log,
    /// The call fails with this errno.
    Errno(u16),
    /// One line on stderr names the call, then the process dies by SIGSYS.
    Trap,
}

/// The actions by name, for messages and suggestions.
pub const WORDS: [&str; 4] = ["kill", "log", "errno", "trap"];

/// The kernel's MAX_ERRNO; it caps the errno of a filter at this value.
const MAX_ERRNO: u16 = 4095;
const EPERM: u16 = 1;

impl Action {
    /// Reads `kill`, `log`, `trap`, `errno`, `errno:EACCES` or `errno:13`.
    pub fn parse(text: &[u8]) -> Option<Action> {
        match text {
            b"kill" => Some(Action::Kill),
            b"log" => Some(Action::Log),
            b"trap" => Some(Action::Trap),
            b"errno" => Some(Action::Errno(EPERM)),
            _ => errno(text.strip_prefix(b"errno:")?).map(Action::Errno),
        }
    }

    /// The return value of a filter for this action.
    pub const fn ret(self) -> u32 {
        match self {
            Action::Kill => ret::KILL_PROCESS,
            Action::Log => ret::LOG,
            Action::Trap => ret::TRAP,
            Action::Errno(errno) => ret::errno(errno),
        }
    }
}

/// An errno by name, or by number from 1 to 4095.
pub fn errno(text: &[u8]) -> Option<u16> {
    if let Some((_, number)) = ERRNOS.iter().find(|(name, _)| name.as_bytes() == text) {
        return Some(*number);
    }
    if text.is_empty() {
        return None;
    }
    let number = text.iter().try_fold(0u16, |number, byte| {
        byte.is_ascii_digit().then(|| number.checked_mul(10)?.checked_add(u16::from(byte - b'0')))?
    })?;
    (1..=MAX_ERRNO).contains(&number).then_some(number)
}

/// The name of an errno, if it is in the table below.
pub fn errno_name(number: u16) -> Option<&'static str> {
    ERRNOS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// The numbers are the same on every architecture that we build for (asm-generic/errno*.h).
pub const ERRNOS: [(&str, u16); 36] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("EROFS", 30),
    ("EPIPE", 32),
    ("ERANGE", 34),
    ("ENAMETOOLONG", 36),
    ("ENOSYS", 38),
    ("ENODATA", 61),
    ("EPROTO", 71),
    ("EUSERS", 87),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
    ("ENETUNREACH", 101),
    ("ECONNREFUSED", 111),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_words_and_errno_forms() {
        assert_eq!(Action::parse(b"kill"), Some(Action::Kill));
        assert_eq!(Action::parse(b"log"), Some(Action::Log));
        assert_eq!(Action::parse(b"trap"), Some(Action::Trap));
        assert_eq!(Action::parse(b"errno"), Some(Action::Errno(1)));
        assert_eq!(Action::parse(b"errno:EACCES"), Some(Action::Errno(13)));
        assert_eq!(Action::parse(b"errno:4095"), Some(Action::Errno(4095)));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "KILL",
            "allow",
            "errno:",
            "errno:0",
            "errno:4096",
            "errno:99999999",
            "errno:EWHAT",
            "errno:-1",
            "errno: 1",
            "kill ",
        ] {
            assert_eq!(Action::parse(text.as_bytes()), None, "{text}");
        }
    }
}
