//! Watches the limits of the whole process tree by measuring it at intervals, which get shorter as a limit gets nearer.

use super::spent::Account;
use super::tree;
use crate::enforce::cgroup::Cgroup;
use crate::policy::Limits;
use crate::report::{Exceeded, Which};
use std::time::{Duration, Instant};

/// The delay before the first measurement, so that a short command never pays for one.
const FIRST: Duration = Duration::from_millis(5);
const SOONEST: Duration = Duration::from_millis(5);
const LATEST: Duration = Duration::from_millis(100);
/// Measuring takes at most one part in this many of a CPU.
const SHARE: u32 = 10;
/// A generous estimate of how many bytes one CPU can fill in a millisecond.
const FILLED: u64 = 4 << 20;

/// The highest values measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peaks {
    pub memory: Option<u64>,
    pub cpu: Option<Duration>,
}

pub struct Meter {
    limits: Limits,
    cgroup: Option<Cgroup>,
    due: Instant,
    peaks: Peaks,
    /// CPU time, where no cgroup counts it.
    account: Account,
    processors: u32,
}

impl Meter {
    /// Returns `None` if no limit has to be watched.
    pub fn new(limits: &Limits, cgroup: Option<Cgroup>) -> Option<Meter> {
        let any = limits.memory.is_some() || limits.processes.is_some() || limits.cpu.is_some();
        any.then(|| Meter {
            limits: *limits,
            cgroup,
            due: Instant::now() + FIRST,
            peaks: Peaks::default(),
            account: Account::default(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        })
    }

    /// When to measure next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Measures the tree below the guardian. Returns the limit that it exceeds.
    pub fn look(&mut self, guardian: i32) -> Option<Exceeded> {
        let began = Instant::now();
        let counted =
            |limit: Option<u64>, by: fn(&Cgroup) -> bool| limit.filter(|_| !self.cgroup.as_ref().is_some_and(by));
        let memory = counted(self.limits.memory, |cgroup| cgroup.memory);
        let processes = counted(self.limits.processes, |cgroup| cgroup.processes);
        let cpu_counted = self.cgroup.as_ref().and_then(Cgroup::cpu);
        let mut next = LATEST;
        let mut exceeded = self.kernel_says();
        if memory.is_some() || processes.is_some() || self.limits.cpu.is_some() && cpu_counted.is_none() {
            let sum = tree::sum(guardian);
            if let Some(limit) = memory {
                let mut used = sum.resident;
                if used > limit {
                    used = tree::proportional(&sum.pids);
                }
                self.peaks.memory = Some(used.max(self.peaks.memory.unwrap_or(0)));
                if used > limit {
                    exceeded = exceeded.or(Some(Which::Memory.exceeded(limit, used)));
                }
                next =
                    next.min(Duration::from_millis((limit.saturating_sub(used)) / FILLED / u64::from(self.processors)));
            }
            if let Some(limit) = processes {
                if sum.tasks > limit {
                    exceeded = exceeded.or(Some(Which::Processes.exceeded(limit, sum.tasks)));
                }
                // A fork bomb doubles its number with every round.
                next = next.min(if sum.tasks.saturating_mul(2) > limit { SOONEST } else { SOONEST * 4 });
            }
            let used = cpu_counted.unwrap_or_else(|| self.account.add(&sum.spent));
            self.used_cpu(used);
        } else if let Some(cpu) = cpu_counted {
            self.used_cpu(cpu);
        }
        if let (Some(limit), Some(used)) = (self.limits.cpu, self.peaks.cpu) {
            if used >= limit {
                let millis = |time: Duration| time.as_millis() as u64;
                exceeded = exceeded.or(Some(Which::Cpu.exceeded(millis(limit), millis(used))));
            }
            next = next.min(limit.saturating_sub(used) / self.processors);
            // Of processes whose parent ignores SIGCHLD, only what is seen counts.
            next = if self.account.loses() { SOONEST } else { next };
        }
        let now = Instant::now();
        self.due = now + next.max(SOONEST).max((now - began) * SHARE);
        exceeded
    }

    fn used_cpu(&mut self, cpu: Duration) {
        self.peaks.cpu = Some(cpu.max(self.peaks.cpu.unwrap_or_default()));
    }

    /// Reads the counters of the cgroup.
    fn kernel_says(&mut self) -> Option<Exceeded> {
        let cgroup = self.cgroup.as_ref()?;
        if let (true, Some(limit)) = (cgroup.memory, self.limits.memory) {
            let peak = cgroup.peak_memory().unwrap_or(0);
            self.peaks.memory = Some(peak.max(self.peaks.memory.unwrap_or(0)));
            if cgroup.out_of_memory() {
                return Some(Which::Memory.exceeded(limit, peak));
            }
        }
        match self.limits.processes {
            Some(limit) if cgroup.processes && cgroup.out_of_processes() => {
                Some(Which::Processes.exceeded(limit, limit))
            }
            _ => None,
        }
    }

    /// Kills the tree through its cgroup, if it has one.
    pub fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    /// The last measurement, after the tree has ended: a limit that the kernel enforced, and the peaks.
    pub fn finish(&mut self) -> (Option<Exceeded>, Peaks) {
        let exceeded = self.kernel_says();
        if let Some(cpu) = self.cgroup.take().and_then(|cgroup| cgroup.cpu()) {
            self.used_cpu(cpu);
        }
        (exceeded, self.peaks)
    }
}
