//! What can be wrong with a policy. Each error holds the place, the offending value and the nearest valid one. Their
//! texts are written here.

use sandbox_contract::nearest::nearest_of;
use std::fmt;
use std::path::PathBuf;

/// Why there is no policy. After any of these the run is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    #[error("{}cannot read {}: {source}", Before(place), Shown(&file.to_string_lossy()))]
    Read { place: Option<Place>, file: PathBuf, source: std::io::Error },
    #[error("{}{} is a {kind}, not a policy file", Before(place), Shown(&file.to_string_lossy()))]
    NotAFile { place: Option<Place>, file: PathBuf, kind: &'static str },
    #[error("{} is larger than {limit} bytes", Shown(&file.to_string_lossy()))]
    TooLarge { file: PathBuf, limit: usize },
    #[error("{place}:{}: {}", place.column, Shown(message))]
    Syntax { place: Place, message: String },
    #[error("{place}: unknown key '{}'{}", Shown(key), Hint(nearest, known))]
    UnknownKey { place: Place, key: String, nearest: Option<String>, known: &'static [&'static str] },
    #[error("{place}: '{}' is given twice", Shown(key))]
    Twice { place: Place, key: String },
    #[error("{place}: {} must be {expected}, not {found}", Shown(key))]
    Type { place: Place, key: String, expected: &'static str, found: &'static str },
    #[error("{place}: {} needs '{missing}'", if key.is_empty() { "the file" } else { key })]
    Missing { place: Place, key: String, missing: &'static str },
    /// `place` is `None` if the value came from a flag.
    #[error("{}{}: {error}", Before(place), Shown(key))]
    Value { place: Option<Place>, key: String, error: Box<ValueError> },
    #[error("{place}: extends: {} is extended again: a loop", Shown(&file.to_string_lossy()))]
    Circle { place: Place, file: PathBuf },
    #[error("{place}: extends: more than {limit} files deep")]
    TooDeep { place: Place, limit: usize },
    #[error("{}: more than {limit} rules, together with what it extends", Shown(&file.to_string_lossy()))]
    TooManyRules { file: PathBuf, limit: usize },
    /// The base file was never read, so its denials would be missing.
    #[error("extends: {} was not read", Shown(&file.to_string_lossy()))]
    NotExtended { file: PathBuf },
    /// `tools.exec.enabled = false`: the policy refuses every command.
    #[error("{place}: exec is disabled by this policy")]
    ExecDisabled { place: Place },
    /// Each value is valid, but not their combination.
    #[error("{}{why}", sources.last().map(|file| format!("{}: ", Shown(&file.to_string_lossy()))).unwrap_or_default())]
    Together { sources: Vec<PathBuf>, why: &'static str },
    #[error("{key}: {} is not UTF-8, which a policy file cannot hold", Shown(&path.to_string_lossy()))]
    Unprintable { key: &'static str, path: PathBuf },
}

/// Where in a file, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Shown(&self.file.to_string_lossy()), self.line)
    }
}

/// An invalid value, from a file or a flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    #[error("unknown {what} '{}'{}", Shown(word), Hint(nearest, known))]
    Unknown { what: &'static str, word: String, nearest: Option<String>, known: Vec<&'static str> },
    #[error("{} has no syscall '{name}'{}", std::env::consts::ARCH, Hint(nearest, &[]))]
    NoNumber { name: String, nearest: Option<String> },
    #[error("{what} '{}': {why}", Shown(value))]
    Unusable { what: &'static str, value: String, why: &'static str },
    #[error("{value} {}", Range(*least, *most))]
    OutOfRange { value: i128, least: u64, most: u64 },
    /// A size that is too small for any program, probably because the unit is missing.
    #[error("{bytes} bytes is too small for any program; the least is {least}; {}", instead(*bytes))]
    Bytes { bytes: u64, least: u64 },
    /// The same for a limit that may be 0.
    #[error("{bytes} bytes is too small for a {what}; the least is {least}, or 0 for none; did you mean {bytes}M?")]
    FewBytes { bytes: u64, what: &'static str, least: u64 },
    /// A host name in place of a network mode.
    #[error("unknown network mode '{}'; to reach that host alone, write hosts={}", Shown(.0), Shown(.0))]
    Host(String),
    #[error("{0}")]
    Conflict(&'static str),
}

/// What a size that is too small for a program probably stands for.
fn instead(bytes: u64) -> String {
    match bytes {
        0 => "for no limit, leave it out".to_owned(),
        _ => format!("did you mean {bytes}M?"),
    }
}

impl ValueError {
    pub(crate) fn unusable(what: &'static str, value: &str, why: &'static str) -> ValueError {
        ValueError::Unusable { what, value: value.to_owned(), why }
    }

    pub(crate) fn unknown(what: &'static str, word: &str, known: Vec<&'static str>) -> ValueError {
        ValueError::Unknown { what, word: word.to_owned(), nearest: nearest(word, &known), known }
    }
}

/// The known word nearest to a misspelt one.
pub(crate) fn nearest(word: &str, known: &[&'static str]) -> Option<String> {
    if let Some(same) = known.iter().find(|known| known.eq_ignore_ascii_case(word)) {
        return Some((*same).to_owned());
    }
    let word = nearest_of(word.as_bytes(), known.iter().copied())?;
    Some(String::from_utf8_lossy(word.as_bytes()).into_owned())
}

/// Text from a file, safe to print on a terminal and short enough for one line.
struct Shown<'a>(&'a str);

const SHOWN: usize = 160;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, letter) in self.0.chars().enumerate() {
            if count == SHOWN {
                return f.write_str("...");
            }
            let odd = drives_terminal(letter);
            if odd { write!(f, "{}", letter.escape_default())? } else { write!(f, "{letter}")? }
        }
        Ok(())
    }
}

/// Whether a character could move the cursor or reverse the line, or is not seen at all. Letters of every script are safe.
pub fn drives_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The valid range of a number. An upper limit of `u64::MAX` is not mentioned.
struct Range(u64, u64);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range(least, u64::MAX) => write!(f, "is too small; the least is {least}"),
            Range(least, most) => write!(f, "is not between {least} and {most}"),
        }
    }
}

struct Before<'a>(&'a Option<Place>);

impl fmt::Display for Before<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |place| write!(f, "{place}: "))
    }
}

/// The nearest known word, or else all of them.
struct Hint<'a>(&'a Option<String>, &'a [&'static str]);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(nearest), _) => write!(f, "; did you mean '{nearest}'?"),
            (None, []) => Ok(()),
            (None, known) => write!(f, "; expected one of {}", known.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_file_cannot_control_the_terminal() {
        assert_eq!(Shown("a\u{1b}[2Jb\u{202e}c\n").to_string(), "a\\u{1b}[2Jb\\u{202e}c\\n");
        assert_eq!(Shown("größe").to_string(), "größe");
        let unseen = "\u{e0041}\u{61c}\u{2060}\u{2065}\u{206a}\u{206f}";
        assert_eq!(Shown(unseen).to_string(), "\\u{e0041}\\u{61c}\\u{2060}\\u{2065}\\u{206a}\\u{206f}");
        assert_eq!(Shown(&"x".repeat(1000)).to_string(), format!("{}...", "x".repeat(160)));
    }
}
