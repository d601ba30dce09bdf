//! The description of a sandbox, word by word. What cannot be understood is kept for the report: nothing runs then.

use super::{Input, Running, Sandbox};
use crate::policy::{Document, NetworkMode, OnViolation, Profile, StaticBinaries, ValueError, grants, values};
use crate::report::Report;
use crate::request::Asked;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a [`Sandbox`] will be. Lists add up; of anything else the last word counts.
#[derive(Debug, Clone)]
#[must_use = "nothing runs until it is run"]
pub struct Builder {
    sandbox: Sandbox,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            sandbox: Sandbox {
                asked: Asked::Command(Vec::new()),
                flags: Document::default(),
                config: None,
                cwd: None,
                starts_in: None,
                helper: None,
                explain: false,
                input: Input::Nothing,
                output: None,
                wrong: None,
                also_written: Vec::new(),
            },
        }
    }
}

impl Builder {
    /// The program and its arguments.
    pub fn command<W: AsRef<OsStr>>(self, words: impl IntoIterator<Item = W>) -> Builder {
        let words = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self.with(|sandbox| sandbox.asked = Asked::Command(words))
    }

    /// A line for `sh`, with new processes granted.
    pub fn line(self, line: impl Into<OsString>) -> Builder {
        self.with(|sandbox| sandbox.asked = Asked::Line(line.into()))
    }

    /// `minimal`, `read`, `network`, `write`, `unrestricted`, or a union such as `write+network`. Called again: the
    /// union of all calls.
    pub fn profile(self, profile: &str) -> Builder {
        self.parsed(values::profiles(profile), |flags, profiles| {
            flags.profile = values::union(flags.profile.take(), Some(profiles));
        })
    }

    /// A policy file, TOML or JSON. Whatever else is described stands over it.
    pub fn policy(self, file: impl Into<PathBuf>) -> Builder {
        self.with(|sandbox| sandbox.config = Some(file.into()))
    }

    /// What a denial names in `allow_with`, such as `--write /srv/data`. Ask somebody before.
    pub fn grant(self, allow_with: &str) -> Builder {
        let granted = grants::parse(allow_with);
        match granted {
            Ok(mut grant) => self.with(|sandbox| {
                // A profile is added to those described before, as the repeated flag of `run` adds it. What confines
                // nothing replaces them: it stands beside no other.
                if grant.profile.as_deref() != Some(&[Profile::Unrestricted]) {
                    grant.profile = values::union(sandbox.flags.profile.clone(), grant.profile.take());
                }
                sandbox.flags = grant.over(std::mem::take(&mut sandbox.flags));
            }),
            Err(error) => self.wrong(format!("grant: {error}")),
        }
    }

    /// A path to read, although it holds credentials or the policy does not list it.
    pub fn read(self, path: impl Into<PathBuf>) -> Builder {
        self.flags(|flags| flags.paths.also_read.push(path.into()))
    }

    /// A path below which everything may be written.
    pub fn write(self, path: impl Into<PathBuf>) -> Builder {
        self.flags(|flags| flags.paths.write.push(path.into()))
    }

    /// A path that may be neither read nor written, or a pattern of such paths: `**/.env`, `secrets/*.json`.
    pub fn deny_path(self, path: impl Into<PathBuf>) -> Builder {
        self.flags(|flags| flags.paths.deny.push(path.into()))
    }

    /// `none`, `loopback`, `full`, or `hosts=NAME[:PORT],...`.
    pub fn network(self, mode: &str) -> Builder {
        self.parsed(mode.parse::<NetworkMode>(), |flags, mode| flags.network.mode = Some(mode))
    }

    /// Syscalls and `@groups` between colons, beside the profile's.
    pub fn allow(self, list: &str) -> Builder {
        self.parsed(values::syscalls(list), |flags, names| flags.syscalls.allow.extend(names))
    }

    /// Syscalls and `@groups` between colons; wins over every allow.
    pub fn deny(self, list: &str) -> Builder {
        self.parsed(values::syscalls(list), |flags, names| flags.syscalls.deny.extend(names))
    }

    /// Sets a variable for the command, which otherwise gets a few harmless ones.
    pub fn env(self, name: &str, value: impl Into<String>) -> Builder {
        self.flags(|flags| drop(flags.env.set.insert(name.to_owned(), value.into())))
    }

    /// Passes a variable of this process on.
    pub fn pass_env(self, name: &str) -> Builder {
        self.flags(|flags| flags.env.pass.push(name.to_owned()))
    }

    /// The working directory; this process's otherwise.
    pub fn cwd(self, directory: impl Into<PathBuf>) -> Builder {
        self.with(|sandbox| sandbox.cwd = Some(directory.into()))
    }

    /// Ends everything after this time.
    pub fn timeout(self, time: Duration) -> Builder {
        self.flags(|flags| flags.timeout = Some(time))
    }

    /// Bytes of memory of the whole tree.
    pub fn memory(self, bytes: u64) -> Builder {
        self.flags(|flags| flags.limits.memory = Some(bytes))
    }

    /// Processes and threads of the whole tree.
    pub fn processes(self, number: u64) -> Builder {
        self.flags(|flags| flags.limits.processes = Some(number))
    }

    /// Processor time of the whole tree.
    pub fn cpu(self, time: Duration) -> Builder {
        self.flags(|flags| flags.limits.cpu = Some(time))
    }

    /// Bytes kept of each captured stream; a mebibyte otherwise.
    pub fn output(self, bytes: u64) -> Builder {
        self.flags(|flags| flags.limits.output = Some(bytes))
    }

    /// What a denied call gets; an error otherwise, and a record of it.
    pub fn on_violation(self, action: OnViolation) -> Builder {
        self.flags(|flags| flags.on_violation = Some(action))
    }

    /// What is done with programs that the preload cannot enter; otherwise they are confined like all others.
    pub fn static_binaries(self, action: StaticBinaries) -> Builder {
        self.flags(|flags| flags.static_binaries = Some(action))
    }

    /// Whether a layer that this machine lacks stops the run; otherwise it does.
    pub fn require_sandbox(self, required: bool) -> Builder {
        self.flags(|flags| flags.require_sandbox = Some(required))
    }

    /// Records refused reads as well, at some cost.
    pub fn explain(self) -> Builder {
        self.with(|sandbox| sandbox.explain = true)
    }

    /// What the command reads from its standard input; nothing otherwise, never this process's own.
    pub fn input(self, bytes: impl Into<Vec<u8>>) -> Builder {
        self.with(|sandbox| sandbox.input = Input::Bytes(bytes.into().into()))
    }

    /// The descriptor that the command reads from.
    pub fn input_from(self, stream: impl Into<OwnedFd>) -> Builder {
        self.with(|sandbox| sandbox.input = Input::From(Arc::new(stream.into())))
    }

    /// Where the command's output and errors go, such as pipes to stream them from, in place of the report. This
    /// description keeps both open until it is dropped.
    pub fn output_to(self, stdout: impl Into<OwnedFd>, stderr: impl Into<OwnedFd>) -> Builder {
        self.with(|sandbox| sandbox.output = Some([Arc::new(stdout.into()), Arc::new(stderr.into())]))
    }

    /// The program `gatekeeper` by its absolute path, for what takes a process of its own.
    pub fn gatekeeper(self, program: impl Into<PathBuf>) -> Builder {
        let program = program.into();
        match program.is_absolute() {
            true => self.with(|sandbox| sandbox.helper = Some(program)),
            false => self.wrong(format!("gatekeeper {}: not an absolute path", program.display())),
        }
    }

    pub fn build(self) -> Sandbox {
        self.sandbox
    }

    /// [`Sandbox::run`] of what is described.
    pub fn run(self) -> Report {
        self.sandbox.run()
    }

    /// [`Sandbox::spawn`] of what is described.
    pub fn spawn(self) -> Running {
        self.sandbox.spawn()
    }

    fn with(mut self, change: impl FnOnce(&mut Sandbox)) -> Builder {
        change(&mut self.sandbox);
        self
    }

    fn flags(self, change: impl FnOnce(&mut Document)) -> Builder {
        self.with(|sandbox| change(&mut sandbox.flags))
    }

    fn parsed<T>(self, value: Result<T, ValueError>, set: impl FnOnce(&mut Document, T)) -> Builder {
        match value {
            Ok(value) => self.flags(|flags| set(flags, value)),
            Err(error) => self.wrong(format!("policy: {error}")),
        }
    }

    fn wrong(self, error: String) -> Builder {
        self.with(|sandbox| sandbox.wrong = sandbox.wrong.take().or(Some(error)))
    }
}
