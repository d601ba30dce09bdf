//! Changes to a table's entries, by syscall name, number or group. A name without a number here is skipped.

use super::{Clause, Decision, Entry, Table, Verb, Why};
use sandbox_contract::bpf::Test;
use sandbox_contract::grammar::NumberSet;
use sandbox_contract::syscalls::{Number, number};

/// The number of a syscall on this architecture.
pub(super) fn number_of(call: &str) -> Option<u16> {
    match number(call.as_bytes()) {
        Number::Here(nr) => Some(nr),
        _ => None,
    }
}

impl Table {
    /// Decides a call whatever its arguments.
    pub(super) fn set(&mut self, nr: u16, decision: impl Into<Decision>) {
        if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
            *entry = Entry { clauses: Vec::new(), otherwise: decision.into() };
        }
    }

    pub(super) fn set_all(&mut self, calls: &[&str], decision: impl Into<Decision>) {
        let decision = decision.into();
        calls.iter().filter_map(|call| number_of(call)).for_each(|nr| self.set(nr, decision));
    }

    pub(super) fn set_group(&mut self, group: &str, decision: impl Into<Decision>) {
        let decision = decision.into();
        let numbers = NumberSet::of_group(group.as_bytes());
        numbers.into_iter().flat_map(NumberSet::iter).for_each(|nr| self.set(nr, decision));
    }

    /// Denies a granted call if these tests hold.
    pub(super) fn refuse(&mut self, call: &str, tests: impl Into<Vec<Test>>, why: Why) {
        self.answer(call, tests, Decision::deny(why));
    }

    /// Decides a granted call if these tests hold.
    pub(super) fn answer(&mut self, call: &str, tests: impl Into<Vec<Test>>, decision: impl Into<Decision>) {
        if let Some(entry) = self.granted(call) {
            entry.clauses.push(Clause::new(tests, decision));
        }
    }

    /// Grants a granted call only if one of these sets of tests holds; `why` is the reason for all other denials.
    pub(super) fn only(&mut self, call: &str, granted: impl IntoIterator<Item = Vec<Test>>, why: Why) {
        if let Some(entry) = self.granted(call) {
            // The policy's rules take precedence.
            entry.clauses.retain(|clause| matches!(clause.decision.why, Why::Rule(_)));
            entry.clauses.extend(granted.into_iter().map(|tests| Clause::new(tests, Verb::Allow)));
            entry.otherwise = Decision::deny(why);
        }
    }

    /// Decides a call for which no clause holds.
    pub(super) fn otherwise(&mut self, call: &str, decision: impl Into<Decision>) {
        if let Some(entry) = self.entry_mut(call) {
            entry.otherwise = decision.into();
        }
    }

    /// Decides a call, granted or not, before any other clause.
    pub(super) fn answer_first(&mut self, call: &str, tests: Vec<Test>, decision: impl Into<Decision>) {
        if let Some(entry) = self.entry_mut(call) {
            entry.clauses.insert(0, Clause::new(tests, decision));
        }
    }

    /// Decides a call, granted or not, if no earlier clause holds.
    pub(super) fn answer_last(&mut self, call: &str, tests: Vec<Test>, decision: impl Into<Decision>) {
        if let Some(entry) = self.entry_mut(call) {
            entry.clauses.push(Clause::new(tests, decision));
        }
    }

    pub(super) fn entry_mut(&mut self, call: &str) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(number_of(call)?))
    }

    pub(super) fn granted(&mut self, call: &str) -> Option<&mut Entry> {
        self.entry_mut(call).filter(|entry| entry.otherwise.verb == Verb::Allow)
    }
}
