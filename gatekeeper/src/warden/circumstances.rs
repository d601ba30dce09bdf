//! What a new process inherits from its parent, and what therefore must be the same in this thread and in the guardian program
//! for a command to be started there. Whatever the kernel shows of it is compared as text; nothing is interpreted.

use crate::sys::process::{Hardware, RESOURCES, hardware, limit};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, readlinkat, statx};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// The state of the calling thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Circumstances {
    process: u32,
    /// Lines of /proc/thread-self/status: ids, groups, umask, capabilities, no_new_privs, filters, processors, ignored signals.
    status: String,
    /// The processors and memory nodes of that file, which other processes can change. `None` if the kernel does not say.
    hardware: Option<Hardware>,
    /// Soft and hard limit on each resource.
    limits: Vec<(u64, u64)>,
    /// cgroup, security label, out-of-memory score.
    files: [Option<Vec<u8>>; 3],
    namespaces: Vec<CString>,
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

const FILES: [&str; 3] = ["cgroup", "attr/current", "oom_score_adj"];

impl Circumstances {
    pub(super) fn now() -> io::Result<Circumstances> {
        let own = Own::open()?;
        let list = own.directory("ns")?;
        // Before Linux 5.6 there are no time namespaces.
        let namespaces = NAMESPACES.iter().flat_map(|name| readlinkat(&list, *name, Vec::new()));
        let root = statx(CWD, "/", AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
        Ok(Circumstances {
            process: std::process::id(),
            status: own.status()?,
            hardware: hardware(),
            limits: limits()?,
            files: FILES.map(|name| own.text(name).ok()),
            namespaces: namespaces.collect(),
            root: (root.stx_dev_major, root.stx_dev_minor, root.stx_ino, root.stx_mnt_id),
            priority: rustix::process::getpriority_process(None)?,
            securebits: rustix::thread::capabilities_secure_bits().map_or(0, |bits| bits.bits()),
        })
    }

    /// The state now, in a process whose threads never change their own: only what other processes can change is read again.
    pub(super) fn later(&self) -> io::Result<Circumstances> {
        let own = Own::open()?;
        let [_, label, _] = &self.files;
        let [cgroup, _, score] = FILES;
        let hardware = hardware();
        Ok(Circumstances {
            process: std::process::id(),
            status: if hardware.is_some() { self.status.clone() } else { own.status()? },
            hardware,
            limits: limits()?,
            files: [own.text(cgroup).ok(), label.clone(), own.text(score).ok()],
            priority: rustix::process::getpriority_process(None)?,
            ..self.clone()
        })
    }
}

/// The directory of this thread in /proc. The way to it takes longer than opening a file there.
struct Own(OwnedFd);

impl Own {
    fn open() -> io::Result<Own> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Own(rustix::fs::open("/proc/thread-self", flags, Mode::empty())?))
    }

    fn directory(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::empty())?)
    }

    fn status(&self) -> io::Result<String> {
        let status = String::from_utf8_lossy(&self.text("status")?).into_owned();
        Ok(status.lines().filter(|line| LINES.iter().any(|name| line.starts_with(name))).collect())
    }

    /// Reads a file at once. These files say that they are empty, so the standard library would read them in small pieces.
    fn text(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut file = File::from(openat(&self.0, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
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
}

/// The limits on every resource that the kernel knows. /proc/thread-self/limits has the same in four times the time.
fn limits() -> io::Result<Vec<(u64, u64)>> {
    (0..RESOURCES).map(limit).collect()
}

/// Whether this thread may still look into a process that was started under the same circumstances. Landlock shows its rules
/// nowhere; but a thread that has restricted itself since, or has fewer capabilities, may not.
pub(super) fn may_look_into(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok()
}
