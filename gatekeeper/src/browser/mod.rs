//! `gatekeeper browser`: settings and a browser's own arguments in, a request for `run` out.
//!
//! The browser sees the system read-only, its profile and the workspace's media directories, and nothing else. What it
//! is confined by is what every command is confined by; here is only decided what it is granted.

pub mod config;
mod display;
pub mod world;
pub mod wrapper;

use crate::plan::browser::Arguments;
use crate::plan::refusal::Refusal;
use crate::policy::{
    Document, Environment, Isolate, Limits, Namespaces, Network, NetworkMode, Paths, Profile, StaticBinaries,
};
use crate::request::{Asked, Browser, Purpose, Request};
use crate::trust::{self, Hostile};
use config::Config;
use rustix::fs::Mode;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was asked for: flags laid over a file's settings, all paths absolute.
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
    /// Do without the browser's own sandbox.
    pub without_inner_sandbox: bool,
    /// Whether the caller has left the descriptors of a driving pipe open.
    pub has_pipe: bool,
}

/// Variables of the caller that the browser gets: how to speak, and which time it is.
const PASSED: [&str; 3] = ["LANG", "LANGUAGE", "TZ"];
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The request that `run` carries out.
pub fn request(settings: &Settings, caller: &[(OsString, OsString)]) -> Result<Request, Refusal> {
    let variable = |name: &str| caller.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let Some(named) = settings.command.first() else { return Err(Refusal::refused("no browser was named")) };
    // One that is not there is told as for every command.
    let program = world::program(named, variable("PATH")).unwrap_or_else(|| PathBuf::from(named));
    let config = &settings.config;
    let given = Arguments::read(settings.command.get(1..).unwrap_or_default());
    if !config.enabled {
        return Ok(unconfined(settings, program, caller));
    }
    let setup = |error: String| Refusal::setup(error);
    let profile = profile(config, &given, variable("TMPDIR"))?;
    let media = media(config).map_err(setup)?;

    let display = display::find(&given, caller);
    let etc = world::etc();
    let directory = world::directory_of(&program, variable("HOME").map(Path::new)).map_err(setup)?;
    let mut read: Vec<PathBuf> = etc.clone();
    read.extend(world::existing(&["/etc/resolv.conf"]));
    read.extend(directory.clone());
    read.extend(display.files.iter().chain(&config.extra_read).cloned());
    let devices = if config.gpu { world::existing(&["/dev/dri"]) } else { Vec::new() };
    if !devices.is_empty() {
        read.extend(devices.iter().cloned().chain(world::existing(&world::GRAPHICS)));
    }
    let write: Vec<PathBuf> = profile.iter().chain(&media).chain(&config.extra_write).cloned().collect();
    let execute = world::SYSTEM.iter().map(PathBuf::from).chain(directory).chain(config.extra_read.iter().cloned());

    let mut environment: Vec<(OsString, OsString)> = vec![("PATH".into(), PATH.into())];
    let passed = |name: &OsString| {
        let text = name.to_string_lossy();
        PASSED.contains(&text.as_ref()) || text.starts_with("LC_") || text == "TMPDIR"
    };
    environment.extend(caller.iter().filter(|(name, _)| passed(name)).cloned());
    let set = display.variables.iter().cloned().collect();
    let cwd = media.first().or(profile.as_ref()).cloned().unwrap_or_else(|| PathBuf::from("/tmp"));
    let words = given.completed(&program, profile.as_deref());

    let flags = Document {
        profile: Some(vec![Profile::Browser]),
        static_binaries: Some(StaticBinaries::Enforce),
        require_sandbox: config.require_sandbox,
        timeout: settings.timeout,
        paths: Paths {
            read: Some(read),
            write,
            execute: Some(execute.filter(|path| path.exists()).collect()),
            ..Paths::default()
        },
        network: Network {
            mode: settings.network.clone(),
            unix: display.sockets,
            deny_private: settings.deny_private,
            local_ports: settings.local_ports.clone(),
            ..Network::default()
        },
        limits: settings.limits,
        env: Environment { pass: Vec::new(), set },
        bubblewrap: Namespaces {
            mode: Some(if config.require_sandbox == Some(false) { Isolate::Preferred } else { Isolate::Required }),
            // As the settings' own program does it: a path that leads nowhere is as good as none.
            path: config.bwrap.clone().filter(|path| path.exists()),
            ..Namespaces::default()
        },
        sources: config.sources.clone(),
        ..Document::default()
    };
    Ok(Request {
        asked: Asked::Command(words),
        cwd,
        starts_in: None,
        environment,
        home: None,
        flags,
        config: None,
        keep_tmp: false,
        helper: Some(PathBuf::from("/proc/self/exe")),
        purpose: if settings.explain { Purpose::Explain } else { Purpose::Confine },
        inside: None,
        browser: Some(Browser {
            pipe: given.pipe && settings.has_pipe,
            port: given.port,
            without_sandbox: settings.without_inner_sandbox,
            profile,
            downloads: media.get(1).cloned(),
            etc,
            devices,
        }),
        also_written: Vec::new(),
    })
}

/// "enabled": false. It is what was asked for, and the report says of every layer that it is off.
fn unconfined(settings: &Settings, program: PathBuf, caller: &[(OsString, OsString)]) -> Request {
    let mut words = vec![program.into_os_string()];
    words.extend(settings.command.iter().skip(1).cloned());
    let pass = caller.iter().filter_map(|(name, _)| name.to_str()).filter(|name| !name.starts_with("LD_"));
    Request {
        asked: Asked::Command(words),
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        starts_in: None,
        environment: caller.to_vec(),
        home: None,
        flags: Document {
            profile: Some(vec![Profile::Unrestricted]),
            timeout: settings.timeout,
            limits: settings.limits,
            env: Environment { pass: pass.map(str::to_owned).collect(), ..Environment::default() },
            ..Document::default()
        },
        config: None,
        keep_tmp: false,
        helper: Some(PathBuf::from("/proc/self/exe")),
        purpose: Purpose::Confine,
        inside: None,
        browser: None,
        also_written: Vec::new(),
    }
}

/// Where the browser keeps itself: what its arguments name, if that may be, else what the settings name.
fn profile(config: &Config, given: &Arguments, tmp: Option<&OsString>) -> Result<Option<PathBuf>, Refusal> {
    let granted =
        config.profile_dir.as_deref().map(|path| made(path, &Hostile::here())).transpose().map_err(Refusal::setup)?;
    let Some(asked) = &given.user_data_dir else { return Ok(granted) };
    let refused = |why: &str| {
        Refusal::refused(format!(
            "--user-data-dir={}: {why}; name it, or a directory above it, by --profile-dir",
            asked.display()
        ))
    };
    if granted.as_ref().is_some_and(|granted| world::resolved(asked).starts_with(granted)) {
        return Ok(granted);
    }
    // What an automation library made for this one run and removes after it.
    let real = std::fs::canonicalize(asked).map_err(|_| refused("it is not there"))?;
    match world::is_temporary_profile(&real, tmp) {
        true => Ok(Some(real)),
        false => Err(refused("not a browser's directory below the temporary one")),
    }
}

/// `media/browser` and `media/downloads` of the workspace, made where they are missing.
fn media(config: &Config) -> Result<Vec<PathBuf>, String> {
    let Some(workspace) = &config.workspace else { return Ok(Vec::new()) };
    let workspace = std::fs::canonicalize(workspace).map_err(|error| {
        let make = if error.kind() == std::io::ErrorKind::NotFound { "; make it first, with mkdir -p" } else { "" };
        format!("--workspace {}: {error}{make}", workspace.display())
    })?;
    // Agents write in there: no link of theirs is followed.
    let hostile = Hostile::working_directory(&workspace);
    ["media/browser", "media/downloads"].into_iter().map(|name| made(&workspace.join(name), &hostile)).collect()
}

fn made(directory: &Path, hostile: &Hostile) -> Result<PathBuf, String> {
    trust::make_directory(directory, hostile, Mode::RWXU).map(|found| found.real).map_err(|error| error.to_string())
}
