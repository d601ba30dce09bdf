//! The decision for every syscall: takes a policy, gives a table, and from the table the BPF program.
//!
//! A table holds verbs, so that plans, reports and tests can say what a rule means. `program` turns them into the return
//! values of a filter. A call is decided by its first clause that holds. The clause carries its reason, so a report gives
//! the reason that really denied the call.

mod arguments;
mod at_main;
mod browser;
pub mod diagram;
mod edit;
pub mod files;
mod identity;
mod program;
mod query;
pub mod sockets;
mod watch;
mod why;

pub use diagram::Diagram;
pub use program::{Answers, Template};
pub use watch::Reads;
pub use why::{Clause, Decision, Why};

use crate::policy::{NetworkMode, Policy, Profile, RuleAction};
use edit::number_of;
use sandbox_contract::bpf::Test;
use sandbox_contract::grammar::{self, NumberSet};
use sandbox_contract::profiles;
use sandbox_contract::syscalls::COUNT;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Allow,
    /// Denied as `on_violation` says.
    Deny,
    /// Denied as `on_violation` says. If that is an errno, this one, on which programs give up instead of retrying.
    DenyWith(u16),
    /// ENOSYS, not recorded: the program falls back to an older call.
    Fallback,
    /// The supervisor makes the call in the program's place, or denies it.
    Supervise,
    /// Granted; the supervisor is notified first.
    Watch,
    /// Granted until main, for the dynamic loader. From then on the supervisor decides by the exact list.
    UntilMain,
    Errno(u16),
    /// Denied with this errno and recorded, whatever `on_violation` says: programs try it routinely and do without.
    Refuse(u16),
    Kill,
    Log,
}

impl Verb {
    /// Whether the kernel carries out the call.
    pub fn passes(self) -> bool {
        matches!(self, Verb::Allow | Verb::Watch | Verb::UntilMain | Verb::Log)
    }
}

impl From<RuleAction> for Verb {
    fn from(action: RuleAction) -> Verb {
        match action {
            RuleAction::Allow => Verb::Allow,
            RuleAction::Deny => Verb::Deny,
            RuleAction::Errno(errno) => Verb::Errno(errno),
            RuleAction::Kill => Verb::Kill,
            RuleAction::Log => Verb::Log,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    clauses: Vec<Clause>,
    otherwise: Decision,
}

/// The decisions for every syscall number of this architecture. A number without a name has no entry: no list and no rule can
/// name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    entries: Vec<Entry>,
    beyond: Decision,
}

/// The CLONE_NEW* flags of clone(2). CLONE_NEWTIME is not among them: it lies in the byte of the exit signal, so only
/// clone3 takes it.
pub(crate) const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// The addresses of the arguments with which the child calls exec and sends its listener. The filter lets these two
/// calls through with exactly these arguments.
#[derive(Debug, Clone, Copy)]
pub struct Secrets {
    /// The second to the fifth argument.
    pub exec: [u64; 4],
    /// The second and third argument.
    pub sendmsg: [u64; 2],
}

/// Groups that can undo a sandbox. A profile grants only what it names, and none names these groups. A custom deny list
/// allows all that it does not name, so there these groups are denied in addition.
const BASE_DENIED: &[&str] = &["namespaces", "debug", "keys", "io-uring", "privileged"];

impl Table {
    /// `supervised`: whether a supervisor answers for `Supervise`.
    pub fn new(policy: &Policy, network: &NetworkMode, starts_programs: bool, supervised: bool) -> Table {
        if policy.profiles.contains(&Profile::Unrestricted) {
            return Table::all(Verb::Allow).changed(policy);
        }
        if policy.profiles.contains(&Profile::Custom) {
            return Table::custom(policy);
        }
        let mut table = Table::all(Decision::deny(Why::Profile));
        table.grant(&profiles::MINIMAL);
        let programs = starts_programs || policy.starts_programs();
        let browser = policy.profiles.contains(&Profile::Browser);
        if policy.starts_programs() {
            // `read` and `write` grant the same calls; Landlock decides which files they change.
            table.grant(&profiles::WRITE);
        }
        if browser {
            table.grant(&profiles::BROWSER);
        }
        // A writable path is useless without the calls that write.
        let changes_files = policy.starts_programs() || policy.changes_files();
        if changes_files {
            table.grant_groups(&["file-write", "metadata"]);
        }
        if *network != NetworkMode::None {
            table.grant(&profiles::NETWORK);
        }
        if programs {
            table.set_all(profiles::PROGRAMS, Verb::Allow);
        }
        table.set_all(profiles::NEVER, Decision::deny(Why::Profile));
        table.set_all(profiles::FALLBACK, Verb::Fallback);
        table.guard_arguments(programs);
        table.guard_scheduler();
        table.guard_sockets(policy, network, supervised);
        if browser {
            table.guard_browser();
        }
        if changes_files {
            let verb = if supervised { Verb::Supervise } else { Verb::Deny };
            table.set_group("metadata", Decision { verb, why: Why::Metadata });
        }
        table.changed(policy)
    }

    /// Every call is allowed.
    pub fn open() -> Table {
        Table::all(Verb::Allow)
    }

    fn all(decision: impl Into<Decision>) -> Table {
        let otherwise = decision.into();
        let entry = |_| Entry { clauses: Vec::new(), otherwise };
        Table { entries: (0..COUNT).map(entry).collect(), beyond: otherwise }
    }

    /// Exactly the lists of a `custom` policy. Without a default, an allow list denies everything else, and a deny list
    /// allows everything else.
    pub fn exact(policy: &Policy) -> Table {
        let verb = match policy.syscalls.default {
            Some(default) => default.into(),
            None if policy.syscalls.allow.is_empty() => Verb::Allow,
            None => Verb::Deny,
        };
        Table::all(Decision { verb, why: Why::List }).changed(policy)
    }

    /// The filter before exec for an exact list. The preload applies the list itself at main, so this one also allows
    /// what the loader and the preload call. A list with a default applies at exec, as in container engines, unchanged.
    fn custom(policy: &Policy) -> Table {
        let mut table = Table::exact(policy);
        if !policy.starts_at_main() {
            return table;
        }
        let exact = table.clone();
        table.set_group("loader", Verb::Allow);
        table.set_all(at_main::OF_THE_PRELOAD, Verb::Allow);
        // A deny list allows everything else, except what can undo the sandbox.
        if policy.syscalls.allow.is_empty() {
            for group in BASE_DENIED {
                table.set_group(group, Decision::deny(Why::Undoes));
            }
        }
        table.set_all(profiles::FALLBACK, Verb::Fallback);
        table.guard_arguments(true);
        table.until_main(&exact)
    }

    /// Denies again what the policy denies by name.
    pub fn denying(mut self, policy: &Policy) -> Table {
        numbers(&policy.syscalls.deny).iter().for_each(|nr| self.set(nr, Decision::deny(Why::Named)));
        self
    }

    /// The decisions of a filter that runs without gatekeeper, and so without a supervisor.
    pub fn alone(policy: &Policy) -> Table {
        if policy.profiles.contains(&Profile::Custom) {
            return Table::exact(policy);
        }
        Table::new(policy, &policy.network_mode(), policy.starts_programs(), false).without_paths(policy)
    }

    /// The table without Landlock. A profile that may write only in its private TMPDIR may then write nowhere, because
    /// no layer confines it to that directory.
    pub fn without_paths(mut self, policy: &Policy) -> Table {
        let confined = !policy.profiles.iter().any(|p| matches!(p, Profile::Unrestricted | Profile::Custom));
        if confined {
            self.refuse_netlink(&policy.network_mode());
        }
        if !confined || policy.changes_files() {
            return self;
        }
        let mut kept = numbers(&policy.syscalls.allow);
        profiles::MINIMAL.calls.iter().filter_map(|call| number_of(call)).for_each(|nr| kept.insert(nr));
        let changing = profiles::FILES.iter().filter_map(|group| NumberSet::of_group(group.as_bytes()));
        for nr in changing.flat_map(NumberSet::iter).filter(|nr| !kept.contains(*nr)) {
            // Keep the clauses: they are the policy's rules on arguments.
            if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
                entry.otherwise = Decision::deny(Why::Profile);
            }
        }
        self
    }

    fn grant(&mut self, profile: &profiles::Profile) {
        self.grant_groups(profile.groups);
        self.set_all(profile.calls, Verb::Allow);
    }

    fn grant_groups(&mut self, groups: &[&str]) {
        groups.iter().for_each(|group| self.set_group(group, Verb::Allow));
    }

    /// Applies `syscalls.allow`, the rules and `syscalls.deny`. Deny wins.
    fn changed(mut self, policy: &Policy) -> Table {
        let (open, exact) = (self.beyond.verb == Verb::Allow, policy.profiles.contains(&Profile::Custom));
        for nr in numbers(&policy.syscalls.allow).iter() {
            let guarded = self
                .entries
                .get(usize::from(nr))
                .is_some_and(|entry| entry.otherwise.verb == Verb::Allow && !entry.clauses.is_empty());
            if Table::holds_network(policy, nr) || Table::only_by_name(policy, nr) {
                continue;
            }
            if !guarded {
                self.set(nr, Verb::Allow);
            }
            // Allowing clone by name grants new processes, not new namespaces.
            let browser = policy.profiles.contains(&Profile::Browser);
            if i64::from(nr) == libc::SYS_clone && !open && !exact && !browser {
                self.only("clone", [vec![Test::bits(0, NEW_NAMESPACES, 0)]], Why::Process);
            }
        }
        for (at, rule) in policy.syscalls.rules.iter().enumerate().rev() {
            let tests =
                rule.args.iter().map(|arg| Test { arg: arg.index, mask: arg.mask, op: arg.op, value: arg.value });
            let decision = Decision { verb: rule.action.into(), why: Why::Rule(at as u32 + 1) };
            self.answer_first(&rule.syscall, tests.collect(), decision);
        }
        for nr in numbers(&policy.syscalls.deny).iter() {
            self.set(nr, Decision::deny(Why::Named));
        }
        self.guard_execution(policy);
        self
    }
}

/// The syscall numbers that a list of names and `@groups` stands for.
pub(crate) fn numbers(list: &[String]) -> NumberSet {
    let mut set = NumberSet::EMPTY;
    for item in list.iter().flat_map(|text| grammar::items(text.as_bytes())) {
        // Cannot fail: `Policy::resolve` has rejected unknown names.
        let _ = grammar::add(item, &mut set);
    }
    set
}
