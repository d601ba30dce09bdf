//! What is printed is read back the same, and what is hostile is refused without harm.

use super::*;
use crate::policy::pattern::Denied;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use sandbox_contract::bpf::Op;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn parsed(text: &str) -> Document {
    parse(text.as_bytes(), Path::new("policy.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn a_policy_is_printed_as_a_person_would_write_it() {
    let mut document = Document {
        profile: Some(vec![Profile::Write, Profile::Network]),
        timeout: Some(Duration::from_secs(5400)),
        ..Document::default()
    };
    document.syscalls.deny = vec!["ptrace".into()];
    document.syscalls.rules = vec![SyscallRule {
        syscall: "socket".into(),
        action: RuleAction::Errno(13),
        args: vec![ArgTest { index: 1, op: Op::Eq, mask: 0xf, value: 1 }],
    }];
    document.paths.read = Some(vec!["/usr".into(), "/a \"b\"".into()]);
    document.paths.deny = (0..8).map(|n| format!("~/some/rather/long/path/{n}").into()).collect();
    document.network.mode = Some(NetworkMode::Hosts(vec![]));
    document.limits.memory = Some(512 << 20);
    document.env.set = [("A".to_owned(), "b".to_owned())].into();
    assert_eq!(
        document.to_toml().unwrap(),
        r#"profile = "write+network"
timeout = "1h30m"

[syscalls]
deny = ["ptrace"]

[[syscalls.rule]]
syscall = "socket"
action = "errno:EACCES"
args = [{ index = 1, op = "masked_eq", value = 1, mask = 0xf }]

[paths]
read = ["/usr", "/a \"b\""]
deny = [
    "~/some/rather/long/path/0",
    "~/some/rather/long/path/1",
    "~/some/rather/long/path/2",
    "~/some/rather/long/path/3",
    "~/some/rather/long/path/4",
    "~/some/rather/long/path/5",
    "~/some/rather/long/path/6",
    "~/some/rather/long/path/7",
]

[network]
mode = "hosts"
hosts = []

[limits]
memory = "512M"

[env.set]
A = "b"
"#
    );
    assert_eq!(parsed(&document.to_toml().unwrap()), document);
    assert_eq!(Document::default().to_toml().unwrap(), "");
}

#[test]
fn a_path_that_is_not_utf8_is_not_printed_as_another() {
    use std::os::unix::ffi::OsStrExt;
    let mut document = Document::default();
    document.paths.deny = vec![std::ffi::OsStr::from_bytes(b"/a\xff").into()];
    let error = document.to_toml().unwrap_err().to_string();
    assert_eq!(error, "paths.deny: /a\u{fffd} is not UTF-8, which a policy file cannot hold");
}

fn some_path() -> impl Strategy<Value = PathBuf> {
    // Quotes, blanks, line ends, other scripts: all but what paths may not hold.
    "[^*~\u{0}][^*\u{0}]{0,12}".prop_map(PathBuf::from)
}

fn paths() -> impl Strategy<Value = Vec<PathBuf>> {
    vec(some_path(), 0..4)
}

fn calls() -> impl Strategy<Value = Vec<String>> {
    let known = ["read", "write", "openat", "socket", "ioctl", "@network", "@io-uring", "mseal"];
    subsequence(known.map(String::from).to_vec(), 0..known.len())
}

/// Paths, and patterns of them.
fn denied() -> impl Strategy<Value = Vec<PathBuf>> {
    vec(r"[a-c*?./]{1,8}|\*\*/[a-c.\u{e9}]{1,8}|[a-c]{1,4}\[[a-c]\]", 0..4)
        .prop_map(|texts| texts.into_iter().map(PathBuf::from).filter(|path| Denied::parse(path).is_ok()).collect())
}

fn a_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..100_000u64).prop_map(Duration::from_secs),
        (0..1_000_000_000u64, 0..1_000_000_000u32).prop_map(|(s, n)| Duration::new(s, n.max(1)))
    ]
}

fn a_rule() -> impl Strategy<Value = SyscallRule> {
    let action = prop_oneof![
        Just(RuleAction::Allow),
        Just(RuleAction::Deny),
        Just(RuleAction::Kill),
        Just(RuleAction::Log),
        (1..4096u16).prop_map(RuleAction::Errno),
    ];
    let op = select(vec![Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge]);
    let mask = prop_oneof![Just(u64::MAX), any::<u64>()];
    let test = (0..6u8, op, mask, any::<u64>()).prop_map(|(index, op, mask, value)| {
        let value = if matches!(op, Op::Eq | Op::Ne) { value & mask } else { value };
        ArgTest { index, op, mask, value }
    });
    (select(vec!["read", "ioctl", "socket"]), action, vec(test, 0..4)).prop_map(|(syscall, action, args)| SyscallRule {
        syscall: syscall.into(),
        action,
        args,
    })
}

fn a_network() -> impl Strategy<Value = Network> {
    let host = select(vec!["a.org", "*.b.org:443", "10.0.0.1", "[::1]:80"]).prop_map(String::from);
    let mode = prop_oneof![
        Just(NetworkMode::None),
        Just(NetworkMode::Loopback),
        Just(NetworkMode::Full),
        vec(host, 0..4).prop_map(NetworkMode::Hosts)
    ];
    let ports = || vec(1..u16::MAX, 0..3);
    let rule = select(vec!["GET,HEAD a.org/v1/**", "* *.b.org:443/x/*.json", "c.org", "PURGE [::1]:80/"]);
    let rules = vec(rule.prop_map(|text| text.parse::<HttpRule>().expect("a rule")), 0..3);
    let credential = select(vec!["T@a.org", "U@b.org:443=basic", "V@c.org=header:X-Key", "W@d.org=query:k"]);
    let credentials = vec(credential.prop_map(|text| text.parse::<Credential>().expect("a credential")), 0..3);
    let plain = (of(mode), ports(), paths(), any::<bool>(), ports());
    (plain, rules, credentials, paths()).prop_map(|(plain, http, credentials, upstream_ca)| {
        let (mode, ports, unix, deny_private, local_ports) = plain;
        Network { mode, ports, unix, deny_private, local_ports, http, credentials, upstream_ca }
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let size = || of(prop_oneof![Just(0), 1024..u64::MAX, (1..1u64 << 20).prop_map(|size| size << 30)]);
    let memory = of(prop_oneof![65536..u64::MAX, (1..1u64 << 20).prop_map(|size| size << 30)]);
    (memory, of(1..1000u64), of(16..1000u64), of(a_duration()), size(), size()).prop_map(
        |(memory, processes, files, cpu, output, disk)| Limits { memory, processes, files, cpu, output, disk },
    )
}

fn document() -> impl Strategy<Value = Document> {
    let profile = select(vec![
        vec![Profile::Minimal],
        vec![Profile::Read],
        vec![Profile::Write, Profile::Network],
        vec![Profile::Unrestricted],
        vec![Profile::Custom],
    ]);
    let head = (
        of(profile),
        of(select(vec![OnViolation::Errno, OnViolation::Kill, OnViolation::Log])),
        of(select(vec![StaticBinaries::Enforce, StaticBinaries::Block, StaticBinaries::Warn, StaticBinaries::Allow])),
        of(any::<bool>()),
        of(prop_oneof![Just(Duration::ZERO), a_duration()]),
        of(some_path()),
        of(some_path()),
    );
    // A name of a program has no blanks, its path may; a variable's name has none.
    let word = || vec("[^\\s\u{0}]{1,8}|/[^\u{0}-]{1,8}", 0..3);
    let name = "[A-C][^=*\\s\\pC]{0,8}";
    let env = (vec(name, 0..3), btree_map(name, "[^\u{0}]{0,12}", 0..3));
    let rest = (
        (of(a_rule().prop_map(|rule| rule.action)), calls(), calls(), vec(a_rule(), 0..3))
            .prop_map(|(default, allow, deny, rules)| Syscalls { default, allow, deny, rules }),
        (of(paths()), paths(), paths(), of(paths()), denied())
            .prop_map(|(read, also_read, write, execute, deny)| Paths { read, also_read, write, execute, deny }),
        a_network(),
        limits(),
        env.prop_map(|(pass, set)| Environment { pass, set }),
        (word(), word()).prop_map(|(allow, block)| Commands { allow, block }),
        (of(select(vec![Isolate::Required, Isolate::Preferred, Isolate::Disabled])), of(some_path()), paths(), paths())
            .prop_map(|(mode, path, read, write)| Namespaces { mode, path, read, write }),
    );
    (head, rest).prop_map(|(head, rest)| Document {
        profile: head.0,
        on_violation: head.1,
        static_binaries: head.2,
        require_sandbox: head.3,
        timeout: head.4,
        extends: head.5,
        libsandbox: head.6,
        syscalls: rest.0,
        paths: rest.1,
        network: rest.2,
        limits: rest.3,
        env: rest.4,
        commands: rest.5,
        bubblewrap: rest.6,
        boxed: None,
        sources: Vec::new(),
        warnings: Vec::new(),
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back_the_same(document in document()) {
        let text = document.to_toml().unwrap();
        prop_assert_eq!(parsed(&text), document, "{}", text);
    }

    #[test]
    fn a_policy_said_out_loud_is_the_same_policy(mut document in document()) {
        document.extends = None;
        if let Ok(policy) = Policy::resolve(document) {
            let text = Document::from(policy.clone()).to_toml().unwrap();
            prop_assert_eq!(Policy::resolve(parsed(&text)).unwrap(), policy, "{}", text);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200), name in select(vec!["p", "p.json", "p.toml"])) {
        if let Err(error) = parse(&bytes, Path::new(name)) {
            prop_assert!(!error.to_string().contains(|c: char| c.is_control()), "{:?}", error);
        }
    }

    #[test]
    fn no_letters_of_the_languages_make_it_panic(
        text in "[\\[\\]{}\"',:=/*\\\\#.\n 0-9aeflnrstu\u{e9}-]{0,80}",
        name in select(vec!["p", "p.json", "p.toml"]),
    ) {
        if let Err(error) = parse(text.as_bytes(), Path::new(name)) {
            prop_assert!(!error.to_string().contains(|c: char| c.is_control()), "{:?}", error);
        }
    }

    /// A good file with one byte changed, cut or doubled is read or refused, never a panic.
    #[test]
    fn no_damage_makes_it_panic(document in document(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = document.to_toml().unwrap().into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = parse(&bytes, Path::new("p.toml"));
            let _ = parse(&bytes[..at], Path::new("p.toml"));
        }
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let refused = |text: String, name: &str| parse(text.as_bytes(), Path::new(name)).unwrap_err().to_string();
    let nested = |parts: usize, tables: usize| {
        format!("a = {}1{}", format!("{{ {}a = ", "a.".repeat(parts - 1)).repeat(tables), "}".repeat(tables))
    };
    let deep = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    assert_eq!(
        refused(format!("{{\"env\":{}}}", deep("[", "]", 65)), "p.json"),
        "p.json:1:72: more than 64 lists and tables inside each other"
    );
    // At 64 it is only wrong.
    assert_eq!(
        refused(format!("{{\"env\":{}}}", deep("[", "]", 64)), "p.json"),
        "p.json:1: env must be a table, not a list"
    );
    for text in [
        deep("[", "]", 400_000),
        deep("{\"a\":", "}", 150_000),
        deep("[", "", 1_000_000),
        deep("{\"a\":[", "", 150_000),
        format!("{{\"a\":{}", "/*".repeat(500_000)),
        format!("{{\"a\":\"{}", "\\".repeat(1_000_001)),
        "/".repeat(1_000_000),
    ] {
        let error = parse(text.as_bytes(), Path::new("p.json")).unwrap_err();
        assert!(error.to_string().starts_with("p.json:1"), "{error}");
    }
    for text in [
        format!("a = {}", deep("[", "]", 400_000)),
        format!("a = {}", deep("{a=", "}", 200_000)),
        format!("{}a = 1", "a.".repeat(500_000)),
        format!("[{}a]", "a.".repeat(500_000)),
        format!("[{}a]\nb = 1", "a.".repeat(70)),
        deep("[[a]]\n", "", 150_000),
        // Long keys in inline tables inside each other: the product of two limits of the parser.
        nested(79, 79),
        nested(8, 79),
        nested(8, 78) + "\n" + &nested(8, 79),
        format!("[{}a]\n{}", "a.".repeat(7), nested(8, 79)),
    ] {
        let error = parse(text.as_bytes(), Path::new("p.toml")).unwrap_err();
        assert!(matches!(error, PolicyError::Syntax { .. } | PolicyError::UnknownKey { .. }), "{error}");
    }
    assert_eq!(refused(nested(9, 1), "p.toml"), "p.toml:1:22: a key of more than 8 parts");
    assert_eq!(
        refused(nested(8, 9), "p.toml").split(": ").last(),
        Some("more than 64 lists and tables inside each other")
    );
    let large = "#".repeat(MAX_BYTES);
    assert!(parse(large.as_bytes(), Path::new("p.toml")).is_ok());
    assert_eq!(refused(large + "#", "p.toml"), "p.toml is larger than 1048576 bytes");
}

#[test]
fn broken_json_is_told_by_line_and_column() {
    for (text, message) in [
        ("{\n  \"profile\": }", "p.json:2:14: expected value"),
        ("{\"profile\" \"x\"}", "p.json:1:12: expected `:`"),
        ("{} x", "p.json:1:4: trailing characters"),
        ("", "p.json:1:1: EOF while parsing a value"),
        ("[]", "p.json:1: the policy must be a table, not a list"),
        ("{\"profile\": \"\\ud800\"}", "p.json:1:20: unexpected end of hex escape"),
        ("{\"timeout\": 99999999999999999999999999999999999999999}", "p.json:1:13: the number is too large"),
        ("{ /* open", "p.json:1:3: the comment is not closed"),
        (
            "{\"profile\": \"a // b\"}",
            "p.json:1: profile: unknown profile 'a // b'; expected one of minimal, read, network, write, unrestricted, browser, custom",
        ),
        ("{\"profile\": \"write\",}", "p.json:1:20: JSON has no comma before a closing bracket; remove this one"),
        (
            "{\"paths\": {\"read\": [\"/\",\n ]}}",
            "p.json:1:24: JSON has no comma before a closing bracket; remove this one",
        ),
        (
            "{// é\n\"é\": 1, \"profil\": 2}",
            "p.json:2: unknown key 'é'; expected one of extends, profile, on_violation, static_binaries, require_sandbox, timeout, libsandbox, syscalls, paths, network, limits, env, commands, bubblewrap, box",
        ),
    ] {
        let error = parse(text.as_bytes(), Path::new("p.json")).unwrap_err().to_string();
        assert_eq!(error, message, "{text}");
    }
    let error = parse(b"profile = 'a'\n# \xff", Path::new("p.toml")).unwrap_err().to_string();
    assert_eq!(error, "p.toml:2:3: not UTF-8");
}
