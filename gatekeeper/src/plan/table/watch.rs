//! Calls that are granted and watched: to record what the path layers deny, and to learn.
//!
//! A watched call costs a round trip to the supervisor, which lets it continue.

use super::{Clause, Decision, Entry, Table, Verb, Why};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::profiles;

/// Calls that change the contents of a directory.
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
/// Never denied by a path layer. Watched so that the supervisor knows working directories, from which most names are looked up.
const MOVES: &[&str] = &["chdir", "fchdir"];
const CWD: u32 = libc::AT_FDCWD as u32;

/// Which opens for reading are watched. Each costs a round trip to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    Unseen,
    /// Opens by path, and of directories. Programs that scan a tree (grep -r, tar) open files relative to a directory's
    /// descriptor, and are not slowed down.
    ByPath,
    All,
}

/// The calls that open, and which argument holds the flags.
const OPENS: &[(&str, u8)] = &[("open", 1), ("openat", 2)];

const WRITING: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;

impl Table {
    /// Watches the calls that write or execute, and the given part of those that read.
    pub fn watching(mut self, reads: Reads) -> Table {
        for call in CHANGES {
            self.watch(call, &[]);
        }
        let writing = |arg| Test { arg, mask: WRITING, op: Op::Ne, value: 0 };
        for (call, arg) in OPENS {
            if reads == Reads::All || reads == Reads::ByPath && *call == "open" {
                self.watch(call, &[]);
                continue;
            }
            // Each clause applies to the calls that the earlier ones have not matched.
            if reads == Reads::ByPath {
                self.watch(call, &[Test::low(0, Op::Eq, CWD)]);
                self.watch(call, &[Test { arg: *arg, mask: libc::O_DIRECTORY as u64, op: Op::Ne, value: 0 }]);
            }
            self.watch(call, &[writing(*arg)]);
        }
        EXECUTES.iter().chain(MOVES).for_each(|call| self.watch(call, &[]));
        self
    }

    /// Grants everything, and watches every call that a policy could deny. Calls that `minimal` grants with any arguments
    /// are not watched, because every profile grants them.
    pub fn learning() -> Table {
        let mut minimal = Table::all(Decision::deny(Why::Profile));
        minimal.grant(&profiles::MINIMAL);
        minimal.set_all(profiles::NEVER, Decision::deny(Why::Profile));
        minimal.guard_arguments(false);
        minimal.guard_scheduler();
        let looked_at = |verb: Verb| if verb == Verb::Allow { Verb::Allow } else { Verb::Watch };
        let mut table = Table::all(Verb::Watch);
        for (entry, granted) in table.entries.iter_mut().zip(minimal.entries) {
            let clauses = granted.clauses.into_iter().map(|clause| {
                let verb = looked_at(clause.verb());
                Clause::new(clause.tests, verb)
            });
            *entry = Entry { clauses: clauses.collect(), otherwise: looked_at(granted.otherwise.verb).into() };
        }
        // `minimal` grants these two with some arguments only, or not where programs are listed.
        let tested = ["socketpair", "memfd_create"];
        let used = ["open", "openat", "connect", "socket", "exit_group"];
        for call in CHANGES.iter().chain(EXECUTES).chain(&used).chain(&tested) {
            table.set_all(&[call], Verb::Watch);
        }
        // As under a policy, so that programs use the same calls as they will then.
        table.set_all(profiles::FALLBACK, Verb::Fallback);
        table
    }

    fn watch(&mut self, call: &str, when: &[Test]) {
        let Some(entry) = self.entry_mut(call) else { return };
        let mut clauses = Vec::new();
        for clause in std::mem::take(&mut entry.clauses) {
            if clause.verb() == Verb::Allow {
                clauses.push(Clause::new([clause.tests.as_slice(), when].concat(), Verb::Watch));
            }
            clauses.push(clause);
        }
        if entry.otherwise.verb == Verb::Allow {
            clauses.push(Clause::new(when.to_vec(), Verb::Watch));
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
        let writes = table().watching(Reads::Unseen);
        assert_eq!(decide(&writes, libc::SYS_openat, opening(libc::O_RDONLY | libc::O_CLOEXEC)), Verb::Allow);
        assert_eq!(decide(&writes, libc::SYS_openat, opening(libc::O_WRONLY)), Verb::Watch);
        assert_eq!(decide(&writes, libc::SYS_openat, opening(libc::O_RDONLY | libc::O_CREAT)), Verb::Watch);
        let reads = table().watching(Reads::All);
        assert_eq!(decide(&reads, libc::SYS_openat, opening(libc::O_RDONLY)), Verb::Watch);
        let paths = table().watching(Reads::ByPath);
        let by_path = |flags: i32| [libc::AT_FDCWD as u64, 0, flags as u64, 0, 0, 0];
        assert_eq!(decide(&paths, libc::SYS_openat, by_path(libc::O_RDONLY)), Verb::Watch);
        assert_eq!(decide(&paths, libc::SYS_openat, opening(libc::O_RDONLY)), Verb::Allow);
        assert_eq!(decide(&paths, libc::SYS_openat, opening(libc::O_DIRECTORY)), Verb::Watch);
        assert_eq!(decide(&paths, libc::SYS_openat, opening(libc::O_WRONLY)), Verb::Watch);
    }

    #[test]
    fn learning_watches_the_scheduling_that_no_profile_grants() {
        let decided = |process: u64, policy: i32| {
            decide(&Table::learning(), libc::SYS_sched_setscheduler, [process, policy as u64, 0, 0, 0, 0])
        };
        assert_eq!(decided(0, libc::SCHED_BATCH), Verb::Allow);
        assert_eq!((decided(0, libc::SCHED_FIFO), decided(1, libc::SCHED_BATCH)), (Verb::Watch, Verb::Watch));
    }

    #[test]
    fn what_is_denied_stays_denied_under_a_watch() {
        let (plain, watched) = (table(), table().watching(Reads::All));
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
