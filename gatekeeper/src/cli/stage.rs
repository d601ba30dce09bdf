//! `gatekeeper stage`: lists stages, prints their changes, takes them over or throws them away.

use super::args::{ProtectedAction, StageArgs, StageCommand};
use super::{EXIT_ERROR, complain, failed, harmless, output, write_out};
use crate::policy::print;
use crate::stage::patch::{Form, TORN, quoted};
use crate::stage::{Applied, Listed, Patch, Protected, Stage, StageError, Store};
use crate::trust::Hostile;
use crate::trust::program;
use serde_json::json;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

pub fn main(args: &StageArgs) -> u8 {
    let done = match &args.command {
        StageCommand::List { json } => list(*json),
        StageCommand::Diff { name, json, stat } => diff(name, *json, *stat),
        StageCommand::Apply { name, paths, protected } => apply(name, paths, *protected),
        StageCommand::Discard { name } => Store::of_this_process().and_then(|store| store.discard(name)).map(|()| 0),
        StageCommand::Prune { older } => prune(*older),
    };
    done.unwrap_or_else(failed)
}

fn list(as_json: bool) -> Result<u8, StageError> {
    let stages = Store::of_this_process()?.list(&warn)?;
    if as_json {
        let entry = |stage: &Listed| {
            json!({"name": stage.name, "cwd": stage.tree.to_string_lossy(), "age": stage.age.as_secs(), "changes": stage.changes,
                   "size": stage.size, "means": stage.means.word(), "in_use_by": stage.holder})
        };
        let all: Vec<_> = stages.iter().map(entry).collect();
        return Ok(write_out(None, format!("{:#}\n", json!(all)).as_bytes()));
    }
    let mut rows = vec![["NAME", "WORKING DIRECTORY", "AGE", "CHANGES", "SIZE"].map(str::to_owned)];
    rows.extend(stages.iter().map(|stage| {
        let changes = match stage.holder {
            Some(_) => format!("{} (in use)", stage.changes),
            None => stage.changes.to_string(),
        };
        [stage.name.clone(), harmless(&stage.tree.to_string_lossy()), age(stage.age), changes, size(stage.size)]
    }));
    if stages.is_empty() {
        return Ok(0);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 5]| {
        let [name, tree, age, changes, size] = row;
        let [a, b, c, d] = widths;
        format!("{name:a$}  {tree:b$}  {age:>c$}  {changes:>d$}  {size}\n")
    };
    Ok(output::print(&rows.iter().map(line).collect::<String>()))
}

/// The largest unit only: `3d`, `5m`.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    units
        .into_iter()
        .find(|(length, _)| seconds >= *length)
        .map_or_else(|| format!("{seconds}s"), |(length, unit)| format!("{}{unit}", seconds / length))
}

fn size(bytes: u64) -> String {
    // Whole kibibytes: the file system counts blocks.
    print::size(bytes.div_ceil(1024) * 1024).trim_matches('"').to_owned()
}

fn diff(name: &str, json: bool, stat: bool) -> Result<u8, StageError> {
    let stage = Stage::open(name)?;
    let form = match (json, stat) {
        (true, _) => Form::Json,
        (_, true) => Form::Stat,
        _ => Form::Text,
    };
    let torn = stage.may_be_torn()?;
    let patch = stage.diff(form)?;
    drop(stage);
    if torn {
        complain(format_args!("warning: stage {name}: {TORN}"));
    }
    for path in &patch.special {
        complain(format_args!("warning: {} is a FIFO, socket or device, which a stage does not keep", quoted(path)));
    }
    let Patch { changes, notes, text, json: entries, stat: lines, .. } = patch;
    let text = match form {
        Form::Json => format!("{:#}\n", json!(entries)).into_bytes(),
        Form::Stat => lines.into_bytes(),
        Form::Text => [notes.into_bytes(), text].concat(),
    };
    let shown = match std::io::stdout().is_terminal() && form != Form::Json {
        true => show(&coloured(&text)),
        false => write_out(None, &text),
    };
    Ok(if shown != 0 { EXIT_ERROR } else { u8::from(changes > 0) })
}

/// For a terminal: colours, and no control character of a file gets through.
fn coloured(patch: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    let patch = String::from_utf8_lossy(patch);
    // Not `lines`, which hides a carriage return at the end of a line.
    for line in patch.strip_suffix('\n').unwrap_or(&patch).split('\n').filter(|_| !patch.is_empty()) {
        let line = harmless_line(line);
        let colour = match line.as_bytes().first() {
            _ if line.starts_with("diff --git ") || line.starts_with("+++ ") || line.starts_with("--- ") => "1",
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            Some(b'#') => "33",
            _ => "0",
        };
        text.push_str(&format!("\x1b[{colour}m{line}\x1b[0m\n"));
    }
    text.into_bytes()
}

/// Escapes control characters other than the tab.
fn harmless_line(line: &str) -> String {
    line.split('\t').map(harmless).collect::<Vec<_>>().join("\t")
}

/// Shows text in less(1), if it is installed in a system directory; otherwise prints it.
fn show(text: &[u8]) -> u8 {
    let path = std::env::var_os("PATH");
    let Ok(less) = program::find(OsStr::new("less"), path.as_deref(), &Hostile::here()) else {
        return write_out(None, text);
    };
    let started =
        Command::new(less).args(["-F", "-R", "-X"]).env_clear().envs(terminal()).stdin(Stdio::piped()).spawn();
    let Ok(mut pager) = started else { return write_out(None, text) };
    if let Some(mut input) = pager.stdin.take() {
        // The user may leave the pager before the end.
        let _ = input.write_all(text);
    }
    let _ = pager.wait();
    0
}

/// The variables by which less knows the terminal. Others, such as LESSOPEN, start programs.
fn terminal() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    ["TERM", "LANG", "LC_ALL", "LC_CTYPE", "COLUMNS", "LINES"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)))
        .chain([("LESSSECURE", "1".into())])
}

fn apply(name: &str, paths: &[PathBuf], protected: ProtectedAction) -> Result<u8, StageError> {
    let protected = match protected {
        ProtectedAction::Refuse => Protected::Refuse,
        ProtectedAction::Skip => Protected::Skip,
        ProtectedAction::Take => Protected::Take,
    };
    match Stage::open(name)?.apply(paths, protected)? {
        Applied::Done { taken, left } => {
            let s = if taken == 1 { "" } else { "s" };
            let rest = if left == 0 { String::new() } else { format!(", {left} left in stage {name}") };
            Ok(output::print(&format!("{taken} change{s} applied{rest}\n")))
        }
        Applied::Conflicts(conflicts) => {
            for conflict in &conflicts {
                complain(format_args!("conflict: {}: {}", quoted(&conflict.path), conflict.why));
            }
            complain(format_args!(
                "nothing was applied. Name the other paths to apply only them, or discard the stage and run the command again"
            ));
            Ok(1)
        }
        Applied::Protected(paths) => {
            for path in &paths {
                complain(format_args!("protected: {}", quoted(path)));
            }
            complain(format_args!(
                "nothing was applied: these files decide what other programs run or trust. To leave them out, --protected \
                 skip; to take them after you have read them, --protected take"
            ));
            Ok(EXIT_ERROR)
        }
    }
}

fn warn(name: &str, error: &StageError) {
    let (error, discard) = (harmless(&error.to_string()), format!("gatekeeper stage discard {name} removes it"));
    // Most errors say one or both already.
    let whose = if error.starts_with(&format!("stage {name}")) { String::new() } else { format!("stage {name}: ") };
    let next = if error.contains(&discard) { String::new() } else { format!("; {discard}") };
    complain(format_args!("warning: {whose}{error}{next}"));
}

fn prune(older: Duration) -> Result<u8, StageError> {
    let store = Store::of_this_process()?;
    let mut text = String::new();
    for stage in store.list(&warn)?.into_iter().filter(|stage| stage.age > older && stage.holder.is_none()) {
        store.stage(&stage.name)?.discard()?;
        text.push_str(&format!("{} discarded\n", stage.name));
    }
    Ok(output::print(&text))
}
