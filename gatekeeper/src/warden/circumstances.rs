//! What a new process inherits from its parent, and what therefore must be the same in this thread and in the guardian program
//! for a command to be started there. Whatever the kernel shows of it is compared as text; nothing is interpreted.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The state of the calling thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circumstances {
    process: u32,
    /// Lines of /proc/thread-self/status: ids, groups, umask, capabilities, no_new_privs, filters, processors, ignored signals.
    status: String,
    limits: String,
    /// cgroup, security label, out-of-memory score.
    files: [Option<Vec<u8>>; 3],
    namespaces: Vec<OsString>,
    /// Device, inode and mount of the root directory.
    root: (u32, u32, u64, u64),
    priority: i32,
    securebits: u32,
}

const LINES: [&str; 17] = [
    "Umask:",
    "Uid:",
    "Gid:",
    "Groups:",
    "SigIgn:",
    "CapInh:",
    "CapPrm:",
    "CapEff:",
    "CapBnd:",
    "CapAmb:",
    "NoNewPrivs:",
    "Seccomp:",
    "Seccomp_filters:",
    "Speculation_Store_Bypass:",
    "SpeculationIndirectBranch:",
    "Cpus_allowed:",
    "Mems_allowed:",
];

const NAMESPACES: [&str; 8] = ["mnt", "user", "net", "ipc", "uts", "cgroup", "pid_for_children", "time_for_children"];

impl Circumstances {
    pub(super) fn now() -> io::Result<Circumstances> {
        let own = |name: &str| PathBuf::from("/proc/thread-self").join(name);
        let status = fs::read_to_string(own("status"))?;
        let lines = status.lines().filter(|line| LINES.iter().any(|name| line.starts_with(name)));
        // Before Linux 5.6 there are no time namespaces.
        let namespaces =
            NAMESPACES.iter().flat_map(|name| fs::read_link(own("ns").join(name))).map(PathBuf::into_os_string);
        let root = statx(CWD, "/", AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
        Ok(Circumstances {
            process: std::process::id(),
            status: lines.collect(),
            limits: fs::read_to_string(own("limits"))?,
            files: ["cgroup", "attr/current", "oom_score_adj"].map(|name| fs::read(own(name)).ok()),
            namespaces: namespaces.collect(),
            root: (root.stx_dev_major, root.stx_dev_minor, root.stx_ino, root.stx_mnt_id),
            priority: rustix::process::getpriority_process(None)?,
            securebits: rustix::thread::capabilities_secure_bits().map_or(0, |bits| bits.bits()),
        })
    }
}

/// Whether this thread may still look into a process that was started under the same circumstances. Landlock shows its rules
/// nowhere; but a thread that has restricted itself since, or has fewer capabilities, may not.
pub(super) fn may_look_into(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok()
}
