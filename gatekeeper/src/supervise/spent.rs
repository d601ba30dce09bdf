//! The CPU time of a tree whose processes come and go.
//!
//! A process that ends adds its time to the parent that waits for it. Nothing has the time of a process whose parent ignores
//! SIGCHLD, because the kernel reaps that by itself: of such a process, what was last seen is kept here.

use super::tree;
use crate::sys;
use std::collections::HashMap;
use std::time::Duration;

/// The CPU time of one process, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    pub pid: i32,
    /// When it started. Together with the process id, this identifies it.
    pub started: u64,
    pub own: u64,
    /// Of the processes that it has waited for.
    pub waited: u64,
}

impl Spent {
    fn is(&self, other: &Spent) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    fn all(&self) -> u64 {
        self.own + self.waited
    }
}

/// The CPU time of a tree, from one look at it to the next.
#[derive(Debug, Default)]
pub struct Account {
    last: HashMap<i32, Spent>,
    /// Ticks of processes that have ended and that no parent has waited for.
    lost: u64,
}

/// How often to read the parents again, if some of them end meanwhile.
const READINGS: usize = 4;

impl Account {
    /// Adds a look at the tree, parents first. Returns the CPU time of the tree so far.
    pub fn add(&mut self, seen: &[Spent]) -> Duration {
        let tick = sys::process::ticks_per_second().max(1);
        Duration::from_millis(self.ticks(seen, &tree::spent) * 1000 / tick)
    }

    /// Whether processes were seen whose time no parent has.
    pub fn loses(&self) -> bool {
        self.lost > 0
    }

    fn ticks(&mut self, seen: &[Spent], read: &dyn Fn(i32) -> Option<Spent>) -> u64 {
        let mut now: HashMap<i32, Spent> = seen.iter().map(|spent| (spent.pid, *spent)).collect();
        let mut ended = 0;
        for (pid, before) in &self.last {
            if now.get(pid).is_some_and(|spent| spent.is(before)) {
                continue;
            }
            match read(*pid).filter(|spent| spent.is(before)) {
                // It got another parent during the look, and so was overlooked.
                Some(spent) => drop(now.insert(*pid, spent)),
                None => ended += before.all(),
            }
        }
        // With no parent that can be read in peace, assume that all was waited for: nothing may count twice.
        self.lost += if ended > 0 { ended.saturating_sub(self.waited(seen, read).unwrap_or(ended)) } else { 0 };
        self.last = now;
        self.lost + self.last.values().map(Spent::all).sum::<u64>()
    }

    /// By how much the time of waited-for processes has grown since the last look. Read now, because a process may have ended after
    /// the look at its parent. That counts some of it again at the next look, and so too much as waited for.
    fn waited(&self, seen: &[Spent], read: &dyn Fn(i32) -> Option<Spent>) -> Option<u64> {
        let mut parents = seen.to_vec();
        for _ in 0..READINGS {
            let before = parents.len();
            let mut waited = 0;
            parents.retain(|parent| match read(parent.pid).filter(|spent| spent.is(parent)) {
                Some(spent) => {
                    let last = self.last.get(&parent.pid).filter(|last| last.is(parent));
                    waited += spent.waited.saturating_sub(last.map_or(0, |last| last.waited));
                    true
                }
                None => false,
            });
            // One that has ended may have waited for others before, and its own parent may have been read too early.
            if parents.len() == before {
                return Some(waited);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARDIAN: i32 = 1;

    fn spent(pid: i32, own: u64, waited: u64) -> Spent {
        Spent { pid, started: 7, own, waited }
    }

    /// A look at a tree that does not change meanwhile.
    fn look(account: &mut Account, tree: &[Spent]) -> u64 {
        account.ticks(tree, &|pid| tree.iter().find(|spent| spent.pid == pid).copied())
    }

    #[test]
    fn a_process_that_nothing_waits_for_counts_with_what_was_last_seen() {
        let mut account = Account::default();
        let parent = |own| [spent(GUARDIAN, 0, 0), spent(2, own, 0)];
        assert_eq!(look(&mut account, &[&parent(1)[..], &[spent(3, 5, 0)]].concat()), 6);
        assert_eq!(look(&mut account, &[&parent(2)[..], &[spent(4, 6, 0)]].concat()), 2 + 5 + 6);
        assert!(account.loses());
        assert_eq!(look(&mut account, &parent(2)), 2 + 5 + 6);
        // Another process gets the number of the first.
        let again = Spent { started: 8, ..spent(3, 1, 0) };
        assert_eq!(look(&mut account, &[&parent(2)[..], &[again]].concat()), 2 + 5 + 6 + 1);
    }

    #[test]
    fn a_process_that_was_waited_for_counts_once() {
        let mut account = Account::default();
        let tree = [spent(GUARDIAN, 0, 0), spent(2, 1, 0), spent(3, 5, 2), spent(4, 3, 0)];
        assert_eq!(look(&mut account, &tree), 11);
        // One ends after another that it has waited for, and its parent waits for it.
        assert_eq!(look(&mut account, &[spent(GUARDIAN, 0, 0), spent(2, 1, 12)]), 13);
        // An orphan is the guardian's.
        assert_eq!(look(&mut account, &[spent(GUARDIAN, 0, 14)]), 14);
        assert!(!account.loses());
    }

    #[test]
    fn what_changes_during_a_look_counts_once() {
        let mut account = Account::default();
        let tree = [spent(GUARDIAN, 0, 0), spent(2, 1, 0), spent(3, 5, 0), spent(4, 3, 0)];
        assert_eq!(look(&mut account, &tree), 9);
        // 3 ends after the look at 2, which waits for it. 4 gets another parent and is overlooked.
        let now = |pid| [spent(GUARDIAN, 0, 0), spent(2, 1, 5), spent(4, 3, 0)].into_iter().find(|it| it.pid == pid);
        assert!(account.ticks(&tree[..2], &now) <= 9);
        assert_eq!(look(&mut account, &[spent(GUARDIAN, 0, 0), spent(2, 1, 5), spent(4, 3, 0)]), 9);
        assert!(!account.loses());
        // 2 waits for 4 and ends, after the looks at both of their parents.
        let seen = [spent(GUARDIAN, 0, 0), spent(2, 1, 5)];
        let now = |pid| (pid == GUARDIAN).then(|| spent(GUARDIAN, 0, 9));
        assert!(account.ticks(&seen, &now) <= 9);
        assert_eq!(look(&mut account, &[spent(GUARDIAN, 0, 9)]), 9);
        assert!(!account.loses());
    }
}
