//! From a table to a BPF program: the return value of each verb, and the two calls that pass by their secret arguments.

use super::{Secrets, Table, Verb};
use crate::policy::OnViolation;
use sandbox_contract::bpf::{self, Clause, CompileError, Decisions, Insn, LIMIT, Op, Rule, Test, ret};
use std::collections::BTreeMap;

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
        let mut clauses: BTreeMap<u16, Vec<Clause<'_>>> = (0..LIMIT)
            .zip(&self.entries)
            .filter(|(_, entry)| !entry.clauses.is_empty())
            .map(|(nr, entry)| {
                let clauses = entry.clauses.iter();
                (nr, clauses.map(|clause| Clause { tests: &clause.tests, ret: answers.of(clause.verb()) }).collect())
            })
            .collect();
        if let Some((exec, sendmsg)) = &passed {
            for (nr, tests) in [(libc::SYS_execveat, exec), (libc::SYS_sendmsg, sendmsg)] {
                clauses.entry(nr as u16).or_default().insert(0, Clause { tests, ret: ret::ALLOW });
            }
        }
        let borrowed = Borrowed { table: self, clauses: &clauses, answers };
        let mut program = vec![Insn::default(); bpf::MAX_LEN];
        let len = bpf::compile(&borrowed, &mut program)?;
        program.truncate(len);
        Ok(program)
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

struct Borrowed<'a> {
    table: &'a Table,
    clauses: &'a BTreeMap<u16, Vec<Clause<'a>>>,
    answers: &'a Answers,
}

impl Decisions for Borrowed<'_> {
    fn rule(&self, nr: u16) -> Rule<'_> {
        let clauses = self.clauses.get(&nr).map_or(&[][..], Vec::as_slice);
        let verb = self.table.entries.get(usize::from(nr)).map_or(self.table.beyond(), |entry| entry.otherwise.verb);
        Rule { clauses, otherwise: self.answers.of(verb) }
    }

    fn beyond(&self) -> u32 {
        self.answers.of(self.table.beyond())
    }
}
