//! Tries whether bubblewrap works here, and wraps a command in it for programs that want only that layer.

use super::config::SandboxConfig;
use crate::trust::Hostile;
use crate::trust::program::{self, NoProgram};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether bubblewrap works here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    Available,
    NotInstalled,
    /// Installed, but it does not work: its error message.
    NotSupported(String),
}

/// How long to wait for bubblewrap. A working one takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Tries whether the system's `bwrap` can make all the namespaces that isolation needs.
///
/// ```
/// use gatekeeper::isolate::{Availability, check_availability};
/// match check_availability() {
///     Availability::Available => println!("commands can be isolated"),
///     Availability::NotInstalled => println!("install the package bubblewrap"),
///     Availability::NotSupported(why) => println!("bubblewrap does not work here: {why}"),
/// }
/// ```
pub fn check_availability() -> Availability {
    match find() {
        Ok(bwrap) => check_bwrap(&bwrap),
        Err(NoProgram::NotFound) => Availability::NotInstalled,
        Err(error) => Availability::NotSupported(error.to_string()),
    }
}

/// Does the same for the `bwrap` at this path.
pub fn check_bwrap(bwrap: &Path) -> Availability {
    let config = SandboxConfig::for_working_dir(Path::new("/usr"));
    let config = SandboxConfig { rw_paths: Vec::new(), blocked_paths: Vec::new(), ..config };
    let mut command = Command::new(bwrap);
    command.args(config.program_args(&["true".into()])).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Availability::NotInstalled,
        Err(error) => return Availability::NotSupported(format!("{}: {error}", bwrap.display())),
    };
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Availability::NotSupported(format!("it did not end in {} s", PATIENCE.as_secs()));
            }
        }
    };
    if status.success() {
        return Availability::Available;
    }
    let mut said = [0u8; 4096];
    let read = child.stderr.as_mut().map_or(0, |stderr| stderr.read(&mut said).unwrap_or(0));
    Availability::NotSupported(cause(&said[..read], &status.to_string()))
}

/// bubblewrap's first line of output, or how it ended.
pub(crate) fn cause(said: &[u8], ended: &str) -> String {
    let text = String::from_utf8_lossy(said);
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => line.strip_prefix("bwrap: ").unwrap_or(line).to_owned(),
        None => format!("it ended with {ended}"),
    }
}

/// Finds the system's bwrap in PATH, skipping directories that a confined command may have written to.
fn find() -> Result<PathBuf, NoProgram> {
    program::find(OsStr::new("bwrap"), std::env::var_os("PATH").as_deref(), &Hostile::here())
}

/// Wraps a shell command line in bubblewrap alone, without seccomp filter, Landlock or report.
/// `gatekeeper run --isolate required` has them all.
///
/// ```
/// use gatekeeper::isolate::{Availability, SandboxConfig, check_availability, wrap_command};
/// let config = SandboxConfig::for_working_dir(&std::env::current_dir()?);
/// if check_availability() == Availability::Available {
///     let output = wrap_command(&config, "echo hello").output()?;
///     assert_eq!(output.stdout, b"hello\n");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn wrap_command(config: &SandboxConfig, command: &str) -> Command {
    // If it is not installed, spawning fails with ENOENT.
    let mut wrapped = Command::new(find().unwrap_or_else(|_| PathBuf::from("/usr/bin/bwrap")));
    wrapped.args(config.build_args(command)).env_clear();
    for name in &config.env_passthrough {
        if let Some(value) = std::env::var_os(name) {
            wrapped.env(name, value);
        }
    }
    wrapped
}
