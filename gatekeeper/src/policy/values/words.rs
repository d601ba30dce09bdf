//! Words that stand for a choice, such as profiles: the same in files, flags and reports.

use crate::policy::error::ValueError;
use crate::policy::{Isolate, OnViolation, Profile, StaticBinaries};
use std::str::FromStr;

/// A choice between a few words.
pub trait Word: Copy + PartialEq + 'static {
    const WHAT: &'static str;
    const WORDS: &'static [(&'static str, Self)];

    fn parse(text: &str) -> Result<Self, ValueError> {
        match Self::WORDS.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(*value),
            None => Err(ValueError::unknown(Self::WHAT, text, Self::WORDS.iter().map(|(word, _)| *word).collect())),
        }
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

macro_rules! words {
    ($type:ident, $what:literal, $($word:literal => $value:ident),+) => {
        impl Word for $type {
            const WHAT: &'static str = $what;
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, $type::$value)),+];
        }
        impl FromStr for $type {
            type Err = ValueError;
            fn from_str(text: &str) -> Result<Self, ValueError> {
                Word::parse(text)
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words!(Profile, "profile", "minimal" => Minimal, "read" => Read, "network" => Network, "write" => Write,
    "unrestricted" => Unrestricted, "browser" => Browser, "custom" => Custom);
words!(OnViolation, "action on a violation", "errno" => Errno, "kill" => Kill, "log" => Log);
words!(StaticBinaries, "action for static binaries", "enforce" => Enforce, "block" => Block, "warn" => Warn,
    "allow" => Allow);
words!(Isolate, "mode", "required" => Required, "preferred" => Preferred, "disabled" => Disabled);

/// `write+network`.
pub fn profiles(text: &str) -> Result<Vec<Profile>, ValueError> {
    if text.contains(',') {
        return Err(ValueError::unusable(
            "profile",
            text,
            "join profiles with '+', as in write+network, or repeat the flag",
        ));
    }
    let profiles = text.split('+').map(Profile::from_str).collect::<Result<Vec<_>, _>>()?;
    combined(profiles)
}

/// The union of two lists of profiles; `None` if neither is given.
pub fn union(first: Option<Vec<Profile>>, second: Option<Vec<Profile>>) -> Option<Vec<Profile>> {
    let (Some(mut union), Some(more)) = (first.clone(), second.clone()) else { return first.or(second) };
    union.extend(more);
    Some(each_once(union))
}

/// The profiles as `--profile` takes them: `write+network`.
pub fn joined(profiles: &[Profile]) -> String {
    profiles.iter().map(|profile| profile.word()).collect::<Vec<_>>().join("+")
}

fn each_once(profiles: Vec<Profile>) -> Vec<Profile> {
    let mut once = Vec::with_capacity(profiles.len());
    for profile in profiles {
        if !once.contains(&profile) {
            once.push(profile);
        }
    }
    once
}

/// Removes repeated profiles, and rejects combinations that make no sense.
pub(in crate::policy) fn combined(profiles: Vec<Profile>) -> Result<Vec<Profile>, ValueError> {
    let union = each_once(profiles);
    match union.as_slice() {
        [] => Err(ValueError::Conflict("no profile is named; 'minimal' grants least")),
        [_] => Ok(union),
        many if many.contains(&Profile::Unrestricted) => {
            Err(ValueError::Conflict("'unrestricted' confines nothing, so it cannot be combined with another profile"))
        }
        many if many.contains(&Profile::Custom) => Err(ValueError::Conflict(
            "'custom' is exactly its own lists, so it cannot be combined with another profile",
        )),
        _ => Ok(union),
    }
}
