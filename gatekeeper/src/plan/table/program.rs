//! From a table to a BPF program: the return value of each verb, and the two calls that pass by their secret arguments.

use super::{Secrets, Table, Verb};
use crate::policy::OnViolation;
use sandbox_contract::bpf::{self, Clause, CompileError, Decisions, Insn, LIMIT, Op, Rule, Test, ret};

impl Table {
    pub fn program(&self, answers: &Answers, secrets: Option<&Secrets>) -> Result<Vec<Insn>, CompileError> {
        let passed = secrets.map(|secrets| {
            let ([path, argv, envp], [header, flags]) = (secrets.exec, secrets.sendmsg);
            (
                vec![
                    Test::word(1, path),
                    Test::word(2, argv),
                    Test::word(3, envp),
                    Test::low(4, Op::Eq, libc::AT_EMPTY_PATH as u32),
                ],
                vec![Test::word(1, header), Test::word(2, flags)],
            )
        });
        let mut clauses = Clauses::default();
        for (nr, entry) in (0..LIMIT).zip(&self.entries).filter(|(_, entry)| !entry.clauses.is_empty()) {
            let found = entry.clauses.iter();
            clauses.of(nr).extend(found.map(|clause| Clause { tests: &clause.tests, ret: answers.of(clause.verb()) }));
        }
        if let Some((exec, sendmsg)) = &passed {
            for (nr, tests) in [(libc::SYS_execveat, exec), (libc::SYS_sendmsg, sendmsg)] {
                clauses.of(nr as u16).insert(0, Clause { tests, ret: ret::ALLOW });
            }
        }
        let borrowed = Borrowed { table: self, clauses: &clauses, answers };
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

/// A program whose secrets are put in for each run.
pub struct Template {
    program: Vec<Insn>,
    /// Which instructions compare with a half of a secret, and with which half.
    places: Vec<(usize, usize)>,
}

/// The halves of all secrets. The filter compares 32 bits at a time.
const HALVES: usize = 10;

impl Secrets {
    fn halves(&self) -> [u32; HALVES] {
        let ([path, argv, envp], [header, flags]) = (self.exec, self.sendmsg);
        let words = [path, argv, envp, header, flags];
        std::array::from_fn(|at| (words[at / 2] >> (32 * (at % 2))) as u32)
    }

    /// Secrets whose halves are all different, and numbers that no instruction of a filter has otherwise.
    fn marked(first: u32) -> Secrets {
        let word = |at: u32| u64::from(first + 2 * at + 1) << 32 | u64::from(first + 2 * at);
        Secrets { exec: [word(0), word(1), word(2)], sendmsg: [word(3), word(4)] }
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
    at: [u16; LIMIT as usize],
}

impl Default for Clauses<'_> {
    fn default() -> Self {
        Clauses { lists: Vec::new(), at: [0; LIMIT as usize] }
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
    table: &'a Table,
    clauses: &'a Clauses<'a>,
    answers: &'a Answers,
}

impl Decisions for Borrowed<'_> {
    fn rule(&self, nr: u16) -> Rule<'_> {
        let clauses = self.clauses.get(nr);
        let verb = self.table.entries.get(usize::from(nr)).map_or(self.table.beyond(), |entry| entry.otherwise.verb);
        Rule { clauses, otherwise: self.answers.of(verb) }
    }

    fn beyond(&self) -> u32 {
        self.answers.of(self.table.beyond())
    }
}
