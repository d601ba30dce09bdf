//! The process tree below the guardian, summed up from /proc. Used often when a limit is near, so it reads as little as
//! it can.

use super::spent::Spent;
use crate::sys;
use std::fs;
use std::io;

/// The processes of the tree and the resources they use.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    pub pids: Vec<i32>,
    /// Processes and threads.
    pub tasks: u64,
    /// Resident bytes. Shared pages count once for each process.
    pub resident: u64,
    /// The CPU time of each process, and first of what the guardian has reaped. Every process comes after its parent.
    pub spent: Vec<Spent>,
}

struct Stat {
    state: u8,
    parent: i32,
    threads: u64,
    resident: u64,
    ticks: u64,
    ticks_of_dead: u64,
    /// When the process started, in ticks since boot.
    started: u64,
}

impl Stat {
    fn spent(&self, pid: i32) -> Spent {
        Spent { pid, started: self.started, own: self.ticks, waited: self.ticks_of_dead }
    }
}

/// Sums up everything below `guardian`, excluding itself.
pub fn sum(guardian: i32) -> Sum {
    let mut sum = Sum::default();
    let page = sys::process::page_size();
    // The guardian's own time is not the command's.
    sum.spent.extend(stat(guardian).map(|stat| Spent { own: 0, ..stat.spent(guardian) }));
    let mut waiting = children(guardian, 1).unwrap_or_else(|| by_parent(guardian));
    while let Some(pid) = waiting.pop() {
        let Some(stat) = stat(pid) else { continue };
        sum.pids.push(pid);
        sum.tasks += stat.threads.max(1);
        sum.resident += stat.resident * page;
        sum.spent.push(stat.spent(pid));
        waiting.extend(children(pid, stat.threads).unwrap_or_default());
    }
    sum
}

/// The CPU time of one process.
pub fn spent(pid: i32) -> Option<Spent> {
    stat(pid).map(|stat| stat.spent(pid))
}

/// How often to look for processes that were forked while others were being stopped.
const ROUNDS: usize = 8;

/// Sends SIGSTOP to every running process below `guardian` and returns their PIDs. Stopped processes cannot fork, so
/// repeating it catches those that were forked in between.
pub fn halt(guardian: i32) -> Vec<i32> {
    let mut halted = Vec::new();
    for _ in 0..ROUNDS {
        let runs = |pid: &i32| !halted.contains(pid) && stat(*pid).is_some_and(|stat| !b"TtZXx".contains(&stat.state));
        let running: Vec<i32> = sum(guardian).pids.into_iter().filter(runs).collect();
        if running.is_empty() {
            break;
        }
        running.iter().for_each(|pid| drop(crate::sys::process::kill(*pid, libc::SIGSTOP)));
        halted.extend(running);
    }
    halted
}

/// Whether job control has stopped a process.
pub fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| stat.state == b'T')
}

/// Memory in bytes, with shared pages divided among the processes that share them (PSS). A process whose smaps_rollup
/// cannot be read counts with its resident size.
pub fn proportional(pids: &[i32]) -> u64 {
    let page = sys::process::page_size();
    let of = |pid: &i32| {
        let pss = match rollup(&format!("/proc/{pid}")) {
            Ok(Some(kib)) => Some(kib),
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => None,
            // The first thread has exited, and took its view of the memory along.
            _ => threads(*pid).find_map(|thread| rollup(&thread).ok().flatten()),
        };
        pss.map_or_else(|| stat(*pid).map_or(0, |stat| stat.resident * page), |kib| kib * 1024)
    };
    pids.iter().map(of).sum()
}

/// The proportional memory in KiB, from smaps_rollup of a process or thread. `None` if that has no memory.
fn rollup(directory: &str) -> io::Result<Option<u64>> {
    let text = fs::read_to_string(format!("{directory}/smaps_rollup"))?;
    Ok(text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok()))
}

/// How often to look for a running thread of a process whose threads come and go.
const LOOKS: usize = 4;

fn stat(pid: i32) -> Option<Stat> {
    let mut found = stat_in(&format!("/proc/{pid}"))?;
    // A first thread that has exited is a zombie without memory until the others have exited too. They have the rest.
    if is_dead(&found) && found.threads > 1 {
        let living = || threads(pid).filter_map(|thread| stat_in(&thread)).find(|thread| !is_dead(thread));
        if let Some(thread) = (0..LOOKS).find_map(|_| living()) {
            (found.state, found.resident) = (thread.state, thread.resident);
        }
    }
    Some(found)
}

fn is_dead(stat: &Stat) -> bool {
    b"ZXx".contains(&stat.state)
}

/// The directory in /proc of each thread of a process.
fn threads(pid: i32) -> impl Iterator<Item = String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(move |task| Some(format!("/proc/{pid}/task/{}", task.file_name().to_str()?)))
}

/// Reads stat of a process or thread.
fn stat_in(directory: &str) -> Option<Stat> {
    let text = fs::read(format!("{directory}/stat")).ok()?;
    // The name in parentheses may itself contain a parenthesis: the last one ends it.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(text.get(end + 2..)?).ok()?;
    let fields: Vec<i64> = fields.split(' ').map(|field| field.trim().parse().unwrap_or(0)).collect();
    // Numbered as in proc_pid_stat(5), where the first field after the name, the state, is 3.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0).max(0) as u64;
    Some(Stat {
        state: text.get(end + 2).copied().unwrap_or(b'?'),
        parent: field(4) as i32,
        threads: field(20),
        resident: field(24),
        ticks: field(14) + field(15),
        ticks_of_dead: field(16) + field(17),
        started: field(22),
    })
}

/// The children of all threads, from /proc/PID/task/TID/children. `None`: the kernel lacks CONFIG_PROC_CHILDREN.
fn children(pid: i32, count: u64) -> Option<Vec<i32>> {
    let of = |task: &str| fs::read_to_string(format!("{task}/children")).ok();
    let text = match count {
        0..=1 => of(&format!("/proc/{pid}/task/{pid}"))?,
        _ => threads(pid).filter_map(|task| of(&task)).collect(),
    };
    Some(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// All descendants, found by scanning every process of the machine, for kernels without lists of children.
fn by_parent(guardian: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = vec![guardian];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read_and_both_ways_find_a_child() {
        let me = std::process::id() as i32;
        let own = stat(me).expect("/proc is mounted");
        assert!(own.resident > 0 && own.threads >= 1);
        assert!(proportional(&[me]) > 0);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep is there");
        let pid = child.id() as i32;
        let listed = children(me, own.threads.max(2)).is_none_or(|children| children.contains(&pid));
        let alone = sum(pid).pids.is_empty();
        let walked = by_parent(me).contains(&pid);
        child.kill().expect("own child");
        child.wait().expect("own child");
        assert!(walked && listed && alone);
    }
}
