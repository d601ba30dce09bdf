//! A policy grown from the denials of a report: each record names the flags that would let it through.
//!
//! A report may come from anywhere. Only flags that grant a little are taken; what would take the sandbox away is not.

use super::{Learned, merged};
use crate::policy::{Document, NetworkMode, Profile, values};
use crate::supervise::told::Told;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FromDenialsError {
    #[error("the report's remedy '{0}' is not one that gatekeeper writes")]
    Foreign(String),
}

pub fn from_denials(told: &Told, old: Document) -> Result<Learned, FromDenialsError> {
    let mut document = old;
    let mut notes = Vec::new();
    for denial in &told.denials {
        let Some(flags) = &denial.allow_with else {
            notes.push(format!("stays denied: {} ({})", denial.syscall, denial.rule));
            continue;
        };
        let grown = words(flags).and_then(|words| grown(&words));
        let mut grown = grown.ok_or_else(|| FromDenialsError::Foreign(flags.clone()))?;
        if grown.profile.iter().flatten().any(|profile| matches!(profile, Profile::Unrestricted | Profile::Custom)) {
            notes.push(format!(
                "stays denied: {} ({}), because only {flags} would allow it",
                denial.syscall, denial.rule
            ));
            continue;
        }
        // A file has no flag's `--read`: there the list of what may be read names it, with everything else.
        let also = std::mem::take(&mut grown.paths.also_read);
        if !also.is_empty() {
            document.paths.read.get_or_insert_with(|| vec![PathBuf::from("/")]).extend(also);
        }
        document = merged(Learned { document: grown, notes: Vec::new(), credentials: Vec::new() }, document);
    }
    Ok(Learned { document, notes, credentials: Vec::new() })
}

/// The flags that a remedy may hold, as a policy.
fn grown(words: &[String]) -> Option<Document> {
    let mut document = Document::default();
    let (pairs, []) = words.as_chunks::<2>() else { return None };
    for [flag, value] in pairs {
        match flag.as_str() {
            "--profile" => document.profile = Some(values::profiles(value).ok()?),
            "--allow" => document.syscalls.allow.extend(values::syscalls(value).ok()?),
            "--read" => document.paths.also_read.push(values::path(value).ok()?),
            "--write" => document.paths.write.push(values::path(value).ok()?),
            "--unix" => document.network.unix.push(values::path(value).ok()?),
            "--net" => document.network.mode = Some(value.parse::<NetworkMode>().ok()?),
            _ => return None,
        }
    }
    Some(document)
}

/// Words as `plan::steps::shown` quotes them; `None` for anything else that a shell would understand.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(next) = letters.next_if(|letter| *letter != ' ').or_else(|| letters.find(|letter| *letter != ' ')) {
        let mut word = String::new();
        let mut letter = Some(next);
        while let Some(now) = letter {
            match now {
                ' ' => break,
                '\'' => loop {
                    match letters.next()? {
                        '\'' => break,
                        inside => word.push(inside),
                    }
                },
                '\\' => word.push(letters.next().filter(|escaped| *escaped == '\'')?),
                '"' | '$' | '`' | ';' | '|' | '&' | '<' | '>' | '\n' => return None,
                plain => word.push(plain),
            }
            letter = letters.next();
        }
        words.push(word);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::steps::shown;
    use std::ffi::OsString;

    #[test]
    fn what_was_quoted_is_read_back() {
        for path in ["/a", "/a b", "/it's", "/a\"b", "/$x;y", "/''", "/ü"] {
            let text = format!("--write {} --read /x", shown(&[OsString::from(path)]));
            assert_eq!(words(&text), Some(vec!["--write".into(), path.into(), "--read".into(), "/x".into()]), "{text}");
        }
        assert_eq!(words("--write 'open"), None);
        assert_eq!(words("--write /a; rm"), None);
        assert_eq!(words(""), Some(Vec::new()));
    }
}
