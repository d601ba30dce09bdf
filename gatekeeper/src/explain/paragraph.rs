//! Text for whoever reads stderr, most often an agent: one short paragraph when gatekeeper had a part in how it ended.
//!
//! What happened, by which rule, the smallest flag and config line that would allow it, and whether a retry can help.
//! Nothing where the command failed by itself, and nothing that is not known for certain.

use crate::policy::print;
use crate::report::{Denial, Exceeded, Outcome, Report, Which};
use std::time::Duration;

/// Denials that are told; the report has them all.
const TOLD: usize = 3;

pub fn paragraph(report: &Report) -> Option<String> {
    let error = report.error.as_deref().unwrap_or("no reason given");
    match report.outcome {
        Outcome::Refused => Some(format!("refused: {}. Nothing was run; a retry is refused as well", stop(error))),
        Outcome::SetupFailed => Some(format!("{}; nothing was run", stop(error))),
        Outcome::NotFound => Some(error.to_owned()),
        Outcome::Timeout | Outcome::Limit => Some(match &report.limit {
            Some(exceeded) => ended(exceeded),
            None => format!("ended: {error}"),
        }),
        Outcome::Exited if report.exit_code == 0 => None,
        Outcome::Exited | Outcome::Signaled => denied(report),
    }
}

fn stop(text: &str) -> &str {
    text.trim_end_matches('.')
}

/// A limit that ended it, and twice as much.
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
        Which::Time => format!("ended: the time was up ({flag} {})", word(&spelled(value))),
        Which::Disk => format!("ended: it wrote a file larger than {} ({flag})", word(&spelled(value))),
        _ => format!(
            "ended: the whole tree may use {} of {} and used {} ({flag})",
            word(&spelled(value)),
            which.word(),
            word(&spelled(peak))
        ),
    };
    format!(
        "{what}. A retry helps only with a higher limit: {flag} {}, or {key} = {more}{table} of the policy",
        word(&more)
    )
}

fn denied(report: &Report) -> Option<String> {
    // What was let through and only recorded has no part in how it ended.
    let refused: Vec<&Denial> = report.denials.iter().filter(|denial| !denial.was_let_through()).collect();
    // Asked in passing by everything that looks for a name: it must not hide what matters.
    let in_passing = |denial: &&Denial| denial.syscall == "socket" && denial.args.iter().any(|arg| arg == "AF_NETLINK");
    let (last, first): (Vec<&Denial>, Vec<&Denial>) = refused.iter().copied().partition(in_passing);
    let told: Vec<String> = first.into_iter().chain(last).take(TOLD).map(denial).collect();
    if told.is_empty() {
        return None;
    }
    let more = refused.len() - told.len() + report.denials_dropped as usize;
    let more = if more > 0 { format!(". And {more} more") } else { String::new() };
    Some(format!("{}{more}. A retry without it cannot help", told.join(". ")))
}

fn denial(denial: &Denial) -> String {
    let object = denial.path.clone().or_else(|| denial.host.clone()).unwrap_or_else(|| denial.args.join(", "));
    let times = if denial.count > 1 { format!(" {} times", denial.count) } else { String::new() };
    let allow = match (&denial.allow_with, &denial.allow_with_policy) {
        (Some(flag), Some(line)) => format!("; {flag} would allow it, or {line} in the policy"),
        (Some(flag), None) => format!("; {flag} would allow it"),
        (None, Some(line)) => format!("; {line} in the policy would allow it"),
        (None, None) => String::new(),
    };
    format!("{}({object}) of {} was denied{times} ({}){allow}", denial.syscall, denial.comm, denial.rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_with_twice_as_much() {
        let told = ended(&Which::Memory.exceeded(512 << 20, 600 << 20));
        assert_eq!(
            told,
            "ended: the whole tree may use 512M of memory and used 600M (--memory). A retry helps only with a higher \
             limit: --memory 1G, or memory = \"1G\" under [limits] of the policy"
        );
        let told = ended(&Which::Time.exceeded(1500, 1501));
        assert!(told.starts_with("ended: the time was up (--timeout 1s500ms). A retry helps only"), "{told}");
        assert!(told.ends_with("--timeout 3s, or timeout = \"3s\" of the policy"), "{told}");
    }
}
