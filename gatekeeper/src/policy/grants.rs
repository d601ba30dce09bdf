//! The grants that a denial suggests in `allow_with`, such as `--write '/a b' --allow mkdir`, parsed as a policy.
//!
//! The text may come from an edited report or from a client of the tool server, so the grammar is strict: plain words,
//! single quotes, and only flags that grant.

use super::{Document, HttpRule, NetworkMode, values};

/// Parses a line of grants. Other flags of `run` are errors.
pub fn parse(line: &str) -> Result<Document, String> {
    let words = split(line)?;
    let mut grants = Document::default();
    let (pairs, rest) = words.as_chunks::<2>();
    let joined = words.iter().step_by(2).find_map(|flag| flag.split_once('=').filter(|_| flag.starts_with("--")));
    if let Some((flag, value)) = joined {
        return Err(format!("{flag}={value}: flag and value are two words, as in `{flag} {value}`"));
    }
    for [flag, value] in pairs {
        add(&mut grants, flag, value)?;
    }
    match rest {
        [] => Ok(grants),
        [flag, ..] => Err(format!("{flag} has no value")),
    }
}

fn add(grants: &mut Document, flag: &str, value: &str) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{flag} {value:?}: {error}");
    match flag {
        "--profile" => {
            let profiles = values::profiles(value).map_err(|error| wrong(&error))?;
            grants.profile = values::union(grants.profile.take(), Some(profiles));
        }
        "--allow" => grants.syscalls.allow.extend(values::syscalls(value).map_err(|error| wrong(&error))?),
        "--read" => grants.paths.also_read.push(values::path(value).map_err(|error| wrong(&error))?),
        "--write" => grants.paths.write.push(values::path(value).map_err(|error| wrong(&error))?),
        "--unix" => grants.network.unix.push(values::path(value).map_err(|error| wrong(&error))?),
        "--net" => grants.network.mode = Some(value.parse::<NetworkMode>().map_err(|error| wrong(&error))?),
        "--http" => grants.network.http.push(value.parse::<HttpRule>().map_err(|error| wrong(&error))?),
        "--port" => match value.parse::<u16>() {
            Ok(port @ 1..) => grants.network.ports.push(port),
            _ => return Err(wrong(&"not a port from 1 to 65535")),
        },
        other => return Err(format!("{other:?} is not a grant")),
    }
    Ok(())
}

/// Splits a line into words as a shell would. Other characters that are special to a shell are errors.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' => words.extend(word.take()),
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => text.push(letter),
                        None => return Err(format!("a quote is not closed in {line:?}")),
                    }
                }
            }
            '\\' => match letters.next() {
                Some('\'') => word.get_or_insert_default().push('\''),
                _ => return Err(format!("a backslash that quotes no quote in {line:?}")),
            },
            letter if is_plain(letter) => word.get_or_insert_default().push(letter),
            letter => return Err(format!("{letter:?} is not quoted in {line:?}")),
        }
    }
    words.extend(word);
    Ok(words)
}

fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || "-_./=:,@%+".contains(letter)
}

/// Quotes words so that a shell and [`parse`] read back the same words.
pub fn quoted<W: AsRef<std::ffi::OsStr>>(words: &[W]) -> String {
    let quote = |word: &W| {
        let text = word.as_ref().to_string_lossy();
        let plain = !text.is_empty() && text.chars().all(|letter| letter.is_ascii() && is_plain(letter));
        if plain { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Profile;
    use std::path::PathBuf;

    #[test]
    fn quoted_words_come_back_as_they_were() {
        for words in [
            vec!["--write", "/a b"],
            vec!["--write", "/it's", "--write", "/x --profile unrestricted"],
            vec!["--write", "/line\nbreak", "--allow", "mkdir"],
            vec!["--read", "/$HOME/`x`/\\"],
            vec!["--write", "/a\"b", "--read", "/ü", "--read", ""],
        ] {
            assert_eq!(split(&quoted(&words)).expect("it was quoted"), words);
        }
    }

    #[test]
    fn each_grant_is_read() {
        let line = "--profile write --profile network --allow mkdir:@file-read --read /r --write '/w w' --unix /s --port 80 --port 443";
        let grants = parse(line).expect("grants");
        assert_eq!(grants.profile, Some(vec![Profile::Write, Profile::Network]));
        assert_eq!(grants.syscalls.allow, ["mkdir", "@file-read"]);
        assert_eq!(grants.paths.also_read, [PathBuf::from("/r")]);
        assert_eq!(grants.paths.write, [PathBuf::from("/w w")]);
        assert_eq!(grants.network.unix, [PathBuf::from("/s")]);
        assert_eq!(grants.network.ports, [80, 443]);
        assert_eq!(parse("--net loopback").expect("a grant").network.mode, Some(NetworkMode::Loopback));
        assert_eq!(parse("").expect("nothing"), Document::default());
    }

    #[test]
    fn anything_else_is_an_error() {
        for line in [
            "--write '/open",
            "--write $HOME",
            "--write \"/x\"",
            "--write a\\b",
            "--write a;b",
            "--write",
            "--deny mkdir",
            "--config /x",
            "--write=/x",
            "/x",
            "--net somewhere",
            "--allow no_such_call",
            "--port 70000",
            "--port 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["--write=out/", "--read /r --write=out/", "--write=out/ --read /r"] {
            let error = parse(line).expect_err("joined");
            assert_eq!(error, "--write=out/: flag and value are two words, as in `--write out/`");
        }
    }
}
