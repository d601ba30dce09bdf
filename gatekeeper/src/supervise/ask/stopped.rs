//! The command, stopped while a question is on the terminal.
//!
//! SIGSTOP alone is no proof that the command drew nothing over the question: the kernel sends the SIGCONT of a timer
//! (timer_create(2)) to a stopped process, which may then write, and stop itself again. So a yes counts only if no thread of
//! the command has been on a CPU since before the question was drawn. The kernel counts that: a thread that runs and stops
//! again was switched.

use crate::supervise::status::Status;
use crate::supervise::tree;
use crate::sys::process;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// How long to wait until the last thread has stopped. One that waits for a disk, or for an answer of ours, stops later.
const PATIENCE: Duration = Duration::from_millis(500);

const MOMENT: Duration = Duration::from_millis(20);

pub struct Stopped {
    guardian: i32,
    /// The processes that were stopped here, and not by the command or the user.
    halted: Vec<i32>,
    /// How often each thread was switched.
    switches: BTreeMap<i32, u64>,
}

impl Stopped {
    /// Stops every process below `guardian`.
    pub fn halt(guardian: i32) -> Stopped {
        let mut stopped = Stopped { guardian, halted: Vec::new(), switches: BTreeMap::new() };
        stopped.again();
        stopped
    }

    /// Stops what has started to run again.
    pub fn again(&mut self) {
        let began = Instant::now();
        loop {
            for pid in tree::halt(self.guardian) {
                if !self.halted.contains(&pid) {
                    self.halted.push(pid);
                }
            }
            let (running, switches) = self.look();
            self.switches = switches;
            if running.is_empty() || began.elapsed() > PATIENCE {
                return;
            }
            running.iter().for_each(|(pid, tid)| drop(process::stop_by_thread(*pid, *tid)));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until nothing has run for a moment. A call that was just answered returns, and then stops.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            self.again();
            std::thread::sleep(MOMENT);
            if !self.has_run() {
                return;
            }
        }
    }

    /// Whether a thread has run since the last halt.
    pub fn has_run(&self) -> bool {
        let (running, switches) = self.look();
        // A thread that has ended draws nothing, and was seen to run before.
        !running.is_empty() || switches.iter().any(|(tid, count)| self.switches.get(tid) != Some(count))
    }

    /// The threads that run or are about to, each with its process, and the switches of all.
    fn look(&self) -> (Vec<(i32, i32)>, BTreeMap<i32, u64>) {
        let mut running = Vec::new();
        let mut switches = BTreeMap::new();
        for pid in tree::sum(self.guardian).pids {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for tid in tasks.filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok()) {
                let Ok(status) = Status::of(tid) else { continue };
                let state = status.words("State").and_then(|mut words| words.next()).unwrap_or("?");
                // D: in the kernel, without reaching the program. A call that waits for our answer does that.
                if !matches!(state, "T" | "t" | "Z" | "X" | "x" | "D") {
                    running.push((pid, tid));
                }
                let count = |name: &str| status.number::<u64>(name).unwrap_or(0);
                switches.insert(tid, count("voluntary_ctxt_switches") + count("nonvoluntary_ctxt_switches"));
            }
        }
        (running, switches)
    }

    /// Children before their parents: a shell that runs first would find its job stopped, and take the terminal back.
    pub fn resume(self) {
        self.halted.iter().rev().for_each(|pid| drop(process::kill(*pid, libc::SIGCONT)));
    }
}
