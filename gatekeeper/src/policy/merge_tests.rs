//! Documents laid over each other, and what resolving makes of them.

use super::*;
use proptest::prelude::*;
use sandbox_contract::bpf::{Op, Test};
use std::path::Path;
use std::time::Duration;

fn toml(text: &str) -> Document {
    parse(text.as_bytes(), Path::new("policy.toml")).unwrap()
}

#[test]
fn a_variable_that_the_nearer_document_passes_is_not_set() {
    let base = "[env]\nset = { A = '1', B = '2' }\npass = ['C']\n";
    let merged = toml("[env]\npass = ['A']\nset = { C = '3' }\n").over(toml(base));
    assert_eq!(merged.env.pass, ["C", "A"]);
    assert_eq!(merged.env.set, [("B".to_owned(), "2".to_owned()), ("C".to_owned(), "3".to_owned())].into());
    let both = toml("[env]\npass = ['A']\nset = { A = '3' }\n").over(toml(base));
    assert_eq!(both.env.set["A"], "3");
}

#[test]
fn defaults_are_the_strict_ones() {
    let policy = Policy::resolve(Document::default()).unwrap();
    assert_eq!(
        policy,
        Policy {
            profiles: vec![Profile::Minimal],
            on_violation: OnViolation::Errno,
            static_binaries: StaticBinaries::Enforce,
            require_sandbox: true,
            timeout: None,
            syscalls: Syscalls::default(),
            paths: Paths::default(),
            network: Network::default(),
            limits: Limits::default(),
            env: Environment::default(),
            commands: Commands::default(),
            bubblewrap: Bubblewrap { isolate: Isolate::Disabled, bwrap: None, extra_read: vec![], extra_write: vec![] },
            libsandbox: None,
            sources: vec![],
            warnings: vec![],
        }
    );
}

const BASE: &str = r#"
profile = "write"
on_violation = "log"
static_binaries = "block"
require_sandbox = false
timeout = 60
libsandbox = "/base.so"
[syscalls]
allow = "read"
deny = "socket"
[paths]
read = ["/base"]
also_read = ["/base"]
write = ["/base"]
deny = ["/base"]
[network]
hosts = ["base.org"]
ports = [80]
unix = ["/base"]
[limits]
memory = 100001
processes = 1
files = 21
cpu = 1
output = 10001
disk = 10001
[env]
pass = ["BASE"]
set = { A = "base", B = "base" }
[commands]
allow = ["base"]
block = ["base"]
[bubblewrap]
mode = "required"
path = "/base"
read = ["/base"]
write = ["/base"]
"#;

const NEAR: &str = r#"
profile = "network"
on_violation = "kill"
static_binaries = "warn"
require_sandbox = true
timeout = 0
libsandbox = "/near.so"
[syscalls]
allow = "socket"
deny = "ptrace"
[paths]
read = ["/near"]
also_read = ["/near"]
write = ["/near"]
execute = []
deny = ["/near"]
[network]
hosts = ["near.org"]
ports = [443]
unix = ["/near"]
[limits]
memory = 100002
processes = 2
files = 22
cpu = 2
output = 20002
disk = 20002
[env]
pass = ["NEAR"]
set = { A = "near" }
[commands]
allow = ["near"]
block = ["near"]
[bubblewrap]
mode = "disabled"
path = "/near"
read = ["/near"]
write = ["/near"]
"#;

const BOTH: &str = r#"
profile = "network"
on_violation = "kill"
static_binaries = "warn"
require_sandbox = true
timeout = 0
libsandbox = "/near.so"
[syscalls]
allow = "read:socket"
deny = "socket:ptrace"
[paths]
read = ["/base", "/near"]
also_read = ["/base", "/near"]
write = ["/base", "/near"]
execute = []
deny = ["/base", "/near"]
[network]
hosts = ["base.org", "near.org"]
ports = [80, 443]
unix = ["/base", "/near"]
[limits]
memory = 100002
processes = 2
files = 22
cpu = 2
output = 20002
disk = 20002
[env]
pass = ["BASE", "NEAR"]
set = { A = "near", B = "base" }
[commands]
allow = ["base", "near"]
block = ["base", "near"]
[bubblewrap]
mode = "disabled"
path = "/near"
read = ["/base", "/near"]
write = ["/base", "/near"]
"#;

#[test]
fn the_nearer_wins_and_lists_add_up() {
    assert_eq!(toml(NEAR).over(toml(BASE)), toml(BOTH));
    assert_eq!(Document::default().over(toml(BASE)), toml(BASE));
    assert_eq!(toml(NEAR).over(Document::default()), toml(NEAR));
    assert_eq!(Policy::resolve(toml(BOTH)).unwrap().timeout, None, "zero takes the base's timeout away");
}

#[test]
fn a_network_mode_of_flags_replaces_the_hosts_of_the_file() {
    let hosts = toml("[network]\nhosts = ['a.org']");
    for mode in [NetworkMode::None, NetworkMode::Loopback, NetworkMode::Full] {
        let network = Network { mode: Some(mode.clone()), ..Network::default() };
        let flags = Document { network, ..Document::default() };
        assert_eq!(flags.over(hosts.clone()).network.mode, Some(mode));
    }
    let none = toml("[network]\nmode = 'hosts'");
    assert_eq!(Policy::resolve(none).unwrap().network.mode, Some(NetworkMode::Hosts(vec![])), "empty means nothing");
}

#[test]
fn flags_are_judged_as_files_are() {
    let flags = |change: fn(&mut Document)| {
        let mut document = Document::default();
        change(&mut document);
        Policy::resolve(document).map(drop).map_err(|error| error.to_string())
    };
    let word = |error: &str| Err(error.to_owned());
    assert_eq!(
        flags(|d| d.syscalls.allow = vec!["read:opne".into()]),
        word("syscalls.allow: unknown syscall 'opne'; did you mean 'open'?")
    );
    assert_eq!(
        flags(|d| d.syscalls.deny = vec!["@procces".into()]),
        word("syscalls.deny: unknown group '@procces'; did you mean '@process'?")
    );
    assert_eq!(
        flags(|d| d.profile = Some(vec![Profile::Unrestricted, Profile::Write])),
        word("profile: 'unrestricted' confines nothing, so it cannot be combined with another profile")
    );
    assert_eq!(flags(|d| d.profile = Some(vec![])), word("profile: no profile is named; 'minimal' grants least"));
    assert_eq!(
        flags(|d| d.profile = Some(vec![Profile::Custom])),
        word("profile 'custom' needs syscalls.allow or syscalls.deny")
    );
    assert_eq!(
        flags(|d| {
            d.profile = Some(vec![Profile::Custom]);
            d.sources = vec!["/etc/policy.toml".into()];
        }),
        word("/etc/policy.toml: profile 'custom' needs syscalls.allow or syscalls.deny")
    );
    assert_eq!(
        flags(|d| d.paths.deny = vec!["**/[.env".into()]),
        word("paths.deny: pattern '**/[.env': a '[' is not closed")
    );
    assert_eq!(
        flags(|d| d.paths.read = Some(vec!["".into()])),
        word("paths.read: path '': empty; '.' is the working directory")
    );
    assert_eq!(
        flags(|d| d.network.mode = Some(NetworkMode::Hosts(vec!["a b".into()]))),
        word("network.hosts: host 'a b': not a host name")
    );
    assert_eq!(flags(|d| d.network.ports = vec![0]), word("network.ports: 0 is not between 1 and 65535"));
    assert_eq!(flags(|d| d.limits.processes = Some(0)), word("limits.processes: 0 is too small; the least is 1"));
    assert_eq!(
        flags(|d| d.env.pass = vec!["LD_AUDIT".into()]),
        word(
            "env.pass: variable 'LD_AUDIT': it controls the loader; of LD_* only LD_PRELOAD may be passed, and none may be set"
        )
    );
    assert_eq!(
        flags(|d| d.env.set = [("A=B".to_owned(), String::new())].into()),
        word("env.set: variable 'A=B': not a name that a variable can have")
    );
    assert_eq!(
        flags(|d| d.commands.block = vec![String::new()]),
        word("commands.block: command '': not the name of a program")
    );
    assert_eq!(flags(|d| d.extends = Some("base.toml".into())), word("extends: base.toml was not read"));
    let rule = SyscallRule { syscall: "read".into(), action: RuleAction::Deny, args: vec![] };
    let many = Document {
        syscalls: Syscalls { rules: vec![rule; MAX_RULES + 1], ..Syscalls::default() },
        ..Document::default()
    };
    assert_eq!(Policy::resolve(many).unwrap_err().to_string(), "there are more than 1024 rules");
}

#[test]
fn colon_lists_of_flags_become_items_and_profiles_stand_once() {
    let mut document = Document { profile: Some(vec![Profile::Write, Profile::Write]), ..Document::default() };
    document.syscalls.allow = vec!["read::write".into(), "@network".into()];
    let policy = Policy::resolve(document).unwrap();
    assert_eq!(policy.syscalls.allow, ["read", "write", "@network"]);
    assert_eq!(policy.profiles, [Profile::Write]);
}

#[test]
fn deny_wins_in_an_exact_list_too() {
    let custom = |text: &str| Policy::resolve(toml(&format!("profile = 'custom'\n[syscalls]\n{text}")));
    let lists = custom("allow = 'read:write:socket'\ndeny = 'socket'").unwrap().syscalls;
    assert_eq!(lists, Syscalls { allow: vec!["read".into(), "write".into()], deny: vec![], ..Syscalls::default() });
    let lists = custom("allow = '@basic:@keys'\ndeny = 'keyctl'").unwrap().syscalls;
    assert_eq!(lists.allow, ["@basic", "add_key", "request_key"]);
    let lists = custom("deny = 'socket'").unwrap().syscalls;
    assert_eq!(lists.deny, ["socket"]);
    assert_eq!(
        custom("allow = 'socket'\ndeny = '@network'").unwrap_err().to_string(),
        "profile 'custom': syscalls.deny leaves nothing of syscalls.allow"
    );
    assert_eq!(
        custom("allow = 'socket'\n[[syscalls.rule]]\nsyscall = 'socket'\naction = 'deny'").unwrap_err().to_string(),
        "profile 'custom' is exactly its lists; [[syscalls.rule]] needs another profile, or syscalls.default"
    );
}

#[test]
fn joining_long_rule_lists_stays_small_and_is_refused() {
    let allow = SyscallRule { syscall: "read".into(), action: RuleAction::Allow, args: vec![] };
    let deny = SyscallRule { action: RuleAction::Deny, ..allow.clone() };
    let document = |rules| Document { syscalls: Syscalls { rules, ..Syscalls::default() }, ..Document::default() };
    let joined = document(vec![deny; MAX_RULES]).over(document(vec![allow; MAX_RULES]));
    assert!((MAX_RULES + 1..=2 * MAX_RULES + 1).contains(&joined.syscalls.rules.len()));
    assert!(Policy::resolve(joined).is_err());
}

#[test]
fn timeouts_are_kept_to_the_millisecond() {
    assert_eq!(Policy::resolve(toml("timeout = '1500ms'")).unwrap().timeout, Some(Duration::from_millis(1500)));
}

/// What a list of rules says of a call: `None` where no rule matches.
fn decision(rules: &[SyscallRule], args: &[u64; 6]) -> Option<RuleAction> {
    let holds = |test: &ArgTest| Test { arg: test.index, mask: test.mask, op: test.op, value: test.value }.holds(args);
    rules.iter().find(|rule| rule.args.iter().all(holds)).map(|rule| rule.action)
}

fn denies(action: Option<RuleAction>) -> bool {
    matches!(action, Some(RuleAction::Deny | RuleAction::Errno(_) | RuleAction::Kill))
}

fn some_rules() -> impl Strategy<Value = Vec<SyscallRule>> {
    let op = prop_oneof![Just(Op::Eq), Just(Op::Ne), Just(Op::Gt), Just(Op::Le)];
    let test = (0..2u8, op, 0..3u64).prop_map(|(index, op, value)| ArgTest { index, op, mask: u64::MAX, value });
    let action = prop_oneof![
        Just(RuleAction::Allow),
        Just(RuleAction::Deny),
        Just(RuleAction::Errno(13)),
        Just(RuleAction::Log)
    ];
    let rule = (action, proptest::collection::vec(test, 0..3)).prop_map(|(action, args)| SyscallRule {
        syscall: "ioctl".into(),
        action,
        args,
    });
    proptest::collection::vec(rule, 0..5)
}

proptest! {
    /// Three files deep: denied if any of them denies, let through if none does and some rule matches.
    #[test]
    fn a_call_is_denied_if_any_file_denies_it(far in some_rules(), base in some_rules(), near in some_rules()) {
        let joined = rules::joined(far.clone(), rules::joined(base.clone(), near.clone()));
        for first in 0..4 {
            for second in 0..4 {
                let args = [first, second, 0, 0, 0, 0];
                let each = [&far, &base, &near].map(|rules| decision(rules, &args));
                let together = decision(&joined, &args);
                prop_assert_eq!(denies(together), each.into_iter().any(denies));
                prop_assert_eq!(together.is_some(), each.into_iter().any(|action| action.is_some()));
            }
        }
    }
}
