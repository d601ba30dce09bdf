//! Our own schema: every key once, the same in the file for editors and in the manual.

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
deny_private = true
local_ports = [3000]
upstream_ca = ["/etc/corp.pem"]

[[network.http]]
host = "API.example.org"
methods = ["GET", "HEAD"]
paths = ["/v1/**"]

[[network.credential]]
env = "API_TOKEN"
from = "file:/run/token"
host = "api.example.org"
as = "header:X-Key"

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
            deny_private: true,
            local_ports: vec![3000],
            http: vec!["GET,HEAD api.example.org/v1/**".parse().expect("a rule")],
            credentials: vec![Credential {
                env: "API_TOKEN".into(),
                from: SecretFrom::File("/run/token".into()),
                host: "api.example.org".into(),
                placed: Placed::Header("x-key".into()),
            }],
            upstream_ca: paths(&["/etc/corp.pem"]),
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
        boxed: None,
        sources: Vec::new(),
        warnings: Vec::new(),
    }
}

pub fn toml(text: &str) -> Result<Document, String> {
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
                "network.http" | "network.credential" => format!("[[{table}]]\n{key} = 2020-01-01"),
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
            "network.http" | "network.credential" => format!(".Ss [[{table}]]\n"),
            _ => format!(".Ss [{table}]\n"),
        };
        let (_, section) = manual.split_once(&heading).unwrap_or_else(|| panic!("no section {heading}"));
        let section = section.split("\n.S").next().unwrap_or_default();
        for key in keys {
            let told = match table {
                // Tables have a section of their own, and tests of arguments a sentence.
                // They have a section of their own.
                "network" if ["http", "credential"].contains(key) => true,
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
