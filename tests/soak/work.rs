//! The commands that are run, and their expected results.

use super::Run;
use crate::support::probe;
use crate::support::random::Random;
use serde_json::Value;
use std::path::{Path, PathBuf};

pub struct Work {
    /// Flags and command, without the flags for the report.
    pub words: Vec<String>,
    pub code: i32,
    pub outcome: &'static str,
    stdout: &'static str,
    /// The call that must be among the denials.
    denied: Option<&'static str>,
    /// Whether the report goes to standard output.
    pub json: bool,
    /// A file that must never exist.
    pub outside: PathBuf,
}

pub fn choose(random: &mut Random, mark: &str, outside: &Path) -> Work {
    let act = probe("act", &[]).display().to_string();
    let still = probe("act", &["-static"]).display().to_string();
    let line = |text: &str| text.replace("MARK", mark).replace("OUTSIDE", &outside.display().to_string());
    let words = |words: &[&str]| words.iter().map(|word| line(word)).collect::<Vec<String>>();
    let work = |all: &[&str], code: i32, outcome: &'static str, stdout: &'static str| Work {
        words: words(all),
        code,
        outcome,
        stdout,
        denied: None,
        json: false,
        outside: outside.to_owned(),
    };
    let litter = "echo x > $TMPDIR/file; setsid sleep MARK & (sleep MARK &); echo done; exit 7";
    let socket = |program: &str, flags: &[&str], code, outcome, stdout| Work {
        denied: Some("socket"),
        ..work(&[flags, &["--", program, "tcp", ",", "exit", "5"]].concat(), code, outcome, stdout)
    };
    match random.below(12) {
        0 => work(&["--", "true"], 0, "exited", ""),
        1 => work(&["-p", "write", "-c", litter], 7, "exited", "done\n"),
        2 => socket(&act, &[], 5, "exited", "tcp 97\n"),
        3 => socket(&still, &[], 5, "exited", "tcp 97\n"),
        4 => socket(&act, &["--on-violation", "kill"], 159, "signaled", ""),
        5 => work(&["--timeout", "100ms", "-c", "setsid sleep MARK & sleep MARK"], 124, "timeout", ""),
        6 => work(&["--", "no-such-command-anywhere"], 127, "not_found", ""),
        7 => work(&["--", "./text"], 126, "refused", ""),
        8 => Work {
            denied: Some("openat"),
            ..work(&["-p", "write", "-c", "(echo x > OUTSIDE); exit 3"], 3, "exited", "")
        },
        9 => Work { json: true, ..work(&["--json", "-c", "echo out; echo err >&2; exit 3"], 3, "exited", "") },
        10 => work(&["--memory", "1G", "--processes", "200", "-c", "sleep MARK & exit 4"], 4, "exited", ""),
        _ => work(&["--net", "hosts=a.invalid", "--isolate", "preferred", "--", "true"], 0, "exited", ""),
    }
}

impl Work {
    /// Checks the report of an undisturbed run.
    #[track_caller]
    pub fn agrees(&self, report: &Value, stdout: &str, run: &Run) {
        match self.json {
            true => assert_eq!(
                (report["stdout"].as_str(), report["stderr"].as_str()),
                (Some("out\n"), Some("err\n")),
                "{run}"
            ),
            false => assert_eq!(stdout, self.stdout, "{run}"),
        }
        if let Some(call) = self.denied {
            let denials = report["denials"].as_array().expect("a list");
            assert!(denials.iter().any(|denial| denial["syscall"] == call), "no {call} among the denials: {run}");
        }
        if self.outcome == "exited" {
            let layers = report["layers"].as_array().expect("a list");
            for layer in ["seccomp", "landlock"] {
                let status = layers.iter().find(|one| one["layer"] == layer).map(|one| &one["status"]);
                assert!(status.is_some_and(|status| status == "enforced"), "{layer}: {run}");
            }
        }
    }
}
