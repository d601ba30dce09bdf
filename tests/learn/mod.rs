//! `gatekeeper learn`: one run produces a policy under which the same command passes and nothing else is granted.

mod merge;
mod narrow;
mod round_trip;

use crate::support::{Done, fresh, gatekeeper, run};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A working directory, a home and a policy file.
pub struct Bench {
    pub cwd: PathBuf,
    pub home: PathBuf,
    pub policy: PathBuf,
}

impl Bench {
    pub fn new(name: &str) -> Bench {
        let real = |path: PathBuf| path.canonicalize().expect("a fresh directory");
        Bench { cwd: real(fresh(name)), home: real(fresh("home")), policy: real(fresh("policy")).join("policy.toml") }
    }

    fn gatekeeper(&self, command: &str) -> Command {
        let mut gatekeeper = Command::new(gatekeeper());
        gatekeeper.arg(command).current_dir(&self.cwd).env("HOME", &self.home).env("LC_ALL", "C");
        gatekeeper
    }

    pub fn learn<W: AsRef<OsStr>>(&self, words: &[W]) -> Done {
        self.learn_with(&[], words)
    }

    pub fn learn_with<W: AsRef<OsStr>>(&self, flags: &[&str], words: &[W]) -> Done {
        run(self.gatekeeper("learn").arg("-o").arg(&self.policy).args(flags).arg("--").args(words))
    }

    pub fn run<W: AsRef<OsStr>>(&self, words: &[W]) -> Done {
        run(self.gatekeeper("run").arg("--config").arg(&self.policy).arg("--").args(words))
    }

    pub fn policy(&self) -> String {
        fs::read_to_string(&self.policy).expect("a policy")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.cwd.join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("own directory");
        fs::write(&path, text).expect("own directory");
        path
    }
}
