//! Exports a table of decisions as a container engine's seccomp profile with exactly the same meaning.
//!
//! libseccomp keeps no order among rules, so they are rewritten until no two of them overlap. If no comparison of the
//! format expresses what a rule leaves over, masked comparisons express it bit by bit. What does not fit is an error.

use super::cubes::{self, Cube};
use super::{ARCH, Arg, Entry, MASKED_EQ, OPS, Profile};
use crate::plan::table::{Answers, Table};
use crate::policy::OnViolation;
use sandbox_contract::bpf::{LIMIT, Op, Test, ret};
use sandbox_contract::syscalls::with_name;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    #[error("{0}: container profiles do not keep the order of rules, and without it this call needs too many rules")]
    TooComplex(String),
    #[error(
        "container profiles do not keep the order of rules, and without it the policy needs {0} tests of arguments; at most {MOST_TESTS} fit into a filter"
    )]
    TooManyTests(usize),
    #[error("syscall {0} has no name here, and a container profile lists syscalls by name")]
    Nameless(u16),
}

/// Exports a table. `on_violation` is the action for its denials.
pub fn export(table: &Table, on_violation: OnViolation) -> Result<Profile, ExportError> {
    let answers = Answers::new(on_violation, false);
    let default = answers.of(table.beyond());
    let (default_action, default_errno_ret) = action(default);
    let mut syscalls: Vec<Entry> = Vec::new();
    for nr in 0..LIMIT {
        let (clauses, otherwise) = table.entry(nr);
        let clauses = clauses.iter().map(|clause| (clause.tests.clone(), answers.of(clause.verb()))).collect();
        let cases = Call { clauses, otherwise: answers.of(otherwise), default }.cases(0);
        let cases = cases.filter(|cases| wide(cases) <= MOST_WIDE);
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
    let tests = syscalls.iter().map(|entry| entry.args.len() * entry.names.len()).sum();
    if tests > MOST_TESTS {
        return Err(ExportError::TooManyTests(tests));
    }
    // For readers: names in alphabetical order, and unconditional entries first.
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

/// The clauses of one call, in order, and the actions if none of them matches.
struct Call {
    clauses: Vec<(Vec<Test>, u32)>,
    otherwise: u32,
    default: u32,
}

type Case = (Vec<Arg>, u32);

/// The most rules for one call; with a few hundred more, libseccomp takes minutes.
const MOST: usize = 256;
/// The most tests in all: each compiles to at most seven of the 4096 instructions that the kernel accepts.
const MOST_TESTS: usize = 512;
/// The most tests for one call that follow another test and compare both halves of an argument. Each of them doubles the
/// time that libseccomp takes.
const MOST_WIDE: usize = 12;

fn wide(cases: &[Case]) -> usize {
    let both_halves = |arg: &&Arg| arg.op == MASKED_EQ && arg.value >> 32 != 0 && arg.value as u32 != 0;
    cases.iter().flat_map(|(args, _)| args.iter().skip(1).filter(both_halves)).count()
}

impl Call {
    /// The cases that differ from the default action; `None` if there would be too many.
    ///
    /// They form a tree, one argument a level, so that the first argument in which two cases differ excludes one of them.
    /// libseccomp needs that, because it never leaves a branch once taken: of `a > 1 and b = 1` and `a > 2 and b = 2`, it
    /// misses the second.
    fn cases(&self, from: u8) -> Option<Vec<Case>> {
        if let Some(answer) = self.decided() {
            return Some(if answer == self.default { Vec::new() } else { vec![(Vec::new(), answer)] });
        }
        let Some(index) = (from..6).find(|index| self.tests().any(|test| test.arg == *index)) else {
            return Some(Vec::new());
        };
        let mut tests: Vec<Test> = Vec::new();
        for test in self.tests().filter(|test| test.arg == index) {
            if !tests.contains(test) && !tests.contains(&cubes::opposite(test)) {
                tests.push(*test);
            }
        }
        // Tests of few bits first, because the others do not cut the parts that these separate.
        tests.sort_by_key(|test| test.mask.count_ones());
        let branches = branches(&tests)?;
        let mut below = Vec::with_capacity(branches.len());
        for (_, holding) in &branches {
            below.push(self.knowing(index, holding).cases(index + 1)?);
        }
        // If all branches are the same, the result does not depend on this argument.
        if below.windows(2).all(|pair| pair.first() == pair.last()) {
            return below.into_iter().next();
        }
        let mut cases = Vec::new();
        for ((place, _), below) in branches.iter().zip(below) {
            for (rest, answer) in below {
                for word in place {
                    cases.push((std::iter::once(word.clone()).chain(rest.clone()).collect(), answer));
                    if cases.len() > MOST {
                        return None;
                    }
                }
            }
        }
        Some(cases)
    }

    /// The action, if it no longer depends on arguments.
    fn decided(&self) -> Option<u32> {
        match self.clauses.first() {
            None => Some(self.otherwise),
            Some((tests, answer)) if tests.is_empty() => Some(*answer),
            Some(_) => None,
        }
    }

    fn tests(&self) -> impl Iterator<Item = &Test> {
        self.clauses.iter().flat_map(|(tests, _)| tests)
    }

    /// The call under the assumption that of the tests of one argument exactly these hold.
    fn knowing(&self, index: u8, holding: &[Test]) -> Call {
        let holds = |test: &Test| test.arg != index || holding.contains(test);
        let possible = self.clauses.iter().filter(|(tests, _)| tests.iter().all(holds));
        let rest = |tests: &[Test]| tests.iter().filter(|test| test.arg != index).copied().collect();
        Call {
            clauses: possible.map(|(tests, answer)| (rest(tests), *answer)).collect(),
            otherwise: self.otherwise,
            default: self.default,
        }
    }
}

/// The values of one argument, divided by some tests. Returns for each part the comparisons that describe it, which do not
/// overlap, and the tests and opposite tests that hold in it.
fn branches(tests: &[Test]) -> Option<Vec<(Vec<Arg>, Vec<Test>)>> {
    if tests.len() > MOST {
        return None;
    }
    let mut parts = vec![(vec![Cube::ALL], Vec::new())];
    for test in tests {
        let mut cut = Vec::with_capacity(parts.len() * 2);
        for (cubes, holding) in parts {
            for test in [*test, cubes::opposite(test)] {
                let inside = cubes::where_all_hold(&cubes, &[test])?;
                let holding: Vec<Test> = holding.iter().copied().chain([test]).collect();
                if !inside.is_empty() {
                    cut.push((inside, holding));
                }
            }
        }
        parts = cut;
    }
    let words = |(cubes, holding): (Vec<Cube>, Vec<Test>)| {
        let place = match holding.as_slice() {
            // A single test may have a comparison in the format.
            [test] => word(test).map(|word| vec![word]),
            _ => None,
        };
        (place.unwrap_or_else(|| cubes.iter().flat_map(bits).collect()), holding)
    };
    Some(parts.into_iter().map(words).collect())
}

/// A test as one comparison of the format, if it has one.
fn word(test: &Test) -> Option<Arg> {
    let Test { arg: index, mask, op, value } = *test;
    match op {
        _ if mask == u64::MAX => {
            let word = OPS.iter().find(|(_, known)| *known == op)?.0;
            Some(Arg { index, value, value_two: 0, op: word.to_owned() })
        }
        // A value with bits outside the mask never matches here, but libseccomp would drop these bits.
        Op::Eq if value & !mask == 0 && mask != 0 => Some(masked(index, mask, value)),
        _ => None,
    }
}

/// A cube that fixes one argument, as a comparison.
fn bits(cube: &Cube) -> Option<Arg> {
    let (index, (mask, value)) = (0u8..).zip(cube.fixed).find(|(_, (mask, _))| *mask != 0)?;
    Some(match mask {
        u64::MAX => Arg { index, value, value_two: 0, op: "SCMP_CMP_EQ".to_owned() },
        _ => masked(index, mask, value),
    })
}

fn masked(index: u8, mask: u64, value: u64) -> Arg {
    Arg { index, value: mask, value_two: value, op: MASKED_EQ.to_owned() }
}

/// Whether a container could not start: engines load the profile before they call execve.
pub fn missing_for_start(table: &Table) -> bool {
    let allowed = |name: &str| match sandbox_contract::syscalls::number(name.as_bytes()) {
        sandbox_contract::syscalls::Number::Here(nr) => table.decide(nr.into(), &[0; 6]).passes(),
        _ => false,
    };
    !allowed("execve")
}
