//! Single values: takes the text of one word, duration, size or name, from a file or a flag, and gives the value or
//! why it cannot be one. It knows neither files nor keys, and never guesses: what is not understood is an error.

use super::error::{ValueError, nearest};
use super::pattern::Denied;
use super::{Isolate, NetworkMode, OnViolation, Profile, RuleAction, StaticBinaries, hosts};
use sandbox_contract::action::Action;
use sandbox_contract::grammar::{self, Item, ItemError, NumberSet};
use sandbox_contract::nearest as near;
use sandbox_contract::vars;
use std::str::FromStr;
use std::time::Duration;

/// A choice between a few words, the same in files, flags and reports.
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
words!(OnViolation, "answer to a violation", "errno" => Errno, "kill" => Kill, "log" => Log);
words!(StaticBinaries, "treatment of static binaries", "enforce" => Enforce, "block" => Block, "warn" => Warn,
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

/// What two places grant together, each profile once; `None` where neither names one.
pub fn union(first: Option<Vec<Profile>>, second: Option<Vec<Profile>>) -> Option<Vec<Profile>> {
    let (Some(mut union), Some(more)) = (first.clone(), second.clone()) else { return first.or(second) };
    union.extend(more);
    Some(each_once(union))
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

/// Profiles that may stand together, each once.
pub(super) fn combined(profiles: Vec<Profile>) -> Result<Vec<Profile>, ValueError> {
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

/// A colon list of syscalls and `@groups` as its items, all of them usable on this machine.
pub fn syscalls(list: &str) -> Result<Vec<String>, ValueError> {
    let mut numbers = NumberSet::EMPTY;
    let mut names = Vec::new();
    for item in grammar::items(list.as_bytes()) {
        grammar::add(item, &mut numbers).map_err(item_error)?;
        names.push(match item {
            Item::Name(name) => String::from_utf8_lossy(name).into_owned(),
            Item::Group(group) => format!("@{}", String::from_utf8_lossy(group)),
        });
    }
    Ok(names)
}

/// What a list of items stands for on this machine.
pub(super) fn numbers(items: &[String]) -> Result<NumberSet, ValueError> {
    let mut numbers = NumberSet::EMPTY;
    for item in items.iter().flat_map(|list| grammar::items(list.as_bytes())) {
        grammar::add(item, &mut numbers).map_err(item_error)?;
    }
    Ok(numbers)
}

/// The name of a syscall.
pub(super) fn name(number: u16) -> Option<String> {
    sandbox_contract::syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned())
}

/// One syscall by its name.
pub fn syscall(name: &str) -> Result<String, ValueError> {
    if name.is_empty() || name.contains(':') || name.starts_with('@') {
        return Err(ValueError::unusable("syscall", name, "a rule is about one syscall, by its name"));
    }
    grammar::add(Item::Name(name.as_bytes()), &mut NumberSet::EMPTY.clone()).map_err(item_error)?;
    Ok(name.to_owned())
}

fn item_error(error: ItemError<'_>) -> ValueError {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match error {
        ItemError::Unknown(name) => ValueError::Unknown {
            what: "syscall",
            word: text(name),
            nearest: near::syscall(name).map(|word| text(word.as_bytes())),
            known: Vec::new(),
        },
        ItemError::UnknownGroup(group) => ValueError::Unknown {
            what: "group",
            word: format!("@{}", text(group)),
            nearest: near::group(group).map(|word| format!("@{}", text(word.as_bytes()))),
            known: Vec::new(),
        },
        ItemError::NoNumber(name) => {
            ValueError::NoNumber { name: text(name), nearest: near::syscall(name).map(|word| text(word.as_bytes())) }
        }
        ItemError::TooLong(name) => ValueError::unusable("syscall", &text(name), "longer than any name"),
    }
}

/// `allow`, `deny`, `errno`, `errno:EACCES`, `kill` or `log`.
pub fn rule_action(text: &str) -> Result<RuleAction, ValueError> {
    const WORDS: [&str; 5] = ["allow", "deny", "errno", "kill", "log"];
    match (text, Action::parse(text.as_bytes())) {
        ("allow", _) => Ok(RuleAction::Allow),
        ("deny", _) => Ok(RuleAction::Deny),
        (_, Some(Action::Kill)) => Ok(RuleAction::Kill),
        (_, Some(Action::Log)) => Ok(RuleAction::Log),
        (_, Some(Action::Errno(number))) => Ok(RuleAction::Errno(number)),
        (_, Some(Action::Trap)) => {
            Err(ValueError::unusable("action", text, "only libsandbox.so by itself can do that; 'kill' is next to it"))
        }
        (_, None) => Err(match text.strip_prefix("errno:") {
            Some(name) => {
                let names: Vec<_> = sandbox_contract::action::ERRNOS.iter().map(|(name, _)| *name).collect();
                ValueError::Unknown {
                    what: "errno",
                    word: name.to_owned(),
                    nearest: nearest(name, &names),
                    known: Vec::new(),
                }
            }
            None => ValueError::unknown("action", text, WORDS.to_vec()),
        }),
    }
}

/// From the longest, for printing; `m` must come after `ms` when a text is read, which the digits in between ensure.
pub(super) const DURATIONS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Some thirty years. A clock's time plus this is still a time; plus the largest duration it is not.
pub const MAX_DURATION: Duration = Duration::from_secs(1_000_000_000);

/// No longer than any clock can bear.
pub(super) fn bounded(duration: Duration) -> Result<Duration, ValueError> {
    if duration <= MAX_DURATION {
        return Ok(duration);
    }
    Err(ValueError::OutOfRange { value: duration.as_secs().into(), least: 0, most: MAX_DURATION.as_secs() })
}

/// `30s`, `5m`, `1h30m`, `500ms`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let wrong = |why| ValueError::unusable("duration", text, why);
    let how = "write it like 30s, 5m or 1h30m";
    if let Ok(seconds) = text.parse::<u64>()
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        return bounded(Duration::from_secs(seconds));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let (count, after) = rest.split_at(digits(rest));
        let (unit, next) = after.split_at(after.bytes().take_while(u8::is_ascii_alphabetic).count());
        let (_, nanos) = DURATIONS.iter().find(|(name, _)| *name == unit).ok_or_else(|| wrong(how))?;
        // From large to small and each once, so that "5m1h" and "1m1m" are not silently a sum.
        if count.is_empty() || *nanos >= last {
            return Err(wrong(how));
        }
        last = *nanos;
        let part = count.parse::<u64>().ok().and_then(|count| whole_duration(count, *nanos));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(|| wrong("too long"))?;
        rest = next;
    }
    if text.is_empty() { Err(wrong(how)) } else { bounded(total) }
}

/// A limit on processor time.
pub(super) fn cpu(limit: Duration) -> Result<(), ValueError> {
    if limit.is_zero() {
        return Err(ValueError::Conflict("no program runs in no time; leave it out for no limit"));
    }
    bounded(limit).map(drop)
}

fn whole_duration(count: u64, nanos: u64) -> Option<Duration> {
    let total = u128::from(count) * u128::from(nanos);
    let seconds = u64::try_from(total / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, u32::try_from(total % 1_000_000_000).ok()?))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

pub(super) const SIZES: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// `512M`, `2G`, `64KiB`; a bare number is bytes. K, M, G and T are powers of 1024.
pub fn size(text: &str) -> Result<u64, ValueError> {
    let wrong = |why| ValueError::unusable("size", text, why);
    let how = "write it like 512M or 2G (powers of 1024), or as bytes";
    let (count, unit) = text.split_at(digits(text));
    let count = match count {
        "" => return Err(wrong(how)),
        _ => count.parse::<u64>().map_err(|_| wrong("too large"))?,
    };
    let scale = match unit {
        "" | "B" => 1,
        _ => {
            let short = unit.strip_suffix("iB").unwrap_or(unit);
            let found = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(short));
            found.ok_or_else(|| wrong(how))?.1
        }
    };
    count.checked_mul(scale).ok_or_else(|| wrong("too large"))
}

/// `none`, `loopback`, `full` or `hosts=a,b:443`.
impl FromStr for NetworkMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<NetworkMode, ValueError> {
        match (text, text.strip_prefix("hosts=")) {
            ("none", _) => Ok(NetworkMode::None),
            ("loopback", _) => Ok(NetworkMode::Loopback),
            ("full", _) => Ok(NetworkMode::Full),
            // A file may list no host, in so many words; here it is a forgotten list.
            ("hosts", _) => Err(ValueError::unusable("network mode", text, NO_HOST)),
            (_, Some(list)) => {
                let items = list.split(',').filter(|host| !host.is_empty());
                let hosts = items.map(hosts::normal).collect::<Result<Vec<_>, _>>()?;
                match hosts.is_empty() {
                    true => Err(ValueError::unusable("network mode", text, NO_HOST)),
                    false => Ok(NetworkMode::Hosts(hosts)),
                }
            }
            _ if hosts::normal(text.trim_start_matches("host=")).is_ok() && text.contains(['.', ':', ',']) => {
                Err(ValueError::Host(text.trim_start_matches("host=").to_owned()))
            }
            _ => Err(ValueError::unknown("network mode", text, NETWORK_MODES.to_vec())),
        }
    }
}

const NO_HOST: &str = "name at least one host, as in hosts=example.org,*.example.net:443, or write none";

pub(super) const NETWORK_MODES: [&str; 4] = ["none", "loopback", "full", "hosts"];

/// A variable that is passed on from the caller's environment.
pub fn passed_variable(name: &str) -> Result<String, ValueError> {
    // The user's own preload (jemalloc, libfaketime) is kept, behind ours, where the policy asks for it by name.
    if name == "LD_PRELOAD" { Ok(name.to_owned()) } else { variable(name) }
}

/// A variable that is set by the policy.
pub fn set_variable(name: &str) -> Result<String, ValueError> {
    variable(name)
}

fn variable(name: &str) -> Result<String, ValueError> {
    let wrong = |why| Err(ValueError::unusable("variable", name, why));
    if name.is_empty() || name.contains(['=', '\0']) {
        return wrong("not a name that a variable can have");
    }
    if name.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return wrong("a name has no blanks; give each variable a flag of its own, as NAME or NAME=VALUE");
    }
    if name.contains('*') {
        return wrong("names are exact, there are no wildcards");
    }
    if name.starts_with("LD_") {
        return wrong("it steers the loader; of LD_* only LD_PRELOAD may be passed, and none may be set");
    }
    if vars::ALL.contains(&name) || name.starts_with("GATEKEEPER_") {
        return wrong("gatekeeper sets it by itself");
    }
    Ok(name.to_owned())
}

/// What a variable is set to.
pub(super) fn variable_value(value: &str) -> Result<String, ValueError> {
    if value.contains('\0') {
        return Err(ValueError::unusable("variable", value, "a NUL would end it"));
    }
    Ok(value.to_owned())
}

/// A path as a policy may name it; nothing is looked up.
pub fn path(text: &str) -> Result<std::path::PathBuf, ValueError> {
    // Taken literally it would match nothing: a grant that does not grant.
    if text.contains('*') {
        return Err(ValueError::unusable("path", text, "there are no wildcards in paths; name the directory"));
    }
    any_path(text)
}

/// A path to deny, or a pattern of such paths.
pub fn denied_path(text: &str) -> Result<std::path::PathBuf, ValueError> {
    let path = any_path(text)?;
    Denied::parse(&path)?;
    Ok(path)
}

fn any_path(text: &str) -> Result<std::path::PathBuf, ValueError> {
    let wrong = |why| Err(ValueError::unusable("path", text, why));
    if text.is_empty() {
        return wrong("empty; '.' is the working directory");
    }
    if text.contains('\0') {
        return wrong("no path holds a NUL");
    }
    if text.starts_with('~') && text != "~" && !text.starts_with("~/") {
        return wrong("the homes of others are not looked up; write it out, or with './' before it");
    }
    Ok(text.into())
}

/// A program, by name or path.
pub fn command(text: &str) -> Result<String, ValueError> {
    if text.is_empty() || text.contains('\0') {
        return Err(ValueError::unusable("command", text, "not the name of a program"));
    }
    // Taken literally these match no program: a block that blocks nothing.
    let blank = text.find(char::is_whitespace);
    if blank.is_some_and(|at| !text.contains('/') || text[at..].trim_start().starts_with('-')) {
        let why = "it matches nothing: a command is one name or path, without arguments; name the program alone";
        return Err(ValueError::unusable("command", text, why));
    }
    Ok(text.to_owned())
}

/// The least that a program starts with: less than this is a forgotten unit.
const LEAST_MEMORY: u64 = 64 << 10;

/// A limit on memory.
pub(super) fn memory(bytes: u64) -> Result<u64, ValueError> {
    if (1..LEAST_MEMORY).contains(&bytes) {
        return Err(ValueError::Bytes { bytes, least: LEAST_MEMORY });
    }
    at_least(bytes, 1)
}

/// A limit on what is kept of a stream; 0 keeps nothing.
pub(super) fn output(bytes: u64) -> Result<u64, ValueError> {
    some_bytes(bytes, "captured stream", 100)
}

/// A limit on the size of a file; under 0 only empty files are made.
pub(super) fn disk(bytes: u64) -> Result<u64, ValueError> {
    some_bytes(bytes, "written file", 1 << 10)
}

fn some_bytes(bytes: u64, what: &'static str, least: u64) -> Result<u64, ValueError> {
    match (1..least).contains(&bytes) {
        true => Err(ValueError::FewBytes { bytes, what, least }),
        false => Ok(bytes),
    }
}

/// What gatekeeper itself opens on the way to the exec counts under the limit too.
pub const LEAST_FILES: u64 = 16;

/// A count that has a least and no most.
pub(super) fn at_least(value: u64, least: u64) -> Result<u64, ValueError> {
    match value < least {
        true => Err(ValueError::OutOfRange { value: value.into(), least, most: u64::MAX }),
        false => Ok(value),
    }
}
