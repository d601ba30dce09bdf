//! The builder of a sandbox. It keeps the first invalid setting for the report, and then nothing runs.

use super::{Input, Running, Sandbox};
use crate::policy::{Document, NetworkMode, OnViolation, Profile, StaticBinaries, ValueError, grants, values};
use crate::report::{Decision, Question, Report};
use crate::request::{Asked, Purpose, Request, Staging};
use crate::supervise::ask::callback::Callback;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Describes a [`Sandbox`]. Calls that add to a list accumulate; for every other setting the last call wins.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `run`, `spawn` or `build` is called"]
pub struct Builder {
    sandbox: Sandbox,
}

impl Default for Builder {
    fn default() -> Builder {
        let request = Request::new(Asked::Command(Vec::new()), PathBuf::new(), Vec::new());
        Builder {
            sandbox: Sandbox { request, cwd: None, input: Input::Nothing, output: None, wrong: None, answerer: None },
        }
    }
}

impl Builder {
    /// The program and its arguments.
    pub fn command<W: AsRef<OsStr>>(self, words: impl IntoIterator<Item = W>) -> Builder {
        let words = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        self.request(|request| request.asked = Asked::Command(words))
    }

    /// A command line for `sh -c`. The command may then start processes.
    pub fn line(self, line: impl Into<OsString>) -> Builder {
        self.request(|request| request.asked = Asked::Line(line.into()))
    }

    /// `minimal`, `read`, `network`, `write`, `unrestricted`, or a union such as `write+network`. Repeated calls form the
    /// union.
    pub fn profile(self, profile: &str) -> Builder {
        self.parsed(values::profiles(profile), |flags, profiles| {
            flags.profile = values::union(flags.profile.take(), Some(profiles));
        })
    }

    /// A policy file, TOML or JSON. Other settings of this builder override it.
    pub fn policy(self, file: impl Into<PathBuf>) -> Builder {
        self.request(|request| request.config = Some(file.into()))
    }

    /// A grant from a denial's `allow_with`, such as `--write /srv/data`. Ask the user first.
    pub fn grant(self, allow_with: &str) -> Builder {
        let granted = grants::parse(allow_with);
        match granted {
            Ok(mut grant) => self.flags(|flags| {
                // Add a profile to the earlier ones, as a repeated --profile does. `unrestricted` cannot be combined, so it
                // replaces them.
                if grant.profile.as_deref() != Some(&[Profile::Unrestricted]) {
                    grant.profile = values::union(flags.profile.clone(), grant.profile.take());
                }
                *flags = grant.over(std::mem::take(flags));
            }),
            Err(error) => self.wrong(format!("grant: {error}")),
        }
    }

    /// Allows reading a path, also if it is a credential or the policy does not list it. Credentials below it stay closed.
    pub fn read(self, path: impl Into<PathBuf>) -> Builder {
        self.flags(|flags| flags.paths.also_read.push(path.into()))
    }

    /// Allows writing everything below a path.
    pub fn write(self, path: impl Into<PathBuf>) -> Builder {
        self.flags(|flags| flags.paths.write.push(path.into()))
    }

    /// Denies reading and writing a path, or all paths that match a pattern: `**/.env`, `secrets/*.json`.
    pub fn deny_path(self, path: impl Into<PathBuf>) -> Builder {
        self.flags(|flags| flags.paths.deny.push(path.into()))
    }

    /// The network: `none`, `loopback`, `full`, or `hosts=NAME[:PORT],...`.
    pub fn network(self, mode: &str) -> Builder {
        self.parsed(mode.parse::<NetworkMode>(), |flags, mode| flags.network.mode = Some(mode))
    }

    /// Allows syscalls and `@groups`, separated by colons, in addition to the profile's.
    pub fn allow(self, list: &str) -> Builder {
        self.parsed(values::syscalls(list), |flags, names| flags.syscalls.allow.extend(names))
    }

    /// Denies syscalls and `@groups`, separated by colons. Overrides every allow.
    pub fn deny(self, list: &str) -> Builder {
        self.parsed(values::syscalls(list), |flags, names| flags.syscalls.deny.extend(names))
    }

    /// Sets an environment variable of the command. By default it gets only a few harmless variables.
    pub fn env(self, name: &str, value: impl Into<String>) -> Builder {
        self.flags(|flags| drop(flags.env.set.insert(name.to_owned(), value.into())))
    }

    /// Passes an environment variable of this process to the command.
    pub fn pass_env(self, name: &str) -> Builder {
        self.flags(|flags| flags.env.pass.push(name.to_owned()))
    }

    /// The working directory. Default: this process's.
    pub fn cwd(self, directory: impl Into<PathBuf>) -> Builder {
        self.with(|sandbox| sandbox.cwd = Some(directory.into()))
    }

    /// Kills the command and every process that it started after this time.
    pub fn timeout(self, time: Duration) -> Builder {
        self.flags(|flags| flags.timeout = Some(time))
    }

    /// Limits the memory of all processes together, in bytes.
    pub fn memory(self, bytes: u64) -> Builder {
        self.flags(|flags| flags.limits.memory = Some(bytes))
    }

    /// Limits the number of processes and threads.
    pub fn processes(self, number: u64) -> Builder {
        self.flags(|flags| flags.limits.processes = Some(number))
    }

    /// Limits the CPU time of all processes together.
    pub fn cpu(self, time: Duration) -> Builder {
        self.flags(|flags| flags.limits.cpu = Some(time))
    }

    /// How many bytes to keep of each captured stream. Default: 1 MiB.
    pub fn output(self, bytes: u64) -> Builder {
        self.flags(|flags| flags.limits.output = Some(bytes))
    }

    /// What happens on a denied call. Default: it fails with an error, and the report records it.
    pub fn on_violation(self, action: OnViolation) -> Builder {
        self.flags(|flags| flags.on_violation = Some(action))
    }

    /// What to do with programs into which libsandbox.so cannot be preloaded. Default: confine them like all others.
    pub fn static_binaries(self, action: StaticBinaries) -> Builder {
        self.flags(|flags| flags.static_binaries = Some(action))
    }

    /// Whether to refuse the run if this machine lacks a layer. Default: true.
    pub fn require_sandbox(self, required: bool) -> Builder {
        self.flags(|flags| flags.require_sandbox = Some(required))
    }

    /// Records denied reads as well. Every open for reading then costs a round trip to the supervisor.
    pub fn explain(self) -> Builder {
        self.request(|request| request.purpose = Purpose::Explain)
    }

    /// Calls a function for each refused path, host and UNIX socket, instead of denying it. The call waits for the decision,
    /// and is then carried out or denied. Each question is decided on a thread of its own.
    ///
    /// ```
    /// use gatekeeper::{Decision, Sandbox};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path().canonicalize().unwrap();
    /// let new = directory.join("new");
    /// let wanted = new.clone();
    /// let touch = Sandbox::builder().cwd(&directory).command(["touch", "new"]).on_ask(move |question| {
    ///     let decision = if question.path.as_deref() == wanted.to_str() { Decision::Once } else { Decision::Deny };
    ///     async move { decision }
    /// });
    /// assert_eq!(touch.run().exit_code, 0);
    /// assert!(new.exists());
    /// ```
    pub fn on_ask<F, D>(self, decide: F) -> Builder
    where
        F: Fn(Question) -> D + Send + Sync + 'static,
        D: Future<Output = Decision> + Send + 'static,
    {
        let callback = Callback(Arc::new(move |question| Box::pin(decide(question))));
        self.with(|sandbox| {
            sandbox.request.ask.get_or_insert_default();
            sandbox.answerer = Some(super::Answers(Arc::new(callback)));
        })
    }

    /// Appends one line for each decision to an audit file, as `gatekeeper run --audit` does. If it cannot be written, nothing
    /// runs. The variable GATEKEEPER_AUDIT of this process has no effect here.
    ///
    /// ```
    /// use gatekeeper::Sandbox;
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// let file = directory.path().join("audit.jsonl");
    /// let report = Sandbox::builder().command(["true"]).audit(&file).run();
    /// assert_eq!(report.exit_code, 0);
    /// assert!(std::fs::read_to_string(&file).unwrap().contains(r#""kind":"exec","decision":"allowed""#));
    /// ```
    pub fn audit(self, file: impl Into<PathBuf>) -> Builder {
        match std::path::absolute(file.into()) {
            Ok(file) => self.request(|request| request.audit = Some(file)),
            Err(error) => self.wrong(format!("audit: {error}")),
        }
    }

    /// How long a question of [`Builder::on_ask`] waits before it is denied. Default: 60 seconds.
    pub fn ask_timeout(self, time: Duration) -> Builder {
        self.request(|request| request.ask.get_or_insert_default().patience = time)
    }

    /// The command's standard input. Default: empty. The command never inherits this process's own.
    pub fn input(self, bytes: impl Into<Vec<u8>>) -> Builder {
        self.with(|sandbox| sandbox.input = Input::Bytes(bytes.into().into()))
    }

    /// A descriptor as the command's standard input.
    pub fn input_from(self, stream: impl Into<OwnedFd>) -> Builder {
        self.with(|sandbox| sandbox.input = Input::From(Arc::new(stream.into())))
    }

    /// Descriptors for the command's stdout and stderr, for example pipes to stream from. The report then captures neither.
    /// The builder and its sandbox keep both open until they are dropped.
    pub fn output_to(self, stdout: impl Into<OwnedFd>, stderr: impl Into<OwnedFd>) -> Builder {
        self.with(|sandbox| sandbox.output = Some([Arc::new(stdout.into()), Arc::new(stderr.into())]))
    }

    /// The absolute path of the `gatekeeper` program. Isolation by bubblewrap needs it.
    pub fn gatekeeper(self, program: impl Into<PathBuf>) -> Builder {
        let program = program.into();
        match program.is_absolute() {
            true => self.request(|request| request.helper = Some(program)),
            false => self.wrong(format!("gatekeeper {}: not an absolute path", program.display())),
        }
    }

    /// Keeps all changes below the working directory in a stage of this name, until [`Stage::apply`](crate::Stage::apply).
    /// Needs a profile that may write.
    pub fn stage(self, name: impl Into<String>) -> Builder {
        let stage = Staging { name: name.into(), limit: crate::stage::DEFAULT_LIMIT, progress: false };
        self.request(|request| request.stage = Some(stage))
    }

    pub fn build(self) -> Sandbox {
        self.sandbox
    }

    /// Builds the sandbox and calls [`Sandbox::run`].
    pub fn run(self) -> Report {
        self.sandbox.run()
    }

    /// Builds the sandbox and calls [`Sandbox::spawn`].
    pub fn spawn(self) -> Running {
        self.sandbox.spawn()
    }

    fn with(mut self, change: impl FnOnce(&mut Sandbox)) -> Builder {
        change(&mut self.sandbox);
        self
    }

    fn request(self, change: impl FnOnce(&mut Request)) -> Builder {
        self.with(|sandbox| change(&mut sandbox.request))
    }

    fn flags(self, change: impl FnOnce(&mut Document)) -> Builder {
        self.request(|request| change(&mut request.flags))
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
