//! `gatekeeper box`: containers of an engine, from the configuration of an agent system.

mod browser;

use super::args::{
    BoxCommand, BoxExecArgs, BoxListArgs, BoxPruneArgs, BoxRmArgs, BoxUpArgs, EngineArgs, PolicyArgs, WhoseArgs,
};
use super::output::{open_audit, print};
use super::run::{become_supervisor, finish, flags, report_out, supervised};
use super::{complain, failed, harmless, setup_failed};
use crate::container::engine::{self, Engine};
use crate::container::{self, Boxed, Config, Entry, Identity, Inherited, Input, Mode, Removal, Running, home, name};
use crate::plan::refusal::Refusal;
use crate::policy::Document;
use crate::report::{Layer, LayerReport, LayerStatus, Outcome, Report};
use crate::request::{Purpose, Request, THIS_PROGRAM};
use crate::sys::signals::Signals;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub fn main(command: &BoxCommand) -> u8 {
    match command {
        BoxCommand::Up(args) => up(args).unwrap_or_else(setup_failed),
        BoxCommand::Exec(args) => exec(args),
        BoxCommand::List(args) => list(args).unwrap_or_else(failed),
        BoxCommand::Prune(args) => prune(args).unwrap_or_else(failed),
        BoxCommand::Rm(args) => rm(args).unwrap_or_else(failed),
        BoxCommand::Browser(args) => browser::main(args).unwrap_or_else(setup_failed),
        BoxCommand::Explain(args) => explain(args).unwrap_or_else(failed),
    }
}

type Asked = (Option<String>, Vec<String>);

/// The engine that flags or variables name, and its arguments.
pub(super) fn asked(args: &EngineArgs) -> Asked {
    let variable = std::env::var_os(engine::ENGINE).map(OsString::into_string).and_then(Result::ok);
    let named = args.engine.clone().or(variable).filter(|name| !name.is_empty());
    (named, engine::arguments(args.engine_args.as_deref()))
}

fn found(args: &EngineArgs) -> Result<Engine, String> {
    match asked(args) {
        (Some(name), arguments) => Engine::named(&name, &arguments),
        (None, arguments) => Engine::that_works(&arguments, |engine| engine).map(|(engine, _)| engine),
    }
}

pub(super) fn identity(whose: &WhoseArgs) -> Result<Identity, String> {
    Ok(Identity {
        agent: name("agent", &whose.agent).map_err(|error| format!("--agent: {error}"))?,
        session: name("session", &whose.session).map_err(|error| format!("--session: {error}"))?,
    })
}

/// The configuration for an agent, with the workspace that the command line names.
pub(super) fn load(file: &Path, whose: &WhoseArgs) -> Result<Config, String> {
    let mut config = container::load(file, &whose.agent, home().as_deref()).map_err(|error| format!("box: {error}"))?;
    if let Some(path) = &whose.workspace {
        config.settings.workspace.put(Some(super::working_directory()?.join(path)), "--workspace");
    }
    Ok(config)
}

/// The box of a session. The configuration must not be in a tree that the container may write.
pub(super) fn boxed(config: &Config, whose: &WhoseArgs, for_real: bool) -> Result<Boxed, String> {
    let boxed = Boxed::new(config.settings.clone(), identity(whose)?, asked(&whose.engine), for_real)?;
    for mount in boxed.made.mounts.iter().filter(|mount| mount.writable) {
        if let Some(source) = config.sources.iter().find(|source| source.starts_with(&mount.host)) {
            return Err(format!(
                "{} is in {}, which commands in the container may write, and so could change their own limits; move it elsewhere",
                source.display(),
                mount.host.display()
            ));
        }
    }
    Ok(boxed)
}

fn up(args: &BoxUpArgs) -> Result<u8, String> {
    let config = load(&args.config, &args.whose)?;
    let identity = identity(&args.whose)?;
    if !config.settings.is_boxed(&identity.session) {
        complain(not_boxed(&config, &identity));
        return Ok(0);
    }
    let boxed = boxed(&config, &args.whose, true)?;
    config.settings.without_workspace().into_iter().for_each(complain);
    let (note, _using, made) = boxed.ensure(&|text| complain(text))?;
    let browser = browser::with_up(&boxed)?;
    for removal in container::prune(&note.engine, &config.settings.prune)? {
        complain(shown(&removal));
    }
    if args.json {
        let document = serde_json::json!({"schema": 1, "name": boxed.name, "made": made, "engine": note.engine.kind, "version": note.about.version, "rootless": note.about.rootless, "image": boxed.made.image, "browser": browser.as_ref().map(container::Endpoint::json)});
        return Ok(print(&format!("{document:#}\n")));
    }
    Ok(print(&format!("{}\n", boxed.name)))
}

pub(super) fn not_boxed(config: &Config, identity: &Identity) -> String {
    let mode = &config.settings.mode;
    let why = match mode.value {
        Mode::NonMain => format!("session {} is the main one", identity.session),
        _ => "mode is off".to_owned(),
    };
    format!("not in a container: {why} ({}); commands run on this host under `gatekeeper run`", mode.decided_by())
}

fn exec(args: &BoxExecArgs) -> u8 {
    let run = &args.run;
    let out = match report_out(run) {
        Ok(out) => out,
        Err(error) => return setup_failed(error),
    };
    let began = Instant::now();
    let words = || run.line.iter().chain(&run.command).map(|word| word.to_string_lossy().into_owned()).collect();
    let report = executed(args).unwrap_or_else(|error| Refusal::setup(error).report(words(), began.elapsed()));
    let report = if run.json { report.with_output() } else { report };
    if let (Outcome::Signaled, Some(error)) = (report.outcome, &report.error) {
        complain(error);
    }
    finish(&report, run.reporting.quiet, out, None)
}

fn executed(args: &BoxExecArgs) -> Result<Report, String> {
    let run = &args.run;
    let quiet = run.reporting.quiet;
    let asks = run.asking.ask || !run.asking.ask_fd.is_empty();
    for (flag, given) in [("--stage", run.stage.is_some()), ("--ask", asks), ("--env-fd", run.env_fd.is_some())] {
        if given {
            return Err(format!("box: {flag} is for `gatekeeper run`; a box has none"));
        }
    }
    let file = run.policy.syscalls.config.as_ref().ok_or("box: --config is required")?;
    let config = load(file, &args.whose)?;
    let identity = identity(&args.whose)?;
    if !config.settings.is_boxed(&identity.session) {
        return on_host(args, &config, &identity);
    }
    for (flag, given) in
        [("--cache", run.policy.cache.is_some()), ("--spill", run.spill.is_some()), ("--keep-tmp", run.keep_tmp)]
    {
        if given {
            return Err(format!("box: {flag} names a directory of this host, which the container does not see"));
        }
    }
    let boxed = boxed(&config, &args.whose, true)?;
    let request = Request {
        audit: super::output::absolute_audit_file(run.reporting.audit.as_ref())?,
        ..request(&run.policy, &config, super::run::asked(run.line.as_ref(), &run.command))
    };
    let signals = become_supervisor()?;
    let warn = |text: &str| {
        if !quiet {
            complain(format_args!("warning: {}", harmless(text)));
        }
    };
    config.settings.without_workspace().iter().for_each(|text| warn(text));
    if boxed.made.network == "host" {
        warn("docker.network is host: the container shares the network of this machine");
    }
    let mut streams = Inherited { warn: &warn };
    let input = Input::From(Box::new(std::io::stdin()));
    Ok(container::exec(&boxed, request, run.json, input, &mut streams, &|running| pass_on(&signals, running)))
}

/// Passes signals of this process to the command, on a thread.
fn pass_on(signals: &Signals, running: Running) {
    use std::os::fd::AsFd;
    let Ok(descriptor) = signals.as_fd().try_clone_to_owned() else { return };
    std::thread::spawn(move || {
        let arrived = Signals::of(descriptor);
        loop {
            let mut polled = [rustix::event::PollFd::new(&arrived, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut polled, None);
            while let Some(arrived) = arrived.next() {
                if arrived.signal != libc::SIGCHLD {
                    running.signal(arrived.signal);
                }
            }
        }
    });
}

/// The request for the gatekeeper inside. Paths are those of the container.
pub(super) fn request(policy: &PolicyArgs, config: &Config, asked: crate::request::Asked) -> Request {
    let mut own = flags(policy);
    // The user names these variables on the command line; nothing else of this environment goes in.
    for name in std::mem::take(&mut own.env.pass) {
        if let Some(value) = std::env::var_os(&name).and_then(|value| value.into_string().ok()) {
            own.env.set.entry(name).or_insert(value);
        }
    }
    let cwd = policy.cwd.as_ref().map_or_else(|| PathBuf::from("/workspace"), |cwd| Path::new("/workspace").join(cwd));
    Request {
        flags: own.over(Document { sources: Vec::new(), ..config.policy.clone() }),
        helper: Some(THIS_PROGRAM.into()),
        purpose: if policy.launch.explain { Purpose::Explain } else { Purpose::Confine },
        ..Request::new(asked, cwd, Vec::new())
    }
}

/// `mode` leaves this session on the host: `run` confines it, and the report says that there is no container.
fn on_host(args: &BoxExecArgs, config: &Config, identity: &Identity) -> Result<Report, String> {
    let run = &args.run;
    let told = not_boxed(config, identity);
    complain(format_args!("warning: {told}"));
    let mut request = super::run::request(run)?;
    request.config = None;
    request.flags = request.flags.over(config.policy.clone());
    let words: Vec<String> = request.words().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let audit = open_audit(&run.reporting, || super::output::hostile(&run.policy), &words)?;
    request.deny(audit.iter().flat_map(|audit| audit.paths()));
    let report = supervised(&request, run.reporting.quiet, run.json, None, None, audit.clone());
    let mut report = crate::run::trail::end(report, audit);
    report.layers.push(LayerReport { layer: Layer::Container, status: LayerStatus::Off, detail: told });
    Ok(report)
}

fn list(args: &BoxListArgs) -> Result<u8, String> {
    let entries = container::list(&found(&args.engine)?)?;
    if args.json {
        return Ok(print(&format!("{:#}\n", serde_json::json!(entries))));
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let ago = |then: u64| {
        let seconds = now.saturating_sub(then);
        match seconds {
            0..60 => format!("{seconds}s"),
            60..3600 => format!("{}m", seconds / 60),
            3600..172_800 => format!("{}h", seconds / 3600),
            _ => format!("{}d", seconds / 86_400),
        }
    };
    let row = |entry: &Entry| {
        let state = match (entry.running, entry.in_use) {
            (false, _) => "dead",
            (true, true) => "in use",
            (true, false) => "idle",
        };
        let cells = [&entry.name, &entry.kind, &entry.agent, &entry.session, &entry.scope, &entry.image];
        let mut cells: Vec<String> = cells.into_iter().map(|cell| harmless(cell)).collect();
        cells.extend([state.to_owned(), ago(entry.created), ago(entry.last_used)]);
        cells
    };
    let head =
        ["NAME", "KIND", "AGENT", "SESSION", "SCOPE", "IMAGE", "STATE", "AGE", "LAST USED"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(entries.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..9).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    Ok(print(&rows.iter().map(line).collect::<String>()))
}

fn shown(removal: &Removal) -> String {
    let verb = if removal.removed { "removed" } else { "kept" };
    format!("{verb} {}: {}", removal.name, removal.why)
}

fn removals(removals: &[Removal], json: bool) -> u8 {
    let text = match json {
        true => format!("{:#}\n", serde_json::json!(removals)),
        false => removals.iter().map(|removal| format!("{}\n", harmless(&shown(removal)))).collect(),
    };
    print(&text)
}

fn prune(args: &BoxPruneArgs) -> Result<u8, String> {
    let rule = match &args.config {
        Some(file) => {
            load(file, &WhoseArgs { agent: container::MAIN.to_owned(), ..WhoseArgs::default() })?.settings.prune
        }
        None => container::Settings::default().prune,
    };
    Ok(removals(&container::prune(&found(&args.engine)?, &rule)?, args.json))
}

fn rm(args: &BoxRmArgs) -> Result<u8, String> {
    let matches = |entry: &Entry| {
        let named = args.names.is_empty() || args.names.contains(&entry.name);
        let agent = args.agent.as_ref().is_none_or(|agent| *agent == entry.agent);
        let session = args.session.as_ref().is_none_or(|session| *session == entry.session);
        named && agent && session
    };
    let removed = container::remove(&found(&args.engine)?, &matches, args.force)?;
    if let Some(missing) = args.names.iter().find(|name| removed.iter().all(|removal| removal.name != **name)) {
        return Err(format!("box: there is no container {missing}; `gatekeeper box list` prints them"));
    }
    let code = removals(&removed, args.json);
    Ok(if removed.iter().all(|removal| removal.removed) { code } else { super::EXIT_ERROR })
}

fn explain(args: &BoxUpArgs) -> Result<u8, String> {
    let config = load(&args.config, &args.whose)?;
    let identity = identity(&args.whose)?;
    let boxed = boxed(&config, &args.whose, false)?;
    let told = container::explain(&config.settings, &identity, &boxed.made.mounts, &boxed.name);
    if args.json {
        return Ok(print(&format!("{told:#}\n")));
    }
    let mut text = String::new();
    let plain = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let place = match told["boxed"] == true {
        true => format!("agent {}, session {}: in container {}\n", identity.agent, identity.session, boxed.name),
        false => format!("agent {}, session {}: {}\n", identity.agent, identity.session, not_boxed(&config, &identity)),
    };
    text.push_str(&place);
    for (name, set) in told["settings"].as_object().into_iter().flatten() {
        text.push_str(&format!("{name:28} {:40} {}\n", plain(&set["value"]), plain(&set["key"])));
    }
    for mount in told["mounts"].as_array().into_iter().flatten() {
        let host = format!("{} ({})", plain(&mount["host"]), plain(&mount["mode"]));
        text.push_str(&format!("{:28} {host:40} {}\n", plain(&mount["inside"]), plain(&mount["key"])));
    }
    for warning in told["warnings"].as_array().into_iter().flatten() {
        text.push_str(&format!("warning: {}\n", plain(warning)));
    }
    for (name, ruling) in told["tools"].as_object().into_iter().flatten() {
        let word = if ruling["allowed"] == true { "allowed" } else { "denied" };
        text.push_str(&format!("tool {name:23} {word:40} {}\n", plain(&ruling["key"])));
    }
    Ok(print(&text.lines().map(|line| format!("{}\n", harmless(line))).collect::<String>()))
}
