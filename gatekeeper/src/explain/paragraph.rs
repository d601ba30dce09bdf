//! The message on stderr after a run that the sandbox denied, limited or refused; often an agent reads it.
//!
//! It says what happened, by which rule, which flag and policy line would allow it, and whether to retry. There is no
//! message if the command failed for another reason, and no guesses.

use crate::policy::print;
use crate::report::{Denial, Exceeded, Layer, LayerStatus, Outcome, Report, Which};
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
        Outcome::Exited if report.exit_code == 0 => unnoticed(report),
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
    // `--disk 0` is allowed, and twice that would be no more. A tree of processes may have had more than twice its limit.
    let least = match which {
        Which::Disk => 1 << 10,
        Which::Processes => peak.saturating_add(1),
        _ => 1,
    };
    let more = spelled(value.saturating_mul(2).max(least));
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

/// What a command that reports success did not do. git goes on if it cannot write `.git/config`: the branch that it made tracks
/// nothing.
fn unnoticed(report: &Report) -> Option<String> {
    let kept = report.denials.iter().find(|denial| denial.is_protected() && !denial.was_let_through())?;
    Some(format!("{}. The command went on without it", sentence(&[kept], false)))
}

/// The denials that can have made the command fail: the newest process's first, then the others, newest first. Those that the
/// same flags allow are one sentence.
fn denied(report: &Report) -> Option<String> {
    // Calls that on_violation = log let through did not make the command fail.
    let refused = report.denials.iter().rev().filter(|denial| !denial.was_let_through());
    let (passing, mut told): (Vec<&Denial>, Vec<&Denial>) = refused.partition(|denial| in_passing(denial));
    let newest = told.first().map(|denial| denial.pid);
    told.sort_by_key(|denial| Some(denial.pid) != newest);
    let causes = !told.is_empty();
    // Named only if nothing else can be the cause.
    let untold = if causes { passing.len() } else { 0 };
    if !causes {
        told = passing;
    }
    let mut groups: Vec<Vec<&Denial>> = Vec::new();
    for denial in told.iter().copied() {
        let same = |group: &&mut Vec<&Denial>| {
            denial.allow_with.is_some() && group.first().is_some_and(|first| first.allow_with == denial.allow_with)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(denial),
            None => groups.push(vec![denial]),
        }
    }
    let private = has_namespaces(report);
    let named: Vec<String> = groups.iter().take(TOLD).map(|group| sentence(group, private)).collect();
    if named.is_empty() {
        return None;
    }
    let more = groups.iter().skip(TOLD).map(Vec::len).sum::<usize>() + untold + report.denials_dropped as usize;
    let more = if more > 0 {
        format!(". {more} more {} denied", if more == 1 { "was" } else { "were" })
    } else {
        String::new()
    };
    // Programs go on without what they only try in passing. And whoever was asked may answer otherwise the next time.
    let again = causes && report.asked.as_ref().is_none_or(Vec::is_empty);
    let again = if again { ". Retrying will fail the same way" } else { "" };
    Some(format!("{}{more}{again}", named.join(". ")))
}

/// Whether this run made namespaces, so that a run with `--net own` can make one too.
fn has_namespaces(report: &Report) -> bool {
    report.layers.iter().any(|layer| layer.layer == Layer::Namespaces && layer.status == LayerStatus::Enforced)
}

/// Whether programs try this and go on without it, so that it is told only if there is nothing else: AF_NETLINK, which every
/// name lookup tries, and settings of a process such as /proc/PID/coredump_filter and oom_score_adj.
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

/// Denials that the same flags allow, by the first of them. `private`: whether a loopback of the run's own can be made.
fn sentence(group: &[&Denial], private: bool) -> String {
    let Some(denial) = group.first() else { return String::new() };
    let whole = (denial.syscall == "http").then(|| denial.args.join(" "));
    let object =
        whole.or_else(|| denial.path.clone()).or_else(|| denial.host.clone()).unwrap_or_else(|| denial.args.join(", "));
    let times = if denial.count > 1 { format!(" {} times", denial.count) } else { String::new() };
    let (others, it) = match group.len() {
        1 => (String::new(), "it"),
        2 => (", and one more call".to_owned(), "both"),
        calls => (format!(", and {} more calls", calls - 1), "all of them"),
    };
    let own = if private && among_itself(denial) { "; --net own would allow it on a loopback of its own" } else { "" };
    let line = denial.allow_with_policy.as_ref().filter(|_| group.len() == 1);
    let allow = match (&denial.allow_with, line) {
        (Some(flag), Some(line)) => format!("; {flag} would allow {it}, or {line} in the policy"),
        (Some(flag), None) => format!("; {flag} would allow {it}"),
        (None, Some(line)) => format!("; {line} in the policy would allow it"),
        (None, None) => String::new(),
    };
    format!("{}: {}({object}) was denied{times}{others} ({}){own}{allow}", denial.comm, denial.syscall, denial.rule)
}

/// Whether the call may be that of a test suite or a development server, whose processes only reach each other.
fn among_itself(denial: &Denial) -> bool {
    let internet = denial.args.first().is_some_and(|family| family == "AF_INET" || family == "AF_INET6");
    let refused = ["network mode none", "network mode loopback"].iter().any(|mode| denial.rule.starts_with(mode));
    denial.syscall == "socket" && internet && refused || denial.syscall == "listen" && denial.host.is_some()
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

    /// A denial by process `pid` of opening `path`, which `--write` of that path allows.
    fn denial(pid: i32, path: &str) -> serde_json::Value {
        serde_json::json!({
            "layer": "landlock", "syscall": "openat", "path": path, "host": null, "pid": pid, "comm": "cmd", "exe": null,
            "rule": "rule", "allow_with": format!("--write {path}"), "allow_with_policy": null,
        })
    }

    fn told(exit_code: i32, denials: Vec<serde_json::Value>, change: impl Fn(&mut Report)) -> String {
        let mut report = Report::of(Outcome::Exited);
        report.exit_code = exit_code;
        report.denials =
            denials.into_iter().map(|denial| serde_json::from_value(denial).expect("a denial")).collect::<Vec<_>>();
        change(&mut report);
        paragraph(&report).unwrap_or_default()
    }

    #[test]
    fn the_newest_denials_of_the_newest_process_come_first() {
        let denials = || vec![denial(7, "/a"), denial(8, "/b"), denial(7, "/c"), denial(7, "/proc/7/oom_score_adj")];
        let text = told(1, denials(), |_| {});
        let at = |path: &str| text.find(path).unwrap_or_else(|| panic!("{path} in {text}"));
        assert!(at("(/c)") < at("(/a)") && at("(/a)") < at("(/b)"), "{text}");
        assert!(text.ends_with(". 1 more was denied. Retrying will fail the same way"), "{text}");
    }

    #[test]
    fn a_retry_is_called_useless_only_where_it_is() {
        let passing = told(1, vec![denial(7, "/proc/7/oom_score_adj")], |_| {});
        assert!(!passing.is_empty() && !passing.contains("Retrying"), "{passing}");
        let question = r#"[{"id":1,"kind":"path","access":"write","syscall":"openat","path":"/a","host":null,"comm":"cmd",
            "pid":7,"argv":["cmd"],"allow_with":null,"decision":"deny","because":"timeout"}]"#;
        let asked = told(1, vec![denial(7, "/a")], |report| {
            report.asked = Some(serde_json::from_str(question).expect("a question"));
        });
        assert!(!asked.is_empty() && !asked.contains("Retrying"), "{asked}");
    }

    #[test]
    fn a_success_is_told_of_protected_files_only() {
        assert_eq!(told(0, vec![denial(7, "/a")], |_| {}), "");
        let mut kept = denial(7, "/a");
        kept["rule"] = "protected: /a is read-only in a writable tree".into();
        let text = told(0, vec![denial(7, "/b"), kept], |_| {});
        assert!(text.starts_with("cmd: openat(/a) was denied (protected: /a is"), "{text}");
        assert!(text.ends_with("--write /a would allow it. The command went on without it"), "{text}");
    }
}
