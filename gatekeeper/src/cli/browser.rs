//! `gatekeeper browser`: turns flags and a settings file into a request, or into a wrapper script.

use super::args::BrowserArgs;
use super::output::{self, open_audit, open_report};
use super::run::{finish, supervised};
use super::{complain, setup_failed, working_directory};
use crate::browser::config::{self, Config};
use crate::browser::{Settings, request, world, wrapper};
use crate::plan::refusal::Refusal;
use crate::policy::{Limits, PolicyError};
use crate::sys::descriptors;
use crate::trust::Hostile;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The descriptors of Chromium's --remote-debugging-pipe.
const PIPE: [i32; 2] = [3, 4];

pub fn main(args: &BrowserArgs) -> u8 {
    // Look before anything else is opened, which could get these numbers. A --report-fd among them is not the browser's.
    let has_pipe = descriptors::are_open(&PIPE) && args.reporting.report_fd.is_none_or(|fd| !PIPE.contains(&fd));
    match &args.wrapper {
        Some(path) => write_wrapper(args, path),
        None => start(args, has_pipe),
    }
}

fn start(args: &BrowserArgs, has_pipe: bool) -> u8 {
    let mut hostile = Hostile::here();
    args.launch.write.iter().chain(&args.profile_dir).chain(&args.workspace).for_each(|tree| hostile.add(tree));
    let out = match open_report(&args.reporting, &hostile) {
        Ok(out) => out,
        Err(error) => return setup_failed(error),
    };
    let command: Vec<String> = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let audit = match open_audit(&args.reporting, || hostile, &command) {
        Ok(audit) => audit,
        Err(error) => return setup_failed(error),
    };
    let quiet = args.reporting.quiet;
    let began = std::time::Instant::now();
    let words = || args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let asked = settings(args, has_pipe)
        .map_err(Refusal::setup)
        .and_then(|settings| request(&settings, &std::env::vars_os().collect::<Vec<_>>()).map(|made| (settings, made)));
    let report = match asked {
        Ok((settings, mut request)) => {
            request.deny(audit.iter().flat_map(|audit| audit.paths()));
            if !settings.config.enabled && !quiet {
                complain("warning: the browser is not confined: browser.sandbox.enabled is false");
            }
            let warnings = settings.config.warnings.iter().filter(|_| !quiet);
            warnings.for_each(|warning| complain(format_args!("warning: {warning}")));
            supervised(&request, quiet, false, None, None, audit.clone())
        }
        Err(refusal) => refusal.report(words(), began.elapsed()),
    };
    finish(&report, quiet, Vec::from_iter(out), audit)
}

fn settings(args: &BrowserArgs, has_pipe: bool) -> Result<Settings, String> {
    let here = working_directory()?;
    let launch = &args.launch;
    let absolute = |path: &PathBuf| here.join(path);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut config = match &args.config {
        Some(file) => config::load(file, home.as_deref()).map_err(|error| match error {
            PolicyError::Missing { missing: "browser", .. } => format!(
                "settings: {error}, for example {{\"browser\": {{\"sandbox\": {{\"enabled\": true}}}}}}; if this is a policy, pass it to run --config"
            ),
            _ => format!("settings: {error}"),
        })?,
        None => Config::default(),
    };
    config.profile_dir = args.profile_dir.as_ref().map(absolute).or(config.profile_dir);
    config.workspace = args.workspace.as_ref().map(absolute).or(config.workspace);
    config.require_sandbox = launch.require_sandbox.or(config.require_sandbox);
    config.gpu = args.gpu.unwrap_or(config.gpu);
    config.extra_read.extend(launch.read.iter().map(absolute));
    config.extra_write.extend(launch.write.iter().map(absolute));
    Ok(Settings {
        config,
        command: args.command.clone(),
        network: launch.net.clone(),
        deny_private: args.deny_private,
        local_ports: args.local_port.clone(),
        timeout: launch.timeout,
        limits: Limits { memory: launch.memory, processes: launch.processes, ..Limits::default() },
        explain: launch.explain,
        without_inner_sandbox: args.no_inner_sandbox,
        has_pipe,
    })
}

/// Writes a script that runs this command line with all paths made absolute.
fn write_wrapper(args: &BrowserArgs, path: &Path) -> u8 {
    let written = flags(args).and_then(|(flags, command)| {
        let own = std::env::current_exe().map_err(|error| format!("cannot find gatekeeper itself: {error}"))?;
        let text = wrapper::script(own.as_os_str(), &flags, &command);
        output::write(path, &text, 0o755).map_err(|error| format!("{}: {error}", path.display()))
    });
    match written {
        Ok(()) => 0,
        Err(error) => setup_failed(format_args!("--wrapper: {error}")),
    }
}

type Words = Vec<OsString>;

/// The flags and the browser's command, for a script that may be started in any directory.
fn flags(args: &BrowserArgs) -> Result<(Words, Words), String> {
    let here = working_directory()?;
    let (launch, reporting) = (&args.launch, &args.reporting);
    let mut flags: Words = Vec::new();
    let mut add = |name: &str, value: OsString| flags.extend([name.into(), value]);
    let named = [
        ("--profile-dir", &args.profile_dir),
        ("--workspace", &args.workspace),
        ("--config", &args.config),
        ("--report", &reporting.report),
        ("--audit", &reporting.audit),
    ];
    let read = launch.read.iter().map(|path| ("--read", path));
    let listed = read.chain(launch.write.iter().map(|path| ("--write", path)));
    let named = named.into_iter().filter_map(|(name, path)| path.as_ref().map(|path| (name, path)));
    named.chain(listed).for_each(|(name, path)| add(name, here.join(path).into_os_string()));
    launch.net.iter().for_each(|net| add("--net", net.to_string().into()));
    args.local_port.iter().for_each(|port| add("--local-port", port.to_string().into()));
    launch.timeout.iter().for_each(|time| add("--timeout", format!("{}ms", time.as_millis()).into()));
    launch.memory.iter().for_each(|size| add("--memory", size.to_string().into()));
    launch.processes.iter().for_each(|count| add("--processes", count.to_string().into()));
    reporting.report_fd.iter().for_each(|fd| add("--report-fd", fd.to_string().into()));
    flags.extend(args.gpu.map(|gpu| format!("--gpu={gpu}").into()));
    flags.extend(launch.require_sandbox.map(|required| format!("--require-sandbox={required}").into()));
    let plain = [("--deny-private", args.deny_private), ("--explain", launch.explain), ("--quiet", reporting.quiet)];
    let plain = plain.into_iter().chain([("--no-inner-sandbox", args.no_inner_sandbox)]);
    flags.extend(plain.filter(|(_, given)| *given).map(|(name, _)| OsString::from(name)));
    let mut command = args.command.clone();
    if let Some(program) = command.first_mut() {
        let path = std::env::var_os("PATH");
        let found = world::program(program, path.as_ref());
        *program = found.ok_or_else(|| format!("{}: not found", program.display()))?.into_os_string();
    }
    Ok((flags, command))
}
