//! Exact lists: they apply from main on, and the calls of the loader are granted until then.
//!
//! The supervisor lets these calls continue until libsandbox.so installs its filter, which announces main. From then on
//! the exact list applies to the whole process tree, and its denials are recorded like all others. Without a supervisor
//! the library's own filter denies these calls, and no record is made.

use super::edit::number_of;
use super::{Table, Verb};
use sandbox_contract::grammar::NumberSet;
use sandbox_contract::syscalls::COUNT;

/// What libsandbox.so itself calls, in addition to the loader.
pub(super) const OF_THE_PRELOAD: &[&str] = &["seccomp", "prctl", "rt_sigaction"];

impl Table {
    /// Marks the calls that are granted only until main. `exact`: the list without additions.
    pub(super) fn until_main(mut self, exact: &Table) -> Table {
        let mut start = NumberSet::of_group(b"loader").cloned().unwrap_or(NumberSet::EMPTY);
        OF_THE_PRELOAD.iter().filter_map(|call| number_of(call)).for_each(|nr| start.insert(nr));
        for nr in start.iter() {
            // seccomp(2) announces main, so the supervisor must see it even if it is listed.
            let listed = exact.entry(nr) == (&[], Verb::Allow) && i64::from(nr) != libc::SYS_seccomp;
            if !listed {
                self.replace(nr, Verb::Allow, Verb::UntilMain);
            }
        }
        self
    }

    /// The table for a program that libsandbox.so cannot enter, so that main is never announced.
    pub fn without_main(mut self) -> Table {
        (0..COUNT).for_each(|nr| self.replace(nr, Verb::UntilMain, Verb::Allow));
        self
    }

    fn replace(&mut self, nr: u16, from: Verb, to: Verb) {
        let Some(entry) = self.entries.get_mut(usize::from(nr)) else { return };
        let decisions = entry.clauses.iter_mut().map(|clause| &mut clause.decision).chain([&mut entry.otherwise]);
        decisions.filter(|decision| decision.verb == from).for_each(|decision| decision.verb = to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Document, NetworkMode, Policy, Profile};

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let mut document = Document { profile: Some(vec![Profile::Custom]), ..Document::default() };
        document.syscalls.allow = allow.iter().map(|name| (*name).to_owned()).collect();
        document.syscalls.deny = deny.iter().map(|name| (*name).to_owned()).collect();
        Policy::resolve(document).expect("a sound policy")
    }

    fn decide(policy: &Policy, call: i64, args: [u64; 6]) -> Verb {
        Table::new(policy, &NetworkMode::Full, false, true).decide(call as u32, &args)
    }

    #[test]
    fn what_is_not_listed_is_granted_to_the_loader_alone() {
        let policy = policy(&["write", "exit_group", "mmap"], &[]);
        assert_eq!(decide(&policy, libc::SYS_openat, [0; 6]), Verb::UntilMain);
        assert_eq!(decide(&policy, libc::SYS_mmap, [0; 6]), Verb::Allow);
        assert_eq!(decide(&policy, libc::SYS_write, [0; 6]), Verb::Allow);
        assert_eq!(decide(&policy, libc::SYS_socket, [0; 6]), Verb::Deny);
    }

    #[test]
    fn the_announcement_is_heard_whatever_is_listed() {
        for policy in [policy(&["seccomp", "write"], &[]), policy(&[], &["openat"]), policy(&[], &["seccomp"])] {
            assert_eq!(decide(&policy, libc::SYS_seccomp, [0; 6]), Verb::UntilMain);
        }
    }

    #[test]
    fn a_deny_list_keeps_what_it_denies_until_main() {
        let policy = policy(&[], &["openat", "socket"]);
        assert_eq!(decide(&policy, libc::SYS_openat, [0; 6]), Verb::UntilMain);
        assert_eq!(decide(&policy, libc::SYS_read, [0; 6]), Verb::Allow);
        assert_eq!(decide(&policy, libc::SYS_socket, [0; 6]), Verb::Deny);
        let alone = Table::new(&policy, &NetworkMode::Full, false, true).without_main().denying(&policy);
        assert_eq!(alone.decide(libc::SYS_openat as u32, &[0; 6]), Verb::Deny);
        assert_eq!(alone.decide(libc::SYS_seccomp as u32, &[0; 6]), Verb::Allow);
    }

    #[test]
    fn what_no_program_may_stays_refused_before_main() {
        let policy = policy(&["write"], &[]);
        assert_ne!(decide(&policy, libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]), Verb::UntilMain, "TIOCSTI");
        assert_eq!(decide(&policy, libc::SYS_prlimit64, [1, 0, 0, 0, 0, 0]), Verb::Deny, "another process");
    }
}
