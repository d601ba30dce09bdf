//! `--ask` and `--ask-fd`: who decides about refused calls.

use super::args::AskArgs;
use super::harmless;
use crate::policy::amend::amend;
use crate::report::Question;
use crate::request::{Ask, variable};
use crate::supervise::ask::hub::Answerer;
use crate::supervise::ask::lines::Lines;
use crate::supervise::ask::terminal::{Persist, Terminal};
use crate::sys::descriptors::duplicate;
use crate::trust::output::Output;
use crate::trust::{Hostile, open_regular};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How to ask, and what gives the answers.
pub type Answered = (Ask, Arc<dyn Answerer>);

/// What to ask, and who answers; `None` without the flags. `results`: the files that gatekeeper writes in this run.
pub fn asked(
    args: &AskArgs,
    config: Option<&Path>,
    results: impl IntoIterator<Item = PathBuf>,
) -> Result<Option<Answered>, String> {
    let answerer: Arc<dyn Answerer> = match (args.ask, args.ask_fd.as_slice()) {
        (false, []) if args.ask_timeout.is_some() => return Err("--ask-timeout needs --ask or --ask-fd".to_owned()),
        (false, []) => return Ok(None),
        (true, _) => Arc::new(terminal(config)?),
        (false, numbers) => {
            let name = numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
            let copies = numbers.iter().map(|number| duplicate(*number)).collect::<Result<Vec<_>, _>>();
            let copies = copies.map_err(|error| format!("--ask-fd {name}: {error}"))?;
            if let Some(stream) = copies.iter().find_map(|copy| shared_stream(copy.as_fd())) {
                return Err(format!(
                    "--ask-fd {name}: the command has it too, as its standard {stream}, and could forge questions or take \
                     answers; use a descriptor of its own"
                ));
            }
            Arc::new(Lines::new(copies).map_err(|error| format!("--ask-fd {name}: {error}"))?)
        }
    };
    let never = results.into_iter().map(absolute).chain(own_files(config)).collect();
    Ok(Some((Ask { patience: args.ask_timeout.unwrap_or(Ask::PATIENCE), never }, answerer)))
}

/// The standard stream that is the same file, socket or pipe. The command inherits those.
fn shared_stream(descriptor: BorrowedFd<'_>) -> Option<&'static str> {
    let file = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let streams = [("input", stdin.as_fd()), ("output", stdout.as_fd()), ("error", stderr.as_fd())];
    let own = file(descriptor);
    streams.into_iter().find(|(_, stream)| own.is_some() && file(*stream) == own).map(|(name, _)| name)
}

fn terminal(config: Option<&Path>) -> Result<Terminal, String> {
    let persist = config.map(|config| {
        let config = absolute(config.to_owned());
        Box::new(move |question: &Question| persist(&config, question)) as Box<Persist>
    });
    Terminal::open(persist, harmless).map_err(|error| {
        format!("--ask needs a terminal, and /dev/tty cannot be opened: {error}; without one use --ask-fd N")
    })
}

/// The policy file and gatekeeper's state, which no answer opens.
pub fn own_files(config: Option<&Path>) -> Vec<PathBuf> {
    config.map(Path::to_owned).into_iter().chain(state()).map(absolute).collect()
}

/// Where gatekeeper keeps its state.
fn state() -> impl Iterator<Item = PathBuf> {
    let environment: Vec<_> = std::env::vars_os().collect();
    let own = variable(&environment, "XDG_STATE_HOME").map(PathBuf::from);
    let home = variable(&environment, "HOME").map(|home| Path::new(home).join(".local/state"));
    own.into_iter().chain(home).map(|state| state.join("gatekeeper"))
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Adds the grant of a question to the policy file. The command may not write that file, but could have before.
fn persist(config: &Path, question: &Question) -> Result<String, String> {
    let line = question.allow_with_policy.as_deref().ok_or("no line of a policy grants just this")?;
    if line.starts_with("network.mode") || line.starts_with("profile") {
        return Err(format!("{line} would grant more than this question; write it by hand"));
    }
    let hostile = Hostile::here();
    let (mut file, _) = open_regular(config, &hostile).map_err(|error| error.to_string())?;
    let mode = file.metadata().map_or(0o644, |meta| meta.permissions().mode() & 0o777);
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| error.to_string())?;
    let text = amend(&text, line, config)?;
    let mut out = Output::open(config, &hostile).map_err(|error| error.to_string())?;
    out.write(text.as_bytes(), mode).map_err(|error| error.to_string())?;
    Ok(format!("for this run, and {line} is in {}", config.display()))
}
