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
    if let Some((_, number)) = errnos().find(|(name, _)| *name == text) {
        return Some(number);
    }
    if text.is_empty() {
        return None;
    }
    let number = text.iter().try_fold(0u16, |number, byte| {
        byte.is_ascii_digit().then(|| number.checked_mul(10)?.checked_add(u16::from(byte - b'0')))?
    })?;
    (1..=MAX_ERRNO).contains(&number).then_some(number)
}

/// The name of an errno, if it has one.
pub fn errno_name(number: u16) -> Option<&'static str> {
    let (name, _) = errnos().find(|(_, known)| *known == number)?;
    core::str::from_utf8(name).ok()
}

/// Every name of an errno with its number. A number with two names comes with the usual one first.
pub fn errnos() -> impl Iterator<Item = (&'static [u8], u16)> {
    let numbered = ERRNOS.as_bytes().split(|byte| *byte == b' ').zip(1..=MAX_ERRNO);
    let second = SECOND.iter().map(|(name, number)| (*name, *number));
    numbered.filter(|(name, _)| *name != b"-").chain(second)
}

/// The names of the errnos from 1 up; `-` where a number has none. The numbers are the same on every architecture that
/// we build for (asm-generic/errno.h). One text, because a table of names would hold a pointer to each, which the loader
/// relocates at every start.
const ERRNOS: &str = "EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST \
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM \
    ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG \
    EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT - EBFONT ENOSTR ENODATA ETIME ENOSR ENONET \
    ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG \
    ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE \
    EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE \
    EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN \
    ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL \
    EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD \
    ENOTRECOVERABLE ERFKILL EHWPOISON";

/// Second names of numbers.
const SECOND: [(&[u8], u16); 3] = [(b"EWOULDBLOCK", 11), (b"EDEADLOCK", 35), (b"ENOTSUP", 95)];

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
    fn every_name_has_its_number() {
        for (name, number) in [
            ("EPERM", 1),
            ("ERANGE", 34),
            ("EDEADLK", 35),
            ("ELOOP", 40),
            ("ENOMSG", 42),
            ("EBADSLT", 57),
            ("EBFONT", 59),
            ("EOPNOTSUPP", 95),
            ("ETIMEDOUT", 110),
            ("EHWPOISON", 133),
        ] {
            assert_eq!((errno(name.as_bytes()), errno_name(number)), (Some(number), Some(name)));
        }
        for (second, first) in [("EWOULDBLOCK", "EAGAIN"), ("EDEADLOCK", "EDEADLK"), ("ENOTSUP", "EOPNOTSUPP")] {
            let number = errno(second.as_bytes());
            assert_eq!(number, errno(first.as_bytes()));
            assert_eq!(number.and_then(errno_name), Some(first));
        }
        for number in [0, 41, 58, 134] {
            assert_eq!(errno_name(number), None);
        }
        // 133 numbers but 41 and 58, and three second names.
        assert_eq!(errnos().count(), 134);
        assert!(errnos().all(|(name, _)| name.starts_with(b"E") && name.is_ascii()));
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
            "errno:-",
            "errno:eacces",
            "errno:EPERM ENOENT",
            "errno:-1",
            "errno: 1",
            "kill ",
        ] {
            assert_eq!(Action::parse(text.as_bytes()), None, "{text}");
        }
    }
}
