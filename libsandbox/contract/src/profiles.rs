//! The built-in profiles as data: which groups each grants, and which calls need a look at their arguments.
//!
//! A profile is an allow list: what it does not name is denied. Unions add. Paths are not decided here but by Landlock.

pub struct Profile {
    pub name: &'static str,
    pub about: &'static str,
    pub groups: &'static [&'static str],
    pub calls: &'static [&'static str],
}

/// What every confined program may do, whatever it is: read files, use memory, threads, timers and pipes.
const BASE: &[&str] = &[
    "basic",
    "loader",
    "memory",
    "file-read",
    "threads",
    "signals",
    "timers",
    "io-event",
    "pipes",
    "terminal",
    "sandboxing",
];

/// Calls on descriptors that a program already has, such as the ends of a socketpair, and harmless questions.
const BASE_CALLS: &[&str] = &[
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "sendmmsg",
    "recvmmsg",
    "shutdown",
    "getsockname",
    "getpeername",
    "getsockopt",
    "setsockopt",
    "wait4",
    "waitid",
    "setpgid",
    "setsid",
    "setpriority",
    "ioprio_set",
    "pidfd_open",
    "capget",
    "getrlimit",
    "setrlimit",
    "prlimit64",
    "personality",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
];

pub const MINIMAL: Profile = Profile {
    name: "minimal",
    about: "read files and compute: no writes, no network, no new processes",
    groups: BASE,
    calls: BASE_CALLS,
};

/// To look around: what `minimal` reads, by any number of programs. The calls that change files are granted for the private
/// TMPDIR, into which Landlock confines them; a filter that stands without Landlock denies them ([`FILES`]).
pub const READ: Profile = Profile {
    name: "read",
    about: "minimal, and start programs: no writes but in a private TMPDIR, no network",
    groups: &["file-write", "metadata", "process", "exec"],
    calls: &["socket", "connect", "bind", "listen", "accept", "accept4"],
};

/// The groups whose calls change files by name; of no use to `read` where nothing confines them to its TMPDIR.
pub const FILES: &[&str] = &["file-write", "metadata"];

pub const NETWORK: Profile =
    Profile { name: "network", about: "minimal, and internet sockets", groups: &["network"], calls: &[] };

pub const WRITE: Profile = Profile {
    name: "write",
    about: "minimal, write in the working directory and a private TMPDIR, and start programs",
    groups: READ.groups,
    calls: READ.calls,
};

/// A browser: what `write` grants to programs, and what its own sandbox is made of. Each of its parts takes itself into
/// new namespaces, maps its own ids there, drops every capability and changes into an empty root.
pub const BROWSER: Profile = Profile {
    name: "browser",
    about: "write where paths are granted, start programs, and let a browser confine its own parts further",
    groups: WRITE.groups,
    calls: &["socket", "connect", "bind", "listen", "accept", "accept4", "capset", "chroot", "unshare"],
};

/// Namespaces that a browser may make for its parts: CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET. No other: with a mount
/// namespace comes the kernel's whole mount code.
pub const BROWSER_NAMESPACES: u32 = 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// What a browser tries on every start and does without: answered EPERM, and not recorded.
pub const BROWSER_REFUSED: &[&str] = &["ptrace", "sched_setattr", "sched_setscheduler", "kcmp", "shmget", "shmctl"];

/// What starting programs takes beside threads: granted by `read` and `write`, and by a command line whatever the
/// profile.
pub const PROGRAMS: &[&str] = &["fork", "vfork", "execve", "execveat"];

/// Answered with ENOSYS: programs then use an older call that a filter can look into.
pub const FALLBACK: &[&str] = &["clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"];

/// Named by groups that profiles use, but of no use to a confined program, or of use against others: the scheduler's
/// setters take any process of the user, and real time starves the machine.
pub const NEVER: &[&str] = &[
    "kcmp",
    "process_mrelease",
    "ustat",
    "sysfs",
    "lookup_dcookie",
    "name_to_handle_at",
    "uselib",
    "memfd_secret",
    "sched_setparam",
    "sched_setscheduler",
    "sched_setattr",
    "get_robust_list",
    "remap_file_pages",
    "epoll_ctl_old",
    "epoll_wait_old",
];
