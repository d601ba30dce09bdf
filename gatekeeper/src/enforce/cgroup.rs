//! A cgroup (version 2) for one run, if a cgroup is delegated to this user. The kernel then enforces limits on the tree.
//!
//! The only way to know whether this works is to create a directory and to enable the controllers. Without controllers
//! the cgroup still serves for `cgroup.kill` and exact CPU time. It is removed at the end, by the guardian if necessary.

use crate::policy::Limits;
use crate::sys::child::Joined;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "gatekeeper-";

pub struct Cgroup {
    directory: PathBuf,
    /// Whether the kernel enforces this limit.
    pub memory: bool,
    pub processes: bool,
}

/// Why there is no cgroup.
#[derive(Debug, thiserror::Error)]
pub enum NoCgroup {
    #[error("not needed")]
    NotAsked,
    #[error("no cgroup v2 is mounted")]
    NotMounted,
    #[error("{0} is not delegated to this user: {1}")]
    NotDelegated(PathBuf, io::Error),
}

impl Cgroup {
    /// Creates a cgroup for the limits that apply to the whole tree.
    pub fn new(limits: &Limits) -> Result<Cgroup, NoCgroup> {
        if limits.memory.is_none() && limits.processes.is_none() && limits.cpu.is_none() {
            return Err(NoCgroup::NotAsked);
        }
        let mut random = [0u8; 8];
        let name = match rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()) {
            Ok(_) => format!("{PREFIX}{}-{:016x}", Owner::own(), u64::from_ne_bytes(random)),
            Err(error) => return Err(NoCgroup::NotDelegated(PathBuf::new(), error.into())),
        };
        let own = own().ok_or(NoCgroup::NotMounted)?;
        let mut found: Result<Cgroup, NoCgroup> = Err(NoCgroup::NotMounted);
        hand_down(&own);
        // Try beside our own cgroup first: one that holds processes cannot enable controllers for its children
        // (cgroups(7), "no internal processes").
        for base in
            own.parent().filter(|parent| parent.join("cgroup.procs").exists()).into_iter().chain([own.as_path()])
        {
            sweep(base);
            let new = Cgroup::below(base, &name, limits);
            let better = |new: &Cgroup| found.as_ref().map_or(true, |old| new.strength() > old.strength());
            match new {
                Ok(new) if better(&new) => {
                    found = Ok(new);
                }
                Ok(_) => {}
                Err(error) if found.is_err() => found = Err(NoCgroup::NotDelegated(base.to_owned(), error)),
                Err(_) => {}
            }
        }
        found
    }

    fn strength(&self) -> u8 {
        u8::from(self.memory) + u8::from(self.processes)
    }

    fn below(base: &Path, name: &str, limits: &Limits) -> io::Result<Cgroup> {
        let directory = base.join(name);
        fs::create_dir(&directory)?;
        let mut cgroup = Cgroup { directory, memory: false, processes: false };
        // Moving a process needs write access to both cgroup.procs files, so try to open them.
        cgroup.joined().and_then(|_| open_to_write(&base.join("cgroup.procs")))?;
        if let Some(most) = limits.memory {
            cgroup.memory =
                cgroup.write("memory.max", &most.to_string()).is_ok() && cgroup.write("memory.oom.group", "1").is_ok();
            // Otherwise the tree could exceed the limit by swapping.
            let _ = cgroup.write("memory.swap.max", "0");
        }
        if let Some(most) = limits.processes {
            cgroup.processes = cgroup.write("pids.max", &most.to_string()).is_ok();
        }
        Ok(cgroup)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        use io::Write;
        // Without O_CREAT: a missing file means a missing controller.
        fs::OpenOptions::new().write(true).open(self.directory.join(file))?.write_all(text.as_bytes())
    }

    pub fn joined(&self) -> io::Result<Joined> {
        Ok(Joined {
            procs: open_to_write(&self.directory.join("cgroup.procs"))?,
            directory: CString::new(self.directory.as_os_str().as_bytes())?,
        })
    }

    /// Kills every process in it at once (Linux 5.14).
    pub fn kill(&self) -> bool {
        self.write("cgroup.kill", "1").is_ok()
    }

    /// The CPU time of all processes that ever ran in it.
    pub fn cpu(&self) -> Option<Duration> {
        self.number("cpu.stat", Some("usage_usec")).map(Duration::from_micros)
    }

    pub fn peak_memory(&self) -> Option<u64> {
        self.number("memory.peak", None).or_else(|| self.number("memory.current", None))
    }

    pub fn out_of_memory(&self) -> bool {
        self.number("memory.events", Some("oom_kill")).is_some_and(|count| count > 0)
    }

    /// Whether the limit made a fork fail.
    pub fn out_of_processes(&self) -> bool {
        self.number("pids.events", Some("max")).is_some_and(|count| count > 0)
    }

    fn number(&self, file: &str, key: Option<&str>) -> Option<u64> {
        let text = fs::read_to_string(self.directory.join(file)).ok()?;
        match key {
            None => text.trim().parse().ok(),
            Some(key) => text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok()),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The process that created a cgroup. PID namespace, process id and start time together are never reused.
#[derive(PartialEq, Eq)]
struct Owner {
    namespace: u64,
    pid: u32,
    started: u64,
}

impl Owner {
    fn own() -> Owner {
        let pid = std::process::id();
        Owner { namespace: namespace(), pid, started: started(pid).unwrap_or(0) }
    }

    fn parse(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let mut part = || parts.next()?.parse().ok();
        Some(Owner { namespace: part()?, pid: u32::try_from(part()?).ok()?, started: part()? })
    }

    /// Whether the owner has ended. Unknown, and so false, for an owner in another PID namespace.
    fn is_gone(&self) -> bool {
        self.namespace == namespace() && started(self.pid) != Some(self.started)
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.namespace, self.pid, self.started)
    }
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// The start time of a process, in clock ticks since boot.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}

/// Removes the cgroups of runs that were killed before they had a guardian. The kernel refuses to remove one in use.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(Owner::parse).is_some_and(|owner| owner.is_gone()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Enables the controllers for the children of our own cgroup. Never above it: those cgroups are not ours to change.
fn hand_down(own: &Path) {
    let file = own.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&file).unwrap_or_default();
    for controller in ["memory", "pids"] {
        if !enabled.split_whitespace().any(|known| known == controller) {
            let _ = fs::write(&file, format!("+{controller}"));
        }
    }
}

fn open_to_write(path: &Path) -> io::Result<OwnedFd> {
    Ok(fs::OpenOptions::new().write(true).open(path)?.into())
}

/// The directory of this process's own cgroup.
pub fn own() -> Option<PathBuf> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next()? == "cgroup2").then_some(place)
    })?;
    Some(Path::new(mounted).join(path.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read_by_key() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("own file");
        write("memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n");
        write("pids.events", "max 0\n");
        write("cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n");
        write("memory.peak", "4096\n");
        let cgroup = Cgroup { directory: directory.path().to_owned(), memory: true, processes: true };
        assert!(cgroup.out_of_memory());
        assert!(!cgroup.out_of_processes());
        assert_eq!(cgroup.cpu(), Some(Duration::from_micros(1500)));
        assert_eq!(cgroup.peak_memory(), Some(4096));
        assert!(!cgroup.kill(), "a missing file is not created");
    }
}
