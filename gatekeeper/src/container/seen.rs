//! What the engine really enforces, as the gatekeeper in the container sees it, compared with what was asked for.

use super::engine::{About, Engine, Made};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Measured inside, at the start of each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub memory: Option<u64>,
    pub pids: Option<u64>,
    pub cpus: Option<f64>,
    /// Capabilities that a process could still get.
    pub capabilities: u64,
    pub no_new_privs: bool,
    pub read_only_root: bool,
    pub user: (u32, u32),
    /// Network interfaces besides loopback.
    pub interfaces: Vec<String>,
    /// Device and inode of gatekeeper itself and of each mount.
    #[serde(default)]
    pub files: Vec<Option<(u64, u64)>>,
}

impl Seen {
    pub fn measure(mounts: &[&str]) -> Seen {
        let id = |path: &str| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let bits = |name: &str| line(name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(u64::MAX);
        let devices = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let names = devices.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned());
        let root = rustix::fs::statvfs("/");
        Seen {
            memory: first(&["memory.max", "memory/memory.limit_in_bytes"]).filter(|bytes| *bytes < 1 << 60),
            pids: first(&["pids.max", "pids/pids.max"]),
            cpus: cpus(),
            capabilities: ["CapBnd:", "CapPrm:", "CapEff:", "CapInh:", "CapAmb:"]
                .into_iter()
                .map(bits)
                .fold(0, |all, one| all | one),
            no_new_privs: line("NoNewPrivs:") == Some("1"),
            read_only_root: root.is_ok_and(|root| root.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)),
            user: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            interfaces: names.filter(|name| name != "lo").collect(),
            files: std::iter::once(super::PROGRAM).chain(mounts.iter().copied()).map(id).collect(),
        }
    }
}

fn control(file: &str) -> Option<String> {
    std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok()
}

fn first(files: &[&str]) -> Option<u64> {
    files.iter().find_map(|file| control(file)?.trim().parse().ok())
}

fn cpus() -> Option<f64> {
    let share = |quota: &str, period: &str| {
        let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    if let Some(text) = control("cpu.max") {
        let (quota, period) = text.trim().split_once(' ')?;
        return share(quota, period);
    }
    ["cpu", "cpu,cpuacct"].iter().find_map(|folder| {
        share(&control(&format!("{folder}/cpu.cfs_quota_us"))?, &control(&format!("{folder}/cpu.cfs_period_us"))?)
    })
}

/// How a container compares with its settings.
pub struct Compared {
    /// What makes the container less of a sandbox than asked for: nothing may run in it.
    pub broken: Vec<String>,
    /// A mount that is another directory than the one asked for: somebody replaced it since, or exchanged it meanwhile.
    pub replaced: Option<String>,
    /// Limits that the engine does not enforce here.
    pub missing: Vec<&'static str>,
    /// For the report.
    pub detail: String,
}

pub fn compare(seen: &Seen, made: &Made, engine: &Engine, about: &About) -> Compared {
    let mut broken = Vec::new();
    let mut held = vec![format!("user {}:{}", seen.user.0, seen.user.1)];
    if seen.user != made.user {
        broken.push(format!("it runs as user {}:{}, not {}:{}", seen.user.0, seen.user.1, made.user.0, made.user.1));
    }
    if made.read_only_root && !seen.read_only_root {
        broken.push("its root is writable".to_owned());
    }
    held.push(if seen.read_only_root { "read-only root" } else { "writable root" }.to_owned());
    let drops_all = made.cap_drop.iter().any(|name| name == "ALL");
    if drops_all && seen.capabilities != 0 {
        broken.push(format!("it keeps capabilities {:#x}", seen.capabilities));
    }
    held.push(if seen.capabilities == 0 {
        "no capabilities".to_owned()
    } else {
        format!("capabilities {:#x}", seen.capabilities)
    });
    if !seen.no_new_privs {
        broken.push("no_new_privs is not set".to_owned());
    }
    if made.network == "none" && !seen.interfaces.is_empty() {
        broken.push(format!("it has the network interfaces {}", seen.interfaces.join(" ")));
    }
    held.push(format!("network {}", made.network));
    let mut missing = Vec::new();
    let mut limit = |name: &'static str, holds: bool, text: String| match holds {
        true => held.push(text),
        false => missing.push(name),
    };
    limit("memory", seen.memory.is_some_and(|bytes| bytes <= made.memory), format!("memory {}", made.memory));
    limit("cpus", seen.cpus.is_some_and(|cpus| cpus <= made.cpus * 1.01), format!("cpus {}", made.cpus));
    limit("pidsLimit", seen.pids.is_some_and(|pids| pids <= made.pids), format!("processes {}", made.pids));
    let rootless = if about.rootless { ", rootless" } else { "" };
    let mut detail =
        format!("{} {}{rootless}, image {}: {}", engine.kind.name(), about.version, made.image, held.join(", "));
    if !missing.is_empty() {
        let instead: Vec<&str> = missing.iter().copied().filter(|name| *name != "cpus").collect();
        detail.push_str(&format!("; the engine does not enforce {} here", missing.join(", ")));
        if !instead.is_empty() {
            detail.push_str(&format!(" (gatekeeper's own limits hold for {})", instead.join(" and ")));
        }
    }
    Compared { broken, replaced: replaced(seen, made), missing, detail }
}

/// Compares the mounts with what was meant, if the container sees the same files as this process: gatekeeper itself tells.
/// An engine on another machine, or in a virtual one, sees others.
fn replaced(seen: &Seen, made: &Made) -> Option<String> {
    let mut pairs = made.mounts.iter().zip(&seen.files).filter_map(|(mount, there)| Some((mount, mount.id?, *there)));
    let (program, meant, there) = pairs.next()?;
    if program.inside != Path::new(super::PROGRAM) || Some(meant) != there {
        return None;
    }
    let (mount, ..) = pairs.find(|(_, meant, there)| Some(*meant) != *there)?;
    Some(format!("{} is not {}", mount.inside.display(), mount.host.display()))
}
