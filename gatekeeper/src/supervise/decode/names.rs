//! The names of kernel constants, and functions that format a value or a set of flags with them.

/// Constants and their names.
pub type Values = &'static [(u64, &'static str)];

/// The name of a value, or the number if it has none.
pub fn one(table: Values, value: u64) -> String {
    known(table, value).map_or_else(|| number(value), str::to_owned)
}

fn known(table: Values, value: u64) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == value).map(|(_, name)| *name)
}

/// The names of the flags that are set. Unknown bits follow as a number.
pub fn bits(table: Values, value: u64) -> String {
    let mut left = value;
    let mut words = Vec::new();
    for (bit, name) in table.iter().filter(|(bit, _)| *bit != 0) {
        if left & bit == *bit {
            left &= !bit;
            words.push((*name).to_owned());
        }
    }
    if left != 0 || words.is_empty() {
        words.push(if words.is_empty() { one(table, left) } else { number(left) });
    }
    words.join("|")
}

/// Small numbers in decimal, large ones in hexadecimal.
pub fn number(value: u64) -> String {
    if value < 4096 { value.to_string() } else { format!("{value:#x}") }
}

/// An enumeration in the lowest bits, followed by flags.
pub fn under(low: Values, mask: u64, flags: Values, value: u64) -> String {
    let base = one(low, value & mask);
    match value & !mask {
        0 => base,
        rest => format!("{base}|{}", bits(flags, rest)),
    }
}

macro_rules! values {
    ($($name:ident)* $(; $other:ident = $value:literal)*) => {
        &[$((libc::$name as u64 & 0xffff_ffff, stringify!($name)),)* $(($value, stringify!($other)),)*]
    };
}

pub const ACCESS_MODE: Values = values![O_RDONLY O_WRONLY O_RDWR];
/// Flags of several bits come before those that they contain.
pub const OPEN: Values = values![O_TMPFILE O_SYNC O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_DSYNC O_ASYNC
    O_DIRECT O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH];
pub const AT: Values = values![AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH];
pub const RENAME: Values = values![RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT];
pub const REACH: Values = &[(0, "F_OK"), (4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
pub const FAMILIES: Values = values![AF_UNSPEC AF_UNIX AF_INET AF_AX25 AF_IPX AF_APPLETALK AF_X25 AF_INET6 AF_KEY
    AF_NETLINK AF_PACKET AF_RDS AF_PPPOX AF_LLC AF_IB AF_CAN AF_TIPC AF_BLUETOOTH AF_RXRPC AF_PHONET AF_ALG AF_NFC
    AF_VSOCK AF_XDP];
pub const SOCKET_KINDS: Values = values![SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET SOCK_DCCP];
pub const SOCKET_FLAGS: Values = values![SOCK_NONBLOCK SOCK_CLOEXEC];
pub const MESSAGE: Values = values![MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL
    MSG_CONFIRM MSG_NOSIGNAL MSG_MORE MSG_FASTOPEN MSG_CMSG_CLOEXEC];
pub const SIGNALS: Values = values![SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV
    SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ
    SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS];
pub const CLONE: Values = values![CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK
    CLONE_PARENT CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID
    CLONE_DETACHED CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC CLONE_NEWUSER
    CLONE_NEWPID CLONE_NEWNET CLONE_IO];
/// For unshare and setns, where the lowest byte is not a signal.
pub const NAMESPACES: Values = &[
    (0x80, "CLONE_NEWTIME"),
    (0x2_0000, "CLONE_NEWNS"),
    (0x200_0000, "CLONE_NEWCGROUP"),
    (0x400_0000, "CLONE_NEWUTS"),
    (0x800_0000, "CLONE_NEWIPC"),
    (0x1000_0000, "CLONE_NEWUSER"),
    (0x2000_0000, "CLONE_NEWPID"),
    (0x4000_0000, "CLONE_NEWNET"),
    (0x100, "CLONE_VM"),
    (0x200, "CLONE_FS"),
    (0x400, "CLONE_FILES"),
];
pub const PROTECTION: Values = &[(0, "PROT_NONE"), (1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC")];
pub const MAPPING: Values = values![MAP_SHARED_VALIDATE MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN
    MAP_DENYWRITE MAP_EXECUTABLE MAP_LOCKED MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB
    MAP_FIXED_NOREPLACE];
pub const PTRACE: Values = values![PTRACE_TRACEME PTRACE_PEEKTEXT PTRACE_PEEKDATA PTRACE_POKETEXT PTRACE_POKEDATA
    PTRACE_CONT PTRACE_KILL PTRACE_SINGLESTEP PTRACE_ATTACH PTRACE_DETACH PTRACE_SYSCALL PTRACE_SETOPTIONS
    PTRACE_GETREGSET PTRACE_SETREGSET PTRACE_SEIZE PTRACE_INTERRUPT PTRACE_LISTEN];
pub const MOUNT: Values = values![MS_RDONLY MS_NOSUID MS_NODEV MS_NOEXEC MS_REMOUNT MS_BIND MS_MOVE MS_REC MS_UNBINDABLE
    MS_PRIVATE MS_SLAVE MS_SHARED MS_NOATIME MS_SILENT];
pub const UNMOUNT: Values = values![MNT_FORCE MNT_DETACH MNT_EXPIRE UMOUNT_NOFOLLOW];
pub const PRCTL: Values = values![PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_GET_KEEPCAPS
    PR_SET_KEEPCAPS PR_SET_NAME PR_GET_NAME PR_GET_SECCOMP PR_SET_SECCOMP PR_CAPBSET_READ PR_CAPBSET_DROP
    PR_GET_SECUREBITS PR_SET_SECUREBITS PR_SET_TIMERSLACK PR_SET_MM PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER
    PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS PR_SET_THP_DISABLE PR_CAP_AMBIENT PR_SET_PTRACER PR_SET_VMA];
pub const PERSONALITY: Values = values![ADDR_NO_RANDOMIZE READ_IMPLIES_EXEC ADDR_COMPAT_LAYOUT SHORT_INODE
    MMAP_PAGE_ZERO STICKY_TIMEOUTS; UNAME26 = 0x20000];
pub const IOCTL: Values = values![TCGETS TCSETS TCSETSW TCSETSF TIOCGWINSZ TIOCSWINSZ TIOCSTI TIOCLINUX TIOCGPGRP
    TIOCSPGRP TIOCSCTTY TIOCNOTTY TIOCEXCL TIOCCONS TIOCSETD TIOCGPTN TIOCSPTLCK FIONREAD FIONBIO FIOASYNC FIOCLEX
    FIONCLEX FICLONE FICLONERANGE FS_IOC_GETFLAGS FS_IOC_SETFLAGS SIOCGIFCONF SIOCGIFNAME SIOCGIFFLAGS SIOCSIFFLAGS
    SIOCGIFADDR SIOCGIFINDEX SIOCETHTOOL];
pub const CREATE_MODES: Values = values![S_IFREG S_IFCHR S_IFBLK S_IFIFO S_IFSOCK];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_named_and_what_is_left_is_shown() {
        assert_eq!(bits(PROTECTION, 0), "PROT_NONE");
        assert_eq!(bits(PROTECTION, 7), "PROT_READ|PROT_WRITE|PROT_EXEC");
        assert_eq!(bits(PROTECTION, 0x1_0002), "PROT_WRITE|0x10000");
        assert_eq!(bits(AT, 0), "0");
        assert_eq!(bits(AT, 1), "1");
        assert_eq!(bits(OPEN, libc::O_TMPFILE as u64), "O_TMPFILE");
        assert_eq!(bits(OPEN, libc::O_DIRECTORY as u64), "O_DIRECTORY");
    }

    #[test]
    fn no_value_stands_twice_in_a_table() {
        for table in [OPEN, AT, FAMILIES, SIGNALS, CLONE, PRCTL, PTRACE, MOUNT] {
            for (at, (value, name)) in table.iter().enumerate() {
                assert!(!table[at + 1..].iter().any(|(other, _)| other == value), "{name}");
            }
        }
    }
}
