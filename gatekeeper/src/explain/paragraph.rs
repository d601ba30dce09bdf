//! The message on stderr after a run that the sandbox denied, limited or refused; often an agent reads it.
//!
//! It says what happened, by which rule, which flag and policy line would allow it, and whether to retry. There is no
//! message if the command failed for another reason, and no guesses.

use crate::policy::print;
use crate::report::{Denial, Exceeded, Outcome, Report, Which};
use std::time::Duration;

/// How many denials the message names; the report lists all of them.
const TOLD: usize = 3;

pub fn paragraph(report: &Report) -> Option<String> {
    let error = report.error.as_deref().unwrap_or("no reason given");
    match report.outcome {
        Outcome::Refused => Some(format!("refused: {}. Nothing was run; retrying will fail the same way", stop(error))),
        Outcome::SetupFailed => Some(format!("{}; nothing was run", stop(error))),
        Outcome::NotFound => Some(error.to_owned()),
        Outcome::Timeout | Outcome::Limit => Some(match &report.limit {
            Some(exceeded) => ended(exceeded),
            None => format!("stopped: {error}"),
        }),
        Outcome::Exited if report.exit_code == 0 => None,
        Outcome::Exited | Outcome::Signaled => denied(report),
    }
}

fn stop(text: &str) -> &str {
    text.trim_end_matches('.')
}

/// Names the limit that stopped the run, and twice its value as the one to try next.
fn ended(exceeded: &Exceeded) -> String {
    let Exceeded { which, value, peak, .. } = *exceeded;
    let spelled = |value: u64| match which {
        Which::Memory | Which::Disk | Which::Output => print::size(value),
        Which::Cpu | Which::Time => print::duration(Duration::from_millis(value)),
        Which::Processes => value.to_string(),
    };
    let more = spelled(value.saturating_mul(2));
    let word = |text: &str| text.trim_matches('"').to_owned();
    let (flag, key, table) = match which {
        Which::Time => ("--timeout", "timeout", ""),
        Which::Memory => ("--memory", "memory", " under [limits]"),
        Which::Processes => ("--processes", "processes", " under [limits]"),
        Which::Cpu => ("--cpu", "cpu", " under [limits]"),
        Which::Disk => ("--disk", "disk", " under [limits]"),
        Which::Output => ("--output", "output", " under [limits]"),
    };
    let what = match which {
        Which::Time => format!("stopped: the time limit was reached ({flag} {})", word(&spelled(value))),
        Which::Disk => format!("stopped: a file exceeded {} ({flag})", word(&spelled(value))),
        Which::Processes => format!("stopped: the process tree had {peak} processes; the limit is {value} ({flag})"),
        _ => format!(
            "stopped: the process tree used {} of {}; the limit is {} ({flag})",
            word(&spelled(peak)),
            which.word(),
            word(&spelled(value))
        ),
    };
    format!(
        "{what}. Retrying only helps with a higher limit: {flag} {}, or {key} = {more}{table} in the policy",
        word(&more)
    )
}

fn denied(report: &Report) -> Option<String> {
    // Calls that on_violation = log let through did not make the command fail.
    let refused: Vec<&Denial> = report.denials.iter().filter(|denial| !denial.was_let_through()).collect();
    let (last, first): (Vec<&Denial>, Vec<&Denial>) = refused.iter().copied().partition(|denial| in_passing(denial));
    let told: Vec<String> = first.into_iter().chain(last).take(TOLD).map(denial).collect();
    if told.is_empty() {
        return None;
    }
    let more = refused.len() - told.len() + report.denials_dropped as usize;
    let more = if more > 0 { format!(". {more} more were denied") } else { String::new() };
    Some(format!("{}{more}. Retrying will fail the same way", told.join(". ")))
}

/// Whether programs try this and go on without it, so that it is told last: AF_NETLINK, which every name lookup tries, and
/// settings of a process such as /proc/PID/coredump_filter and oom_score_adj.
fn in_passing(denial: &Denial) -> bool {
    let netlink = denial.syscall == "socket" && denial.args.iter().any(|arg| arg == "AF_NETLINK");
    let of_process = |path: &str| {
        let mut parts = path.strip_prefix("/proc/").unwrap_or_default().split('/');
        let process =
            parts.next().is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()));
        process && parts.next().is_some()
    };
    netlink || denial.path.as_deref().is_some_and(of_process)
}

fn denial(denial: &Denial) -> String {
    let whole = (denial.syscall == "http").then(|| denial.args.join(" "));
    let object =
        whole.or_else(|| denial.path.clone()).or_else(|| denial.host.clone()).unwrap_or_else(|| denial.args.join(", "));
    let times = if denial.count > 1 { format!(" {} times", denial.count) } else { String::new() };
    let allow = match (&denial.allow_with, &denial.allow_with_policy) {
        (Some(flag), Some(line)) => format!("; {flag} would allow it, or {line} in the policy"),
        (Some(flag), None) => format!("; {flag} would allow it"),
        (None, Some(line)) => format!("; {line} in the policy would allow it"),
        (None, None) => String::new(),
    };
    format!("{}: {}({object}) was denied{times} ({}){allow}", denial.comm, denial.syscall, denial.rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_limit_suggests_twice_its_value() {
        let told = ended(&Which::Memory.exceeded(512 << 20, 600 << 20));
        assert_eq!(
            told,
            "stopped: the process tree used 600M of memory; the limit is 512M (--memory). Retrying only helps with a higher \
             limit: --memory 1G, or memory = \"1G\" under [limits] in the policy"
        );
        let told = ended(&Which::Time.exceeded(1500, 1501));
        assert!(
            told.starts_with("stopped: the time limit was reached (--timeout 1s500ms). Retrying only helps"),
            "{told}"
        );
        assert!(told.ends_with("--timeout 3s, or timeout = \"3s\" in the policy"), "{told}");
    }
}
