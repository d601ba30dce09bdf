//! The command's standard streams and process group.

use super::Options;
use crate::plan::Plan;
use crate::policy::NetworkMode;
use crate::supervise::capture::{DEFAULT_KEPT, Stream};
use crate::sys::child::Group;
use crate::sys::{descriptors, socket};
use crate::trust;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The captured streams, if any, and what becomes descriptors 0, 1 and 2.
pub(crate) type Pipes = (Option<[Stream; 2]>, [Option<OwnedFd>; 3]);

pub(crate) fn pipes(plan: &Plan, options: &Options<'_>) -> io::Result<Pipes> {
    let given = |at: usize| {
        let stream = options.embedding.and_then(|embedding| embedding.streams.get(at)?.as_ref());
        stream.map(OwnedFd::try_clone).transpose()
    };
    let given = [given(0)?, given(1)?, given(2)?];
    let inherited = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let used = if options.capture { 1 } else { 3 };
    for (at, (given, own)) in given.iter().zip(inherited).enumerate().take(used) {
        let name = ["standard input", "standard output", "standard error"][at];
        let stream = given.as_ref().map_or(own, OwnedFd::as_fd);
        refuse_way_in(name, stream)?;
        refuse_way_out(name, stream, plan)?;
    }
    // The pipe by which a browser is driven.
    for number in plan.inherited() {
        refuse_way_in(&format!("descriptor {number}"), descriptors::duplicate(number)?.as_fd())?;
    }
    let [stdin, stdout, stderr] = given;
    if !options.capture {
        return Ok((None, [stdin, stdout, stderr]));
    }
    let kept = plan.policy.limits.output.unwrap_or(DEFAULT_KEPT);
    let spill = |name: &'static str| options.spill.as_ref().map(|to| (to, name));
    let (stdout, stdout_end) = Stream::new(kept, spill("stdout"))?;
    let (stderr, stderr_end) = Stream::new(kept, spill("stderr"))?;
    Ok((Some([stdout, stderr]), [stdin, Some(stdout_end), Some(stderr_end)]))
}

/// Refuses a directory or an O_PATH descriptor: by `openat` on it the command would reach files past every mount.
fn refuse_way_in(name: &str, stream: BorrowedFd<'_>) -> io::Result<()> {
    match trust::is_a_way_in(stream) {
        true => Err(io::Error::other(format!(
            "{name} is a directory or an O_PATH descriptor, by which the command would reach files past its limits; \
             give it a file, a pipe or /dev/null"
        ))),
        false => Ok(()),
    }
}

/// Refuses a socket by which the command would leave its network namespace: a socket belongs to the namespace where it was made.
/// A connected UNIX stream reaches only its peer.
fn refuse_way_out(name: &str, stream: BorrowedFd<'_>, plan: &Plan) -> io::Result<()> {
    if !plan.has_own_network() || !matches!(plan.network, NetworkMode::Own | NetworkMode::Hosts(_)) {
        return Ok(());
    }
    let leads_out = match socket::kind(stream) {
        Ok((libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_SEQPACKET)) => rustix::net::getpeername(stream).is_err(),
        Ok(_) => true,
        Err(error) => !matches!(error.raw_os_error(), Some(libc::ENOTSOCK | libc::EBADF)),
    };
    match leads_out {
        true => Err(io::Error::other(format!(
            "{name} is a socket of the machine's network, by which the command would leave its own; give it a file, a pipe or \
             /dev/null"
        ))),
        false => Ok(()),
    }
}

/// On a terminal the command stays in the caller's process group, so that job control works; otherwise it gets a session.
pub(crate) fn group() -> Group {
    use rustix::stdio::{stderr, stdin, stdout};
    let terminal = [stdin(), stdout(), stderr()].into_iter().any(rustix::termios::isatty);
    if terminal { Group::Shared } else { Group::Session }
}
