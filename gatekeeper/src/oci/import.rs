//! Imports a container engine's seccomp profile as a policy. Takes the JSON and what the engine knows about the container,
//! and returns the policy and notes on what differs.
//!
//! Engines pass their rules to libseccomp, which keeps no order: an unconditional rule silently replaces those with tests.
//! Here the strictest matching rule decides, so the policy never allows more than the engine does.

use super::{ARCH, Arg, Conditions, Entry, MASKED_EQ, OPS, Profile};
use crate::policy::{ArgTest, Document, OnViolation, Profile as Named, RuleAction, SyscallRule, Syscalls};
use sandbox_contract::action;
use sandbox_contract::bpf::Op;
use sandbox_contract::syscalls::{Number, number};
use std::collections::BTreeMap;

/// What an engine knows about a container. It decides which entries of a Docker or podman profile apply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Capabilities such as `CAP_SYS_ADMIN`. A command that gatekeeper runs has none.
    pub caps: Vec<String>,
    /// The kernel version, for `minKernel`.
    pub kernel: (u32, u32),
}

#[derive(Debug)]
pub struct Imported {
    pub document: Document,
    /// What was left out or has another meaning here, one line each.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    #[error("not a seccomp profile: {0}")]
    Json(#[from] serde_json::Error),
    #[error("unknown action '{0}'")]
    Action(String),
    #[error("errno {0} is not between 0 and 4095")]
    Errno(u16),
    #[error("{0}: unknown comparison '{1}'")]
    Comparison(String, String),
    #[error("{0}: argument {1} is not between 0 and 5")]
    Index(String, u8),
    #[error(
        "{0}: two tests of argument {1} in one entry; runc takes them as 'or', the specification as 'and'. Write two entries, or one test"
    )]
    TwoTests(String, u8),
    #[error("an entry names no syscall, or has both 'name' and 'names'")]
    Names,
    #[error("'architectures' and 'archMap' are both given; engines refuse that")]
    Architectures,
    #[error("the profile is for {0}, not for {1}")]
    Foreign(String, &'static str),
    #[error("minKernel '{0}' is not a version such as 4.8")]
    Version(String),
    #[error("{} denied, but unknown here: {}; leaving them out would open them", count(.0), .0.join(", "))]
    UnknownDenied(Vec<String>),
}

/// Reads a profile, or the `linux.seccomp` of a runtime's config.json.
pub fn import(json: &[u8], surroundings: &Surroundings) -> Result<Imported, ImportError> {
    // Not through serde_json::Value, which silently keeps the last of two equal keys.
    let profile: Profile = match serde_json::from_slice::<Runtime<'_>>(json) {
        Ok(Runtime { linux: Linux { seccomp } }) => serde_json::from_str(seccomp.get())?,
        Err(_) => serde_json::from_slice(json)?,
    };
    let mut reader = Reader { notes: Vec::new(), surroundings };
    reader.architectures(&profile)?;
    let default = reader.action(&profile.default_action, profile.default_errno_ret)?;
    let mut calls: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    let (mut strange, mut denied) = (Vec::new(), Vec::new());
    for entry in &profile.syscalls {
        let action = reader.action(&entry.action, entry.errno_ret)?;
        let counts = reader.counts(entry)?;
        for name in names(entry)? {
            let args = tests(name, &entry.args)?;
            if !counts {
                continue;
            }
            match number(name.as_bytes()) {
                Number::Here(_) => calls.entry(name.to_owned()).or_default().push((args, action)),
                // It exists on other architectures only, and the filter kills their calls anyway.
                Number::NotHere => {}
                Number::Unknown if strictness(action) > strictness(default) => denied.push(name.to_owned()),
                Number::Unknown => strange.push(name.to_owned()),
            }
        }
    }
    if !denied.is_empty() {
        return Err(ImportError::UnknownDenied(unique(denied)));
    }
    if !strange.is_empty() {
        let strange = unique(strange);
        reader.notes.push(format!("{} unknown here and left out: {}", count(&strange), strange.join(", ")));
    }
    let document = reader.document(default, calls);
    Ok(Imported { document, notes: reader.notes })
}

/// The part of a runtime's config.json that contains the profile.
#[derive(serde::Deserialize)]
struct Runtime<'a> {
    #[serde(borrow)]
    linux: Linux<'a>,
}

#[derive(serde::Deserialize)]
struct Linux<'a> {
    #[serde(borrow)]
    seccomp: &'a serde_json::value::RawValue,
}

/// One rule of a call: its tests and its action.
type Case = (Vec<ArgTest>, RuleAction);

struct Reader<'a> {
    notes: Vec<String>,
    surroundings: &'a Surroundings,
}

impl Reader<'_> {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn architectures(&mut self, profile: &Profile) -> Result<(), ImportError> {
        let listed = &profile.architectures;
        if !listed.is_empty() && !profile.arch_map.is_empty() {
            return Err(ImportError::Architectures);
        }
        if !listed.is_empty() && !listed.iter().any(|arch| arch == ARCH.0 || arch == "SCMP_ARCH_NATIVE") {
            return Err(ImportError::Foreign(listed.join(", "), ARCH.0));
        }
        if listed.len() > 1 || !profile.arch_map.is_empty() {
            self.note(format!("calls of architectures other than {} are killed, whatever the profile says", ARCH.0));
        }
        if profile.flags.iter().any(|flag| flag == "SECCOMP_FILTER_FLAG_SPEC_ALLOW") {
            self.note("SECCOMP_FILTER_FLAG_SPEC_ALLOW is ignored: speculation mitigations stay on".to_owned());
        }
        Ok(())
    }

    fn action(&mut self, word: &str, errno: Option<u16>) -> Result<RuleAction, ImportError> {
        let instead = |reader: &mut Self, action: RuleAction, words: &str| {
            reader.note(format!("{word} is read as {words}"));
            Ok(action)
        };
        match word {
            "SCMP_ACT_ALLOW" => Ok(RuleAction::Allow),
            "SCMP_ACT_LOG" => Ok(RuleAction::Log),
            "SCMP_ACT_KILL_PROCESS" => Ok(RuleAction::Kill),
            "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => {
                instead(self, RuleAction::Kill, "kill, which ends the whole process and not one thread")
            }
            "SCMP_ACT_TRAP" => instead(self, RuleAction::Kill, "kill: no handler receives the signal"),
            "SCMP_ACT_TRACE" | "SCMP_ACT_NOTIFY" => {
                instead(self, RuleAction::Errno(ENOSYS), "errno:ENOSYS, as the kernel does without a listener")
            }
            "SCMP_ACT_ERRNO" => match errno.unwrap_or(EPERM) {
                // With errno 0 the kernel skips the call and reports success. A policy cannot express that.
                0 => instead(self, RuleAction::Errno(EPERM), "errno:EPERM where its errno is 0"),
                number => match action::errno(number.to_string().as_bytes()) {
                    Some(number) => Ok(RuleAction::Errno(number)),
                    None => Err(ImportError::Errno(number)),
                },
            },
            _ => Err(ImportError::Action(word.to_owned())),
        }
    }

    /// Whether an entry applies in these surroundings.
    fn counts(&self, entry: &Entry) -> Result<bool, ImportError> {
        let Conditions { arches, caps, min_kernel } = &entry.includes;
        let has = |cap: &String| self.surroundings.caps.contains(cap);
        let old = |version: &Option<String>| -> Result<Option<bool>, ImportError> {
            version.as_deref().map(|version| Ok(self.surroundings.kernel < parsed(version)?)).transpose()
        };
        let included = (arches.is_empty() || arches.iter().any(|arch| arch == ARCH.1))
            && caps.iter().all(has)
            && old(min_kernel)? != Some(true);
        let Conditions { arches, caps, min_kernel } = &entry.excludes;
        let excluded =
            arches.iter().any(|arch| arch == ARCH.1) || caps.iter().any(has) || old(min_kernel)? == Some(false);
        Ok(included && !excluded)
    }

    fn document(&mut self, default: RuleAction, calls: BTreeMap<String, Vec<Case>>) -> Document {
        // Denials by `on_violation` are recorded, those by an errno of a rule are not. So use the former if both mean the
        // same.
        let on_violation = match default {
            RuleAction::Kill => OnViolation::Kill,
            RuleAction::Log => OnViolation::Log,
            _ => OnViolation::Errno,
        };
        let plain = |action: RuleAction| match (action, on_violation) {
            (RuleAction::Errno(EPERM), OnViolation::Errno)
            | (RuleAction::Kill, OnViolation::Kill)
            | (RuleAction::Log, OnViolation::Log) => RuleAction::Deny,
            _ => action,
        };
        let mut syscalls = Syscalls { default: Some(plain(default)), ..Syscalls::default() };
        for (name, cases) in calls {
            let mut cases = self.in_order(&name, cases);
            // Last cases with the default action are redundant.
            while cases.last().is_some_and(|(_, action)| *action == default) {
                cases.pop();
            }
            match cases.last() {
                Some((tests, RuleAction::Allow)) if tests.is_empty() => {
                    cases.pop();
                    syscalls.allow.push(name.clone());
                }
                Some((tests, action)) if cases.len() == 1 && tests.is_empty() && plain(*action) == RuleAction::Deny => {
                    cases.pop();
                    syscalls.deny.push(name.clone());
                }
                _ => {}
            }
            let rules = cases.into_iter().map(|(args, action)| SyscallRule {
                syscall: name.clone(),
                action: plain(action),
                args,
            });
            syscalls.rules.extend(rules);
        }
        Document {
            profile: Some(vec![Named::Custom]),
            on_violation: Some(on_violation),
            syscalls,
            ..Document::default()
        }
    }

    /// The cases of a call, the strictest first, up to the one that always matches.
    fn in_order(&mut self, name: &str, mut cases: Vec<Case>) -> Vec<Case> {
        let always: Vec<RuleAction> = cases.iter().filter(|(tests, _)| tests.is_empty()).map(|case| case.1).collect();
        let stricter = |case: &Case| always.iter().any(|other| strictness(case.1) > strictness(*other));
        if cases.iter().any(stricter) {
            self.note(format!("{name}: the profile both denies and allows it; if both rules match, it is denied here"));
        }
        // The sort is stable: of equally strict rules the first in the file decides.
        cases.sort_by_key(|(_, action)| std::cmp::Reverse(strictness(*action)));
        let last = cases.iter().position(|(tests, _)| tests.is_empty());
        cases.truncate(last.map_or(cases.len(), |last| last + 1));
        let mut once: Vec<Case> = Vec::with_capacity(cases.len());
        for case in cases {
            if !once.contains(&case) {
                once.push(case);
            }
        }
        once
    }
}

const EPERM: u16 = libc::EPERM as u16;
const ENOSYS: u16 = libc::ENOSYS as u16;

fn strictness(action: RuleAction) -> u8 {
    match action {
        RuleAction::Allow => 0,
        RuleAction::Log => 1,
        RuleAction::Deny | RuleAction::Errno(_) => 2,
        RuleAction::Kill => 3,
    }
}

fn names(entry: &Entry) -> Result<Vec<&str>, ImportError> {
    match (&entry.name, entry.names.as_slice()) {
        (Some(name), []) if !name.is_empty() => Ok(vec![name]),
        (None, []) => Err(ImportError::Names),
        (Some(name), _) if !name.is_empty() => Err(ImportError::Names),
        (_, names) => Ok(names.iter().map(String::as_str).collect()),
    }
}

fn tests(name: &str, args: &[Arg]) -> Result<Vec<ArgTest>, ImportError> {
    let mut tests: Vec<ArgTest> = Vec::with_capacity(args.len());
    for Arg { index, value, value_two, op } in args {
        if *index > 5 {
            return Err(ImportError::Index(name.to_owned(), *index));
        }
        if tests.iter().any(|test| test.index == *index) {
            return Err(ImportError::TwoTests(name.to_owned(), *index));
        }
        let known = OPS.iter().find(|(word, _)| word == op).map(|(_, op)| *op);
        tests.push(match known {
            Some(op) => ArgTest { index: *index, op, mask: u64::MAX, value: *value },
            // libseccomp clears the bits of the value that are outside the mask.
            None if op == MASKED_EQ => ArgTest { index: *index, op: Op::Eq, mask: *value, value: value_two & value },
            None => return Err(ImportError::Comparison(name.to_owned(), op.clone())),
        });
    }
    Ok(tests)
}

/// Parses a version such as `4.8`, with any suffix of a distribution.
pub(crate) fn parsed(version: &str) -> Result<(u32, u32), ImportError> {
    let mut parts = version.split(['.', '-', '+']);
    let mut part = || parts.next().and_then(|part| part.parse().ok());
    match (part(), part()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(ImportError::Version(version.to_owned())),
    }
}

fn unique(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

fn count(names: &[String]) -> String {
    if names.len() == 1 { "1 syscall".to_owned() } else { format!("{} syscalls", names.len()) }
}
