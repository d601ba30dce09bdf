//! Setting the ids that a process already has: busybox and make do so at start-up, and it changes nothing. And dropping
//! capabilities, after which some programs end if it fails.

use super::edit::number_of;
use super::{Clause, Decision, Entry, Table, Verb, Why, numbers};
use crate::host::User;
use crate::policy::{Policy, Profile};
use sandbox_contract::bpf::{Op, Test};

/// The calls, and how many ids each takes.
const TAKE_USER: [(&str, u8); 3] = [("setuid", 1), ("setreuid", 2), ("setresuid", 3)];
const TAKE_GROUP: [(&str, u8); 3] = [("setgid", 1), ("setregid", 2), ("setresgid", 3)];
/// -1 keeps an id, in the calls that take several.
const UNCHANGED: u32 = u32::MAX;

impl Table {
    /// Grants these calls for the user's own ids only, unless the policy decides them.
    pub fn for_user(mut self, policy: &Policy, user: User) -> Table {
        if policy.profiles.iter().any(|profile| matches!(profile, Profile::Custom | Profile::Unrestricted)) {
            return self;
        }
        let denied = numbers(&policy.syscalls.deny);
        // capset adds none. Only for programs that gatekeeper starts: it has dropped root's dangerous ones before.
        let drops = number_of("capset").is_some_and(|nr| !denied.contains(nr)) && policy.starts_programs();
        if let Some(entry) = self.entry_mut("capset").filter(|entry| drops && entry.otherwise.verb == Verb::Deny) {
            entry.otherwise = Verb::Allow.into();
        }
        let calls = TAKE_USER.map(|call| (call, user.uid)).into_iter().chain(TAKE_GROUP.map(|call| (call, user.gid)));
        for ((call, ids), own) in calls {
            let by_policy = number_of(call).is_none_or(|nr| denied.contains(nr));
            let Some(entry) = self.entry_mut(call) else { continue };
            if entry.otherwise.verb != Verb::Deny || !entry.clauses.is_empty() || by_policy {
                continue;
            }
            let differs = |arg, value| Test::low(arg, Op::Ne, value);
            let foreign = |arg| match ids {
                1 => vec![differs(arg, own)],
                _ => vec![differs(arg, own), differs(arg, UNCHANGED)],
            };
            let clauses = (0..ids).map(|arg| Clause::new(foreign(arg), Decision::deny(Why::Identity))).collect();
            *entry = Entry { clauses, otherwise: Verb::Allow.into() };
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Document, NetworkMode, Syscalls};

    fn table(deny: &[&str]) -> Table {
        let deny = deny.iter().map(|name| (*name).to_owned()).collect();
        let syscalls = Syscalls { deny, ..Syscalls::default() };
        let policy = Policy::resolve(Document { syscalls, ..Document::default() }).expect("a policy");
        Table::new(&policy, &NetworkMode::None, false, true).for_user(&policy, User { uid: 7, gid: 8 })
    }

    #[test]
    fn only_ones_own_ids_can_be_taken() {
        let table = table(&[]);
        let decide = |nr: i64, args: [u64; 3]| table.decide(nr as u32, &[args[0], args[1], args[2], 0, 0, 0]);
        let same = u64::from(u32::MAX);
        assert_eq!(decide(libc::SYS_setuid, [7, 0, 0]), Verb::Allow);
        assert_eq!(decide(libc::SYS_setuid, [0, 0, 0]), Verb::Deny);
        assert_eq!(decide(libc::SYS_setuid, [same, 0, 0]), Verb::Deny);
        assert_eq!(decide(libc::SYS_setgid, [8, 0, 0]), Verb::Allow);
        assert_eq!(decide(libc::SYS_setgid, [7, 0, 0]), Verb::Deny);
        assert_eq!(decide(libc::SYS_setresuid, [same, 7, same]), Verb::Allow);
        assert_eq!(decide(libc::SYS_setresuid, [same, 7, 0]), Verb::Deny);
        assert_eq!(decide(libc::SYS_setresuid, [0, 7, 7]), Verb::Deny);
        assert_eq!(decide(libc::SYS_setresgid, [8, 8, 8]), Verb::Allow);
        // The kernel reads 32 bits, and so does the rule.
        assert_eq!(decide(libc::SYS_setuid, [0xdead_0000_0000 << 16, 0, 0]), Verb::Deny);
    }

    #[test]
    fn what_the_policy_denies_stays_denied() {
        let table = table(&["setuid"]);
        assert_eq!(table.decide(libc::SYS_setuid as u32, &[7, 0, 0, 0, 0, 0]), Verb::Deny);
        assert_eq!(table.decide(libc::SYS_setgid as u32, &[8, 0, 0, 0, 0, 0]), Verb::Allow);
    }
}
