//! Compares two policies: what the second allows that the first denies, the reverse, and what differs otherwise. Looks at
//! the policies only, not at the machine.

use crate::plan::table::{Table, Verb};
use crate::policy::{Isolate, NetworkMode, OnViolation, Policy, Profile, StaticBinaries, Word};
use sandbox_contract::bpf::LIMIT;
use sandbox_contract::syscalls::with_name;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// How the second policy differs from the first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Difference {
    pub more: Vec<Change>,
    pub less: Vec<Change>,
    pub other: Vec<Change>,
    /// What could not be compared.
    pub unknown: Vec<Change>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key in the policy that changed.
    pub key: &'static str,
    pub what: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    More,
    Less,
    Other,
    Unknown,
}

impl Difference {
    /// Whether the two allow the same. `None` if something could not be compared, and nothing else differs.
    pub fn same(&self) -> Option<bool> {
        match [&self.more, &self.less, &self.other].iter().all(|list| list.is_empty()) {
            false => Some(false),
            true => self.unknown.is_empty().then_some(true),
        }
    }

    fn put(&mut self, side: Side, key: &'static str, what: impl Into<String>) {
        let list = match side {
            Side::More => &mut self.more,
            Side::Less => &mut self.less,
            Side::Other => &mut self.other,
            Side::Unknown => &mut self.unknown,
        };
        list.push(Change { key, what: what.into() });
    }

    /// Compares lists whose items grant (`Side::More`) or deny (`Side::Less`).
    fn items(&mut self, key: &'static str, gained: Side, a: &[String], b: &[String]) {
        let (a, b): (BTreeSet<_>, BTreeSet<_>) = (a.iter().collect(), b.iter().collect());
        let lost = if gained == Side::More { Side::Less } else { Side::More };
        for (side, of, without, sign) in [(gained, &b, &a, ""), (lost, &a, &b, "no longer ")] {
            let items: Vec<_> = of.difference(without).map(|item| item.as_str()).collect();
            if !items.is_empty() {
                self.put(side, key, format!("{sign}{}", items.join(", ")));
            }
        }
    }

    /// Compares lists that allow everything if they are absent.
    fn restriction(&mut self, key: &'static str, a: Option<Vec<String>>, b: Option<Vec<String>>) {
        match (a, b) {
            (None, Some(list)) => self.put(Side::Less, key, format!("only {}", listed(&list))),
            (Some(list), None) => self.put(Side::More, key, format!("everything, instead of only {}", listed(&list))),
            (Some(a), Some(b)) => self.items(key, Side::More, &a, &b),
            (None, None) => {}
        }
    }

    /// Compares limits, which do not apply if they are absent.
    fn limit<T: PartialOrd + std::fmt::Debug>(&mut self, key: &'static str, a: Option<T>, b: Option<T>) {
        let shown = |limit: &Option<T>| limit.as_ref().map_or("none".to_owned(), |limit| format!("{limit:?}"));
        let side = match (&a, &b) {
            (a, b) if a == b => return,
            (_, None) => Side::More,
            (None, _) => Side::Less,
            (a, b) => {
                if b > a {
                    Side::More
                } else {
                    Side::Less
                }
            }
        };
        self.put(side, key, format!("{} instead of {}", shown(&b), shown(&a)));
    }

    /// Compares settings of a few values; `loose` tells how much each allows.
    fn word<T: Word>(&mut self, key: &'static str, a: T, b: T, loose: impl Fn(T) -> u8) {
        if a != b {
            let side = match loose(b).cmp(&loose(a)) {
                std::cmp::Ordering::Greater => Side::More,
                std::cmp::Ordering::Less => Side::Less,
                std::cmp::Ordering::Equal => Side::Other,
            };
            self.put(side, key, format!("{} instead of {}", b.word(), a.word()));
        }
    }
}

fn listed(items: &[String]) -> String {
    if items.is_empty() { "nothing".to_owned() } else { items.join(", ") }
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

/// The writable paths: those listed, and those that the profiles grant.
fn written(policy: &Policy) -> Vec<String> {
    let of = |profiles: &[Profile], place: &str| {
        policy.profiles.iter().any(|profile| profiles.contains(profile)).then(|| place.to_owned())
    };
    let granted = [
        of(&[Profile::Write], "the working directory"),
        of(&[Profile::Read, Profile::Write, Profile::Browser], "a private TMPDIR"),
    ];
    paths(&policy.paths.write).into_iter().chain(granted.into_iter().flatten()).collect()
}

/// How `b` differs from `a`.
pub fn diff(a: &Policy, b: &Policy) -> Difference {
    let mut found = Difference::default();
    if a.profiles != b.profiles {
        found.put(Side::Other, "profile", format!("{} instead of {}", b.profile_name(), a.profile_name()));
    }
    syscalls(&mut found, a, b);
    found.restriction("paths.read", a.paths.read.as_deref().map(paths), b.paths.read.as_deref().map(paths));
    found.items("paths.also_read", Side::More, &paths(&a.paths.also_read), &paths(&b.paths.also_read));
    found.items("paths.write", Side::More, &written(a), &written(b));
    found.restriction("paths.execute", a.paths.execute.as_deref().map(paths), b.paths.execute.as_deref().map(paths));
    found.items("paths.deny", Side::Less, &paths(&a.paths.deny), &paths(&b.paths.deny));
    network(&mut found, a, b);
    limits(&mut found, a, b);
    found.items("env.pass", Side::More, &a.env.pass, &b.env.pass);
    let set = |policy: &Policy| -> Vec<String> {
        policy.env.set.iter().map(|(name, value)| format!("{name}={value}")).collect()
    };
    if a.env.set != b.env.set {
        found.put(Side::Other, "env.set", format!("{} instead of {}", listed(&set(b)), listed(&set(a))));
    }
    let named = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    found.restriction("commands.allow", named(&a.commands.allow), named(&b.commands.allow));
    found.items("commands.block", Side::Less, &a.commands.block, &b.commands.block);
    strictness(&mut found, a, b);
    bubblewrap(&mut found, a, b);
    found
}

fn limits(found: &mut Difference, a: &Policy, b: &Policy) {
    for (key, a, b) in [
        ("limits.memory", a.limits.memory, b.limits.memory),
        ("limits.processes", a.limits.processes, b.limits.processes),
        ("limits.files", a.limits.files, b.limits.files),
        ("limits.output", a.limits.output, b.limits.output),
        ("limits.disk", a.limits.disk, b.limits.disk),
    ] {
        found.limit(key, a, b);
    }
    found.limit("limits.cpu", a.limits.cpu, b.limits.cpu);
    found.limit("timeout", a.timeout, b.timeout);
}

/// The settings that decide what happens to denied calls, to static programs and if a layer is missing.
fn strictness(found: &mut Difference, a: &Policy, b: &Policy) {
    found.word("on_violation", a.on_violation, b.on_violation, |word| u8::from(word == OnViolation::Log));
    found.word("static_binaries", a.static_binaries, b.static_binaries, |word| match word {
        StaticBinaries::Block => 0,
        StaticBinaries::Enforce => 1,
        StaticBinaries::Warn | StaticBinaries::Allow => 2,
    });
    if a.require_sandbox != b.require_sandbox {
        let side = if a.require_sandbox { Side::More } else { Side::Less };
        found.put(side, "require_sandbox", format!("{} instead of {}", b.require_sandbox, a.require_sandbox));
    }
}

fn bubblewrap(found: &mut Difference, a: &Policy, b: &Policy) {
    found.word("bubblewrap.mode", a.bubblewrap.isolate, b.bubblewrap.isolate, |mode| match mode {
        Isolate::Required => 0,
        Isolate::Preferred => 1,
        Isolate::Disabled => 2,
    });
    for (key, a, b) in [
        ("bubblewrap.read", &a.bubblewrap.extra_read, &b.bubblewrap.extra_read),
        ("bubblewrap.write", &a.bubblewrap.extra_write, &b.bubblewrap.extra_write),
    ] {
        found.items(key, Side::More, &paths(a), &paths(b));
    }
    for (key, a, b) in
        [("libsandbox", &a.libsandbox, &b.libsandbox), ("bubblewrap.path", &a.bubblewrap.bwrap, &b.bubblewrap.bwrap)]
    {
        if a != b {
            let shown =
                |path: &Option<PathBuf>| path.as_ref().map_or("the default".to_owned(), |p| p.display().to_string());
            found.put(Side::Other, key, format!("{} instead of {}", shown(b), shown(a)));
        }
    }
}

fn network(found: &mut Difference, a: &Policy, b: &Policy) {
    let order = |mode: &NetworkMode| match mode {
        NetworkMode::None => 0,
        NetworkMode::Own => 1,
        NetworkMode::Loopback => 2,
        NetworkMode::Hosts(_) => 3,
        NetworkMode::Full => 4,
    };
    let shown = |mode: &NetworkMode| match mode {
        NetworkMode::Hosts(hosts) => format!("{} {}", mode.word(), listed(hosts)),
        _ => mode.word().to_owned(),
    };
    match (a.network_mode(), b.network_mode()) {
        (a, b) if a == b => {}
        (NetworkMode::Hosts(a), NetworkMode::Hosts(b)) => found.items("network.hosts", Side::More, &a, &b),
        (a, b) => {
            let side = match (&a, &b) {
                // Neither includes the other.
                (NetworkMode::Loopback, NetworkMode::Hosts(_)) | (NetworkMode::Hosts(_), NetworkMode::Loopback) => {
                    Side::Other
                }
                (a, b) if order(b) > order(a) => Side::More,
                _ => Side::Less,
            };
            found.put(side, "network.mode", format!("{} instead of {}", shown(&b), shown(&a)));
        }
    }
    let ports = |policy: &Policy| -> Option<Vec<String>> {
        (!policy.network.ports.is_empty()).then(|| policy.network.ports.iter().map(u16::to_string).collect())
    };
    found.restriction("network.ports", ports(a), ports(b));
    let rules = |policy: &Policy| -> Option<Vec<String>> {
        let rules: Vec<String> = policy.network.http.iter().map(ToString::to_string).collect();
        (!rules.is_empty()).then_some(rules)
    };
    found.restriction("network.http", rules(a), rules(b));
    let credentials = |policy: &Policy| -> Vec<String> {
        let shown =
            |one: &crate::policy::Credential| format!("{}@{}={} from {}", one.env, one.host, one.placed, one.from);
        policy.network.credentials.iter().map(shown).collect()
    };
    found.items("network.credential", Side::More, &credentials(a), &credentials(b));
    found.items("network.upstream_ca", Side::More, &paths(&a.network.upstream_ca), &paths(&b.network.upstream_ca));
    found.items("network.unix", Side::More, &paths(&a.network.unix), &paths(&b.network.unix));
}

fn syscalls(found: &mut Difference, a: &Policy, b: &Policy) {
    let [a, b] = [a, b].map(|policy| {
        if policy.profiles.contains(&Profile::Custom) {
            return Table::exact(policy);
        }
        let writes = policy.starts_programs();
        Table::new(policy, &policy.network_mode(), writes, true)
    });
    let [mut more, mut less, mut other, mut unknown] = [const { Vec::new() }; 4];
    for nr in 0..LIMIT {
        let Some(name) = with_name(nr, |name| String::from_utf8_lossy(name).into_owned()) else { continue };
        let Some(sides) = sides(&a, &b, nr) else {
            unknown.push(name);
            continue;
        };
        // If a policy tests the arguments, the difference may be in some of them only.
        let partly =
            |name: String| if looks(&a, nr) || looks(&b, nr) { format!("{name} (some arguments)") } else { name };
        match sides {
            [false, false, false] => {}
            [true, false, _] => more.push(partly(name)),
            [false, true, _] => less.push(partly(name)),
            [true, true, _] => other.push(format!("{name} (some arguments more, some less)")),
            [false, false, true] => other.push(name),
        }
    }
    for (side, names) in [(Side::More, more), (Side::Less, less), (Side::Other, other), (Side::Unknown, unknown)] {
        if !names.is_empty() {
            found.put(side, "syscalls", names.join(", "));
        }
    }
    if a.beyond() != b.beyond() {
        let side = match (a.beyond().passes(), b.beyond().passes()) {
            (false, true) => Side::More,
            (true, false) => Side::Less,
            _ => Side::Other,
        };
        let (a, b) = (a.beyond(), b.beyond());
        found.put(side, "syscalls.default", format!("{} instead of {}", in_words(b), in_words(a)));
    }
}

fn looks(table: &Table, nr: u16) -> bool {
    !table.entry(nr).0.is_empty()
}

fn in_words(verb: Verb) -> String {
    match verb {
        Verb::Allow => "allow".to_owned(),
        Verb::Deny => "deny".to_owned(),
        Verb::DenyWith(errno) => format!("deny, errno {errno}"),
        Verb::Fallback => "errno 38".to_owned(),
        Verb::Supervise => "supervised".to_owned(),
        Verb::Watch => "allow, watched".to_owned(),
        Verb::UntilMain => "allow until main".to_owned(),
        Verb::Errno(errno) | Verb::Refuse(errno) => format!("errno {errno}"),
        Verb::Kill => "kill".to_owned(),
        Verb::Log => "log".to_owned(),
    }
}

/// Whether there are arguments with which a call is allowed by `b` only, by `a` only, or gets another action. `None`: the
/// rules are too intricate to compare.
fn sides(a: &Table, b: &Table, nr: u16) -> Option<[bool; 3]> {
    let mut sides = [false; 3];
    let compare = |a: Verb, b: Verb| match (a.passes(), b.passes()) {
        _ if a == b => {}
        (false, true) => sides[0] = true,
        (true, false) => sides[1] = true,
        // The supervisor may allow the call, which is more than a denial.
        _ if b == Verb::Supervise => sides[0] = true,
        _ if a == Verb::Supervise => sides[1] = true,
        _ => sides[2] = true,
    };
    if a.entry(nr) != b.entry(nr) {
        a.diagram(nr)?.compare(&b.diagram(nr)?, compare)?;
    }
    Some(sides)
}
