//! The trouble that can happen to a run.

use super::{Run, gatekeeper_run};
use crate::plumbing::{Place, gatekeeper};
use crate::support::random::Random;
use crate::support::{is_root, probe};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    None,
    /// SIGKILL to the process that the caller started.
    KillFront,
    /// SIGKILL to the guardian of the tree.
    KillGuardian,
    /// SIGSTOP for a while.
    StopFront,
    StopGuardian,
    /// Temporary directory and report on an almost full disk.
    FullDisk,
    /// Few descriptors, but enough for the loader.
    FewFiles,
    /// Little address space.
    LittleMemory,
}

pub fn choose(random: &mut Random) -> Trouble {
    use Trouble::*;
    let all = [KillFront, KillGuardian, StopFront, StopGuardian, FullDisk, FewFiles, LittleMemory];
    match random.below(3) {
        0 => None,
        _ => match random.pick(&all) {
            // Only root can mount the small disk; `a_soak` prints that it is missing.
            FullDisk if !is_root() => None,
            chosen => chosen,
        },
    }
}

impl Trouble {
    /// Whether the set-up of a run may fail because of it.
    pub fn may_fail(self) -> bool {
        !matches!(self, Trouble::None | Trouble::StopFront | Trouble::StopGuardian)
    }

    /// Whether the command lacks the same resources as gatekeeper.
    pub fn starves(self) -> bool {
        matches!(self, Trouble::FullDisk | Trouble::FewFiles | Trouble::LittleMemory)
    }

    pub fn command(self, place: &Place, run: &Run, random: &mut Random) -> Command {
        let mut words = vec!["--env".to_owned(), format!("SOAK={}", run.mark)];
        let report = run.report.display().to_string();
        if self == Trouble::FullDisk {
            let dir = place.at("work").join("small");
            fs::create_dir_all(&dir).expect("own directory");
            if !run.work.json {
                words.extend(["--report".to_owned(), dir.join("report").display().to_string()]);
            }
            words.extend(run.work.words.iter().cloned());
            let (bytes, inodes) = (random.below(4) * 4096, random.below(6));
            let user = place.user.unwrap_or(0);
            let shown = |number: u64| number.to_string();
            let before = [&shown(bytes), &shown(inodes), &user.to_string(), &dir.display().to_string(), &report];
            let gatekeeper = gatekeeper().display().to_string();
            let after = ["--", gatekeeper.as_str(), "run"].into_iter().chain(words.iter().map(String::as_str));
            let all: Vec<&str> = before.into_iter().map(String::as_str).chain(after).collect();
            // As root, until the disk is mounted.
            let mut command = place.any(&probe("small", &[]), &all);
            command.uid(0).gid(0).env("TMPDIR", dir.join("tmp"));
            return command;
        }
        if !run.work.json {
            words.extend(["--report".to_owned(), report]);
        }
        words.extend(run.work.words.iter().cloned());
        let mut command = gatekeeper_run(place, &words);
        match self {
            Trouble::FewFiles => limit(&mut command, libc::RLIMIT_NOFILE, 4 + random.below(40)),
            Trouble::LittleMemory => limit(&mut command, libc::RLIMIT_AS, least(place) + (random.below(32) << 15)),
            _ => {}
        }
        command
    }

    /// Causes the trouble at a random moment within the usual duration of a run.
    pub fn make(self, front: &Child, usual: Duration, random: &mut Random) {
        let moment = |random: &mut Random| usual.mul_f64(random.below(1500) as f64 / 1000.0);
        let pid = front.id() as i32;
        match self {
            Trouble::KillFront => {
                std::thread::sleep(moment(random));
                signal(&held(pid), Signal::KILL);
            }
            Trouble::KillGuardian => {
                std::thread::sleep(moment(random));
                signal(&guardian(pid), Signal::KILL);
            }
            Trouble::StopFront | Trouble::StopGuardian => {
                std::thread::sleep(moment(random));
                let whom = if self == Trouble::StopFront { held(pid) } else { guardian(pid) };
                signal(&whom, Signal::STOP);
                std::thread::sleep(moment(random));
                signal(&whom, Signal::CONT);
            }
            _ => {}
        }
    }
}

/// A pidfd, so that a reused process id cannot be hit.
fn held(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// The only child of the front, if it already exists.
fn guardian(front: i32) -> Option<OwnedFd> {
    let child = || -> Option<i32> {
        let children = fs::read_to_string(format!("/proc/{front}/task/{front}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    let pid = child()?;
    // If it is still the child after pidfd_open, the pidfd refers to it.
    held(pid).filter(|_| child() == Some(pid))
}

fn signal(whom: &Option<OwnedFd>, signal: Signal) {
    // The process may have ended by itself.
    if let Some(whom) = whom {
        let _ = pidfd_send_signal(whom, signal);
    }
}

/// The least address space with which the loader gets gatekeeper to its main. With less, gatekeeper never runs.
fn least(place: &Place) -> u64 {
    static LEAST: OnceLock<u64> = OnceLock::new();
    *LEAST.get_or_init(|| {
        let starts = |size: &u64| {
            let mut command = place.command(&["--version"]);
            limit(&mut command, libc::RLIMIT_AS, *size);
            command.output().is_ok_and(|output| output.status.success())
        };
        (2..500).map(|size| size << 20).find(starts).expect("it starts with half a gigabyte")
    })
}

fn limit(command: &mut Command, which: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: setrlimit is async-signal-safe, and reads a value that the closure owns.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(which, &limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
}
