//! Questions about a finished table.

use super::diagram::Diagram;
use super::sockets::{AF_INET, AF_INET6, SOCK_TYPE};
use super::{Clause, Decision, Entry, Table, Verb, Why};
use sandbox_contract::grammar::NumberSet;
use sandbox_contract::syscalls::{COUNT, with_name};

impl Table {
    /// The decision for a call with these arguments, with its reason.
    pub fn decision(&self, nr: u32, args: &[u64; 6]) -> Decision {
        let Some(entry) = self.entries.get(nr as usize) else { return self.beyond };
        let holds = |clause: &&Clause| clause.tests.iter().all(|test| test.holds(args));
        entry.clauses.iter().find(holds).map_or(entry.otherwise, |clause| clause.decision)
    }

    /// The decision without its reason.
    pub fn decide(&self, nr: u32, args: &[u64; 6]) -> Verb {
        self.decision(nr, args).verb
    }

    /// The clauses of a call, of which the first that holds decides, and the verb if none holds.
    pub fn entry(&self, nr: u16) -> (&[Clause], Verb) {
        self.entries
            .get(usize::from(nr))
            .map_or((&[], self.beyond.verb), |entry| (&entry.clauses, entry.otherwise.verb))
    }

    /// The verb for every number without an entry.
    pub fn beyond(&self) -> Verb {
        self.beyond.verb
    }

    /// Whether every call is allowed, so that no filter is needed.
    pub fn is_open(&self) -> bool {
        let open = |entry: &Entry| entry.otherwise.verb == Verb::Allow && entry.clauses.is_empty();
        self.beyond.verb == Verb::Allow && self.entries.iter().all(open)
    }

    /// Everything that a call can get, by its arguments. `None` if its rules are too intricate.
    pub fn diagram(&self, nr: u16) -> Option<Diagram<Verb>> {
        let (clauses, otherwise) = self.entry(nr);
        let clauses: Vec<_> = clauses.iter().map(|clause| (clause.tests.as_slice(), clause.verb())).collect();
        Diagram::new(&clauses, otherwise)
    }

    /// Whether an internet socket can be created. `syscalls.allow` and rules can grant that in every network mode. Rules that
    /// are too intricate to decide count as granting it.
    pub fn opens_network(&self) -> bool {
        let (clauses, _) = self.entry(libc::SYS_socket as u16);
        let ruled = clauses.iter().any(|clause| matches!(clause.decision.why, Why::Rule(_)));
        let mut families = [AF_INET, AF_INET6].into_iter();
        if ruled {
            // The kernel takes no other bits of the type.
            let of_type = (1, !(SOCK_TYPE | libc::SOCK_CLOEXEC as u32 | libc::SOCK_NONBLOCK as u32), 0);
            let diagram = self.diagram(libc::SYS_socket as u16);
            return diagram.is_none_or(|calls| {
                families.any(|family| calls.some(&[(0, u32::MAX, family), of_type], Verb::passes))
            });
        }
        // Our own clauses look at nothing that these calls do not have. Every start asks, so this has to be fast.
        let mut kinds = families.flat_map(|family| [1, 2, 3].map(|kind| (family.into(), kind)));
        kinds.any(|(family, kind)| self.decide(libc::SYS_socket as u32, &[family, kind, 0, 0, 0, 0]).passes())
    }

    /// Whether no call passes that could give a process another root directory. A mount namespace made with clone(2) or
    /// unshare(2) is a copy, and Landlock denies every change of its mounts.
    pub fn keeps_root(&self) -> bool {
        let calls = [libc::SYS_chroot, libc::SYS_pivot_root, libc::SYS_setns];
        calls.into_iter().all(|call| self.verbs(call).all(|verb| !verb.passes()))
    }

    /// Whether the supervisor hears of every change of a working directory.
    pub fn sees_chdir(&self) -> bool {
        let seen = |verb: Verb| verb == Verb::Watch || !verb.passes();
        [libc::SYS_chdir, libc::SYS_fchdir].into_iter().all(|call| self.verbs(call).all(seen))
    }

    /// Every verb that a call can get.
    fn verbs(&self, call: i64) -> impl Iterator<Item = Verb> {
        let (clauses, otherwise) = self.entry(call as u16);
        // A clause without tests always holds, so nothing after it counts.
        let last = clauses.iter().position(|clause| clause.tests.is_empty());
        let reached = last.map_or(clauses.len(), |last| last + 1);
        clauses.iter().take(reached).map(Clause::verb).chain(last.is_none().then_some(otherwise))
    }

    /// How many calls are granted with any arguments, and how many are decided by their arguments.
    pub fn granted_count(&self) -> (usize, usize) {
        let named = || (0..COUNT).zip(&self.entries).filter(|(nr, _)| with_name(*nr, |_| ()).is_some());
        let plain =
            named().filter(|(_, entry)| entry.otherwise.verb == Verb::Allow && entry.clauses.is_empty()).count();
        (plain, named().filter(|(_, entry)| !entry.clauses.is_empty()).count())
    }

    /// Every call that has a name on this architecture: its clauses, and the verb if none holds.
    pub fn named(&self) -> impl Iterator<Item = (String, &[Clause], Verb)> {
        let name = |nr| with_name(nr, |name| String::from_utf8_lossy(name).into_owned());
        (0..COUNT)
            .zip(&self.entries)
            .filter_map(move |(nr, entry)| Some((name(nr)?, entry.clauses.as_slice(), entry.otherwise.verb)))
    }

    /// The numbers that are granted unless a clause decides otherwise.
    pub fn granted_plainly(&self) -> NumberSet {
        let mut set = NumberSet::EMPTY;
        (0..COUNT)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.otherwise.verb == Verb::Allow)
            .for_each(|(nr, _)| set.insert(nr));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::table::Reads;
    use crate::policy::{ArgTest, Document, NetworkMode, Policy, Profile, RuleAction, SyscallRule};
    use sandbox_contract::bpf::{Op, Test};

    fn table(profile: Profile) -> Table {
        let document = Document { profile: Some(vec![profile]), ..Document::default() };
        let policy = Policy::resolve(document).expect("a profile");
        Table::new(&policy, &NetworkMode::None, false, true)
    }

    /// Whether `minimal` with these rules on socket opens the network.
    fn opens(rules: &[(RuleAction, &[Test])]) -> bool {
        let mut document = Document::default();
        let rule = |(action, tests): &(RuleAction, &[Test])| SyscallRule {
            syscall: "socket".to_owned(),
            action: *action,
            args: tests
                .iter()
                .map(|test| ArgTest { index: test.arg, op: test.op, value: test.value, mask: test.mask })
                .collect(),
        };
        document.syscalls.rules = rules.iter().map(rule).collect();
        let policy = Policy::resolve(document).expect("a sound policy");
        Table::new(&policy, &NetworkMode::None, false, true).opens_network()
    }

    #[test]
    fn a_rule_opens_the_network_whatever_flags_or_protocol_it_names() {
        let allow = RuleAction::Allow;
        let family = Test::low(0, Op::Eq, AF_INET);
        for tests in [
            &[family][..],
            &[family, Test::low(1, Op::Eq, 0x80002)],
            &[family, Test::low(1, Op::Eq, 0x801)],
            &[family, Test::low(2, Op::Eq, 17)],
            &[Test::low(0, Op::Eq, AF_INET6), Test::low(1, Op::Eq, 5), Test::low(2, Op::Eq, 132)],
            &[Test::low(2, Op::Ne, 0)],
            // The kernel looks at the lower half only.
            &[Test::word(0, 0x1_0000_0002)],
            &[],
        ] {
            assert!(opens(&[(allow, tests)]), "{tests:?}");
        }
        for tests in [
            &[Test::low(0, Op::Eq, libc::AF_UNIX as u32)][..],
            &[Test::low(0, Op::Gt, AF_INET6)],
            &[family, Test::low(0, Op::Eq, AF_INET6)],
            &[family, Test::low(1, Op::Eq, 0x40)],
        ] {
            assert!(!opens(&[(allow, tests)]), "{tests:?}");
        }
    }

    #[test]
    fn rules_that_close_the_network_first_keep_it_closed() {
        let deny = |family| [Test::low(0, Op::Eq, family)];
        let (four, six) = (deny(AF_INET), deny(AF_INET6));
        let all: (RuleAction, &[Test]) = (RuleAction::Allow, &[]);
        assert!(!opens(&[(RuleAction::Deny, &four), (RuleAction::Deny, &six), all]));
        assert!(opens(&[(RuleAction::Deny, &four), all, (RuleAction::Deny, &six)]));
        assert!(!opens(&[(RuleAction::Deny, &four)]));
    }

    #[test]
    fn rules_too_intricate_to_decide_count_as_open() {
        let bit = |arg, bit: u32| Test::bits(arg, 1 << bit, 1 << bit);
        let both: Vec<[Test; 3]> = (8..32).map(|at| [bit(0, at), bit(1, at), Test::low(0, Op::Eq, 1)]).collect();
        let rules: Vec<(RuleAction, &[Test])> =
            both.iter().map(|tests| (RuleAction::Allow, tests.as_slice())).collect();
        assert!(!opens(&rules), "no such family, which is simple");
        let rules: Vec<(RuleAction, &[Test])> = both.iter().map(|tests| (RuleAction::Allow, &tests[..2])).collect();
        assert!(opens(&rules));
    }

    #[test]
    fn the_root_is_kept_where_no_call_can_change_it() {
        assert!(table(Profile::Write).keeps_root() && table(Profile::Minimal).keeps_root());
        assert!(!table(Profile::Unrestricted).keeps_root() && !table(Profile::Browser).keeps_root());
    }

    #[test]
    fn a_working_directory_is_known_if_its_changes_are_watched() {
        assert!(!table(Profile::Write).sees_chdir());
        assert!(table(Profile::Write).watching(Reads::ByPath).sees_chdir());
    }
}
