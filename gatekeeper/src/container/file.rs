//! The file tools, as the hidden command `__box file ACTION`. It runs confined, like every other command: paths mean what
//! they mean in the box, and a link to elsewhere leads nowhere. Takes JSON on standard input, prints text.

use serde::Deserialize;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The largest file to read or change.
pub const LARGEST: u64 = 8 << 20;

#[derive(Debug, Deserialize)]
struct Asked {
    #[serde(default)]
    path: PathBuf,
    /// The first line to read, from 1.
    offset: Option<usize>,
    /// How many lines to read.
    limit: Option<usize>,
    content: Option<String>,
    old: Option<String>,
    new: Option<String>,
    #[serde(default)]
    all: bool,
    patch: Option<String>,
}

pub fn main(action: &str) -> u8 {
    let mut text = String::new();
    let asked = io::stdin().take(LARGEST * 8).read_to_string(&mut text).map_err(|error| error.to_string());
    let asked = asked.and_then(|_| serde_json::from_str::<Asked>(&text).map_err(|error| error.to_string()));
    let done = asked.and_then(|asked| match action {
        "read" => read(&asked),
        "write" => write(&asked.path, asked.content.as_deref().unwrap_or_default()),
        "edit" => edit(&asked),
        "patch" => apply(asked.patch.as_deref().unwrap_or_default()),
        _ => Err(format!("unknown action {action}")),
    });
    match done {
        Ok(text) => u8::from(io::stdout().write_all(text.as_bytes()).is_err()),
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    }
}

fn whole(path: &Path) -> Result<String, String> {
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(wrong)?;
    let about = file.metadata().map_err(wrong)?;
    if !about.is_file() {
        return Err(format!("{}: not a regular file", path.display()));
    }
    if about.len() > LARGEST {
        return Err(format!("{}: larger than {LARGEST} bytes", path.display()));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8 text", path.display()))
}

fn read(asked: &Asked) -> Result<String, String> {
    let text = whole(&asked.path)?;
    if asked.offset.is_none() && asked.limit.is_none() {
        return Ok(text);
    }
    let lines = text.split_inclusive('\n').skip(asked.offset.unwrap_or(1).saturating_sub(1));
    Ok(lines.take(asked.limit.unwrap_or(usize::MAX)).collect())
}

fn write(path: &Path, text: &str) -> Result<String, String> {
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    if text.len() as u64 > LARGEST {
        return Err(format!("{}: larger than {LARGEST} bytes", path.display()));
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(wrong)?;
    }
    std::fs::write(path, text).map_err(wrong)?;
    Ok(format!("wrote {} bytes to {}\n", text.len(), path.display()))
}

fn edit(asked: &Asked) -> Result<String, String> {
    let path = &asked.path;
    let (old, new) = (asked.old.as_deref().unwrap_or_default(), asked.new.as_deref().unwrap_or_default());
    if old.is_empty() {
        return Err("old is empty: give the text to replace".to_owned());
    }
    let text = whole(path)?;
    let changed = match text.matches(old).count() {
        0 => return Err(format!("{}: old does not occur in it", path.display())),
        1 => text.replacen(old, new, 1),
        _ if asked.all => text.replace(old, new),
        count => {
            return Err(format!(
                "{}: old occurs {count} times; give more of the text around it, or all",
                path.display()
            ));
        }
    };
    write(path, &changed)
}

/// The lines before, and the lines after.
type Hunk = (Vec<String>, Vec<String>);

/// One file of a patch.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Add(PathBuf, String),
    Delete(PathBuf),
    Update { path: PathBuf, to: Option<PathBuf>, hunks: Vec<Hunk> },
}

/// Applies a patch in the form `*** Begin Patch`. All files are read and changed in memory first: if one hunk does not fit,
/// no file changes.
fn apply(patch: &str) -> Result<String, String> {
    let mut results: Vec<(PathBuf, Option<String>)> = Vec::new();
    for change in parsed(patch)? {
        match change {
            Change::Add(path, text) if path.exists() => {
                return Err(format!("{}: exists already ({} bytes given)", path.display(), text.len()));
            }
            Change::Add(path, text) => results.push((path, Some(text))),
            Change::Delete(path) if !path.is_file() => return Err(format!("{}: no such file", path.display())),
            Change::Delete(path) => results.push((path, None)),
            Change::Update { path, to, hunks } => {
                let text = changed(&whole(&path)?, &hunks).map_err(|error| format!("{}: {error}", path.display()))?;
                if let Some(to) = to {
                    results.push((path, None));
                    results.push((to, Some(text)));
                } else {
                    results.push((path, Some(text)));
                }
            }
        }
    }
    let mut told = String::new();
    for (path, text) in results {
        match text {
            Some(text) => told.push_str(&write(&path, &text)?),
            None => {
                std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                told.push_str(&format!("removed {}\n", path.display()));
            }
        }
    }
    Ok(told)
}

fn parsed(patch: &str) -> Result<Vec<Change>, String> {
    let mut lines = patch.lines().skip_while(|line| line.trim().is_empty()).peekable();
    if lines.next().map(str::trim) != Some("*** Begin Patch") {
        return Err("a patch starts with *** Begin Patch".to_owned());
    }
    let mut changes = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim() == "*** End Patch" {
            return Ok(changes);
        } else if let Some(path) = line.strip_prefix("*** Add File: ") {
            let added: Option<Vec<String>> =
                body(&mut lines).iter().map(|line| line.strip_prefix('+').map(str::to_owned)).collect();
            let added = added.ok_or_else(|| format!("{path}: each line of a new file starts with +"))?;
            changes.push(Change::Add(path.trim().into(), added.iter().map(|line| format!("{line}\n")).collect()));
        } else if let Some(path) = line.strip_prefix("*** Delete File: ") {
            changes.push(Change::Delete(path.trim().into()));
        } else if let Some(path) = line.strip_prefix("*** Update File: ") {
            let to = lines.next_if(|line| line.starts_with("*** Move to: "));
            let to = to.and_then(|line| line.strip_prefix("*** Move to: ")).map(|path| PathBuf::from(path.trim()));
            let hunks = hunks(&body(&mut lines)).map_err(|error| format!("{path}: {error}"))?;
            changes.push(Change::Update { path: path.trim().into(), to, hunks });
        } else if !line.trim().is_empty() {
            return Err(format!("unexpected line in the patch: {line:?}"));
        }
    }
    Err("the patch does not end with *** End Patch".to_owned())
}

/// The lines up to the next file of the patch.
fn body<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Vec<String> {
    let mut body = Vec::new();
    while let Some(line) = lines.next_if(|line| !line.starts_with("*** ") || *line == "*** End of File") {
        body.push(line.to_owned());
    }
    body
}

/// Each hunk as the lines before and the lines after.
fn hunks(body: &[String]) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for line in body.iter().filter(|line| *line != "*** End of File") {
        if line.starts_with("@@") || hunks.is_empty() {
            hunks.push((Vec::new(), Vec::new()));
        }
        if line.starts_with("@@") {
            continue;
        }
        let Some((before, after)) = hunks.last_mut() else { continue };
        match line.split_at_checked(1) {
            Some((" ", text)) => {
                before.push(text.to_owned());
                after.push(text.to_owned());
            }
            Some(("-", text)) => before.push(text.to_owned()),
            Some(("+", text)) => after.push(text.to_owned()),
            None => {
                before.push(String::new());
                after.push(String::new());
            }
            _ => return Err(format!("a line of a hunk starts with a blank, - or +: {line:?}")),
        }
    }
    hunks.retain(|(before, after)| !before.is_empty() || !after.is_empty());
    Ok(hunks)
}

fn changed(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut from = 0;
    for (before, after) in hunks {
        let fits = |at: &usize| lines.get(*at..at + before.len()).is_some_and(|there| there == before.as_slice());
        let at = if before.is_empty() { Some(lines.len()) } else { (from..=lines.len()).find(fits) };
        let at = at.ok_or_else(|| format!("these lines do not occur in it: {:?}", before.join("\n")))?;
        lines.splice(at..at + before.len(), after.iter().cloned());
        from = at + after.len();
    }
    let mut text = lines.join("\n");
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_adds_changes_moves_and_deletes_files_or_changes_nothing() {
        let patch = "*** Begin Patch\n*** Add File: a\n+one\n*** Update File: b\n*** Move to: c\n@@\n x\n-y\n+z\n*** Delete File: d\n*** End Patch\n";
        let update = Change::Update {
            path: "b".into(),
            to: Some("c".into()),
            hunks: vec![(vec!["x".to_owned(), "y".to_owned()], vec!["x".to_owned(), "z".to_owned()])],
        };
        assert_eq!(
            parsed(patch).expect("well formed"),
            [Change::Add("a".into(), "one\n".into()), update, Change::Delete("d".into())]
        );
        for wrong in [
            "",
            "*** Begin Patch\n*** Add File: a\none\n*** End Patch",
            "*** Begin Patch\n*** Add File: a\n+x\n",
            "*** Begin Patch\nx\n*** End Patch",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        let hunk = vec![(vec!["b".to_owned()], vec!["c".to_owned()])];
        assert_eq!(changed("a\nb\n", &hunk).expect("fits"), "a\nc\n");
        assert!(changed("a\n", &hunk).is_err());
    }
}
