//! The built-in profiles as data: the groups and single calls that each grants.
//!
//! A profile is an allow list, and everything it does not name is denied. A union of profiles grants what any of them
//! grants. Landlock, not the profile, decides about paths.

pub struct Profile {
    pub name: &'static str,
    pub about: &'static str,
    pub groups: &'static [&'static str],
    pub calls: &'static [&'static str],
}

/// Granted to every confined program: read files, use memory, threads, timers and pipes.
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

/// Calls on descriptors that a program already has, such as a socketpair, and harmless queries.
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

/// Reads what `minimal` reads, with any number of programs. It grants calls that change files for the private TMPDIR,
/// to which Landlock confines them; a filter without Landlock denies these calls ([`FILES`]).
pub const READ: Profile = Profile {
    name: "read",
    about: "minimal, and start programs: no writes but in a private TMPDIR, no network",
    groups: &["file-write", "metadata", "process", "exec"],
    calls: &["socket", "connect", "bind", "listen", "accept", "accept4"],
};

/// The groups whose calls change files by name. `read` loses them if Landlock cannot confine them to its TMPDIR.
pub const FILES: &[&str] = &["file-write", "metadata"];

pub const NETWORK: Profile =
    Profile { name: "network", about: "minimal, and internet sockets", groups: &["network"], calls: &[] };

pub const WRITE: Profile = Profile {
    name: "write",
    about: "minimal, write in the working directory and a private TMPDIR, and start programs",
    groups: READ.groups,
    calls: READ.calls,
};

/// Grants what `write` grants, plus the calls of a browser's own sandbox: its processes enter new namespaces, map their
/// ids, drop every capability and chroot into an empty directory.
pub const BROWSER: Profile = Profile {
    name: "browser",
    about: "write where paths are granted, start programs, and let a browser confine its own parts further",
    groups: WRITE.groups,
    calls: &["socket", "connect", "bind", "listen", "accept", "accept4", "capset", "chroot", "unshare"],
};

/// The namespaces that a browser may create: CLONE_NEWUSER, CLONE_NEWPID and CLONE_NEWNET. Not CLONE_NEWNS, because it
/// would expose all of the kernel's mount code.
pub const BROWSER_NAMESPACES: u32 = 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// Calls that a browser tries on every start and does not need: they fail with EPERM and are not recorded.
pub const BROWSER_REFUSED: &[&str] = &["ptrace", "sched_setattr", "sched_setscheduler", "kcmp", "shmget", "shmctl"];

/// The calls that start programs, besides those for threads. `read` and `write` grant them, and so does a command line
/// (`-c`) under any profile.
pub const PROGRAMS: &[&str] = &["fork", "vfork", "execve", "execveat"];

/// These fail with ENOSYS, so that programs fall back to an older call whose arguments a filter can inspect.
pub const FALLBACK: &[&str] = &["clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"];

/// Calls in granted groups that are denied all the same: a confined program does not need them, or could use them
/// against others. The scheduler's setters act on any process of the user, and real-time priority starves the machine;
/// gatekeeper lets a process choose another ordinary policy for itself.
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
    "sched_setattr",
    "get_robust_list",
    "remap_file_pages",
    "epoll_ctl_old",
    "epoll_wait_old",
];
