//! Starts bubblewrap with a second gatekeeper inside.

use super::Failed;
use crate::audit::Handed;
use crate::check::Target;
use crate::isolate::config::SandboxConfig;
use crate::isolate::{mounts, planned};
use crate::operation::Operation;
use crate::plan::Plan;
use crate::request::Request;
use crate::run::inside::{INSIDE, PROGRAM};
use crate::sys::child::{Group, Launch};
use crate::sys::descriptors;
use crate::sys::message;
use crate::sys::process;
use crate::sys::signals;
use crate::warden::{self, Warden};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// How bubblewrap itself starts. The inner gatekeeper carries out the plan.
const OPERATIONS: [Operation; 7] = [
    Operation::Signals,
    Operation::ProcessGroup,
    Operation::StandardStreams,
    Operation::WorkingDirectory,
    Operation::Descriptors,
    Operation::NoNewPrivs,
    Operation::Exec,
];

/// Our ends of what connects us with bubblewrap and the inner gatekeeper.
pub struct Links {
    /// The inner gatekeeper writes its report into this memory file.
    pub report: File,
    /// Carries the messages of the inner gatekeeper.
    pub socket: OwnedFd,
    /// bubblewrap's standard error.
    pub complaints: OwnedFd,
    /// Carries the calls that the inner gatekeeper sends out, if the run asks.
    pub asks: Option<OwnedFd>,
}

/// What bubblewrap inherits.
pub struct Ends {
    streams: [Option<OwnedFd>; 3],
    /// Request, report, socket and standard error; if the run asks, a socket; and for an audit its directory and head: the
    /// arguments of `__inside`.
    inside: Vec<OwnedFd>,
}

/// bubblewrap gets a pipe as its standard error, to tell its messages from the command's. The inner gatekeeper gets the
/// real one.
pub fn connect(
    handover: &[u8],
    asks: bool,
    [stdin, stdout, stderr]: [Option<OwnedFd>; 3],
    audit: Option<Handed>,
) -> io::Result<(Links, Ends)> {
    let report = memory_file(&[])?;
    let (socket, inner_socket) = message::pair()?;
    let (complaints, complain) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let stderr = match stderr {
        Some(stderr) => stderr,
        None => descriptors::duplicate(2)?,
    };
    let mut inside = vec![memory_file(handover)?.into(), report.try_clone()?.into(), inner_socket, stderr];
    let (asks, theirs) = asks.then(message::pair).transpose()?.unzip();
    inside.extend(theirs);
    inside.extend(audit.into_iter().flat_map(|handed| [handed.directory, handed.head]));
    Ok((Links { report, socket, complaints, asks }, Ends { streams: [stdin, stdout, Some(complain)], inside }))
}

pub fn launch(
    request: &Request,
    plan: &Plan,
    bwrap: Target,
    config: &SandboxConfig,
    ends: Ends,
    group: Group,
    warden: Option<&Arc<Warden>>,
) -> Result<Launch, Failed> {
    let program = planned::own_program(request, plan).map_err(Failed::Unavailable)?;
    let (words, kept) = command_line(bwrap.argv, config, program, ends.inside)?;
    Ok(Launch {
        operations: OPERATIONS.to_vec(),
        program: bwrap.file.into(),
        directory: c"/".to_owned(),
        streams: ends.streams,
        limits: Vec::new(),
        group,
        // The signals that we pass on are blocked here, and so in bubblewrap, which would die of them. The inner
        // gatekeeper handles them.
        mask: signals::current_mask(),
        mounts: None,
        stage: None,
        lock: None,
        watched: mounts::held(config)?,
        ruleset: None,
        filter: None,
        arguments: warden::arguments(warden, words, Vec::new())?,
        place: None,
        stubs: Vec::new(),
        cgroup: None,
        kept,
        numbers: plan.inherited(),
        waits: false,
        // The inner gatekeeper is process 1 of its namespace, which nothing in there can stop.
        backstop: None,
        progress: warden::progress(warden)?,
    })
}

/// bubblewrap refuses more than 9,000 arguments.
const MOST_OPTIONS: usize = 8_900;

/// Longer options go into a file: the kernel takes at least 128 KiB of arguments and environment.
const LONG: usize = 64 << 10;

fn too_many(config: &SandboxConfig) -> io::Error {
    let held = config.held();
    let one = held.iter().max_by_key(|path| path.components().count()).cloned().unwrap_or_default();
    io::Error::other(format!(
        "bubblewrap cannot mount so many closed and protected files: {} with the directories above them, such as {}",
        held.len(),
        one.display()
    ))
}

/// bubblewrap's argument vector, and the descriptors that its numbers refer to.
fn command_line(
    bwrap: Vec<OsString>,
    config: &SandboxConfig,
    program: PathBuf,
    inside: Vec<OwnedFd>,
) -> io::Result<(Vec<CString>, Vec<OwnedFd>)> {
    let mut words = bwrap;
    let copied = copied(config);
    let numbers: Vec<_> = copied.iter().map(|(path, file)| (path.clone(), number(file))).collect();
    let mut options = config.options_with(&numbers);
    options.extend(["--ro-bind".into(), program.into(), PROGRAM.into(), "--as-pid-1".into()]);
    let mut files: Vec<OwnedFd> = copied.into_iter().map(|(_, file)| file.into()).collect();
    for (path, contents) in &config.files {
        let mut file = memory_file(contents)?;
        file.seek(SeekFrom::Start(0))?;
        options.extend(["--ro-bind-data".into(), number(&file), path.into()]);
        files.push(file.into());
    }
    if !numbers.is_empty() {
        // The copies belong to this user, who must not change them. Last, because mount points had to be made before.
        options.extend(["--remount-ro".into(), "/etc".into()]);
    }
    if options.len() > MOST_OPTIONS {
        return Err(too_many(config));
    }
    if options.iter().map(|option| option.len() + 1).sum::<usize>() > LONG {
        // A command may have made so many files that are closed that the kernel refuses the list (execve(2), E2BIG).
        let list: Vec<u8> = options.into_iter().flat_map(|option| [option.into_vec(), vec![0]].concat()).collect();
        let mut file = memory_file(&list)?;
        file.seek(SeekFrom::Start(0))?;
        words.extend(["--args".into(), number(&file)]);
        files.push(file.into());
    } else {
        words.extend(options);
    }
    words.extend(["--".into(), PROGRAM.into(), INSIDE.into()]);
    words.extend(inside.iter().map(number));
    let words = words.into_iter().map(|word| Ok(CString::new(word.into_vec())?)).collect::<io::Result<_>>()?;
    Ok((words, inside.into_iter().chain(files).collect()))
}

/// The files of the system that bubblewrap copies instead of mounting them, opened. Large ones are mounted, and so are all if
/// this process may open few files.
fn copied(config: &SandboxConfig) -> Vec<(PathBuf, File)> {
    const LARGE: u64 = 256 * 1024;
    const FEW: u64 = 256;
    if process::limit(libc::RLIMIT_NOFILE as i32).is_ok_and(|(limit, _)| limit < FEW) {
        return Vec::new();
    }
    let small = |file: &File| file.metadata().is_ok_and(|found| found.is_file() && found.len() <= LARGE);
    let opened = |path: &PathBuf| {
        // A FIFO would block, but only root makes files there.
        rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    };
    config.system_files().filter_map(|path| Some((path.clone(), opened(path).ok().filter(small)?))).collect()
}

fn number(descriptor: &impl AsRawFd) -> OsString {
    descriptor.as_raw_fd().to_string().into()
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("gatekeeper", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}
