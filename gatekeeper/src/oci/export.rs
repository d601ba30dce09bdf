//! From decisions to a container engine's profile: takes a table, gives the JSON that means the same.
//!
//! libseccomp keeps no order among rules, so rules that could both match are rewritten until they cannot: what one rule
//! leaves over is said bit by bit, as masked comparisons. Nothing is rounded; what does not fit is an error.

use super::cubes::{self, Cube};
use super::{ARCH, Arg, Entry, MASKED_EQ, OPS, Profile};
use crate::plan::table::{Answers, Table, Verb};
use crate::policy::OnViolation;
use sandbox_contract::bpf::{LIMIT, Op, Test, ret};
use sandbox_contract::syscalls::with_name;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    #[error("{0}: its rules are too many to be said without an order, which a container profile does not keep")]
    TooComplex(String),
    #[error("syscall {0} has no name here, and a container profile names calls")]
    Nameless(u16),
}

/// The profile of a table; `on_violation` is what its denials mean.
pub fn export(table: &Table, on_violation: OnViolation) -> Result<Profile, ExportError> {
    let answers = Answers::new(on_violation, false);
    let default = answers.of(table.beyond());
    let (default_action, default_errno_ret) = action(default);
    let mut syscalls: Vec<Entry> = Vec::new();
    for nr in 0..LIMIT {
        let (clauses, otherwise) = table.entry(nr);
        let clauses: Vec<(&[Test], u32)> =
            clauses.iter().map(|(tests, verb)| (tests.as_slice(), answers.of(*verb))).collect();
        let cases = Call { clauses: &clauses, otherwise: answers.of(otherwise), default }.cases();
        if cases.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        let name = with_name(nr, |name| String::from_utf8_lossy(name).into_owned()).ok_or(ExportError::Nameless(nr))?;
        for (args, answer) in cases.ok_or_else(|| ExportError::TooComplex(name.clone()))? {
            let (action, errno_ret) = action(answer);
            let same = |entry: &&mut Entry| {
                entry.action == action
                    && entry.errno_ret == errno_ret
                    && entry.args == args
                    && !entry.names.contains(&name)
            };
            match syscalls.iter_mut().find(same) {
                Some(entry) => entry.names.push(name.clone()),
                None => {
                    let names = vec![name.clone()];
                    syscalls.push(Entry { names, action: action.to_owned(), errno_ret, args, ..Entry::default() });
                }
            }
        }
    }
    // One entry with many names reads better with the names in order.
    syscalls.iter_mut().for_each(|entry| entry.names.sort());
    syscalls.sort_by_key(|entry| !entry.args.is_empty());
    Ok(Profile {
        default_action: default_action.to_owned(),
        default_errno_ret,
        architectures: vec![ARCH.0.to_owned()],
        syscalls,
        ..Profile::default()
    })
}

fn action(answer: u32) -> (&'static str, Option<u16>) {
    match answer {
        ret::ALLOW => ("SCMP_ACT_ALLOW", None),
        ret::LOG => ("SCMP_ACT_LOG", None),
        ret::KILL_PROCESS => ("SCMP_ACT_KILL_PROCESS", None),
        other => ("SCMP_ACT_ERRNO", Some(other as u16)),
    }
}

struct Call<'a> {
    clauses: &'a [(&'a [Test], u32)],
    otherwise: u32,
    default: u32,
}

type Case = (Vec<Arg>, u32);

impl Call<'_> {
    /// Cases of which any order means the same; `None` where there would be too many.
    fn cases(&self) -> Option<Vec<Case>> {
        if self.clauses.is_empty() {
            return Some(self.plain(self.otherwise));
        }
        self.as_written().or_else(|| self.bit_by_bit())
    }

    fn plain(&self, answer: u32) -> Vec<Case> {
        if answer == self.default { Vec::new() } else { vec![(Vec::new(), answer)] }
    }

    /// The clauses as they stand, where none gets in another's way and each has words in the format.
    fn as_written(&self) -> Option<Vec<Case>> {
        let mut cases = Vec::new();
        for (at, (tests, answer)) in self.clauses.iter().enumerate() {
            for (others, other) in self.clauses.get(..at).unwrap_or_default() {
                let both = cubes::where_all_hold(&cubes::where_all_hold(&[Cube::ALL], others)?, tests)?;
                if other != answer && !both.is_empty() {
                    return None;
                }
            }
            if *answer != self.default {
                cases.push((words(tests)?, *answer));
            }
        }
        if self.otherwise == self.default {
            return Some(cases);
        }
        // One test has an opposite; of more, only bits can say what is left.
        match self.clauses {
            [([test], _)] => {
                cases.push((words(&[cubes::opposite(test)])?, self.otherwise));
                Some(cases)
            }
            _ => None,
        }
    }

    fn bit_by_bit(&self) -> Option<Vec<Case>> {
        let mut left = vec![Cube::ALL];
        let mut cases = Vec::new();
        for (tests, answer) in self.clauses {
            if *answer != self.default {
                let held = cubes::where_all_hold(&left, tests)?;
                cases.extend(held.iter().map(|cube| (bits(cube), *answer)));
            }
            left = cubes::where_one_fails(&left, tests)?;
        }
        if self.otherwise != self.default {
            cases.extend(left.iter().map(|cube| (bits(cube), self.otherwise)));
        }
        Some(cases)
    }
}

/// Tests in the format's own words, each argument at most once.
fn words(tests: &[Test]) -> Option<Vec<Arg>> {
    let mut args: Vec<Arg> = Vec::with_capacity(tests.len());
    for test in tests {
        let Test { arg: index, mask, op, value } = *test;
        if args.iter().any(|arg| arg.index == index) {
            return None;
        }
        args.push(match op {
            _ if mask == u64::MAX => {
                let word = OPS.iter().find(|(_, known)| *known == op)?.0;
                Arg { index, value, value_two: 0, op: word.to_owned() }
            }
            // A value outside the mask never is equal here; libseccomp would cut it down to one that is.
            Op::Eq if value & !mask == 0 => masked(index, mask, value),
            _ => return None,
        });
    }
    // All arguments of a case that tests nothing would be a plain case.
    Some(args)
}

fn bits(cube: &Cube) -> Vec<Arg> {
    let fixed = (0u8..).zip(cube.fixed).filter(|(_, (mask, _))| *mask != 0);
    let word = |(index, (mask, value)): (u8, (u64, u64))| match mask {
        u64::MAX => Arg { index, value, value_two: 0, op: "SCMP_CMP_EQ".to_owned() },
        _ => masked(index, mask, value),
    };
    fixed.map(word).collect()
}

fn masked(index: u8, mask: u64, value: u64) -> Arg {
    Arg { index, value: mask, value_two: value, op: MASKED_EQ.to_owned() }
}

/// Whether an engine, which loads the profile before it executes its program, could not start it.
pub fn missing_for_start(table: &Table) -> bool {
    let allowed = |name: &str| match sandbox_contract::syscalls::number(name.as_bytes()) {
        sandbox_contract::syscalls::Number::Here(nr) => table.decide(nr.into(), &[0; 6]) == Verb::Allow,
        _ => false,
    };
    !allowed("execve")
}
