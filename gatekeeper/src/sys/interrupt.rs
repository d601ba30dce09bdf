//! SIGHUP, SIGINT and SIGTERM for a command that has to remove something before it ends: they are counted, and end the
//! program that this process waits for.
//!
//! A handler and not a signal mask: programs that this process starts inherit a mask, and never a handler.

use super::check;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ENDING: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
/// How long a program may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How often the count is read while a program runs.
const PAUSE_MS: i32 = 20;

static COUNT: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: i32) {
    LAST.store(signal, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Release);
}

/// Counts these signals from now on. One that the caller ignores, as nohup does, stays ignored.
pub fn watch() -> io::Result<()> {
    for signal in ENDING {
        // SAFETY: all zeroes is a valid `sigaction`. The handler only stores into atomics, which is async-signal-safe.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            check(i64::from(libc::sigaction(signal, std::ptr::null(), &mut before)))?;
            if before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut noted: libc::sigaction = std::mem::zeroed();
            noted.sa_sigaction = note as extern "C" fn(i32) as usize;
            check(i64::from(libc::sigaction(signal, &noted, std::ptr::null_mut())))?;
        }
    }
    Ok(())
}

/// The last signal that arrived since `watch`.
pub fn arrived() -> Option<i32> {
    let none = COUNT.load(Ordering::Acquire) == 0;
    (!none).then(|| LAST.load(Ordering::Relaxed))
}

/// Ends this process by a signal, as if it had never been watched: a shell that started it must see that.
pub fn end_by(signal: i32) -> ! {
    // SAFETY: these calls take no pointers to memory of ours; `_exit` is reached only if the signal is blocked.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}

/// `Command::output`, with the program in a process group of its own. A signal that arrives meanwhile ends that group, and the
/// error is `Interrupted`.
pub fn output(command: &mut Command) -> io::Result<Output> {
    let before = COUNT.load(Ordering::Acquire);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    match gather(&mut child, before) {
        Ok(Some((stdout, stderr))) => Ok(Output { status: child.wait()?, stdout, stderr }),
        other => {
            end(&mut child);
            other.and(Err(io::ErrorKind::Interrupted.into()))
        }
    }
}

/// Reads both streams to their ends and waits for the program; `None` if a signal arrived first.
fn gather(child: &mut Child, before: u32) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while COUNT.load(Ordering::Acquire) == before {
        if out.is_none() && err.is_none() {
            if child.try_wait()?.is_some() {
                return Ok(Some((stdout, stderr)));
            }
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let polled = |fd: Option<i32>| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
        let mut both = [polled(out.as_ref().map(AsRawFd::as_raw_fd)), polled(err.as_ref().map(AsRawFd::as_raw_fd))];
        // SAFETY: `both` is an array of two, borrowed for the call; a negative descriptor is left out.
        if unsafe { libc::poll(both.as_mut_ptr(), 2, PAUSE_MS) } < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        }
        if both[0].revents != 0 {
            take(&mut out, &mut stdout)?;
        }
        if both[1].revents != 0 {
            take(&mut err, &mut stderr)?;
        }
    }
    Ok(None)
}

/// Reads what is there, and forgets a stream that has ended.
fn take(stream: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 8192];
    match stream.as_mut().map(|stream| stream.read(&mut bytes)) {
        Some(Ok(0)) => *stream = None,
        Some(Ok(read)) => into.extend_from_slice(&bytes[..read]),
        Some(Err(error)) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    Ok(())
}

/// Asks the group of a program to end, then kills it, and reaps the program.
fn end(child: &mut Child) {
    // SAFETY: no memory is passed. The group has the program's id, which is not free before the program is reaped.
    let send = |child: &Child, signal| unsafe { libc::kill(-(child.id() as i32), signal) };
    send(child, libc::SIGTERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    send(child, libc::SIGKILL);
    let _ = child.wait();
}
