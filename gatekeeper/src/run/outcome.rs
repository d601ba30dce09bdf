//! Makes the report of a run that has ended.

use super::{Prepared, too_long};
use crate::enforce::RECORDED;
use crate::operation::Operation;
use crate::plan::Plan;
use crate::plan::refusal::NO_OWN_NETWORK;
use crate::policy::Limits;
use crate::report::{
    Captured, EXIT_SETUP, Exceeded, Layer, LayerReport, LayerStatus, Outcome, PeakOf, Report, Usage, Which,
};
use crate::supervise::capture::Stream;
use crate::supervise::meter::Peaks;
use crate::supervise::{End, Ended, Mounting};
use std::io;
use std::path::Path;

pub(crate) fn report(prepared: &Prepared, layers: Vec<LayerReport>, ended: Ended) -> Report {
    let Prepared { plan, run_dir, .. } = prepared;
    let limits = &plan.policy.limits;
    let end = match ended.end {
        End::Status(status) => held_by_kernel(status, limits, ended.usage).unwrap_or(ended.end),
        end => end,
    };
    let Ending { outcome, exit_code, signal, error } = Ending::of(&end, prepared);
    let (denials, denials_dropped) = ended.denials.finish();
    let layers = if ended.reached_main { layers } else { never_narrowed(layers, plan, outcome) };
    let (captured, kept) = captured(ended.streams, limits);
    let usage = ended.usage.map(|usage| used(usage, ended.peaks));
    Report {
        schema: 1,
        outcome,
        exit_code,
        signal,
        duration_ms: millis(ended.duration),
        command: lossy(&plan.command),
        error,
        verdict: Some(plan.verdict.clone()),
        layers,
        denials,
        reads_recorded: ended.reads_recorded,
        denials_dropped,
        asked: None,
        limit: match end {
            End::Limit(exceeded) => Some(exceeded),
            End::Timeout => plan.policy.timeout.map(|time| Which::Time.exceeded(millis(time), millis(ended.duration))),
            _ => kept,
        },
        usage,
        browser: ended.browser,
        stage: None,
        kept: run_dir.path().filter(|_| run_dir.keeps() || ended.left.is_some()).map(Path::to_owned),
        kept_because: ended.left.map(|error| error.to_string()),
        captured,
    }
}

/// How the run ended, in the terms of a report.
struct Ending {
    outcome: Outcome,
    exit_code: i32,
    signal: Option<i32>,
    error: Option<String>,
}

impl Ending {
    fn of(end: &End, prepared: &Prepared) -> Ending {
        match end {
            End::Limit(exceeded) => Ending::killed(Outcome::Limit, libc::SIGKILL, Some(reached(exceeded))),
            End::Status(status) if libc::WIFSIGNALED(*status) => {
                Ending::killed(Outcome::Signaled, libc::WTERMSIG(*status), None)
            }
            End::Status(status) => Ending::exited(Outcome::Exited, libc::WEXITSTATUS(*status), None),
            End::Violation { call } => {
                let error = format!("killed for a denied call: {call}");
                Ending::killed(Outcome::Signaled, libc::SIGSYS, Some(error))
            }
            End::Timeout => Ending::exited(Outcome::Timeout, 124, Some("the time limit was reached".to_owned())),
            End::Setup { operation, errno, mount } => {
                let error = not_set_up(*operation, *errno, mount.as_ref(), prepared);
                Ending::exited(Outcome::SetupFailed, i32::from(EXIT_SETUP), Some(error))
            }
            End::Unprotected { why } => Ending::killed(Outcome::Signaled, libc::SIGKILL, Some(format!("ended: {why}"))),
            End::GuardianLost { ended } => {
                let error = match ended {
                    true => "the guardian process was killed, and everything with it",
                    false => "the guardian process was killed; processes that the command started may still run",
                };
                Ending::killed(Outcome::Signaled, libc::SIGKILL, Some(error.to_owned()))
            }
        }
    }

    fn exited(outcome: Outcome, exit_code: i32, error: Option<String>) -> Ending {
        Ending { outcome, exit_code, signal: None, error }
    }

    fn killed(outcome: Outcome, signal: i32, error: Option<String>) -> Ending {
        Ending { outcome, exit_code: 128 + signal, signal: Some(signal), error }
    }
}

/// Names the operation that failed, and why.
fn not_set_up(
    operation: Operation,
    errno: i32,
    mount: Option<&Mounting>,
    Prepared { plan, run_dir, .. }: &Prepared,
) -> String {
    let why = io::Error::from_raw_os_error(errno);
    let place = mount.map(Mounting::described).unwrap_or_default();
    let hint = match (operation, errno) {
        (Operation::Exec, libc::EACCES) if plan.policy.paths.execute.is_some() => {
            "; paths.execute of the policy has to name the program, its interpreter and its loader".to_owned()
        }
        (Operation::Exec, libc::E2BIG) => too_long::explained(plan),
        (Operation::Namespaces, _) if plan.makes_own_network() => NO_OWN_NETWORK.to_owned(),
        (Operation::RunDirectory, libc::EACCES | libc::EPERM | libc::EROFS | libc::ENOSPC | libc::EDQUOT) => {
            let base = run_dir.parent().unwrap_or(Path::new("/tmp")).display();
            format!("; no directory can be made in {base}: set TMPDIR to one that you may enter and write")
        }
        _ => String::new(),
    };
    format!("{}: {place}{why}{hint}", operation.name())
}

/// The captured output, and the limit on it if a stream was longer.
pub(crate) fn captured(streams: Option<[Stream; 2]>, limits: &Limits) -> (Option<Captured>, Option<Exceeded>) {
    let Some([stdout, stderr]) = streams.map(|streams| streams.map(Stream::finish)) else { return (None, None) };
    let longest = stdout.total.max(stderr.total);
    let exceeded = limits.output.filter(|kept| longest > *kept).map(|kept| Which::Output.exceeded(kept, longest));
    let captured = Captured {
        stdout: stdout.text,
        stderr: stderr.text,
        stdout_truncated: stdout.missing,
        stderr_truncated: stderr.missing,
        stdout_base64: stdout.base64,
        stderr_base64: stderr.base64,
        stdout_file: stdout.file,
        stderr_file: stderr.file,
    };
    (Some(captured), exceeded)
}

/// Marks the seccomp layer as partial if the exact list never came into force, because the program ended or executed another
/// before main.
fn never_narrowed(mut layers: Vec<LayerReport>, plan: &Plan, outcome: Outcome) -> Vec<LayerReport> {
    let supervised = |layer: &&mut LayerReport| layer.layer == Layer::Seccomp && layer.detail.contains(RECORDED);
    if plan.preload.is_some()
        && outcome != Outcome::SetupFailed
        && let Some(layer) = layers.iter_mut().find(supervised)
    {
        layer.status = LayerStatus::Partial;
        layer.detail.push_str(
            "; libsandbox.so did not come to main in this program, so the list was widened to the end by what starting a \
             program needs",
        );
    }
    layers
}

/// Recognises a command that the kernel ended for a limit: SIGXFSZ, or SIGKILL and SIGXCPU after the CPU time was used up.
fn held_by_kernel(status: i32, limits: &Limits, usage: Option<[i64; 3]>) -> Option<End> {
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))?;
    let cpu = usage.map_or(0, |[user, system, _]| (user + system) as u64 / 1000);
    let limit = limits.cpu.map(millis);
    match (signal, limits.disk, limit) {
        (libc::SIGXFSZ, Some(disk), _) => Some(End::Limit(Which::Disk.exceeded(disk, disk))),
        (libc::SIGKILL | libc::SIGXCPU, _, Some(limit)) if cpu >= limit => {
            Some(End::Limit(Which::Cpu.exceeded(limit, cpu)))
        }
        _ => None,
    }
}

fn millis(time: std::time::Duration) -> u64 {
    time.as_millis() as u64
}

fn reached(exceeded: &Exceeded) -> String {
    let Exceeded { which, value, peak, unit } = exceeded;
    let (which, unit) = (which.word(), unit.word());
    format!("the limit on {which} was reached: {value} {unit} allowed, {peak} used")
}

fn used([user, system, kib]: [i64; 3], peaks: Peaks) -> Usage {
    let largest = kib as u64 * 1024;
    // rusage counts only processes that were waited for; the count of the tree has the rest.
    let unseen = peaks.cpu.map_or(0, |cpu| (cpu.as_micros() as i64).saturating_sub(user + system).max(0));
    let (peak_memory, peak_of) = match peaks.memory {
        Some(tree) if tree >= largest => (tree, PeakOf::Tree),
        _ => (largest, PeakOf::Process),
    };
    Usage { cpu_user_ms: (user + unseen) as u64 / 1000, cpu_system_ms: system as u64 / 1000, peak_memory, peak_of }
}

pub(crate) fn lossy(words: &[std::ffi::OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}
