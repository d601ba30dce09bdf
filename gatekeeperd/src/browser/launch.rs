//! Starts the supervising process with its pipes, and listens to it until it ends.

use super::role::{self, Start};
use super::state::{Ended, Reason, Shared};
use super::{Options, role::BROWSER};
use command_fds::{CommandFdExt, FdMapping};
use gatekeeper::{Denial, Outcome, Report};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStderr, Command};

/// Our ends of the pipes.
pub struct Launched {
    pub child: Child,
    pub to: OwnedFd,
    pub from: OwnedFd,
    pub leash: OwnedFd,
    pub denials: OwnedFd,
    pub report: OwnedFd,
    pub complaints: Option<ChildStderr>,
}

/// Where a browser of the system is. PATH is not asked: it may lead to a directory that others write.
const PLACES: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/snap/bin/chromium"];
/// The largest report, and the longest line of a denial.
const LARGEST: u64 = 16 * 1024 * 1024;
const LONGEST_LINE: u64 = 64 * 1024;
/// How much of the browser's standard error an error message quotes.
const QUOTED: usize = 600;

/// No traffic of the browser's own, no features that a session does not use, the same pixels everywhere.
const ARGUMENTS: [&str; 19] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-breakpad",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-smooth-scrolling",
    "--disable-features=MediaRouter,OptimizationHints,Translate,DialMediaRouteProvider",
    "--metrics-recording-only",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--force-device-scale-factor=1",
];

fn chromium(given: Option<&Path>) -> Result<PathBuf, String> {
    match given {
        Some(path) if path.is_absolute() => Ok(path.to_owned()),
        Some(path) => Err(format!("the browser {} is not an absolute path", path.display())),
        None => PLACES.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
            format!("no Chromium is installed (looked for {}); install the package chromium", PLACES.join(", "))
        }),
    }
}

pub fn start(options: &Options) -> Result<Launched, String> {
    let (width, height) = options.viewport;
    let mut arguments: Vec<String> = ARGUMENTS.iter().map(|word| (*word).to_owned()).collect();
    arguments.extend([format!("--window-size={width},{height}"), "about:blank".to_owned()]);
    let start = Start {
        chromium: chromium(options.chromium.as_deref())?,
        arguments,
        local_ports: options.local_ports.clone(),
        memory: options.memory,
        files: options.files,
        deadline_ms: options.deadline.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    };
    let start = serde_json::to_string(&start).map_err(|error| error.to_string())?;
    spawn(options, &start).map_err(|error| format!("the supervising process: {error}"))
}

fn spawn(options: &Options, start: &str) -> io::Result<Launched> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from);
    let ((their_from, to), (from, their_to)) = (pipe()?, pipe()?);
    let ((their_leash, leash), (denials, their_denials), (report, their_report)) = (pipe()?, pipe()?, pipe()?);
    let program = options.supervisor.as_deref().unwrap_or(Path::new(gatekeeper::request::THIS_PROGRAM));
    let mut command = Command::new(program);
    command.arg(BROWSER).arg(start).current_dir(&options.state_dir);
    // Nothing of the daemon's environment concerns a browser.
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mappings = [
        (their_from, 3),
        (their_to, 4),
        (their_leash, role::LEASH),
        (their_denials, role::DENIALS),
        (their_report, role::REPORT),
    ];
    let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.into()).map_err(io::Error::other)?;
    let mut child = command.spawn()?;
    let complaints = child.stderr.take();
    // Dropping the command closes our copies of their ends.
    drop(command);
    Ok(Launched { child, to, from, leash, denials, report, complaints })
}

/// Keeps the denials as they happen.
pub fn collect_denials(shared: Arc<Shared>, from: OwnedFd) -> io::Result<impl Future<Output = ()> + Send> {
    let mut lines = BufReader::new(Receiver::from_owned_fd(from)?);
    Ok(async move {
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if let Ok(denial) = serde_json::from_slice::<Denial>(&line) {
                shared.change(|state| state.denial(denial));
            }
        }
    })
}

/// Waits for the end of the supervising process and keeps the reason.
pub fn watch(
    shared: Arc<Shared>,
    mut child: Child,
    report: OwnedFd,
    complaints: Option<ChildStderr>,
) -> io::Result<impl Future<Output = ()> + Send> {
    let report = Receiver::from_owned_fd(report)?;
    let tail = tokio::spawn(tail(complaints));
    Ok(async move {
        let mut text = Vec::new();
        let _ = report.take(LARGEST).read_to_end(&mut text).await;
        let status = child.wait().await;
        let complaint = tail.await.unwrap_or_default();
        let ended = match serde_json::from_slice::<Report>(&text) {
            Ok(report) => ended(&report, &complaint, shared.state().closing),
            Err(_) if shared.state().closing => Ended::new(Reason::Closed, "closed; it had to be killed"),
            Err(_) => {
                let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                Ended::new(Reason::Crashed, &format!("its supervising process ended without a report ({how})"))
            }
        };
        shared.change(|state| {
            state.ended.get_or_insert(ended);
        });
    })
}

fn ended(report: &Report, complaint: &str, closing: bool) -> Ended {
    let error = || report.error.clone().unwrap_or_default();
    let quoted = if complaint.is_empty() { String::new() } else { format!("; it said: {complaint}") };
    match report.outcome {
        Outcome::Refused | Outcome::SetupFailed | Outcome::NotFound => Ended::new(Reason::Refused, &error()),
        Outcome::Timeout => Ended::new(Reason::Deadline, "the time of this session is over"),
        Outcome::Limit => Ended::new(Reason::Limit, &format!("a limit of this session was reached: {}", error())),
        _ if closing => Ended::new(Reason::Closed, "closed"),
        Outcome::Signaled => {
            let signal = report.signal.unwrap_or_default();
            Ended::new(Reason::Crashed, &format!("the browser was ended by signal {signal}{quoted}"))
        }
        _ => Ended::new(Reason::Crashed, &format!("the browser exited with {}{quoted}", report.exit_code)),
    }
}

/// The last part of what the browser printed, without control characters.
async fn tail(complaints: Option<ChildStderr>) -> String {
    let Some(mut from) = complaints else { return String::new() };
    let mut kept: Vec<u8> = Vec::new();
    let mut block = [0u8; 4096];
    while let Ok(count) = from.read(&mut block).await {
        if count == 0 {
            break;
        }
        kept.extend_from_slice(block.get(..count).unwrap_or_default());
        let extra = kept.len().saturating_sub(QUOTED);
        kept.drain(..extra);
    }
    let text = String::from_utf8_lossy(&kept);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}
