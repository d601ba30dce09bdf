//! Where results go: a file that the caller names, one of its descriptors, or standard output.
//!
//! A file is opened before anything runs, so that what cannot be written is known then, and is replaced as a whole
//! afterwards. Names of descriptors (`/dev/stderr`, `/dev/fd/3`) mean the descriptors themselves.

use super::failed;
use crate::policy;
use crate::sys::process::duplicate;
use crate::trust::Hostile;
use crate::trust::output::Output;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::args::PolicyArgs;

/// Opens a place for a result. Below the trees of `hostile` no link is followed.
pub fn open(path: &Path, hostile: &Hostile) -> io::Result<Output> {
    match descriptor(path) {
        Some(fd) => Ok(Output::Stream(File::from(duplicate(fd)?))),
        None => Ok(Output::open(path, hostile)?),
    }
}

/// `--report FILE` or `--report-fd N`.
pub fn open_report(path: Option<&Path>, fd: Option<i32>, hostile: &Hostile) -> Result<Option<Output>, String> {
    if let Some(path) = path {
        let out = open(path, hostile).and_then(|out| out.clear().map(|()| out));
        return out.map(Some).map_err(|error| format!("--report {}: {error}", path.display()));
    }
    let copy = |fd| duplicate(fd).map_err(|error| format!("--report-fd {fd}: {error}"));
    Ok(fd.map(copy).transpose()?.map(|fd| Output::Stream(File::from(fd))))
}

/// Writes a command's whole result to a file, or to standard output.
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

/// Writes one file as a whole.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    open(path, &Hostile::here())?.write(bytes, mode)
}

/// The trees in which the command of these flags may write, or one before it may have written.
pub fn hostile(args: &PolicyArgs) -> Hostile {
    let mut hostile = Hostile::here();
    if let Some(cwd) = &args.cwd {
        hostile.add_working_directory(cwd);
    }
    // One that cannot be read runs nothing, and says so later.
    let policy = args.config.as_deref().and_then(|file| policy::load(file).ok());
    let named = policy.iter().flat_map(|policy| &policy.paths.write).chain(&args.write).chain(&args.cache);
    let base = args.cwd.as_deref().unwrap_or(Path::new(""));
    named.for_each(|tree| hostile.add(&base.join(tree)));
    hostile
}

/// The number of the descriptor that a path names.
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
