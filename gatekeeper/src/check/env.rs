//! `#!/usr/bin/env X`: which program env(1) of GNU coreutils would execute.
//!
//! Takes env's arguments, gives X with its arguments if env would only execute it. If env changes the environment, or does
//! something that cannot be predicted, env itself has to run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[derive(Debug, PartialEq, Eq)]
pub enum Followed {
    /// The argv of the program that env executes.
    To(Vec<OsString>),
    /// env does more than execute; the argv of the program, if it is known.
    Changes(Option<Vec<OsString>>),
}

/// `words`: env's arguments, without its own name.
pub fn follow(words: &[OsString]) -> Followed {
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let (mut at, mut changes) = (0, false);
    // Each -S is replaced by its parts. A script line has 256 bytes, so the loop ends.
    for _ in 0..1024 {
        let Some(word) = words.get(at).cloned() else { return Followed::Changes(None) };
        if let Some(line) = split_string(&word, words.get(at + 1)) {
            let (line, used) = line;
            let Some(parts) = split(&line) else { return Followed::Changes(None) };
            words.splice(at..(at + used).min(words.len()), parts);
            continue;
        }
        match word.as_slice() {
            b"-v" | b"--debug" => at += 1,
            b"--" => {
                at += 1;
                break;
            }
            b"-" | b"-i" | b"--ignore-environment" => (at, changes) = (at + 1, true),
            b"-u" | b"--unset" | b"-C" | b"--chdir" => (at, changes) = (at + 2, true),
            [b'-', ..] => return Followed::Changes(None),
            _ => break,
        }
    }
    while words.get(at).is_some_and(|word| word.contains(&b'=')) {
        (at, changes) = (at + 1, true);
    }
    let rest: Vec<OsString> = words.into_iter().skip(at).map(OsString::from_vec).collect();
    match (rest.is_empty(), changes) {
        (true, _) => Followed::Changes(None),
        (false, true) => Followed::Changes(Some(rest)),
        (false, false) => Followed::To(rest),
    }
}

pub fn is_env(name: &OsStr) -> bool {
    name.as_bytes().rsplit(|byte| *byte == b'/').next() == Some(b"env")
}

/// The text that -S splits, and how many words it occupies.
fn split_string(word: &[u8], next: Option<&Vec<u8>>) -> Option<(Vec<u8>, usize)> {
    let attached = |rest: &[u8]| match (rest.is_empty(), next) {
        (false, _) => (rest.to_vec(), 1),
        (true, next) => (next.cloned().unwrap_or_default(), 2),
    };
    if let Some(rest) = word.strip_prefix(b"-S") {
        return Some(attached(rest));
    }
    if let Some(rest) = word.strip_prefix(b"-vS") {
        return Some(attached(rest));
    }
    match word.strip_prefix(b"--split-string") {
        Some([]) => Some(attached(b"")),
        Some([b'=', rest @ ..]) => Some((rest.to_vec(), 1)),
        _ => None,
    }
}

/// The words of an -S line; `None` if env would fail or expand a variable.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (_, Some(open)) if byte == open => quote = None,
            (b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r', None) => words.extend(word.take()),
            (b'#', None) if word.is_none() => break,
            (b'$', None | Some(b'"')) => return None,
            (b'\\', quote) => match escape(bytes.next()?, quote)? {
                Escaped::Byte(byte) => word.get_or_insert_default().push(byte),
                Escaped::Raw(byte) => word.get_or_insert_default().extend([b'\\', byte]),
                Escaped::Gap => words.extend(word.take()),
                Escaped::End => break,
            },
            _ => word.get_or_insert_default().push(byte),
        }
    }
    if quote.is_some() && bytes.next().is_none() {
        return None;
    }
    words.extend(word);
    Some(words)
}

enum Escaped {
    Byte(u8),
    /// The backslash stays.
    Raw(u8),
    /// A separator of words.
    Gap,
    /// The rest of the line is ignored.
    End,
}

fn escape(byte: u8, quote: Option<u8>) -> Option<Escaped> {
    if quote == Some(b'\'') {
        return Some(if matches!(byte, b'\\' | b'\'') { Escaped::Byte(byte) } else { Escaped::Raw(byte) });
    }
    Some(match byte {
        b'"' | b'#' | b'$' | b'\'' | b'\\' => Escaped::Byte(byte),
        b'_' if quote.is_none() => Escaped::Gap,
        b'_' => Escaped::Byte(b' '),
        b'c' if quote.is_none() => Escaped::End,
        b'f' => Escaped::Byte(0x0c),
        b'n' => Escaped::Byte(b'\n'),
        b'r' => Escaped::Byte(b'\r'),
        b't' => Escaped::Byte(b'\t'),
        b'v' => Escaped::Byte(0x0b),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_words(words: &[&str]) -> Followed {
        follow(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn to(words: &[&str]) -> Followed {
        Followed::To(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn one_word_is_the_program_even_with_a_blank_in_it() {
        assert_eq!(follow_words(&["python3", "./x"]), to(&["python3", "./x"]));
        assert_eq!(follow_words(&["python3 -u", "./x"]), to(&["python3 -u", "./x"]));
        assert_eq!(follow_words(&["--", "python3", "./x"]), to(&["python3", "./x"]));
    }

    #[test]
    fn split_lines_are_split_as_env_splits_them() {
        assert_eq!(follow_words(&["-S python3 -u", "./x"]), to(&["python3", "-u", "./x"]));
        assert_eq!(follow_words(&["-Sawk -f", "./x"]), to(&["awk", "-f", "./x"]));
        assert_eq!(follow_words(&["-vS awk -f", "./x"]), to(&["awk", "-f", "./x"]));
        assert_eq!(
            follow_words(&["--split-string=a 'b  c' \"d e\" f\\_g", "./x"]),
            to(&["a", "b  c", "d e", "f", "g", "./x"])
        );
        assert_eq!(follow_words(&["-S a \\# # not this", "./x"]), to(&["a", "#", "./x"]));
        assert_eq!(follow_words(&["-S a b\\c c d", "./x"]), to(&["a", "b", "./x"]));
        assert_eq!(follow_words(&["-S -S a\\ b", "./x"]), Followed::Changes(None));
    }

    #[test]
    fn what_changes_the_environment_is_not_followed() {
        let changed = |words: &[&str]| Followed::Changes(Some(words.iter().map(OsString::from).collect()));
        assert_eq!(follow_words(&["-S A=1 prog", "./x"]), changed(&["prog", "./x"]));
        assert_eq!(follow_words(&["-i", "./x"]), changed(&["./x"]));
        assert_eq!(follow_words(&["-S -u HOME prog", "./x"]), changed(&["prog", "./x"]));
        assert_eq!(follow_words(&["-S ${SHELL} -e", "./x"]), Followed::Changes(None));
        assert_eq!(follow_words(&["--frobnicate", "./x"]), Followed::Changes(None));
        assert_eq!(follow_words(&[]), Followed::Changes(None));
    }
}
