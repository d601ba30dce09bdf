//! The browser in its container, as two hidden commands: `__box browse` takes the order and answers when the browser is
//! ready; `__box keep` stays, runs Chromium under gatekeeper's own confinement, and relays its debugging port.

use super::log::Log;
use super::relay;
use super::seen::Seen;
use super::vnc;
use super::wire::{self, Kind};
use crate::browser::config::Config;
use crate::browser::{self, Settings};
use crate::run::{Options, run};
use crate::sys::signals::Signals;
use crate::sys::{descriptors, message, process, socket};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the gatekeeper outside asks for. It travels over a pipe: the token and the variables are on no command line.
#[derive(Serialize, Deserialize)]
pub struct Wanted {
    pub token: String,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
    /// Show the display by noVNC.
    pub vnc: bool,
}

/// The answer when the browser is ready.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The path of its WebSocket.
    pub path: String,
}

impl Ready {
    /// Whether the path can be part of an address: it comes from the browser.
    pub fn is_plain(path: &str) -> bool {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/-".contains(letter);
        path.starts_with("/devtools/browser/") && path.len() < 200 && path.chars().all(plain)
    }
}

const DISPLAY: &str = ":99";
const XVFB: &str = "/usr/bin/Xvfb";
/// Where images have the browser.
const CHROMIUM: [&str; 4] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome", "/opt/chromium/chrome"];

/// Starts the keeper, and passes its answer on.
pub fn browse() -> io::Result<()> {
    process::set_not_dumpable()?;
    let (mut input, mut output) = (io::stdin(), io::stdout());
    wire::send(&mut output, Kind::Alive, &serde_json::to_vec(&Seen::measure(&[]))?)?;
    let Some((Kind::Order, order)) = wire::receive(&mut input)? else {
        return Err(io::Error::other("no order"));
    };
    let mut command = Command::new("/proc/self/exe");
    command.args([super::INSIDE, "keep"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = command.spawn()?;
    let missing = || io::Error::other("no pipe");
    wire::send(keeper.stdin.as_mut().ok_or_else(missing)?, Kind::Order, &order)?;
    let answered = wire::receive(keeper.stdout.as_mut().ok_or_else(missing)?)?;
    let (kind, bytes) = answered.unwrap_or_else(|| (Kind::Warning, b"the browser's keeper ended".to_vec()));
    wire::send(&mut output, kind, &bytes)?;
    wait_for_caller();
    Ok(())
}

/// How long to wait until the answer was read.
const HEARD: Duration = Duration::from_secs(5);

/// Waits until the process that sent the order has closed its end, as it does when it has read the answer. If the container ended
/// before, the engine would drop what it has not passed on yet.
fn wait_for_caller() {
    let _ = io::stdout().flush();
    message::expect(io::stdin().as_fd(), HEARD);
}

/// Runs until Chromium ends, and then ends the container.
pub fn keep() -> io::Result<()> {
    process::set_not_dumpable()?;
    process::set_subreaper()?;
    process::leave_session()?;
    let signals = Signals::take()?;
    let mut input = io::stdin();
    let Some((Kind::Order, order)) = wire::receive(&mut input)? else { return Ok(()) };
    let wanted: Wanted = serde_json::from_slice(&order)?;
    let out = Arc::new(Mutex::new(File::from(descriptors::duplicate(1)?)));
    let log = Log::default();
    let fail = |why: &str| {
        let text = format!("{why}; {}", log.shown());
        let _ = wire::send(&mut *out.lock().unwrap_or_else(PoisonError::into_inner), Kind::Warning, text.as_bytes());
        end_container();
    };
    match start(&wanted, &log) {
        Err(error) => fail(&error.to_string()),
        Ok(started) => {
            let (watched, told, logged) = (started.profile.clone(), Arc::clone(&out), log.clone());
            let socket = started.viewer.as_ref().map(|(_, socket)| socket.clone());
            std::thread::spawn(move || watch(&watched, &wanted, &told, &logged, started.listener, socket));
            let report = run(&started.request, &options(&signals));
            let why = report.error.unwrap_or_else(|| format!("the browser ended with status {}", report.exit_code));
            fail(&why);
            drop((started.viewer, started.display));
        }
    }
    Ok(())
}

fn options(signals: &Signals) -> Options<'_> {
    Options {
        capture: false,
        spill: None,
        signals: Some(signals),
        warn: &|_| (),
        outside: None,
        embedding: None,
        answerer: None,
        audit: None,
        refused: None,
    }
}

struct Started {
    request: crate::request::Request,
    profile: PathBuf,
    listener: TcpListener,
    display: Option<Ended>,
    /// x11vnc and its socket.
    viewer: Option<(Ended, PathBuf)>,
}

/// A helper that ends with us.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(wanted: &Wanted, log: &Log) -> io::Result<Started> {
    // First, so that nothing else in the container gets the published port.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, relay::PORT))?;
    let chromium = CHROMIUM.iter().find(|path| Path::new(path).exists());
    let chromium = chromium.ok_or_else(|| io::Error::other(format!("the image has no {}", CHROMIUM[0])))?;
    let home = Path::new(super::TEMPORARY).join("browser");
    let profile = home.join("profile");
    std::fs::create_dir_all(&profile)?;
    let display = match Path::new(XVFB).exists() {
        true => Some(display(log)?),
        false => None,
    };
    let viewer = match (wanted.vnc, &display) {
        (false, _) => None,
        (true, Some(_)) => Some(vnc::start(DISPLAY, log)?),
        (true, None) => {
            return Err(io::Error::other(format!("browser.enableNoVnc is true, and the image has no {XVFB}")));
        }
    };
    let mut words: Vec<OsString> = vec![chromium.into()];
    words.extend(ARGUMENTS.map(Into::into));
    if display.is_none() {
        words.push("--headless=new".into());
    }
    words.push("about:blank".into());
    let settings = Settings {
        config: Config {
            // The container takes the place of bubblewrap. Without capabilities, the engines' filters close chroot, and some
            // close user namespaces; Chromium's own sandbox needs both. gatekeeper's filter and Landlock hold for every process of the browser instead.
            require_sandbox: Some(false),
            gpu: false,
            profile_dir: Some(profile.clone()),
            ..Config::default()
        },
        command: words,
        without_inner_sandbox: true,
        ..Settings::default()
    };
    let mut caller: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("HOME".into(), home.clone().into()),
        ("TMPDIR".into(), super::TEMPORARY.into()),
    ];
    if display.is_some() {
        caller.push(("DISPLAY".into(), DISPLAY.into()));
    }
    let mut request = browser::request(&settings, &caller).map_err(|refusal| io::Error::other(refusal.message))?;
    request.flags.env.set.extend(wanted.env.clone());
    for number in [1, 2] {
        let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        socket::becomes(to, number)?;
        log.follow(File::from(from));
    }
    socket::becomes(File::open("/dev/null")?.into(), 0)?;
    Ok(Started { request, profile, listener, display, viewer })
}

/// For a browser in a container of its own: no first-run pages, no updates, no keyring.
const ARGUMENTS: [&str; 10] = [
    "--remote-debugging-port=0",
    "--remote-debugging-address=127.0.0.1",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--password-store=basic",
    "--window-position=0,0",
    "--window-size=1280,800",
];

fn display(log: &Log) -> io::Result<Ended> {
    let mut command = Command::new(XVFB);
    command.args([DISPLAY, "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"]).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(stderr) = child.stderr.take() {
        log.follow(stderr);
    }
    let mut child = Ended(child);
    let socket = format!("/tmp/.X11-unix/X{}", DISPLAY.trim_start_matches(':'));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !Path::new(&socket).exists() {
        if child.0.try_wait()?.is_some() || Instant::now() > deadline {
            return Err(io::Error::other("Xvfb does not start: docker.tmpfs needs /tmp:exec,mode=1777"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(child)
}

/// Waits for the debugging port, says that the browser is ready, and relays from then on.
fn watch(
    profile: &Path,
    wanted: &Wanted,
    out: &Mutex<File>,
    log: &Log,
    listener: TcpListener,
    viewer: Option<PathBuf>,
) {
    let deadline = Instant::now() + Duration::from_millis(wanted.timeout_ms);
    let tell = |kind, bytes: &[u8]| {
        let _ = wire::send(&mut *out.lock().unwrap_or_else(PoisonError::into_inner), kind, bytes);
    };
    let (port, path) = loop {
        if let Some((port, path)) = active(profile)
            && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        {
            break (port, path);
        }
        if Instant::now() > deadline {
            let why = format!("the browser was not ready within {} ms; {}", wanted.timeout_ms, log.shown());
            tell(Kind::Warning, why.as_bytes());
            end_container();
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    tell(Kind::Report, &serde_json::to_vec(&Ready { path }).unwrap_or_default());
    relay::serve(&listener, port, &wanted.token, viewer.as_deref());
}

/// The port and the path that Chromium wrote into its profile.
fn active(profile: &Path) -> Option<(u16, String)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(profile.join("DevToolsActivePort"), flags, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).take(1024).read_to_string(&mut text).ok()?;
    let (port, path) = text.split_once('\n')?;
    let path = path.trim();
    Ready::is_plain(path).then_some((port.trim().parse().ok()?, path.to_owned()))
}

/// The first process ends at SIGTERM, and the container with it.
fn end_container() {
    wait_for_caller();
    let _ = rustix::process::kill_process(rustix::process::Pid::INIT, rustix::process::Signal::TERM);
}
