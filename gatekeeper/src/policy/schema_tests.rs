//! Our own schema: every key once, every wrong thing once with its exact words.

use super::*;
use sandbox_contract::bpf::Op;
use std::path::Path;
use std::time::Duration;

const FULL: &str = r#"
extends = "base.toml"
profile = "write+network"
on_violation = "kill"
static_binaries = "warn"
require_sandbox = false
timeout = "1h30m"
libsandbox = "/opt/libsandbox.so"

[syscalls]
default = "errno:ENOSYS"
allow = ["ptrace", "@keys"]
deny = "socket:@io-uring"

[[syscalls.rule]]
syscall = "socket"
action = "errno:EACCES"
args = [
    { index = 0, op = "eq", value = 2 },
    { index = 1, op = "masked_eq", value = 1, mask = 0xf },
]

[[syscalls.rule]]
syscall = "ioctl"
action = "deny"
args = [{ index = 1, op = "ge", value = "0xffffffff00000000" }]

[paths]
read = ["/usr", "~/src"]
also_read = ["~/.netrc"]
write = ["./out"]
execute = []
deny = ["~/.ssh"]

[network]
mode = "hosts"
hosts = ["API.github.com.", "*.example.org:443"]
ports = [80, 443]
unix = ["/run/my.sock"]

[limits]
memory = "512M"
processes = 64
files = 256
cpu = "10s"
output = 1048576
disk = "1G"

[env]
pass = ["HOME", "LD_PRELOAD"]
set = { LANG = "C.UTF-8", "with.dot" = "" }

[commands]
allow = ["git", "/usr/bin/env"]
block = ["rm"]

[bubblewrap]
mode = "preferred"
path = "/usr/bin/bwrap"
read = ["/opt/tools"]
write = ["/home/user/.cargo"]
"#;

fn full() -> Document {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    Document {
        extends: Some("base.toml".into()),
        profile: Some(vec![Profile::Write, Profile::Network]),
        on_violation: Some(OnViolation::Kill),
        static_binaries: Some(StaticBinaries::Warn),
        require_sandbox: Some(false),
        timeout: Some(Duration::from_secs(5400)),
        libsandbox: Some("/opt/libsandbox.so".into()),
        syscalls: Syscalls {
            default: Some(RuleAction::Errno(38)),
            allow: words(&["ptrace", "@keys"]),
            deny: words(&["socket", "@io-uring"]),
            rules: vec![
                SyscallRule {
                    syscall: "socket".into(),
                    action: RuleAction::Errno(13),
                    args: vec![
                        ArgTest { index: 0, op: Op::Eq, mask: u64::MAX, value: 2 },
                        ArgTest { index: 1, op: Op::Eq, mask: 0xf, value: 1 },
                    ],
                },
                SyscallRule {
                    syscall: "ioctl".into(),
                    action: RuleAction::Deny,
                    args: vec![ArgTest { index: 1, op: Op::Ge, mask: u64::MAX, value: 0xffff_ffff_0000_0000 }],
                },
            ],
        },
        paths: Paths {
            read: Some(paths(&["/usr", "~/src"])),
            also_read: paths(&["~/.netrc"]),
            write: paths(&["./out"]),
            execute: Some(Vec::new()),
            deny: paths(&["~/.ssh"]),
        },
        network: Network {
            mode: Some(NetworkMode::Hosts(words(&["api.github.com", "*.example.org:443"]))),
            ports: vec![80, 443],
            unix: paths(&["/run/my.sock"]),
        },
        limits: Limits {
            memory: Some(512 << 20),
            processes: Some(64),
            files: Some(256),
            cpu: Some(Duration::from_secs(10)),
            output: Some(1 << 20),
            disk: Some(1 << 30),
        },
        env: Environment {
            pass: words(&["HOME", "LD_PRELOAD"]),
            set: [("LANG".to_owned(), "C.UTF-8".to_owned()), ("with.dot".to_owned(), String::new())].into(),
        },
        commands: Commands { allow: words(&["git", "/usr/bin/env"]), block: words(&["rm"]) },
        bubblewrap: Namespaces {
            mode: Some(Isolate::Preferred),
            path: Some("/usr/bin/bwrap".into()),
            read: paths(&["/opt/tools"]),
            write: paths(&["/home/user/.cargo"]),
        },
        sources: Vec::new(),
    }
}

fn toml(text: &str) -> Result<Document, String> {
    parse(text.as_bytes(), Path::new("policy.toml")).map_err(|error| error.to_string())
}

#[test]
fn every_key_is_read() {
    assert_eq!(toml(FULL), Ok(full()));
}

#[test]
fn json_says_the_same() {
    let value: serde_json::Value = toml::from_str(FULL).unwrap();
    let text = serde_json::to_string_pretty(&value).unwrap();
    for name in ["policy.json", "policy", "policy.conf"] {
        assert_eq!(parse(text.as_bytes(), Path::new(name)).unwrap(), full(), "{name}");
    }
}

#[test]
fn nothing_written_is_nothing_said() {
    assert_eq!(toml(""), Ok(Document::default()));
    assert_eq!(toml("\u{feff}# only a comment\n"), Ok(Document::default()));
    assert_eq!(parse(b"{}", Path::new("policy.json")).unwrap(), Document::default());
    assert_eq!(parse(b"{\"profile\": null, \"paths\": null}", Path::new("p")).unwrap(), Document::default());
}

/// Each listed key is taken by the reader, not merely listed: a date is wrong everywhere, and wrong by its type.
#[test]
fn every_listed_key_has_a_reader() {
    for (table, keys) in schema::TABLES {
        for key in keys {
            let text = match table {
                "" => format!("{key} = 2020-01-01"),
                "syscalls.rule" => format!("[[syscalls.rule]]\n{key} = 2020-01-01"),
                "syscalls.rule.args" => format!("[[syscalls.rule]]\nargs = [{{ {key} = 2020-01-01 }}]"),
                _ => format!("[{table}]\n{key} = 2020-01-01"),
            };
            let error = toml(&text).unwrap_err();
            assert!(error.contains(key) && error.ends_with(", not a date"), "{text}: {error}");
        }
    }
}

#[test]
fn the_schema_for_editors_has_the_same_keys() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policy-schema.json");
    let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (table, keys) in schema::TABLES {
        let mut at = &schema;
        for part in table.split('.').filter(|part| !part.is_empty()) {
            at = &at["properties"][part];
            at = at.get("items").unwrap_or(at);
        }
        let listed: Vec<&str> = at["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(listed, keys, "[{table}]");
        assert_eq!(at["additionalProperties"], false, "[{table}]");
    }
}

fn manual() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man/gatekeeper-policy.5");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_manual_names_every_key_in_its_section() {
    let manual = manual();
    for (table, keys) in schema::TABLES {
        let heading = match table {
            "" => ".Sh KEYS\n".to_owned(),
            "syscalls.rule" | "syscalls.rule.args" => ".Ss [[syscalls.rule]]\n".to_owned(),
            _ => format!(".Ss [{table}]\n"),
        };
        let (_, section) = manual.split_once(&heading).unwrap_or_else(|| panic!("no section {heading}"));
        let section = section.split("\n.S").next().unwrap_or_default();
        for key in keys {
            let told = match table {
                // Tables have a section of their own, and tests of arguments a sentence.
                "" if manual.contains(&format!(".Ss [{key}]\n")) => true,
                "syscalls.rule.args" => {
                    section.contains(&format!(".Cm {key} ")) || section.contains(&format!(".Cm {key}\n"))
                }
                _ => section.contains(&format!(".It Cm {key} No (")),
            };
            assert!(told, "[{table}] {key}");
        }
    }
    let (_, section) = manual.split_once(".Sh THE EXEC TOOL'S JSON\n").unwrap();
    for key in exec_tool::EXEC.iter().filter(|key| **key != "sandbox") {
        assert!(
            section.lines().any(|line| line.starts_with(".It Cm") && line.split(' ').any(|word| word == *key)),
            "{key}"
        );
    }
    for key in exec_tool::SANDBOX {
        let whole = format!("sandbox.{key}");
        assert!(
            section.lines().any(|line| line.starts_with(".It Cm") && line.split(' ').any(|word| word == whole)),
            "{key}"
        );
    }
}

#[test]
fn the_manuals_example_is_a_policy() {
    let manual = manual();
    let (_, example) = manual.split_once(".Sh EXAMPLE\n.Bd -literal -offset indent\n").unwrap();
    let (example, _) = example.split_once(".Ed\n").unwrap();
    assert!(Policy::resolve(toml(example).unwrap()).is_ok());
    let (_, error) = manual.split_once(".Sh DIAGNOSTICS\n").unwrap();
    assert!(error.contains(&toml("\n\nproflie = 1").unwrap_err()));
}

#[test]
fn what_is_wrong_is_said_with_line_value_and_nearest() {
    for (text, message) in [
        // Keys.
        ("\n\nproflie = 'minimal'", "policy.toml:3: unknown key 'proflie'; did you mean 'profile'?"),
        ("[syscalls]\nalow = []", "policy.toml:2: unknown key 'syscalls.alow'; did you mean 'syscalls.allow'?"),
        ("[syscals]\nallow = []", "policy.toml:1: unknown key 'syscals'; did you mean 'syscalls'?"),
        ("[paths]\nprofile = 'write'", "policy.toml:2: unknown key 'paths.profile'; did you mean 'profile'?"),
        ("memory = '1G'", "policy.toml:1: unknown key 'memory'; did you mean 'limits.memory'?"),
        ("[sandbox]\nenabled = true", "policy.toml:1: unknown key 'sandbox'; did you mean 'bubblewrap'?"),
        (
            "[bubblewrap]\nextra_ro_paths = []",
            "policy.toml:2: unknown key 'bubblewrap.extra_ro_paths'; did you mean 'bubblewrap.read'?",
        ),
        ("[env]\nzzzzzzzz = 1", "policy.toml:2: unknown key 'env.zzzzzzzz'; known are pass, set"),
        (
            "[[syscalls.rule]]\nsyscal = 'read'",
            "policy.toml:2: unknown key 'syscalls.rule.syscal'; did you mean 'syscalls.rule.syscall'?",
        ),
        (
            "\"a\\u001b.b\" = 1",
            "policy.toml:1: unknown key 'a\\u{1b}.b'; known are extends, profile, on_violation, static_binaries, require_sandbox, timeout, libsandbox, syscalls, paths, network, limits, env, commands, bubblewrap",
        ),
        // Types.
        (
            "profile = 3",
            "policy.toml:1: profile must be a profile such as \"write+network\", or a list of them, not a whole number",
        ),
        ("require_sandbox = 'yes'", "policy.toml:1: require_sandbox must be true or false, not a string"),
        (
            "timeout = 1.5",
            "policy.toml:1: timeout must be a duration such as \"30s\", or whole seconds, not a number with a fraction",
        ),
        ("paths = []", "policy.toml:1: paths must be a table, not a list"),
        ("[paths]\nread = '/usr'", "policy.toml:2: paths.read must be a list of paths, not a string"),
        ("[paths]\nread = ['/usr',\n3]", "policy.toml:3: paths.read must be a string, not a whole number"),
        ("[syscalls]\nrule = {}", "policy.toml:2: syscalls.rule must be a list of tables, not a table"),
        ("[env.set]\nN = 1", "policy.toml:2: env.set.N must be a string, not a whole number"),
        // Words.
        ("profile = 'minimla'", "policy.toml:1: profile: unknown profile 'minimla'; did you mean 'minimal'?"),
        (
            "profile = 'xyz'",
            "policy.toml:1: profile: unknown profile 'xyz'; known are minimal, network, write, unrestricted, custom",
        ),
        (
            "profile = ''",
            "policy.toml:1: profile: unknown profile ''; known are minimal, network, write, unrestricted, custom",
        ),
        ("profile = []", "policy.toml:1: profile: no profile is named; 'minimal' grants least"),
        (
            "profile = 'write+unrestricted'",
            "policy.toml:1: profile: 'unrestricted' confines nothing, so it cannot be combined with another profile",
        ),
        (
            "profile = ['custom', 'write']",
            "policy.toml:1: profile: 'custom' is exactly its own lists, so it cannot be combined with another profile",
        ),
        (
            "on_violation = 'kil'",
            "policy.toml:1: on_violation: unknown answer to a violation 'kil'; did you mean 'kill'?",
        ),
        (
            "static_binaries = 'deny'",
            "policy.toml:1: static_binaries: unknown treatment of static binaries 'deny'; known are enforce, block, warn, allow",
        ),
        (
            "[bubblewrap]\nmode = 'require'",
            "policy.toml:2: bubblewrap.mode: unknown mode 'require'; did you mean 'required'?",
        ),
        ("[network]\nmode = 'hots'", "policy.toml:2: network.mode: unknown network mode 'hots'; did you mean 'hosts'?"),
        (
            "[network]\nmode = 'hosts=a'",
            "policy.toml:2: network.mode: unknown network mode 'hosts=a'; did you mean 'hosts'?",
        ),
        // Syscalls.
        (
            "[syscalls]\nallow = ['read',\n'opne']",
            "policy.toml:3: syscalls.allow: unknown syscall 'opne'; did you mean 'open'?",
        ),
        (
            "[syscalls]\ndeny = 'read:exceve'",
            "policy.toml:2: syscalls.deny: unknown syscall 'exceve'; did you mean 'execve'?",
        ),
        (
            "[syscalls]\ndeny = '@netwrok'",
            "policy.toml:2: syscalls.deny: unknown group '@netwrok'; did you mean '@network'?",
        ),
        ("[syscalls]\ndeny = ' read'", "policy.toml:2: syscalls.deny: unknown syscall ' read'; did you mean 'read'?"),
        // Rules.
        ("[[syscalls.rule]]\naction = 'deny'", "policy.toml:1: syscalls.rule needs 'syscall'"),
        ("[[syscalls.rule]]\nsyscall = 'read'", "policy.toml:1: syscalls.rule needs 'action'"),
        (
            "[[syscalls.rule]]\nsyscall = '@network'",
            "policy.toml:2: syscalls.rule.syscall: syscall '@network': a rule is about one syscall, by its name",
        ),
        (
            "[[syscalls.rule]]\naction = 'alow'",
            "policy.toml:2: syscalls.rule.action: unknown action 'alow'; did you mean 'allow'?",
        ),
        (
            "[[syscalls.rule]]\naction = 'errno:EACCESS'",
            "policy.toml:2: syscalls.rule.action: unknown errno 'EACCESS'; did you mean 'EACCES'?",
        ),
        (
            "[[syscalls.rule]]\naction = 'trap'",
            "policy.toml:2: syscalls.rule.action: action 'trap': only libsandbox.so by itself can do that; 'kill' is next to it",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ index = 6 }]",
            "policy.toml:2: syscalls.rule.args.index: 6 is not between 0 and 5",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ op = 'equal' }]",
            "policy.toml:2: syscalls.rule.args.op: unknown comparison 'equal'; known are eq, ne, lt, le, gt, ge, masked_eq",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ op = 'masked_eq', index = 0, value = 1 }]",
            "policy.toml:2: syscalls.rule.args needs 'mask'",
        ),
        ("[[syscalls.rule]]\nargs = [{ op = 'eq', value = 1 }]", "policy.toml:2: syscalls.rule.args needs 'index'"),
        (
            "[[syscalls.rule]]\nargs = [{ op = 'eq', index = 0, value = 3, mask = 1 }]",
            "policy.toml:2: syscalls.rule.args: the value has bits outside the mask, so the two are never equal",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ value = -100 }]",
            "policy.toml:2: syscalls.rule.args.value: number '-100': write the bits without a sign, and mask = 0xffffffff if the argument is an int",
        ),
        (
            "[[syscalls.rule]]\nargs = [{ value = '0x1ffffffffffffffff' }]",
            "policy.toml:2: syscalls.rule.args.value: number '0x1ffffffffffffffff': not 64 bits, in decimal or after 0x",
        ),
        // Paths.
        ("[paths]\nwrite = ['']", "policy.toml:2: paths.write: path '': empty; '.' is the working directory"),
        (
            "[paths]\ndeny = ['**/.env']",
            "policy.toml:2: paths.deny: path '**/.env': there are no wildcards in paths; name the directory",
        ),
        (
            "[paths]\ndeny = ['~bob/.ssh']",
            "policy.toml:2: paths.deny: path '~bob/.ssh': the homes of others are not looked up; write it out, or with './' before it",
        ),
        ("[paths]\ndeny = [\"a\\u0000b\"]", "policy.toml:2: paths.deny: path 'a\\u{0}b': no path holds a NUL"),
        // Network.
        (
            "[network]\nhosts = ['https://a.org']",
            "policy.toml:2: network.hosts: host 'https://a.org': a URL; write only its host, and its port behind a colon",
        ),
        (
            "[network]\nmode = 'full'\nhosts = ['a.org']",
            "policy.toml:3: network.hosts: a list of hosts needs mode = \"hosts\"",
        ),
        ("[network]\nports = [0]", "policy.toml:2: network.ports: 0 is not between 1 and 65535"),
        ("[network]\nports = [65536]", "policy.toml:2: network.ports: 65536 is not between 1 and 65535"),
        // Limits.
        ("timeout = 'soon'", "policy.toml:1: timeout: duration 'soon': write it like 30s, 5m or 1h30m"),
        ("timeout = -1", "policy.toml:1: timeout: -1 is not between 0 and 1000000000"),
        (
            "[limits]\nmemory = '512MB'",
            "policy.toml:2: limits.memory: size '512MB': write it like 512M or 2G (powers of 1024), or as bytes",
        ),
        ("[limits]\nmemory = '99999999999T'", "policy.toml:2: limits.memory: size '99999999999T': too large"),
        ("[limits]\nmemory = 0", "policy.toml:2: limits.memory: 0 is not between 1 and 18446744073709551615"),
        ("timeout = 1000000001", "policy.toml:1: timeout: 1000000001 is not between 0 and 1000000000"),
        ("timeout = '99999d'", "policy.toml:1: timeout: 8639913600 is not between 0 and 1000000000"),
        ("[limits]\nprocesses = 0", "policy.toml:2: limits.processes: 0 is not between 1 and 18446744073709551615"),
        ("[limits]\ncpu = 0", "policy.toml:2: limits.cpu: no program runs in no time; leave it out for no limit"),
        // Environment.
        ("[env]\npass = ['A=B']", "policy.toml:2: env.pass: variable 'A=B': not a name that a variable can have"),
        ("[env]\npass = ['LC_*']", "policy.toml:2: env.pass: variable 'LC_*': names are exact, there are no wildcards"),
        (
            "[env]\npass = ['LD_LIBRARY_PATH']",
            "policy.toml:2: env.pass: variable 'LD_LIBRARY_PATH': it steers the loader; of LD_* only LD_PRELOAD may be passed, and none may be set",
        ),
        (
            "[env.set]\nLD_PRELOAD = '/x.so'",
            "policy.toml:2: env.set.LD_PRELOAD: variable 'LD_PRELOAD': it steers the loader; of LD_* only LD_PRELOAD may be passed, and none may be set",
        ),
        (
            "[env.set]\nSECCOMP_SYSCALL_ALLOW = ''",
            "policy.toml:2: env.set.SECCOMP_SYSCALL_ALLOW: variable 'SECCOMP_SYSCALL_ALLOW': gatekeeper sets it by itself",
        ),
        ("[env.set]\nA = \"x\\u0000\"", "policy.toml:2: env.set.A: variable 'x\\u{0}': a NUL would end it"),
        ("[commands]\nblock = ['']", "policy.toml:2: commands.block: command '': not the name of a program"),
        // Syntax.
        ("profile = ", "policy.toml:1:11: string values must be quoted, expected literal string"),
        ("a = 1\na = 2", "policy.toml:2:1: duplicate key"),
    ] {
        assert_eq!(toml(text), Err(message.to_owned()), "{text}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_syscall_of_another_machine_is_refused() {
    let error = toml("[syscalls]\nallow = 'read:send'").unwrap_err();
    assert_eq!(error, "policy.toml:2: syscalls.allow: x86_64 has no syscall 'send'; did you mean 'sendto'?");
}

#[test]
fn durations_and_sizes() {
    let duration = |text| values::duration(text).ok();
    assert_eq!(duration("30s"), Some(Duration::from_secs(30)));
    assert_eq!(duration("1h30m"), Some(Duration::from_secs(5400)));
    assert_eq!(duration("2d1ms"), Some(Duration::from_millis(2 * 86_400_000 + 1)));
    assert_eq!(duration("300"), Some(Duration::from_secs(300)));
    for wrong in [
        "",
        "s",
        "5m1h",
        "1m1m",
        "-5s",
        "+5",
        "5 s",
        "5S",
        "1.5s",
        "5mins",
        "99999999999999999999",
        "999999999999999999d",
    ] {
        assert_eq!(duration(wrong), None, "{wrong}");
    }
    let size = |text| values::size(text).ok();
    assert_eq!(size("0"), Some(0));
    assert_eq!(size("512M"), Some(512 << 20));
    assert_eq!(size("64k"), Some(64 << 10));
    assert_eq!(size("2GiB"), Some(2 << 30));
    assert_eq!(size("7B"), Some(7));
    for wrong in ["", "M", "-1", "1.5G", "1 G", "1MB", "1P", "1iB", "18446744073709551616", "16777216T"] {
        assert_eq!(size(wrong), None, "{wrong}");
    }
}

#[test]
fn the_flag_for_the_network() {
    let hosts = |hosts: &[&str]| NetworkMode::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
    assert_eq!("none".parse(), Ok(NetworkMode::None));
    assert_eq!("loopback".parse(), Ok(NetworkMode::Loopback));
    assert_eq!("full".parse(), Ok(NetworkMode::Full));
    assert_eq!("hosts=A.org,*.b.org:443".parse(), Ok(hosts(&["a.org", "*.b.org:443"])));
    assert_eq!("hosts=".parse(), Ok(hosts(&[])));
    assert!("hosts=a b".parse::<NetworkMode>().is_err());
    assert!("Full".parse::<NetworkMode>().is_err());
}
