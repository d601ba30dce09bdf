//! Calls that are let through, and looked at on the way: for the records of what the path layers refuse, and for learning.
//!
//! A watched call is still granted; it only costs a round to the supervisor, which always lets it go on.

use super::{Entry, Table, Verb};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::profiles;
use sandbox_contract::syscalls::{Number, number};

/// Calls that change what a directory holds. Opening is looked at only where it writes.
const CHANGES: &[&str] = &[
    "creat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "truncate",
    "bind",
];
const EXECUTES: &[&str] = &["execve", "execveat"];
/// Which argument of each holds the flags of open.
const OPENS: &[(&str, u8)] = &[("open", 1), ("openat", 2)];

const WRITING: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;

impl Table {
    /// Looks at the calls that write, and with `reads` at those that only read or execute as well.
    pub fn watching(mut self, reads: bool) -> Table {
        for call in CHANGES {
            self.watch(call, &[]);
        }
        let writing = |arg| Test { arg, mask: WRITING, op: Op::Ne, value: 0 };
        for (call, arg) in OPENS {
            let when = if reads { Vec::new() } else { vec![writing(*arg)] };
            self.watch(call, &when);
        }
        if reads {
            EXECUTES.iter().for_each(|call| self.watch(call, &[]));
        }
        self
    }

    /// Everything is let through, and all that a policy could have a say in is looked at: what `minimal` grants without
    /// a look at its arguments is not, because every policy grants that.
    pub fn learning() -> Table {
        let mut minimal = Table::all(Verb::Deny);
        minimal.grant(&profiles::MINIMAL);
        minimal.set_all(profiles::NEVER, Verb::Deny);
        minimal.guard_arguments(false);
        let looked_at = |verb: Verb| if verb == Verb::Allow { Verb::Allow } else { Verb::Watch };
        let mut table = Table::all(Verb::Watch);
        for (entry, granted) in table.entries.iter_mut().zip(minimal.entries) {
            let clauses = granted.clauses.into_iter().map(|(tests, verb)| (tests, looked_at(verb)));
            *entry = Entry { clauses: clauses.collect(), otherwise: looked_at(granted.otherwise) };
        }
        for call in CHANGES.iter().chain(EXECUTES).chain(&["open", "openat", "connect", "socket", "exit_group"]) {
            table.set_all(&[call], Verb::Watch);
        }
        // Programs use what they would use under the policy.
        table.set_all(profiles::FALLBACK, Verb::Fallback);
        table
    }

    fn watch(&mut self, call: &str, when: &[Test]) {
        let Number::Here(nr) = number(call.as_bytes()) else { return };
        let Some(entry) = self.entries.get_mut(usize::from(nr)) else { return };
        let mut clauses = Vec::new();
        for (tests, verb) in std::mem::take(&mut entry.clauses) {
            if verb == Verb::Allow {
                clauses.push(([tests.as_slice(), when].concat(), Verb::Watch));
            }
            clauses.push((tests, verb));
        }
        if entry.otherwise == Verb::Allow {
            clauses.push((when.to_vec(), Verb::Watch));
        }
        *entry = Entry { clauses, otherwise: entry.otherwise };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Document, NetworkMode, Policy};

    fn table() -> Table {
        let policy = Policy::resolve(Document::default()).expect("the default policy");
        Table::new(&policy, &NetworkMode::None, false, true)
    }

    fn decide(table: &Table, call: i64, args: [u64; 6]) -> Verb {
        table.decide(call as u32, &args)
    }

    #[test]
    fn only_opening_that_writes_is_watched_unless_reads_are_asked_for() {
        let opening = |flags: i32| [0, 0, flags as u64, 0, 0, 0];
        let writes = table().watching(false);
        assert_eq!(decide(&writes, libc::SYS_openat, opening(libc::O_RDONLY | libc::O_CLOEXEC)), Verb::Allow);
        assert_eq!(decide(&writes, libc::SYS_openat, opening(libc::O_WRONLY)), Verb::Watch);
        assert_eq!(decide(&writes, libc::SYS_openat, opening(libc::O_RDONLY | libc::O_CREAT)), Verb::Watch);
        let reads = table().watching(true);
        assert_eq!(decide(&reads, libc::SYS_openat, opening(libc::O_RDONLY)), Verb::Watch);
    }

    #[test]
    fn what_is_denied_stays_denied_under_a_watch() {
        let (plain, watched) = (table(), table().watching(true));
        for nr in 0..1024u32 {
            for arg in [0u64, 1, 2, 3, 0x5412, 0x1000_0000, u64::MAX] {
                let args = [arg; 6];
                match plain.decide(nr, &args) {
                    Verb::Allow => assert!(matches!(watched.decide(nr, &args), Verb::Allow | Verb::Watch), "{nr}"),
                    other => assert_eq!(watched.decide(nr, &args), other, "{nr}"),
                }
            }
        }
    }
}
