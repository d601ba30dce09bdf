//! Limits: what the kernel holds by itself for one process, what is added up for the tree, and the report of both.
//!
//! RLIMIT_AS is not among them: V8, Go and the JVM reserve far more addresses than they use.

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
        // A limit that is already lower holds what was asked for.
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
        // For one process, in whole seconds and after ours: the tree is added up by the supervisor.
        add(libc::RLIMIT_CPU as i32, cpu.as_secs() + 2)?;
    }
    if let Some(most) = limits.processes
        && !rustix::process::geteuid().is_root()
    {
        // Counted for the user and not for the tree, so it is only what stops a burst between two looks at the tree.
        add(libc::RLIMIT_NPROC as i32, tasks_of_this_user() + most.saturating_mul(2).saturating_add(100))?;
    }
    Ok(list)
}

/// Processes and threads of this user, on the whole machine.
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

/// How the limits are held: by whom, and what is not certain about it.
pub fn report(limits: &Limits, cgroup: &Result<Cgroup, NoCgroup>) -> LayerReport {
    let mut parts = limits.described();
    if parts.is_empty() {
        return LayerReport { layer: Layer::Limits, status: LayerStatus::Off, detail: "none asked for".to_owned() };
    }
    let by_kernel = |of: fn(&Cgroup) -> bool| cgroup.as_ref().is_ok_and(of);
    let added_up: Vec<&str> = [
        ("memory", limits.memory.is_some() && !by_kernel(|cgroup| cgroup.memory)),
        ("processes", limits.processes.is_some() && !by_kernel(|cgroup| cgroup.processes)),
    ]
    .into_iter()
    .filter_map(|(name, added)| added.then_some(name))
    .collect();
    let status = if added_up.is_empty() { LayerStatus::Enforced } else { LayerStatus::Partial };
    if !added_up.is_empty() {
        let why = match cgroup {
            Ok(_) => "its cgroup has no controller for it".to_owned(),
            Err(why) => why.to_string(),
        };
        let names = added_up.join(" and ");
        parts.push(format!("{names} of the tree added up by the supervisor every 5 to 100 ms, since {why}"));
    }
    if limits.memory.is_some() && !by_kernel(|cgroup| cgroup.memory) {
        parts.push("files in memory that no process has mapped (/dev/shm, memfd) are not counted".to_owned());
    }
    LayerReport { layer: Layer::Limits, status, detail: parts.join("; ") }
}
