//! Formats the arguments of a syscall for reports, as strace(1) does: names for constants, text for paths and
//! addresses.
//!
//! One table gives the types of the arguments. Syscalls that are not in it are shown with plain numbers. Strings are
//! read from the program's memory and may have changed since.

pub mod address;
pub mod names;

use super::target::{Memory, shown};
use crate::sys::notify::Call;
use Kind::{
    Address, Bits, Clone_, Descriptor, Directory, Id, Ioctl, MakeMode, Mode, Number, One, Open, Path, Pointer, Signal,
    SocketType,
};
use address::Peer;
use names as n;

/// The type of an argument.
#[derive(Clone, Copy)]
enum Kind {
    Number,
    /// A user or group ID; -1 means unchanged.
    Id,
    Descriptor,
    /// A descriptor, or AT_FDCWD.
    Directory,
    Path,
    Pointer,
    Open,
    /// Permission bits.
    Mode,
    /// Permission bits and file type.
    MakeMode,
    One(n::Values),
    Bits(n::Values),
    Clone_,
    Signal,
    SocketType,
    Ioctl,
    /// A socket address; its length is in the argument with this index.
    Address(usize),
}

const SIGNATURES: &[(&str, &[Kind])] = &[
    ("open", &[Path, Open, Mode]),
    ("openat", &[Directory, Path, Open, Mode]),
    ("openat2", &[Directory, Path, Pointer, Number]),
    ("creat", &[Path, Mode]),
    ("unlink", &[Path]),
    ("unlinkat", &[Directory, Path, Bits(n::AT)]),
    ("rmdir", &[Path]),
    ("mkdir", &[Path, Mode]),
    ("mkdirat", &[Directory, Path, Mode]),
    ("mknod", &[Path, MakeMode, Number]),
    ("mknodat", &[Directory, Path, MakeMode, Number]),
    ("rename", &[Path, Path]),
    ("renameat", &[Directory, Path, Directory, Path]),
    ("renameat2", &[Directory, Path, Directory, Path, Bits(n::RENAME)]),
    ("link", &[Path, Path]),
    ("linkat", &[Directory, Path, Directory, Path, Bits(n::AT)]),
    ("symlink", &[Path, Path]),
    ("symlinkat", &[Path, Directory, Path]),
    ("truncate", &[Path, Number]),
    ("ftruncate", &[Descriptor, Number]),
    ("chmod", &[Path, Mode]),
    ("fchmod", &[Descriptor, Mode]),
    ("fchmodat", &[Directory, Path, Mode]),
    ("fchmodat2", &[Directory, Path, Mode, Bits(n::AT)]),
    ("chown", &[Path, Id, Id]),
    ("lchown", &[Path, Id, Id]),
    ("fchown", &[Descriptor, Id, Id]),
    ("fchownat", &[Directory, Path, Id, Id, Bits(n::AT)]),
    ("utime", &[Path, Pointer]),
    ("utimes", &[Path, Pointer]),
    ("futimesat", &[Directory, Path, Pointer]),
    ("utimensat", &[Directory, Path, Pointer, Bits(n::AT)]),
    ("setxattr", &[Path, Path, Pointer, Number, Number]),
    ("lsetxattr", &[Path, Path, Pointer, Number, Number]),
    ("fsetxattr", &[Descriptor, Path, Pointer, Number, Number]),
    ("removexattr", &[Path, Path]),
    ("lremovexattr", &[Path, Path]),
    ("fremovexattr", &[Descriptor, Path]),
    ("access", &[Path, Bits(n::REACH)]),
    ("faccessat", &[Directory, Path, Bits(n::REACH)]),
    ("faccessat2", &[Directory, Path, Bits(n::REACH), Bits(n::AT)]),
    ("chdir", &[Path]),
    ("fchdir", &[Descriptor]),
    ("chroot", &[Path]),
    ("readlink", &[Path, Pointer, Number]),
    ("stat", &[Path, Pointer]),
    ("lstat", &[Path, Pointer]),
    ("newfstatat", &[Directory, Path, Pointer, Bits(n::AT)]),
    ("statx", &[Directory, Path, Bits(n::AT), Number, Pointer]),
    ("execve", &[Path, Pointer, Pointer]),
    ("execveat", &[Directory, Path, Pointer, Pointer, Bits(n::AT)]),
    ("fork", &[]),
    ("vfork", &[]),
    ("clone", &[Clone_, Pointer, Pointer, Pointer, Pointer]),
    ("clone3", &[Pointer, Number]),
    ("unshare", &[Bits(n::NAMESPACES)]),
    ("setns", &[Descriptor, Bits(n::NAMESPACES)]),
    ("kill", &[Number, Signal]),
    ("tkill", &[Number, Signal]),
    ("tgkill", &[Number, Number, Signal]),
    ("rt_sigqueueinfo", &[Number, Signal, Pointer]),
    ("pidfd_send_signal", &[Descriptor, Signal, Pointer, Number]),
    ("pidfd_open", &[Number, Bits(&[(0x800, "PIDFD_NONBLOCK")])]),
    ("pidfd_getfd", &[Descriptor, Descriptor, Number]),
    ("ptrace", &[One(n::PTRACE), Number, Pointer, Pointer]),
    ("process_vm_readv", &[Number, Pointer, Number, Pointer, Number, Number]),
    ("process_vm_writev", &[Number, Pointer, Number, Pointer, Number, Number]),
    ("prctl", &[One(n::PRCTL), Number, Number, Number, Number]),
    ("personality", &[Bits(n::PERSONALITY)]),
    ("prlimit64", &[Number, Number, Pointer, Pointer]),
    ("ioctl", &[Descriptor, Ioctl, Pointer]),
    ("mmap", &[Pointer, Number, Bits(n::PROTECTION), Bits(n::MAPPING), Descriptor, Number]),
    ("mprotect", &[Pointer, Number, Bits(n::PROTECTION)]),
    ("mount", &[Path, Path, Path, Bits(n::MOUNT), Pointer]),
    ("umount2", &[Path, Bits(n::UNMOUNT)]),
    ("pivot_root", &[Path, Path]),
    ("socket", &[One(n::FAMILIES), SocketType, Number]),
    ("socketpair", &[One(n::FAMILIES), SocketType, Number, Pointer]),
    ("connect", &[Descriptor, Address(2), Number]),
    ("bind", &[Descriptor, Address(2), Number]),
    ("listen", &[Descriptor, Number]),
    ("accept", &[Descriptor, Pointer, Pointer]),
    ("accept4", &[Descriptor, Pointer, Pointer, Bits(n::SOCKET_FLAGS)]),
    ("sendto", &[Descriptor, Pointer, Number, Bits(n::MESSAGE), Address(5), Number]),
    ("recvfrom", &[Descriptor, Pointer, Number, Bits(n::MESSAGE), Pointer, Pointer]),
    ("sendmsg", &[Descriptor, Pointer, Bits(n::MESSAGE)]),
    ("sendmmsg", &[Descriptor, Pointer, Number, Bits(n::MESSAGE)]),
    ("recvmsg", &[Descriptor, Pointer, Bits(n::MESSAGE)]),
    ("setsockopt", &[Descriptor, Number, Number, Pointer, Number]),
    ("getsockopt", &[Descriptor, Number, Number, Pointer, Pointer]),
    ("shutdown", &[Descriptor, One(&[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")])]),
    ("setuid", &[Id]),
    ("setgid", &[Id]),
    ("setreuid", &[Id, Id]),
    ("setregid", &[Id, Id]),
    ("setresuid", &[Id, Id, Id]),
    ("setresgid", &[Id, Id, Id]),
    ("setfsuid", &[Id]),
    ("setfsgid", &[Id]),
    ("setgroups", &[Number, Pointer]),
    ("sethostname", &[Path, Number]),
    ("setdomainname", &[Path, Number]),
    ("bpf", &[Number, Pointer, Number]),
    ("perf_event_open", &[Pointer, Number, Number, Descriptor, Number]),
    ("userfaultfd", &[Bits(&[(1, "UFFD_USER_MODE_ONLY"), (0x800, "O_NONBLOCK"), (0x8_0000, "O_CLOEXEC")])]),
    ("add_key", &[Path, Path, Pointer, Number, Number]),
    ("keyctl", &[Number, Number, Number, Number, Number]),
    ("open_by_handle_at", &[Directory, Pointer, Open]),
    ("name_to_handle_at", &[Directory, Path, Pointer, Pointer, Bits(n::AT)]),
    ("init_module", &[Pointer, Number, Path]),
    ("finit_module", &[Descriptor, Path, Number]),
    ("delete_module", &[Path, Open]),
    ("swapon", &[Path, Number]),
    ("swapoff", &[Path]),
    ("acct", &[Path]),
    ("settimeofday", &[Pointer, Pointer]),
    ("clock_settime", &[Number, Pointer]),
    ("adjtimex", &[Pointer]),
    ("quotactl", &[Number, Path, Number, Pointer]),
    ("vhangup", &[]),
    ("sync", &[]),
    ("kcmp", &[Number, Number, Number, Number, Number]),
    ("iopl", &[Number]),
    ("ioperm", &[Number, Number, Number]),
    ("memfd_secret", &[Number]),
    ("syslog", &[Number, Pointer, Number]),
    ("capset", &[Pointer, Pointer]),
];

const MAKES: i32 = libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY);

/// Longer strings are truncated.
const LONGEST: usize = 200;

/// Formats the arguments of a call.
pub fn arguments(name: &str, call: &Call, memory: &dyn Memory) -> Vec<String> {
    match SIGNATURES.iter().find(|(known, _)| *known == name) {
        Some((_, kinds)) => {
            let takes = |(at, kind): &(usize, &Kind)| match (kind, kinds.get(at.wrapping_sub(1))) {
                // The mode argument is garbage unless the call creates a file.
                (Mode, Some(Open)) => call.args[at - 1] as i32 & MAKES != 0,
                _ => true,
            };
            let kinds = kinds.iter().enumerate().filter(takes);
            kinds.map(|(at, kind)| kind.shown(call.args[at], &call.args, memory)).collect()
        }
        None => call.args.iter().map(|arg| n::number(*arg)).collect(),
    }
}

/// The address in a call of connect, bind, sendto, sendmsg or sendmmsg.
pub fn peer(name: &str, call: &Call, memory: &dyn Memory) -> Option<Peer> {
    match name {
        "connect" | "bind" => address::read(memory, call.args[1], call.args[2]),
        "sendto" => address::read(memory, call.args[4], call.args[5]),
        "sendmsg" | "sendmmsg" => address::of_message(memory, call.args[1]),
        _ => None,
    }
}

impl Kind {
    fn shown(self, value: u64, args: &[u64; 6], memory: &dyn Memory) -> String {
        // The kernel reads only 32 bits of most of these.
        let word = u64::from(value as u32);
        match self {
            Number if value as i64 >= -4096 && (value as i64) < 0 => (value as i64).to_string(),
            Number if (word as u32 as i32) < 0 && (word as u32 as i32) >= -4096 => (word as u32 as i32).to_string(),
            Number => n::number(value),
            Id if value as u32 == u32::MAX => "-1".to_owned(),
            Id => (value as u32).to_string(),
            Descriptor => (value as i32).to_string(),
            Directory if value as i32 == libc::AT_FDCWD => "AT_FDCWD".to_owned(),
            Directory => (value as i32).to_string(),
            Path if value == 0 => "NULL".to_owned(),
            Path => memory.path(value).map_or_else(|_| "?".to_owned(), |path| cut(shown(&path))),
            Pointer if value == 0 => "NULL".to_owned(),
            Pointer => "ptr".to_owned(),
            Open => n::under(n::ACCESS_MODE, 3, n::OPEN, word),
            Mode => format!("{:04o}", word),
            MakeMode => {
                let kind = match word & u64::from(libc::S_IFMT) {
                    0 => "S_IFREG".to_owned(),
                    kind => n::one(n::CREATE_MODES, kind),
                };
                format!("{kind}|{:04o}", word & 0o7777)
            }
            One(table) => n::one(table, word),
            Bits(table) => n::bits(table, word),
            Clone_ => match (value & !0xff, value & 0xff) {
                (0, signal) => n::one(n::SIGNALS, signal),
                (flags, 0) => n::bits(n::CLONE, flags),
                (flags, signal) => format!("{}|{}", n::bits(n::CLONE, flags), n::one(n::SIGNALS, signal)),
            },
            Signal => n::one(n::SIGNALS, word),
            SocketType => n::under(n::SOCKET_KINDS, 0xf, n::SOCKET_FLAGS, word),
            Ioctl => n::one(n::IOCTL, word),
            Address(_) if value == 0 => "NULL".to_owned(),
            Address(size) => {
                address::read(memory, value, args[size]).map_or_else(|| "?".to_owned(), |peer| peer.to_string())
            }
        }
    }
}

fn cut(mut text: String) -> String {
    // In bytes: each invalid byte has become U+FFFD, which takes three.
    if text.len() > LONGEST {
        let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONGEST).last();
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}
