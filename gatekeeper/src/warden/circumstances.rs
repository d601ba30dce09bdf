//! What a new process inherits from its parent, and what therefore must be the same in this thread and in the guardian program
//! for a command to be started there. Whatever the kernel shows of it is compared as text; nothing is interpreted.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The state of the calling thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Circumstances {
    process: u32,
    /// Lines of /proc/thread-self/status: ids, groups, umask, capabilities, no_new_privs, filters, processors, ignored signals.
    status: String,
    limits: Vec<u8>,
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
        // Before Linux 5.6 there are no time namespaces.
        let namespaces =
            NAMESPACES.iter().flat_map(|name| fs::read_link(own("ns").join(name))).map(PathBuf::into_os_string);
        let root = statx(CWD, "/", AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
        Ok(Circumstances {
            process: std::process::id(),
            status: status()?,
            limits: text(&own("limits"))?,
            files: FILES.map(|name| text(&own(name)).ok()),
            namespaces: namespaces.collect(),
            root: (root.stx_dev_major, root.stx_dev_minor, root.stx_ino, root.stx_mnt_id),
            priority: rustix::process::getpriority_process(None)?,
            securebits: rustix::thread::capabilities_secure_bits().map_or(0, |bits| bits.bits()),
        })
    }

    /// The state now, in a process whose threads never change their own: only what other processes can change is read again.
    pub(super) fn later(&self) -> io::Result<Circumstances> {
        let [_, label, _] = &self.files;
        let [cgroup, _, score] = FILES;
        Ok(Circumstances {
            process: std::process::id(),
            status: status()?,
            limits: text(&own("limits"))?,
            files: [text(&own(cgroup)).ok(), label.clone(), text(&own(score)).ok()],
            priority: rustix::process::getpriority_process(None)?,
            ..self.clone()
        })
    }
}

const FILES: [&str; 3] = ["cgroup", "attr/current", "oom_score_adj"];

fn own(name: &str) -> PathBuf {
    PathBuf::from("/proc/thread-self").join(name)
}

fn status() -> io::Result<String> {
    let status = String::from_utf8_lossy(&text(&own("status"))?).into_owned();
    Ok(status.lines().filter(|line| LINES.iter().any(|name| line.starts_with(name))).collect())
}

/// Reads a file of /proc at once. These files say that they are empty, so the standard library would read them in small pieces.
fn text(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 4096];
    let mut length = 0;
    loop {
        let rest = bytes.get_mut(length..).unwrap_or_default();
        let (room, count) = (rest.len(), file.read(rest)?);
        length += count;
        // The kernel makes the whole text for the first read, so one that does not fill the rest is the last.
        if count < room {
            bytes.truncate(length);
            return Ok(bytes);
        }
        bytes.resize(length * 2, 0);
    }
}

/// Whether this thread may still look into a process that was started under the same circumstances. Landlock shows its rules
/// nowhere; but a thread that has restricted itself since, or has fewer capabilities, may not.
pub(super) fn may_look_into(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok()
}
