//! Writes results to a file, to an inherited descriptor or to standard output.
//!
//! A file is opened before anything runs, so that an unwritable one is an error early, and replaced as a whole at the
//! end. `/dev/stderr`, `/dev/fd/3` and the like mean the inherited descriptor, not a file to replace.

use super::args::{PolicyArgs, ReportArgs};
use super::failed;
use crate::audit::{self, Audit};
use crate::policy;
use crate::sys::descriptors::duplicate;
use crate::sys::start;
use crate::trust::Hostile;
use crate::trust::output::Output;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a file for a result. Symbolic links below the trees of `hostile` are not followed.
pub fn open(path: &Path, hostile: &Hostile) -> io::Result<Output> {
    match descriptor(path) {
        Some(fd) => given(fd),
        None => Ok(Output::open(path, hostile)?),
    }
}

/// Opens the target of `--report FILE` or `--report-fd N`.
pub fn open_report(args: &ReportArgs, hostile: &Hostile) -> Result<Option<Output>, String> {
    if let Some(path) = &args.report {
        if let Some(audit) = audit_file(args.audit.as_ref()).filter(|audit| is_of_trail(path, audit)) {
            return Err(format!("--report {}: it would replace the audit trail {}", path.display(), audit.display()));
        }
        let out = open(path, hostile).and_then(|out| out.clear().map(|()| out));
        return out.map(Some).map_err(|error| format!("--report {}: {error}", path.display()));
    }
    let copy = |fd| given(fd).map_err(|error| format!("--report-fd {fd}: {error}"));
    args.report_fd.map(copy).transpose()
}

/// Whether a result would be written over an audit file or its head.
fn is_of_trail(result: &Path, audit: &Path) -> bool {
    let mut head = audit.as_os_str().to_owned();
    head.push(audit::HEAD);
    [audit, Path::new(&head)].into_iter().any(|file| is_same(result, file))
}

/// Whether two paths are of the same file, which may not exist yet.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    let place = |path: &Path| -> Option<PathBuf> {
        let whole = std::path::absolute(path).ok()?;
        Some(whole.parent()?.canonicalize().ok()?.join(whole.file_name()?))
    };
    match (file(one), file(other)) {
        (Some(one), Some(other)) => one == other,
        _ => place(one).is_some_and(|one| Some(one) == place(other)),
    }
}

/// Whether `--report` or `--report-fd` names standard output.
pub fn is_standard_output(args: &ReportArgs) -> bool {
    args.report.as_deref().map_or(args.report_fd, descriptor) == Some(1)
}

/// A descriptor of the caller. What is written to a stream that it has closed would be lost.
pub fn given(fd: i32) -> io::Result<Output> {
    if start::was_closed(fd) {
        return Err(rustix::io::Errno::BADF.into());
    }
    Ok(Output::Stream(File::from(duplicate(fd)?)))
}

/// Opens the audit trail of `--audit FILE` or GATEKEEPER_AUDIT. Most runs have none, so `hostile`, for which a policy is
/// read, is asked for only then.
pub fn open_audit(
    args: &ReportArgs,
    hostile: impl FnOnce() -> Hostile,
    command: &[String],
) -> Result<Option<Arc<Audit>>, String> {
    open_audit_file(audit_file(args.audit.as_ref()), hostile, command)
}

/// The file of `--audit`, or the one that GATEKEEPER_AUDIT names. The flag wins; an empty value means none.
pub fn audit_file(flag: Option<&PathBuf>) -> Option<PathBuf> {
    let variable = || std::env::var_os(audit::VARIABLE).map(PathBuf::from);
    flag.cloned().or_else(variable).filter(|path| !path.as_os_str().is_empty())
}

/// The same as an absolute path, for runs that a server starts later.
pub fn absolute_audit_file(flag: Option<&PathBuf>) -> Result<Option<PathBuf>, String> {
    let wrong = |path: &Path, error: io::Error| format!("--audit {}: {error}", path.display());
    audit_file(flag).map(|path| std::path::absolute(&path).map_err(|error| wrong(&path, error))).transpose()
}

/// Opens an audit trail, if there is to be one.
pub fn open_audit_file(
    file: Option<PathBuf>,
    hostile: impl FnOnce() -> Hostile,
    command: &[String],
) -> Result<Option<Arc<Audit>>, String> {
    file.map(|path| Audit::start(&path, &hostile(), command)).transpose()
}

/// Writes the result of a command to a file or, without one, to standard output.
pub fn write_out(output: Option<&Path>, bytes: &[u8]) -> u8 {
    let written = match output {
        Some(path) => write(path, bytes, 0o644).map_err(|error| format!("{}: {error}", path.display())),
        None => {
            let mut stdout = io::stdout();
            stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| format!("standard output: {error}"))
        }
    };
    written.map_or_else(|error| failed(format_args!("cannot write {error}")), |()| 0)
}

/// Prints text for people. Unlike [`write_out`], a reader that closes the pipe early (`| head`) is not an error.
pub fn print(text: &str) -> u8 {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            failed(format_args!("cannot write standard output: {error}"))
        }
        _ => 0,
    }
}

/// Replaces one file as a whole.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    open(path, &Hostile::here())?.write(bytes, mode)
}

/// The trees that this command may write to, or that an earlier one may have written to.
pub fn hostile(args: &PolicyArgs) -> Hostile {
    let mut hostile = Hostile::here();
    if let Some(cwd) = &args.cwd {
        hostile.add_working_directory(cwd);
    }
    // A policy that cannot be loaded is reported when the request is prepared; nothing runs then.
    let policy = args.syscalls.config.as_deref().and_then(|file| policy::load(file).ok());
    let named = policy.iter().flat_map(|policy| &policy.paths.write).chain(&args.launch.write).chain(&args.cache);
    let base = args.cwd.as_deref().unwrap_or(Path::new(""));
    named.for_each(|tree| hostile.add(&base.join(tree)));
    hostile
}

/// The descriptor that a path such as `/dev/fd/3` names.
fn descriptor(path: &Path) -> Option<i32> {
    let text = path.to_str()?;
    match text {
        "/dev/stdin" => Some(0),
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => {
            let number = text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"))?;
            number.parse().ok().filter(|fd| *fd >= 0)
        }
    }
}
