//! The gatekeeper in a container, as the hidden command `__box`: `hold` is its first process, `serve` runs one command.

use super::chromium;
use super::file;
use super::seen::Seen;
use super::wire::{self, Kind, Order, PIECE};
use crate::audit::{Audit, Elsewhere, Entry};
use crate::isolate::handover::Handover;
use crate::plan::refusal::Refusal;
use crate::report::{EXIT_SETUP, Report};
use crate::run::{Options, run};
use crate::sys::signals::Signals;
use crate::sys::{descriptors, process, socket};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub fn main(words: &[OsString]) -> u8 {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let done = match words.as_slice() {
        ["hold", mounts @ ..] => match link_at(mounts) {
            Ok(None) => hold(),
            Ok(Some(at)) => {
                let _ = writeln!(io::stderr(), "gatekeeper: {}", has_link(at, mounts).unwrap_or_default());
                return u8::try_from(at).map_or(EXIT_SETUP, |at| LINK.saturating_add(at).min(LAST_LINK));
            }
            Err(error) => Err(error),
        },
        ["serve", mounts @ ..] => return serve(mounts).unwrap_or(EXIT_SETUP),
        ["browse"] => chromium::browse(),
        ["keep"] => chromium::keep(),
        ["seen"] => seen(),
        ["file", action] => return file::main(action),
        _ => Err(io::Error::other("an internal command of gatekeeper box")),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "gatekeeper: {error}");
            EXIT_SETUP
        }
    }
}

/// The exit status of a container whose image has a link at the first of the paths that `link_at` looks at; one more for each path
/// after it. An engine may lose the last words of a container that ends at once, but not its status.
const LINK: u8 = 64;
/// A shell's statuses begin here.
const LAST_LINK: u8 = 123;

/// The paths at which the image must not have a link.
fn fixed<'a>(mounts: &[&'a str]) -> impl Iterator<Item = &'a str> {
    std::iter::once(super::PROGRAM).chain(mounts.iter().copied())
}

/// Which of these paths is a link. Nothing of the image has run yet. A mount cannot be moved away or replaced, but a link to it
/// could be: the next command would then start something else that speaks for gatekeeper, or work in another directory than the
/// workspace.
fn link_at(mounts: &[&str]) -> io::Result<Option<usize>> {
    for (at, path) in fixed(mounts).enumerate() {
        let stat = rustix::fs::lstat(path)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn has_link(at: usize, mounts: &[&str]) -> Option<String> {
    fixed(mounts).nth(at).map(|path| format!("the image has a link at {path}; nothing can be trusted in it"))
}

/// Why the first process of a container ended, if its exit status says that.
pub fn reason(status: u8, mounts: &[&str]) -> Option<String> {
    let at = status.checked_sub(LINK).filter(|_| status < LAST_LINK)?;
    has_link(at.into(), mounts)
}

/// The first process of a container: reaps orphans, and ends at SIGTERM, which is ignored for PID 1 by default.
fn hold() -> io::Result<()> {
    process::set_not_dumpable()?;
    let signals = Signals::take()?;
    loop {
        let mut polled = [rustix::event::PollFd::new(&signals, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(arrived) = signals.next() {
            if [libc::SIGTERM, libc::SIGINT, libc::SIGHUP].contains(&arrived.signal) {
                return Ok(());
            }
        }
        while matches!(rustix::process::wait(rustix::process::WaitOptions::NOHANG), Ok(Some(_))) {}
    }
}

/// For `doctor`: what the engine enforces, as JSON.
fn seen() -> io::Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(&Seen::measure(&[]))?)
}

/// The home directory of the box's user. It does not exist, unless the image or a bind has it.
const HOME: &str = "/home/box";

type Out = Arc<Mutex<File>>;

/// How long to wait after the report for the gatekeeper outside.
const LINGER: Duration = Duration::from_secs(5);

fn tell(out: &Out, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    wire::send(&mut *out.lock().unwrap_or_else(PoisonError::into_inner), kind, bytes)
}

/// Runs one command: an order on standard input, then the command's input and signals; its output and report on standard
/// output. If the gatekeeper outside dies, so does everything here.
fn serve(mounts: &[&str]) -> io::Result<u8> {
    process::set_not_dumpable()?;
    process::set_subreaper()?;
    let signals = Signals::take()?;
    let mut input = File::from(descriptors::duplicate(0)?);
    let out: Out = Arc::new(Mutex::new(File::from(descriptors::duplicate(1)?)));
    tell(&out, Kind::Alive, &serde_json::to_vec(&Seen::measure(mounts))?)?;
    let Some((Kind::Order, order)) = wire::receive(&mut input)? else { return Ok(EXIT_SETUP) };
    let order: Order = serde_json::from_slice(&order)?;

    let (stdin, stdin_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    socket::becomes(stdin, 0)?;
    let mut pumps = Vec::new();
    for (number, kind) in [(1, Kind::Stdout), (2, Kind::Stderr)] {
        let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        socket::becomes(to, number)?;
        let out = Arc::clone(&out);
        pumps.push(std::thread::spawn(move || pump(File::from(from), &out, kind)));
    }
    let (send, receive) = channel();
    let acknowledge = Arc::clone(&out);
    std::thread::spawn(move || feed(File::from(stdin_end), &receive, &acknowledge));
    let (written, answers) = channel();
    let reported = Arc::new(AtomicBool::new(false));
    let has_reported = Arc::clone(&reported);
    let (obeying, obeyed) = channel();
    std::thread::spawn(move || {
        obey(input, &send, &written, &has_reported);
        let _ = obeying.send(());
    });

    let outside = Outside { out: Arc::clone(&out), answers: Mutex::new(answers) };
    let audit = order.audited.then(|| Arc::new(Audit::elsewhere(Box::new(outside))));
    let report = carry_out(&order, &signals, &out, audit);
    // The tree is gone; with our own copies closed, the pumps see the end.
    for number in [1, 2] {
        socket::becomes(File::options().write(true).open("/dev/null")?.into(), number)?;
    }
    pumps.into_iter().for_each(|pump| drop(pump.join()));
    reported.store(true, Ordering::SeqCst);
    tell(&out, Kind::Report, &serde_json::to_vec(&report)?)?;
    // An engine may lose the last words of a command that ends at once: stay until the gatekeeper outside has them and closes its end.
    let _ = obeyed.recv_timeout(LINGER);
    Ok(u8::try_from(report.exit_code).unwrap_or(EXIT_SETUP))
}

fn carry_out(order: &Order, signals: &Signals, out: &Out, audit: Option<Arc<Audit>>) -> Report {
    let began = Instant::now();
    let request = match Handover::from_bytes(order.handover.as_bytes()) {
        Ok(handed) => handed.request,
        Err(error) => return Refusal::setup(format!("in the container: {error}")).report(Vec::new(), began.elapsed()),
    };
    // The image's own variables, of which the policy passes the harmless ones; the configuration's are in the policy.
    let mut environment: Vec<_> = std::env::vars_os().filter(|(name, _)| name != "HOME").collect();
    // Engines make the working directory the home of a user that the image does not know; its start-up files would then be
    // in reach of every command.
    environment.push(("HOME".into(), HOME.into()));
    // The image has no say in where private directories are made.
    environment.retain(|(name, _)| name != "TMPDIR");
    if rustix::fs::access("/tmp", rustix::fs::Access::WRITE_OK).is_err() {
        environment.push(("TMPDIR".into(), super::TEMPORARY.into()));
    }
    let request = request.with_environment(environment);
    let warn = |text: &str| drop(tell(out, Kind::Warning, text.as_bytes()));
    let options = Options {
        capture: order.capture,
        spill: None,
        signals: Some(signals),
        warn: &warn,
        outside: None,
        embedding: None,
        answerer: None,
        audit,
        refused: None,
    };
    run(&request, &options)
}

fn pump(mut from: File, out: &Out, kind: Kind) {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                if tell(out, kind, piece.get(..count).unwrap_or_default()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Writes the command's standard input. `None` is its end.
fn feed(to: File, pieces: &Receiver<Option<Vec<u8>>>, out: &Out) {
    let mut to = Some(to);
    for piece in pieces {
        match piece {
            None => to = None,
            Some(bytes) => {
                // A command that closed its input takes no more; the rest is dropped.
                if to.as_mut().is_some_and(|to| to.write_all(&bytes).is_err()) {
                    to = None;
                }
                if tell(out, Kind::Taken, b"").is_err() {
                    return;
                }
            }
        }
    }
}

/// The way of audit entries to the gatekeeper outside.
#[derive(Debug)]
struct Outside {
    out: Out,
    answers: Mutex<Receiver<Vec<u8>>>,
}

impl Elsewhere for Outside {
    fn note(&self, entry: &Entry) -> io::Result<()> {
        // One entry at a time, so that each gets its own answer.
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        tell(&self.out, Kind::Noted, &serde_json::to_vec(entry)?)?;
        match answers.recv() {
            Ok(why) if why.is_empty() => Ok(()),
            Ok(why) => Err(io::Error::other(String::from_utf8_lossy(&why).into_owned())),
            Err(_) => Err(io::Error::other("the gatekeeper outside ended")),
        }
    }
}

/// Obeys the gatekeeper outside, until its end closes after the report. If that closes before, it is dead or wants an end: the
/// guardian ends the tree once this process is gone.
fn obey(mut input: File, pieces: &Sender<Option<Vec<u8>>>, written: &Sender<Vec<u8>>, reported: &AtomicBool) {
    loop {
        match wire::receive(&mut input) {
            Ok(Some((Kind::Stdin, bytes))) => drop(pieces.send(Some(bytes))),
            Ok(Some((Kind::StdinEnd, _))) => drop(pieces.send(None)),
            Ok(Some((Kind::Written, why))) => drop(written.send(why)),
            Ok(Some((Kind::Signal, bytes))) => {
                let signal = bytes.first().and_then(|number| signal(i32::from(*number)));
                let _ = signal.map(|signal| rustix::process::kill_process(rustix::process::getpid(), signal));
            }
            _ if reported.load(Ordering::SeqCst) => return,
            _ => {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            }
        }
    }
}

/// The signals that are passed on.
fn signal(number: i32) -> Option<rustix::process::Signal> {
    use rustix::process::Signal;
    let known = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM];
    known.into_iter().find(|signal| signal.as_raw() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_at_which_path_the_image_has_a_link() {
        let mounts = ["/workspace", "/agent"];
        let told = |status| reason(status, &mounts);
        assert!(told(LINK).is_some_and(|text| text.starts_with("the image has a link at /gatekeeper;")));
        assert!(told(LINK + 2).is_some_and(|text| text.starts_with("the image has a link at /agent;")));
        for other in [0, 1, LINK - 1, LINK + 3, LAST_LINK, EXIT_SETUP, 137] {
            assert_eq!(told(other), None, "{other}");
        }
        assert_eq!(link_at(&["/"]).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound), "no /gatekeeper here");
    }
}
