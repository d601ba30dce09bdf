//! Denials: what the report says about each, whether its remedy works, and how `why` explains it.

mod hostile;
mod kinds;
mod moves;
mod paths;
mod programs;
mod property;
mod reads;
mod rounds;
mod rules;
mod why;

use crate::support::{Done, fresh, gatekeeper, probe, run};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The probe that makes one call and exits with its errno.
pub fn violate() -> PathBuf {
    probe("violate", &["-pthread"])
}

/// A new directory, as a real path.
pub fn place(name: &str) -> PathBuf {
    fresh(name).canonicalize().expect("a fresh directory")
}

/// A command that does something denied.
pub struct Violation {
    flags: Vec<OsString>,
    command: Vec<OsString>,
    cwd: PathBuf,
    home: PathBuf,
    uid: Option<u32>,
}

/// A command with its flags, and the result.
pub struct Denied {
    violation: Violation,
    pub done: Done,
    pub report: Value,
}

impl Violation {
    pub fn new<C: AsRef<OsStr>>(flags: &[&str], command: &[C]) -> Violation {
        Violation {
            flags: flags.iter().map(OsString::from).collect(),
            command: command.iter().map(|word| word.as_ref().to_owned()).collect(),
            cwd: place("cwd"),
            home: PathBuf::from("/nonexistent"),
            uid: None,
        }
    }

    pub fn cwd(self, cwd: &Path) -> Violation {
        Violation { cwd: cwd.to_owned(), ..self }
    }

    pub fn home(self, home: &Path) -> Violation {
        Violation { home: home.to_owned(), ..self }
    }

    pub fn uid(self, uid: u32) -> Violation {
        Violation { uid: Some(uid), ..self }
    }

    fn start(&self, flags: &[OsString]) -> (Done, Value) {
        let report = fresh("report").join("report.json");
        let mut command = Command::new(gatekeeper());
        command.arg("run").arg("--report").arg(&report).args(flags).arg("--").args(&self.command);
        command.current_dir(&self.cwd).env("HOME", &self.home).env("LC_ALL", "C");
        if let Some(uid) = self.uid {
            use std::os::unix::process::CommandExt;
            command.uid(uid).gid(uid);
        }
        let done = run(&mut command);
        let text = fs::read(&report).unwrap_or_default();
        let report = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("no report ({error}){done}"));
        (done, report)
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Denied {
        let (done, report) = self.start(&self.flags);
        done.exits(code);
        Denied { violation: self, done, report }
    }

    /// For programs that choose their own exit code.
    #[track_caller]
    pub fn fails(self) -> Denied {
        let (done, report) = self.start(&self.flags);
        assert_ne!(done.code(), Some(0), "{done}");
        Denied { violation: self, done, report }
    }
}

impl Denied {
    pub fn denials(&self) -> &[Value] {
        self.report["denials"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Asserts that this call has one denial, with the given fields.
    #[track_caller]
    pub fn record(&self, expected: Value) -> &Denied {
        let denials = self.denials();
        let found = denials.iter().find(|denial| {
            denial["syscall"] == expected["syscall"]
                && (expected["path"].is_null() || denial["path"] == expected["path"])
        });
        let found =
            found.unwrap_or_else(|| panic!("no such record\nwanted {expected}\nfound {denials:#?}{}", self.done));
        for (field, value) in expected.as_object().expect("a record") {
            assert_eq!(&found[field], value, "{field} of {found:#}{}", self.done);
        }
        // Every record has these.
        for field in ["pid", "tid", "count"] {
            assert!(found[field].as_u64().is_some_and(|number| number > 0), "{field} of {found:#}");
        }
        assert!(found["rule"].as_str().is_some_and(|rule| !rule.is_empty()), "{found:#}");
        self
    }

    /// For denials that no flag allows precisely enough: with the policy line of the first one it is no longer
    /// recorded.
    #[track_caller]
    pub fn mended_by_policy(&self) -> &Denied {
        let denial = self.denials().first().expect("a denial");
        assert_eq!(denial["allow_with"], Value::Null, "{denial:#}");
        let line = denial["allow_with_policy"].as_str().unwrap_or_else(|| panic!("no line in {denial:#}"));
        let file = fresh("policy").join("policy.toml");
        fs::write(&file, line).expect("own directory");
        let mut flags = self.violation.flags.clone();
        flags.extend(["--config".into(), file.into_os_string()]);
        let (done, report) = self.violation.start(&flags);
        let denials = report["denials"].as_array().cloned().unwrap_or_default();
        let same = |other: &&Value| other["syscall"] == denial["syscall"] && other["args"] == denial["args"];
        assert!(!denials.iter().any(|other| same(&other)), "{line} did not help: {denials:#?}{done}");
        assert_ne!(done.code(), Some(125), "{done}");
        self
    }

    /// Asserts that the same command passes with the remedy of the first denial.
    #[track_caller]
    pub fn passes(&self) -> &Denied {
        self.passes_after(1)
    }

    /// The same for remedies that uncover further denials: all remedies of a report are applied at once, in at most
    /// this many rounds.
    #[track_caller]
    pub fn passes_after(&self, rounds: usize) -> &Denied {
        let mut flags = self.violation.flags.clone();
        let mut denials = self.denials().to_vec();
        for _ in 0..rounds {
            let remedy = remedies(&denials).unwrap_or_else(|| panic!("no remedy in {denials:#?}"));
            flags = applied(&flags, &remedy);
            let (done, report) = self.violation.start(&flags);
            denials = report["denials"].as_array().cloned().unwrap_or_default();
            if done.code() == Some(0) {
                return self;
            }
            assert!(!denials.is_empty(), "{remedy} did not help{done}");
        }
        panic!("still denied with {flags:?}: {denials:#?}")
    }
}

/// The distinct remedies of a report, in order.
pub fn remedies(denials: &[Value]) -> Option<String> {
    let mut all: Vec<&str> = Vec::new();
    for remedy in denials.iter().filter_map(|denial| denial["allow_with"].as_str()) {
        if !all.contains(&remedy) {
            all.push(remedy);
        }
    }
    (!all.is_empty()).then(|| all.join(" "))
}

/// The flags followed by the words of a remedy, split as by a shell.
pub fn applied(flags: &[OsString], remedy: &str) -> Vec<OsString> {
    let typed = run(Command::new("sh").arg("-c").arg(format!("printf '%s\\0' {remedy}")));
    let words = typed.stdout().split_terminator('\0').map(OsString::from).collect::<Vec<_>>();
    flags.iter().cloned().chain(words).collect()
}
