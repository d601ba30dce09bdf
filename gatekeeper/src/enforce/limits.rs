//! Limits: the rlimits that the kernel enforces per process, and a report on how the limits of the tree are enforced.
//!
//! RLIMIT_AS is not used, because V8, Go and the JVM reserve far more address space than they use.

use super::cgroup::{Cgroup, NoCgroup};
use crate::policy::Limits;
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::sys;
use std::io;

/// The rlimits of a policy.
pub fn rlimits(limits: &Limits) -> io::Result<Vec<(i32, libc::rlimit)>> {
    let mut list = Vec::new();
    let mut add = |resource: i32, value: u64| -> io::Result<()> {
        let (_, hard) = sys::process::limit(resource)?;
        // Our own hard limit may be lower, and cannot be raised.
        let value = value.min(hard);
        list.push((resource, libc::rlimit { rlim_cur: value, rlim_max: value }));
        Ok(())
    };
    if let Some(files) = limits.files {
        add(libc::RLIMIT_NOFILE as i32, files)?;
    }
    if let Some(size) = limits.disk {
        add(libc::RLIMIT_FSIZE as i32, size)?;
    }
    if let Some(cpu) = limits.cpu {
        // The supervisor enforces the limit for the tree. This one is for a single process, in whole seconds; the margin
        // lets the supervisor act first.
        add(libc::RLIMIT_CPU as i32, cpu.as_secs() + 2)?;
    }
    if let Some(most) = limits.processes
        && !rustix::process::geteuid().is_root()
    {
        // The kernel counts all processes of the user, not the tree. So this only stops a burst of forks between two
        // checks by the supervisor.
        add(libc::RLIMIT_NPROC as i32, tasks_of_this_user() + most.saturating_mul(2).saturating_add(100))?;
    }
    Ok(list)
}

/// The number of threads of this user in all of /proc.
fn tasks_of_this_user() -> u64 {
    let uid = rustix::process::getuid().as_raw().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let tasks =
        processes.filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)).map(|entry| {
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            if field("Uid:") == Some(&uid) {
                field("Threads:").and_then(|count| count.parse().ok()).unwrap_or(1)
            } else {
                0
            }
        });
    tasks.sum()
}

/// Reports whether the kernel or the supervisor enforces each limit, and what is not counted.
pub fn report(limits: &Limits, cgroup: &Result<Cgroup, NoCgroup>) -> LayerReport {
    let mut parts = limits.described();
    if parts.is_empty() {
        return LayerReport { layer: Layer::Limits, status: LayerStatus::Off, detail: "none asked for".to_owned() };
    }
    let by_kernel = |of: fn(&Cgroup) -> bool| cgroup.as_ref().is_ok_and(of);
    let adds_cpu = limits.cpu.is_some() && !by_kernel(|cgroup| cgroup.cpu().is_some());
    let added_up: Vec<&str> = [
        ("memory", limits.memory.is_some() && !by_kernel(|cgroup| cgroup.memory)),
        ("processes", limits.processes.is_some() && !by_kernel(|cgroup| cgroup.processes)),
        ("CPU time", adds_cpu),
    ]
    .into_iter()
    .filter_map(|(name, added)| added.then_some(name))
    .collect();
    let status = if added_up.is_empty() { LayerStatus::Enforced } else { LayerStatus::Partial };
    if !added_up.is_empty() {
        let why = match cgroup {
            Ok(_) => "its cgroup has no such controller".to_owned(),
            Err(why) => why.to_string(),
        };
        let names = match added_up.as_slice() {
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            names => names.concat(),
        };
        parts.push(format!("the supervisor measures the {names} of the tree every 5 to 100 ms, because {why}"));
    }
    if limits.memory.is_some() && !by_kernel(|cgroup| cgroup.memory) {
        parts.push("memory of files that no process has mapped (/dev/shm, memfd) is not counted".to_owned());
    }
    if adds_cpu {
        parts.push(
            "of a process whose parent ignores SIGCHLD, the CPU time after the last look is not counted".to_owned(),
        );
    }
    LayerReport { layer: Layer::Limits, status, detail: parts.join("; ") }
}
