//! The decision for every syscall: a policy in, a table out, and from it the kernel's program.
//!
//! The table speaks in verbs, so that plans, reports and tests can say what a rule means; only `program` turns them into
//! a filter's answers. Rules of one call are clauses: the first that holds decides, and carries the reason of its decision,
//! so that what a report says of a denial is what denied it.

mod arguments;
mod at_main;
mod browser;
pub mod files;
mod identity;
mod program;
pub mod sockets;
mod watch;
mod why;

pub use program::Answers;
pub use watch::Reads;
pub use why::{Clause, Decision, Why};

use crate::policy::{NetworkMode, Policy, Profile, RuleAction};
use sandbox_contract::bpf::{LIMIT, Test};
use sandbox_contract::grammar::{self, NumberSet};
use sandbox_contract::profiles;
use sandbox_contract::syscalls::{Number, number};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Allow,
    /// As `on_violation` says.
    Deny,
    /// The same; where that is an errno, this one, by which programs give up at once instead of trying again.
    DenyWith(u16),
    /// ENOSYS, without a word: the program uses an older call.
    Fallback,
    /// Done, or refused, by the supervisor in the program's place.
    Supervise,
    /// Granted, and looked at on the way.
    Watch,
    /// Granted to the loader. From main on the exact list decides, which the supervisor then asks.
    UntilMain,
    Errno(u16),
    /// Refused with this errno and recorded, whatever `on_violation` says: programs ask for it in passing.
    Refuse(u16),
    Kill,
    Log,
}

impl Verb {
    /// Whether the program gets what it asked for, from the kernel itself.
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

/// The decisions for every syscall number of this architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    entries: Vec<Entry>,
    beyond: Decision,
}

/// CLONE_NEW* as clone(2) takes them; its lowest byte is a signal, so CLONE_NEWTIME is clone3's alone.
pub(crate) const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Where the arguments of exec and of the listener's hand-over are: let through there and nowhere else.
#[derive(Debug, Clone, Copy)]
pub struct Secrets {
    pub exec: [u64; 3],
    /// Its second and third.
    pub sendmsg: [u64; 2],
}

/// Denied under every profile but unrestricted; a profile grants by naming, and names none of these.
const BASE_DENIED: &[&str] = &["namespaces", "debug", "keys", "io-uring", "privileged"];

impl Table {
    /// The table of a policy. `supervised`: whether somebody will answer for `Supervise`.
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
            // The same calls for `read` and `write`: which files they change is for Landlock to say.
            table.grant(&profiles::WRITE);
        }
        if browser {
            table.grant(&profiles::BROWSER);
        }
        // A path to write in is of no use without the calls that write, whatever the profile.
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

    /// Nothing is denied.
    pub fn open() -> Table {
        Table::all(Verb::Allow)
    }

    fn all(decision: impl Into<Decision>) -> Table {
        let otherwise = decision.into();
        Table { entries: vec![Entry { clauses: Vec::new(), otherwise }; usize::from(LIMIT)], beyond: otherwise }
    }

    /// Exactly what a `custom` policy lists. Without a default, an allow list denies all else and a deny list allows it.
    pub fn exact(policy: &Policy) -> Table {
        let verb = match policy.syscalls.default {
            Some(default) => default.into(),
            None if policy.syscalls.allow.is_empty() => Verb::Allow,
            None => Verb::Deny,
        };
        Table::all(Decision { verb, why: Why::List }).changed(policy)
    }

    /// An exact list starts at main, by the preload. Before exec it is widened by what the loader and the preload do.
    /// With a default it starts at exec, as container engines do it, and is not widened.
    fn custom(policy: &Policy) -> Table {
        let mut table = Table::exact(policy);
        if !policy.starts_at_main() {
            return table;
        }
        let exact = table.clone();
        table.set_group("loader", Verb::Allow);
        table.set_all(at_main::OF_THE_PRELOAD, Verb::Allow);
        // A list of what is denied leaves everything else, but never what undoes a sandbox.
        if policy.syscalls.allow.is_empty() {
            for group in BASE_DENIED {
                table.set_group(group, Decision::deny(Why::Undoes));
            }
        }
        table.set_all(profiles::FALLBACK, Verb::Fallback);
        table.guard_arguments(true);
        table.until_main(&exact)
    }

    /// Denies what the policy denies by name, whatever was granted since.
    pub fn denying(mut self, policy: &Policy) -> Table {
        numbers(&policy.syscalls.deny).iter().for_each(|nr| self.set(nr, Decision::deny(Why::Named)));
        self
    }

    /// The decisions of a filter that stands alone, with nobody to supervise it.
    pub fn alone(policy: &Policy) -> Table {
        if policy.profiles.contains(&Profile::Custom) {
            return Table::exact(policy);
        }
        Table::new(policy, &policy.network_mode(), policy.starts_programs(), false).without_paths(policy)
    }

    /// The table where nothing confines paths. A profile that changes files only in its own TMPDIR then changes none:
    /// there is no TMPDIR to tell apart from the rest.
    pub fn without_paths(mut self, policy: &Policy) -> Table {
        let confined = !policy.profiles.iter().any(|p| matches!(p, Profile::Unrestricted | Profile::Custom));
        if !confined || policy.changes_files() {
            return self;
        }
        let mut kept = numbers(&policy.syscalls.allow);
        profiles::MINIMAL.calls.iter().for_each(|call| {
            if let Number::Here(nr) = number(call.as_bytes()) {
                kept.insert(nr);
            }
        });
        let changing = profiles::FILES.iter().filter_map(|group| NumberSet::of_group(group.as_bytes()));
        for nr in changing.flat_map(NumberSet::iter).filter(|nr| !kept.contains(*nr)) {
            // What a rule of the policy says of some arguments stays.
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

    /// What the policy adds and takes away by name and by rule. Deny wins.
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
            // New processes may be granted by name; new namespaces are not among them.
            let browser = policy.profiles.contains(&Profile::Browser);
            if i64::from(nr) == libc::SYS_clone && !open && !exact && !browser {
                self.only("clone", [vec![Test::bits(0, NEW_NAMESPACES, 0)]], Why::Process);
            }
        }
        for (at, rule) in policy.syscalls.rules.iter().enumerate().rev() {
            let Number::Here(nr) = number(rule.syscall.as_bytes()) else { continue };
            let tests =
                rule.args.iter().map(|arg| Test { arg: arg.index, mask: arg.mask, op: arg.op, value: arg.value });
            let decision = Decision { verb: rule.action.into(), why: Why::Rule(at + 1) };
            if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
                entry.clauses.insert(0, Clause::new(tests.collect::<Vec<_>>(), decision));
            }
        }
        for nr in numbers(&policy.syscalls.deny).iter() {
            self.set(nr, Decision::deny(Why::Named));
        }
        self.guard_execution(policy);
        self
    }

    fn set(&mut self, nr: u16, decision: impl Into<Decision>) {
        if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
            *entry = Entry { clauses: Vec::new(), otherwise: decision.into() };
        }
    }

    fn set_all(&mut self, calls: &[&str], decision: impl Into<Decision>) {
        let decision = decision.into();
        for call in calls {
            if let Number::Here(nr) = number(call.as_bytes()) {
                self.set(nr, decision);
            }
        }
    }

    fn set_group(&mut self, group: &str, decision: impl Into<Decision>) {
        let decision = decision.into();
        let numbers = NumberSet::of_group(group.as_bytes());
        numbers.into_iter().flat_map(NumberSet::iter).for_each(|nr| self.set(nr, decision));
    }

    /// Refuses a granted call where these tests hold.
    fn refuse(&mut self, call: &str, tests: impl Into<Vec<Test>>, why: Why) {
        self.answer(call, tests, Decision::deny(why));
    }

    fn answer(&mut self, call: &str, tests: impl Into<Vec<Test>>, decision: impl Into<Decision>) {
        if let Some(entry) = self.granted(call) {
            entry.clauses.push(Clause::new(tests, decision));
        }
    }

    /// Grants a granted call only where one of these sets of tests holds; `why` is the reason of all else.
    fn only(&mut self, call: &str, granted: impl IntoIterator<Item = Vec<Test>>, why: Why) {
        if let Some(entry) = self.granted(call) {
            // What the policy's own rules say stands before it.
            entry.clauses.retain(|clause| matches!(clause.decision.why, Why::Rule(_)));
            entry.clauses.extend(granted.into_iter().map(|tests| Clause::new(tests, Verb::Allow)));
            entry.otherwise = Decision::deny(why);
        }
    }

    /// What a call that is decided by its arguments gets where none of them decides.
    fn otherwise(&mut self, call: &str, decision: impl Into<Decision>) {
        let Number::Here(nr) = number(call.as_bytes()) else { return };
        if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
            entry.otherwise = decision.into();
        }
    }

    fn granted(&mut self, call: &str) -> Option<&mut Entry> {
        let Number::Here(nr) = number(call.as_bytes()) else { return None };
        self.entries.get_mut(usize::from(nr)).filter(|entry| entry.otherwise.verb == Verb::Allow)
    }

    /// What the policy means for a call with these arguments, and the reason of the clause that says so.
    pub fn decision(&self, nr: u32, args: &[u64; 6]) -> Decision {
        let Some(entry) = self.entries.get(nr as usize) else { return self.beyond };
        let holds = |clause: &&Clause| clause.tests.iter().all(|test| test.holds(args));
        entry.clauses.iter().find(holds).map_or(entry.otherwise, |clause| clause.decision)
    }

    /// The same without its reason.
    pub fn decide(&self, nr: u32, args: &[u64; 6]) -> Verb {
        self.decision(nr, args).verb
    }

    /// The clauses of a call and what holds if none does; the first clause that holds decides.
    pub fn entry(&self, nr: u16) -> (&[Clause], Verb) {
        self.entries
            .get(usize::from(nr))
            .map_or((&[], self.beyond.verb), |entry| (&entry.clauses, entry.otherwise.verb))
    }

    /// What happens to every number that has no entry.
    pub fn beyond(&self) -> Verb {
        self.beyond.verb
    }

    /// Whether nothing at all is denied, and no filter needed.
    pub fn is_open(&self) -> bool {
        let open = |entry: &Entry| entry.otherwise.verb == Verb::Allow && entry.clauses.is_empty();
        self.beyond.verb == Verb::Allow && self.entries.iter().all(open)
    }

    /// Whether an internet socket can be made, whatever the mode of the network says: a list of allowed calls may do that.
    pub fn opens_network(&self) -> bool {
        let families = [libc::AF_INET, libc::AF_INET6].into_iter();
        let mut kinds = families.flat_map(|family| [1, 2, 3].map(|kind| (family as u64, kind)));
        kinds.any(|(family, kind)| self.decide(libc::SYS_socket as u32, &[family, kind, 0, 0, 0, 0]).passes())
    }

    /// How many calls are granted without a look at their arguments, and how many with one.
    pub fn granted_count(&self) -> (usize, usize) {
        let named = || {
            (0..LIMIT).zip(&self.entries).filter(|(nr, _)| sandbox_contract::syscalls::with_name(*nr, |_| ()).is_some())
        };
        let plain =
            named().filter(|(_, entry)| entry.otherwise.verb == Verb::Allow && entry.clauses.is_empty()).count();
        (plain, named().filter(|(_, entry)| !entry.clauses.is_empty()).count())
    }

    /// Every call that has a name here: its clauses, and what happens where none of them holds.
    pub fn named(&self) -> impl Iterator<Item = (String, &[Clause], Verb)> {
        let name = |nr| sandbox_contract::syscalls::with_name(nr, |name| String::from_utf8_lossy(name).into_owned());
        (0..LIMIT)
            .zip(&self.entries)
            .filter_map(move |(nr, entry)| Some((name(nr)?, entry.clauses.as_slice(), entry.otherwise.verb)))
    }

    /// Numbers that are granted whatever their arguments.
    pub fn granted_plainly(&self) -> NumberSet {
        let mut set = NumberSet::EMPTY;
        (0..LIMIT)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.otherwise.verb == Verb::Allow)
            .for_each(|(nr, _)| set.insert(nr));
        set
    }
}

pub(crate) fn numbers(list: &[String]) -> NumberSet {
    let mut set = NumberSet::EMPTY;
    for item in list.iter().flat_map(|text| grammar::items(text.as_bytes())) {
        // The policy was checked when it was read: an unknown name does not come this far.
        let _ = grammar::add(item, &mut set);
    }
    set
}
