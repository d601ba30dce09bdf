//! `gatekeeper browser`: turns settings and the browser's own arguments into a request for `run`.
//!
//! The browser sees the system read-only, its profile, the workspace's media directories, and nothing else. This module
//! decides only what to grant; the same layers as for every other command enforce it.

pub mod config;
mod display;
pub mod world;
pub mod wrapper;

use crate::plan::browser::Arguments;
use crate::plan::refusal::Refusal;
use crate::policy::{
    Document, Environment, Isolate, Limits, Namespaces, Network, NetworkMode, Paths, Profile, StaticBinaries,
};
use crate::request::{Asked, Browser, Purpose, Request, THIS_PROGRAM, variable};
use crate::trust::{self, Hostile};
use config::Config;
use display::Display;
use rustix::fs::Mode;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The flags merged over the settings file, with all paths absolute.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub config: Config,
    /// The browser and its arguments.
    pub command: Vec<OsString>,
    pub network: Option<NetworkMode>,
    pub deny_private: bool,
    pub local_ports: Vec<u16>,
    pub timeout: Option<Duration>,
    pub limits: Limits,
    pub explain: bool,
    /// Start the browser without its own sandbox.
    pub without_inner_sandbox: bool,
    /// Descriptors 3 and 4 are open, for a caller that drives the browser over a pipe.
    pub has_pipe: bool,
}

/// Variables that the browser gets from the caller, besides LC_*: language and time zone.
const PASSED: [&str; 3] = ["LANG", "LANGUAGE", "TZ"];
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The request for `run`.
pub fn request(settings: &Settings, caller: &[(OsString, OsString)]) -> Result<Request, Refusal> {
    let Some(named) = settings.command.first() else { return Err(Refusal::refused("no browser was named")) };
    // If it is missing, the verdict on the command says so.
    let program = world::program(named, variable(caller, "PATH")).unwrap_or_else(|| PathBuf::from(named));
    let config = &settings.config;
    if !config.enabled {
        return Ok(unconfined(settings, program, caller));
    }
    let given = Arguments::read(settings.command.get(1..).unwrap_or_default());
    let profile = profile(config, &given, variable(caller, "TMPDIR"))?;
    let media = media(config).map_err(Refusal::setup)?;
    let display = display::find(&given, caller);
    let home = variable(caller, "HOME").map(Path::new);
    let visible = Visible::find(config, &program, home, &display).map_err(Refusal::setup)?;

    let words = given.completed(&program, profile.as_deref());
    let cwd = media.first().or(profile.as_ref()).cloned().unwrap_or_else(|| PathBuf::from("/tmp"));
    let write = profile.iter().chain(&media).chain(&config.extra_write).cloned().collect();
    Ok(Request {
        flags: policy(settings, Paths { write, ..visible.paths }, display),
        helper: Some(THIS_PROGRAM.into()),
        purpose: if settings.explain { Purpose::Explain } else { Purpose::Confine },
        browser: Some(Browser {
            pipe: given.pipe && settings.has_pipe,
            port: given.port,
            without_sandbox: settings.without_inner_sandbox,
            profile,
            downloads: media.get(1).cloned(),
            etc: visible.etc,
            devices: visible.devices,
        }),
        ..Request::new(Asked::Command(words), cwd, environment(caller))
    })
}

/// What the browser sees of the machine.
struct Visible {
    etc: Vec<PathBuf>,
    devices: Vec<PathBuf>,
    /// The paths that it may read and execute.
    paths: Paths,
}

impl Visible {
    fn find(config: &Config, program: &Path, home: Option<&Path>, display: &Display) -> Result<Visible, String> {
        let etc = world::etc();
        let directory = world::directory_of(program, home)?;
        let devices = if config.gpu { world::existing(&["/dev/dri"]) } else { Vec::new() };
        let mut read = etc.clone();
        read.extend(world::existing(&["/etc/resolv.conf"]));
        read.extend(directory.iter().chain(&display.files).chain(&config.extra_read).cloned());
        if !devices.is_empty() {
            read.extend(devices.iter().cloned().chain(world::existing(&world::GRAPHICS)));
        }
        let system = world::SYSTEM.iter().map(PathBuf::from);
        let execute = system.chain(directory).chain(config.extra_read.iter().cloned()).filter(|path| path.exists());
        let paths = Paths { read: Some(read), execute: Some(execute.collect()), ..Paths::default() };
        Ok(Visible { etc, devices, paths })
    }
}

fn policy(settings: &Settings, paths: Paths, display: Display) -> Document {
    let config = &settings.config;
    Document {
        profile: Some(vec![Profile::Browser]),
        static_binaries: Some(StaticBinaries::Enforce),
        require_sandbox: config.require_sandbox,
        timeout: settings.timeout,
        paths,
        network: Network {
            mode: settings.network.clone(),
            unix: display.sockets,
            deny_private: settings.deny_private,
            local_ports: settings.local_ports.clone(),
            ..Network::default()
        },
        limits: settings.limits,
        env: Environment { pass: Vec::new(), set: display.variables.into_iter().collect() },
        bubblewrap: Namespaces {
            mode: Some(if config.require_sandbox == Some(false) { Isolate::Preferred } else { Isolate::Required }),
            path: config.bwrap.clone(),
            ..Namespaces::default()
        },
        sources: config.sources.clone(),
        ..Document::default()
    }
}

fn environment(caller: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsString| {
        let text = name.to_string_lossy();
        PASSED.contains(&text.as_ref()) || text.starts_with("LC_") || text == "TMPDIR"
    };
    let path = [("PATH".into(), PATH.into())];
    path.into_iter().chain(caller.iter().filter(|(name, _)| passed(name)).cloned()).collect()
}

/// For `"enabled": false`: the caller asked for no confinement, and the report shows every layer as off.
fn unconfined(settings: &Settings, program: PathBuf, caller: &[(OsString, OsString)]) -> Request {
    let mut words = vec![program.into_os_string()];
    words.extend(settings.command.iter().skip(1).cloned());
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let pass = caller.iter().filter_map(|(name, _)| name.to_str()).filter(|name| !name.starts_with("LD_"));
    Request {
        flags: Document {
            profile: Some(vec![Profile::Unrestricted]),
            timeout: settings.timeout,
            limits: settings.limits,
            env: Environment { pass: pass.map(str::to_owned).collect(), ..Environment::default() },
            ..Document::default()
        },
        helper: Some(THIS_PROGRAM.into()),
        ..Request::new(Asked::Command(words), cwd, caller.to_vec())
    }
}

/// The profile directory: the one in the browser's arguments if it is granted or temporary, otherwise the one in the settings.
fn profile(config: &Config, given: &Arguments, tmp: Option<&OsString>) -> Result<Option<PathBuf>, Refusal> {
    let granted =
        config.profile_dir.as_deref().map(|path| made(path, &Hostile::here())).transpose().map_err(Refusal::setup)?;
    let Some(asked) = &given.user_data_dir else { return Ok(granted) };
    let refused = |why: &str| {
        Refusal::refused(format!(
            "--user-data-dir={}: {why}; grant it, or a directory above it, with --profile-dir",
            asked.display()
        ))
    };
    if granted.as_ref().is_some_and(|granted| world::resolved(asked).starts_with(granted)) {
        return Ok(granted);
    }
    // Automation libraries make a directory for each run and remove it afterwards.
    let real = std::fs::canonicalize(asked).map_err(|_| refused("it does not exist"))?;
    match world::is_temporary_profile(&real, tmp) {
        true => Ok(Some(real)),
        false => Err(refused("it is not a browser profile below the temporary directory")),
    }
}

/// `media/browser` and `media/downloads` of the workspace, created if missing.
fn media(config: &Config) -> Result<Vec<PathBuf>, String> {
    let Some(workspace) = &config.workspace else { return Ok(Vec::new()) };
    let workspace = std::fs::canonicalize(workspace).map_err(|error| {
        let make = if error.kind() == std::io::ErrorKind::NotFound { "; create it first with mkdir -p" } else { "" };
        format!("--workspace {}: {error}{make}", workspace.display())
    })?;
    // Agents write there, so do not follow links.
    let hostile = Hostile::working_directory(&workspace);
    ["media/browser", "media/downloads"].into_iter().map(|name| made(&workspace.join(name), &hostile)).collect()
}

fn made(directory: &Path, hostile: &Hostile) -> Result<PathBuf, String> {
    trust::make_directory(directory, hostile, Mode::RWXU).map(|found| found.real).map_err(|error| error.to_string())
}
