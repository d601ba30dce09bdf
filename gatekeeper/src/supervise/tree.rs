//! The tree of processes below the guardian, added up from /proc. Read often while a limit is near, so it reads little.

use std::fs;
use std::time::Duration;

/// What the tree is and uses at this moment.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    pub pids: Vec<i32>,
    /// Processes and threads.
    pub tasks: u64,
    /// Resident bytes; pages that several processes share are counted for each.
    pub resident: u64,
    /// Of the living, and of the dead whom somebody waited for.
    pub cpu: Duration,
}

struct Stat {
    state: u8,
    parent: i32,
    threads: u64,
    resident: u64,
    ticks: u64,
    ticks_of_dead: u64,
}

/// Adds up everything below `guardian`, without it.
pub fn sum(guardian: i32) -> Sum {
    let mut sum = Sum::default();
    let (page, tick) = (rustix::param::page_size() as u64, rustix::param::clock_ticks_per_second());
    let mut ticks = stat(guardian).map_or(0, |stat| stat.ticks_of_dead);
    let mut waiting = children(guardian, 1).unwrap_or_else(|| by_parent(guardian));
    while let Some(pid) = waiting.pop() {
        let Some(stat) = stat(pid) else { continue };
        sum.pids.push(pid);
        sum.tasks += stat.threads.max(1);
        sum.resident += stat.resident * page;
        ticks += stat.ticks + stat.ticks_of_dead;
        waiting.extend(children(pid, stat.threads).unwrap_or_default());
    }
    sum.cpu = Duration::from_millis(ticks * 1000 / tick.max(1));
    sum
}

/// Rounds in which new processes are looked for that were started while others were being stopped.
const ROUNDS: usize = 8;

/// Stops everything below `guardian` that is not stopped yet, and tells what was stopped. Whoever starts processes faster
/// than they are found is caught when the last that could start one is stopped.
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

/// Bytes of memory with shared pages divided among those who share them. Whoever cannot be read counts in full.
pub fn proportional(pids: &[i32]) -> u64 {
    let page = rustix::param::page_size() as u64;
    let of = |pid: &i32| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let pss =
            rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        pss.map_or_else(|| stat(*pid).map_or(0, |stat| stat.resident * page), |kib| kib * 1024)
    };
    pids.iter().map(of).sum()
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, also a parenthesis: the last one ends it.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(text.get(end + 2..)?).ok()?;
    let fields: Vec<i64> = fields.split(' ').map(|field| field.trim().parse().unwrap_or(0)).collect();
    // By their numbers in proc_pid_stat(5), of which the state is 3 and comes first here.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0).max(0) as u64;
    Some(Stat {
        state: text.get(end + 2).copied().unwrap_or(b'?'),
        parent: field(4) as i32,
        threads: field(20),
        resident: field(24),
        ticks: field(14) + field(15),
        ticks_of_dead: field(16) + field(17),
    })
}

/// The kernel's own lists of children, one for each thread. `None`: this kernel keeps none.
fn children(pid: i32, threads: u64) -> Option<Vec<i32>> {
    let of = |task: &str| fs::read_to_string(format!("/proc/{pid}/task/{task}/children")).ok();
    let text = if threads <= 1 {
        of(&pid.to_string())?
    } else {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
        tasks.filter_map(|task| of(task.file_name().to_str()?)).collect()
    };
    Some(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// All descendants, found by a look at every process of the machine; for kernels without lists of children.
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
