//! `gatekeeper serve`: runs commands for a program, by JSON lines. The program decides what each may do, with the flags of `run`.

use super::args::{PolicyArgs, RunArgs, ServeArgs};
use super::output::absolute_audit_file;
use super::run::{request_for, staging};
use super::{failed, setup_failed};
use crate::request::{Ask, Asked, Request, Staging};
use crate::serve::{self, Order, order};
use crate::sys;
use crate::warden;
use clap::Parser;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub fn main(args: &ServeArgs) -> u8 {
    if let Err(error) = sys::process::set_not_dumpable() {
        return setup_failed(format_args!("serve: cannot protect this process from the commands it runs: {error}"));
    }
    warden::stay_as_it_is();
    sys::memory::for_runs();
    let flags = Flags { socket: args.socket.as_deref().and_then(real), ..Flags::default() };
    let requests: serve::Requests = Arc::new(move |order| flags.request(order));
    let served = match &args.socket {
        Some(path) => serve::on_socket(path, requests),
        None => serve::on_stdio(requests),
    };
    match served {
        Ok(()) => 0,
        Err(error) => failed(format_args!("serve: {error}")),
    }
}

/// The real path of a socket file that may not exist yet. Without a directory for it, the server does not start.
fn real(socket: &Path) -> Option<PathBuf> {
    let whole = std::path::absolute(socket).ok()?;
    Some(whole.parent()?.canonicalize().ok()?.join(whole.file_name()?))
}

/// Parsed flags. Building clap's parser takes longer than starting a command, and clients send the same flags again and again.
#[derive(Default)]
struct Flags {
    known: Mutex<HashMap<Vec<String>, Arc<Parsed>>>,
    /// The socket file of this server.
    socket: Option<PathBuf>,
}

struct Parsed {
    policy: PolicyArgs,
    keep_tmp: bool,
    stage: Option<Staging>,
    audit: Option<PathBuf>,
    /// `--ask`.
    ask: bool,
    ask_timeout: Option<Duration>,
}

/// How many lists of flags are remembered.
const REMEMBERED: usize = 256;

#[derive(Parser)]
#[command(no_binary_name = true)]
struct OnlyFlags {
    #[command(flatten)]
    run: RunArgs,
}

impl Flags {
    fn request(&self, order: &Order) -> Result<Request, String> {
        let parsed = self.parsed(&order.flags)?;
        let asked = match &order.asked {
            order::Asked::Argv(words) => Asked::Command(words.iter().map(OsString::from).collect()),
            order::Asked::Line(line) => Asked::Line(line.into()),
        };
        let mut policy = parsed.policy.clone();
        if order.cwd.is_some() && policy.cwd.is_some() {
            return Err("cwd: also given by the flag --cwd".to_owned());
        }
        policy.cwd = order.cwd.clone().or(policy.cwd);
        policy.env.extend(order.env.iter().map(|(name, value)| format!("{name}={value}")));
        let stage = parsed.stage.clone();
        let audit = absolute_audit_file(parsed.audit.as_ref())?;
        let asks = order.ask || parsed.ask;
        if parsed.ask_timeout.is_some() && !asks {
            return Err("flags: --ask-timeout needs --ask, or \"ask\": true".to_owned());
        }
        let ask = asks.then(|| {
            let mut never = super::ask::own_files(parsed.policy.syscalls.config.as_deref());
            never.extend(audit.clone());
            Ask { patience: parsed.ask_timeout.unwrap_or(Ask::PATIENCE), never }
        });
        let (keep_tmp, socket) = (parsed.keep_tmp, self.socket.clone());
        Ok(Request { ask, keep_tmp, stage, audit, socket, ..request_for(&policy, asked, true)? })
    }

    fn parsed(&self, flags: &[String]) -> Result<Arc<Parsed>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parsed) = known.get(flags) {
            return Ok(parsed.clone());
        }
        let parsed = Arc::new(parse(flags)?);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(flags.to_vec(), parsed.clone());
        Ok(parsed)
    }
}

/// Stands for the command, which the flags come before.
const COMMAND: &str = "command";

fn parse(flags: &[String]) -> Result<Parsed, String> {
    let words = flags.iter().map(String::as_str).chain(["--", COMMAND]);
    let OnlyFlags { run } = OnlyFlags::try_parse_from(words).map_err(|error| {
        if let Some(flag) = flags.iter().find(|flag| ["--help", "-h", "--version", "-V"].contains(&flag.as_str())) {
            return format!(
                "flags: {flag} does not belong here: the flags of `gatekeeper run` that say what the command may do are \
                 expected, such as --profile write; `gatekeeper run --help` lists them"
            );
        }
        let text = error.render().to_string();
        let first = text
            .lines()
            .take_while(|line| !line.starts_with("Usage"))
            .filter(|line| !line.is_empty())
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ");
        format!("flags: {}", first.strip_prefix("error: ").unwrap_or(&first))
    })?;
    let RunArgs { policy, reporting, json, spill, keep_tmp, stage, stage_limit, asking, env_fd, line, command } = run;
    let senseless = [
        (reporting.report.is_some(), "--report"),
        (reporting.report_fd.is_some(), "--report-fd"),
        (reporting.quiet, "--quiet"),
        (json, "--json"),
        (spill.is_some(), "--spill"),
    ];
    if let Some((_, flag)) = senseless.into_iter().find(|(given, _)| *given) {
        return Err(format!("flags: {flag} is for `gatekeeper run`: here the report is the answer"));
    }
    if !asking.ask_fd.is_empty() {
        return Err(
            "flags: --ask-fd is for `gatekeeper run`: here questions come as lines, with \"ask\": true".to_owned()
        );
    }
    if env_fd.is_some() {
        return Err("flags: --env-fd is for `gatekeeper run`: here variables are in env".to_owned());
    }
    if line.is_some() || command != [COMMAND] {
        return Err("flags: only flags belong here; the command is in argv, a shell line in line".to_owned());
    }
    let stage = staging(stage.as_ref(), stage_limit, false);
    let audit = reporting.audit;
    Ok(Parsed { policy, keep_tmp, stage, audit, ask: asking.ask, ask_timeout: asking.ask_timeout })
}
