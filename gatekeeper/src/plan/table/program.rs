//! From a table to a BPF program: the return value of each verb, and the two calls that pass by their secret arguments.

use super::{Entry, Secrets, Table, Verb};
use crate::policy::OnViolation;
use sandbox_contract::bpf::{self, Clause, CompileError, Decisions, Insn, Op, Rule, Test, ret};
use sandbox_contract::syscalls::COUNT;

impl Table {
    pub fn program(&self, answers: &Answers, secrets: Option<&Secrets>) -> Result<Vec<Insn>, CompileError> {
        let passed = secrets.map(|secrets| {
            let tests = |words: &[u64]| (1..).zip(words).map(|(arg, word)| Test::word(arg, *word)).collect::<Vec<_>>();
            (tests(&secrets.exec), tests(&secrets.sendmsg))
        });
        let mut clauses = Clauses::default();
        for (nr, entry) in (0..COUNT).zip(&self.entries).filter(|(_, entry)| !entry.clauses.is_empty()) {
            let found = entry.clauses.iter();
            let list: Vec<Clause<'_>> =
                found.map(|clause| Clause { tests: &clause.tests, ret: answers.of(clause.verb()) }).collect();
            let list = needed(list, answers.of(entry.otherwise.verb));
            if !list.is_empty() {
                *clauses.of(nr) = list;
            }
        }
        if let Some((exec, sendmsg)) = &passed {
            for (nr, tests) in [(libc::SYS_execveat, exec), (libc::SYS_sendmsg, sendmsg)] {
                clauses.of(nr as u16).insert(0, Clause { tests, ret: ret::ALLOW });
            }
        }
        let answer = |entry: &Entry| answers.of(entry.otherwise.verb);
        let otherwise = self.entries.iter().map(answer).collect();
        let borrowed = Borrowed { otherwise, clauses: &clauses, beyond: answers.of(self.beyond()) };
        let compiled = |room: usize| {
            let mut program = vec![Insn::default(); room];
            let len = bpf::compile(&borrowed, &mut program)?;
            program.truncate(len);
            Ok(program)
        };
        // Few programs are longer, and each page of memory takes time.
        const USUAL: usize = 512;
        compiled(USUAL).or_else(|_: CompileError| compiled(bpf::MAX_LEN))
    }
}

/// The clauses without those that change nothing: different verbs may have the same return value, and the kernel takes longer to
/// load a longer program. A clause that returns what the rule returns in the end is superfluous if no clause after it can
/// hold for the same call and return something else.
fn needed(mut clauses: Vec<Clause<'_>>, otherwise: u32) -> Vec<Clause<'_>> {
    for at in (0..clauses.len()).rev() {
        let (clause, after) = (&clauses[at], &clauses[at + 1..]);
        if clause.ret == otherwise && after.iter().all(|later| later.ret == otherwise || excludes(clause, later)) {
            clauses.remove(at);
        }
    }
    clauses
}

/// Whether no call can satisfy both clauses, because they want different values of the same bits.
fn excludes(one: &Clause<'_>, other: &Clause<'_>) -> bool {
    let differ = |a: &Test, b: &Test| a.arg == b.arg && (a.value ^ b.value) & a.mask & b.mask != 0;
    let equal = |test: &&Test| test.op == Op::Eq;
    one.tests.iter().filter(equal).any(|a| other.tests.iter().filter(equal).any(|b| differ(a, b)))
}

/// A program whose secrets are put in for each run.
pub struct Template {
    program: Vec<Insn>,
    /// Which instructions compare with a half of a secret, and with which half.
    places: Vec<(usize, usize)>,
}

/// The halves of all secrets. The filter compares 32 bits at a time.
const HALVES: usize = 12;

impl Secrets {
    fn halves(&self) -> [u32; HALVES] {
        let ([path, argv, envp, options], [header, flags]) = (self.exec, self.sendmsg);
        let words = [path, argv, envp, options, header, flags];
        std::array::from_fn(|at| (words[at / 2] >> (32 * (at % 2))) as u32)
    }

    /// Secrets whose halves are all different, and numbers that no instruction of a filter has otherwise.
    fn marked(first: u32) -> Secrets {
        let word = |at: u32| u64::from(first + 2 * at + 1) << 32 | u64::from(first + 2 * at);
        Secrets { exec: [word(0), word(1), word(2), word(3)], sendmsg: [word(4), word(5)] }
    }
}

impl Template {
    /// `None` if the places of the secrets are not certain.
    pub fn new(table: &Table, answers: &Answers) -> Option<Template> {
        // Two programs that differ in nothing but the secrets show where those are.
        let [one, other] = [Secrets::marked(0x5eed_0000), Secrets::marked(0x5eed_8000)];
        let programs = [&one, &other].map(|secrets| table.program(answers, Some(secrets)));
        let [Ok(program), Ok(compared)] = programs else { return None };
        let mut places = Vec::new();
        if program.len() != compared.len() {
            return None;
        }
        for (at, (insn, compared)) in program.iter().zip(&compared).enumerate() {
            if insn == compared {
                continue;
            }
            let half = one.halves().iter().position(|half| *half == insn.k)?;
            let same = Insn { k: compared.k, ..*insn } == *compared && other.halves()[half] == compared.k;
            places.extend(same.then_some((at, half)));
            if !same {
                return None;
            }
        }
        // Each half is compared once: the calls of exec and sendmsg have one clause each.
        let all = (0..HALVES).all(|half| places.iter().filter(|place| place.1 == half).count() == 1);
        all.then_some(Template { program, places })
    }

    /// The program with these secrets.
    pub fn with(&self, secrets: &Secrets) -> Vec<Insn> {
        let (mut program, halves) = (self.program.clone(), secrets.halves());
        for (at, half) in &self.places {
            if let (Some(insn), Some(half)) = (program.get_mut(*at), halves.get(*half)) {
                insn.k = *half;
            }
        }
        program
    }
}

/// The return values of the verbs that depend on the run.
#[derive(Debug, Clone, Copy)]
pub struct Answers {
    pub deny: u32,
    pub supervise: u32,
    /// Whether the filter itself returns an errno for a denied call.
    pub by_errno: bool,
}

impl Answers {
    /// With a listener the supervisor answers and records every denial; without one the filter answers.
    pub fn new(on_violation: OnViolation, listener: bool) -> Answers {
        let deny = match (listener, on_violation) {
            (true, _) => ret::USER_NOTIF,
            (false, OnViolation::Errno) => ret::errno(libc::EPERM as u16),
            (false, OnViolation::Kill) => ret::KILL_PROCESS,
            (false, OnViolation::Log) => ret::LOG,
        };
        Answers {
            deny,
            by_errno: !listener && on_violation == OnViolation::Errno,
            supervise: if listener { ret::USER_NOTIF } else { deny },
        }
    }

    /// The return value for a verb.
    pub fn of(&self, verb: Verb) -> u32 {
        match verb {
            Verb::Allow => ret::ALLOW,
            Verb::DenyWith(errno) if self.by_errno => ret::errno(errno),
            Verb::Deny | Verb::DenyWith(_) => self.deny,
            Verb::Fallback => ret::errno(libc::ENOSYS as u16),
            Verb::Supervise => self.supervise,
            Verb::Watch | Verb::UntilMain if self.supervise == ret::USER_NOTIF => ret::USER_NOTIF,
            Verb::Watch | Verb::UntilMain => ret::ALLOW,
            Verb::Refuse(_) if self.supervise == ret::USER_NOTIF => ret::USER_NOTIF,
            Verb::Errno(errno) | Verb::Refuse(errno) => ret::errno(errno),
            Verb::Kill => ret::KILL_PROCESS,
            Verb::Log => ret::LOG,
        }
    }
}

/// The clauses of the few numbers that have any. The compiler asks for each number several times, so this is no map.
struct Clauses<'a> {
    lists: Vec<Vec<Clause<'a>>>,
    /// For each number, the index of its list and 1; or 0.
    at: [u16; COUNT as usize],
}

impl Default for Clauses<'_> {
    fn default() -> Self {
        Clauses { lists: Vec::new(), at: [0; COUNT as usize] }
    }
}

impl<'a> Clauses<'a> {
    fn of(&mut self, nr: u16) -> &mut Vec<Clause<'a>> {
        let at = &mut self.at[usize::from(nr)];
        if *at == 0 {
            self.lists.push(Vec::new());
            *at = self.lists.len() as u16;
        }
        &mut self.lists[usize::from(*at) - 1]
    }

    fn get(&self, nr: u16) -> &[Clause<'a>] {
        let at = self.at.get(usize::from(nr)).copied().unwrap_or(0);
        usize::from(at).checked_sub(1).and_then(|at| self.lists.get(at)).map_or(&[], Vec::as_slice)
    }
}

struct Borrowed<'a> {
    /// The answer to each number if no clause holds.
    otherwise: Vec<u32>,
    clauses: &'a Clauses<'a>,
    beyond: u32,
}

impl Decisions for Borrowed<'_> {
    fn rule(&self, nr: u16) -> Rule<'_> {
        let otherwise = self.otherwise.get(usize::from(nr)).copied().unwrap_or(self.beyond);
        Rule { clauses: self.clauses.get(nr), otherwise }
    }

    fn beyond(&self) -> u32 {
        self.beyond
    }

    fn count(&self) -> u16 {
        COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::table::watch::Reads;
    use crate::policy::{Document, NetworkMode, Policy, Profile};
    use sandbox_contract::bpf::{AUDIT_ARCH, simulate};

    fn tables() -> impl Iterator<Item = Table> {
        let profiles = [Profile::Minimal, Profile::Read, Profile::Write, Profile::Network];
        profiles.into_iter().flat_map(|profile| {
            let policy = Policy::resolve(Document { profile: Some(vec![profile]), ..Document::default() });
            let policy = policy.expect("a built-in profile");
            let table = Table::new(&policy, &NetworkMode::Loopback, true, true);
            [table.clone(), table.clone().watching(Reads::ByPath), table.watching(Reads::All)]
        })
    }

    /// Every value that a clause of the call compares an argument with, and some beside it.
    fn interesting(table: &Table, nr: u16) -> Vec<u64> {
        let tests = table.entry(nr).0.iter().flat_map(|clause| &clause.tests);
        let mut values: Vec<u64> = tests.flat_map(|test| [test.value, test.mask, test.value + 1]).collect();
        values.extend([0, 2, libc::AT_FDCWD as u64, u64::MAX, libc::O_TMPFILE as u64 | 2, 0o4755, 0xdead_0000_0000]);
        values.sort_unstable();
        values.dedup();
        values
    }

    #[test]
    fn clauses_that_are_left_out_decide_nothing() {
        let mut left_out = 0;
        for table in tables() {
            for answers in [true, false].map(|listener| Answers::new(OnViolation::Errno, listener)) {
                let program = table.program(&answers, None).expect("compiles");
                for nr in (0..COUNT).filter(|nr| !table.entry(*nr).0.is_empty()) {
                    let (clauses, otherwise) = table.entry(nr);
                    let clause = |tests, verb| Clause { tests, ret: answers.of(verb) };
                    let list = clauses.iter().map(|found| clause(&found.tests[..], found.verb())).collect();
                    left_out += clauses.len() - needed(list, answers.of(otherwise)).len();
                    let values = interesting(&table, nr);
                    for at in 0..values.len() * values.len() * 6 {
                        // Two arguments vary at a time, the others are the same for all.
                        let (first, second) = (values[at % values.len()], values[at / values.len() % values.len()]);
                        let mut args = [values[at / 7 % values.len()]; 6];
                        (args[at % 6], args[(at + 1) % 6]) = (first, second);
                        let wanted = answers.of(table.decide(nr.into(), &args));
                        let found = simulate(&program, AUDIT_ARCH, nr.into(), &args);
                        assert_eq!(found, Some(wanted), "{nr} {args:x?}");
                    }
                }
            }
        }
        assert!(left_out > 0, "nothing was left out, so nothing was tested");
    }
}
