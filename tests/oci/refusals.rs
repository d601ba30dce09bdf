//! Container profiles that are refused, with the exact messages, and the notes about those with a different meaning
//! here.

use super::support::{fresh, gatekeeper, run};
use gatekeeper::oci::{Surroundings, import};
use std::process::Command;

fn take(json: &str) -> Result<(String, Vec<String>), String> {
    let surroundings = Surroundings { caps: Vec::new(), kernel: (6, 1) };
    let imported = import(json.as_bytes(), &surroundings).map_err(|error| error.to_string())?;
    Ok((imported.document.to_toml().expect("it can be written"), imported.notes))
}

fn entry(default: &str, entry: &str) -> String {
    format!(r#"{{"defaultAction": "{default}", "syscalls": [{{{entry}}}]}}"#)
}

#[test]
fn what_is_wrong_is_told() {
    for (json, words) in [
        ("{", "not a seccomp profile: EOF while parsing an object at line 1 column 1"),
        ("[]", "not a seccomp profile: invalid length 0"),
        ("{}", "not a seccomp profile: missing field `defaultAction`"),
        (
            r#"{"defaultAction": "SCMP_ACT_ALLOW", "defaultAction": "SCMP_ACT_ERRNO"}"#,
            "not a seccomp profile: duplicate field `defaultAction`",
        ),
        (r#"{"defaultAction": "SCMP_ACT_MAYBE"}"#, "unknown action 'SCMP_ACT_MAYBE'"),
        (
            &entry("SCMP_ACT_ERRNO", r#""names": ["read"], "action": "SCMP_ACT_ALLOW", "arg": []"#),
            "not a seccomp profile: unknown field `arg`",
        ),
        (&entry("SCMP_ACT_ERRNO", r#""names": [], "action": "SCMP_ACT_ALLOW""#), "an entry names no syscall"),
        (
            &entry("SCMP_ACT_ERRNO", r#""name": "read", "names": ["write"], "action": "SCMP_ACT_ALLOW""#),
            "an entry names no syscall, or has both 'name' and 'names'",
        ),
        (
            &entry(
                "SCMP_ACT_ERRNO",
                r#""names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 1, "op": "SCMP_CMP_GE"}, {"index": 1, "value": 9, "op": "SCMP_CMP_LT"}]"#,
            ),
            "kill: two tests of argument 1 in one entry; runc takes them as 'or', the specification as 'and'",
        ),
        (
            &entry(
                "SCMP_ACT_ERRNO",
                r#""names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]"#,
            ),
            "kill: argument 6 is not between 0 and 5",
        ),
        (
            &entry(
                "SCMP_ACT_ERRNO",
                r#""names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_IS"}]"#,
            ),
            "kill: unknown comparison 'SCMP_CMP_IS'",
        ),
        (
            &entry("SCMP_ACT_ALLOW", r#""names": ["opne", "read"], "action": "SCMP_ACT_ERRNO""#),
            "1 syscall denied, but unknown here: opne; leaving them out would open them",
        ),
        (
            &entry("SCMP_ACT_ERRNO", r#""names": ["opne"], "action": "SCMP_ACT_KILL_PROCESS""#),
            "1 syscall denied, but unknown here: opne",
        ),
        (&entry("SCMP_ACT_ERRNO", r#""names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5000"#), "errno 5000"),
        (
            r#"{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_S390X"]}"#,
            "the profile is for SCMP_ARCH_S390X, not for SCMP_ARCH_",
        ),
        (
            r#"{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_NATIVE"], "archMap": [{}]}"#,
            "'architectures' and 'archMap' are both given",
        ),
        (
            &entry(
                "SCMP_ACT_ERRNO",
                r#""names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "new"}"#,
            ),
            "minKernel 'new' is not a version",
        ),
    ] {
        let error = take(json).expect_err(json);
        assert!(error.starts_with(words), "{error}\nnot: {words}");
    }
}

#[test]
fn names_unknown_here_are_told_where_they_are_allowed() {
    let json = entry("SCMP_ACT_ERRNO", r#""names": ["read", "opne", "frobnicate"], "action": "SCMP_ACT_ALLOW""#);
    let (toml, notes) = take(&json).expect("it imports");
    assert!(toml.contains("allow = [\"read\"]"), "{toml}");
    assert_eq!(notes, ["2 syscalls unknown here and left out: frobnicate, opne"]);
}

#[test]
fn names_of_other_architectures_are_no_loss() {
    let name = if cfg!(target_arch = "x86_64") { "mmap2" } else { "arch_prctl" };
    let json = entry("SCMP_ACT_ALLOW", &format!(r#""names": ["{name}", "read"], "action": "SCMP_ACT_ERRNO""#));
    let (toml, notes) = take(&json).expect("it imports");
    assert!(toml.contains("deny = [\"read\"]"), "{toml}");
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn what_reads_differently_is_told() {
    let json = entry("SCMP_ACT_TRAP", r#""names": ["read"], "action": "SCMP_ACT_NOTIFY""#);
    let (toml, notes) = take(&json).expect("it imports");
    assert!(toml.contains("on_violation = \"kill\"") && toml.contains("action = \"errno:ENOSYS\""), "{toml}");
    assert_eq!(
        notes,
        [
            "SCMP_ACT_TRAP is read as kill: no handler receives the signal",
            "SCMP_ACT_NOTIFY is read as errno:ENOSYS, as the kernel does without a listener"
        ]
    );
}

#[test]
fn a_runtimes_config_is_read_for_its_profile() {
    let inner = entry("SCMP_ACT_ERRNO", r#""names": ["read"], "action": "SCMP_ACT_ALLOW""#);
    let (toml, _) =
        take(&format!(r#"{{"ociVersion": "1.0.2", "linux": {{"seccomp": {inner}}}}}"#)).expect("it imports");
    assert!(toml.contains("allow = [\"read\"]"), "{toml}");
}

#[test]
fn nothing_is_written_when_the_import_fails() {
    let dir = fresh("refused");
    let (from, to) = (dir.join("in.json"), dir.join("out.toml"));
    std::fs::write(&from, "{}").expect("own directory");
    let done = run(Command::new(gatekeeper()).arg("import").arg(&from).arg("-o").arg(&to));
    done.exits(2).prints("");
    assert!(done.stderr().contains("in.json: not a seccomp profile: missing field `defaultAction`"), "{done}");
    assert!(!to.exists());
    run(Command::new(gatekeeper()).arg("import").arg(dir.join("absent"))).exits(2);
    run(Command::new(gatekeeper()).arg("import").arg(&dir)).exits(2);
    run(Command::new(gatekeeper()).args(["import", "--cap", "sys_admin"]).arg(&from)).exits(2);
}

#[test]
fn a_misspelt_capability_is_answered_with_the_nearest() {
    let from = fresh("capabilities").join("in.json");
    std::fs::write(&from, entry("SCMP_ACT_ERRNO", r#""names": ["read"], "action": "SCMP_ACT_ALLOW""#)).expect("own");
    let import = |caps: [&str; 2]| {
        run(Command::new(gatekeeper()).args(["import", "--cap", caps[0], "--cap", caps[1]]).arg(&from))
    };
    import(["CAP_NET_RAW", "CAP_CHECKPOINT_RESTORE"]).exits(0).complains("");
    for (word, nearest) in [
        ("CAP_SYS_ADMN", "CAP_SYS_ADMIN"),
        ("cap_sys_admin", "CAP_SYS_ADMIN"),
        ("NET_RAW", "CAP_NET_RAW"),
        ("CAP_BOGUS", "CAP_BPF"),
    ] {
        import(["CAP_NET_RAW", word])
            .exits(2)
            .prints("")
            .complains(&format!("gatekeeper: import: --cap: unknown capability '{word}'; did you mean '{nearest}'?\n"));
    }
}

#[test]
fn what_no_filter_can_hold_is_refused_everywhere() {
    let dir = fresh("long");
    let (json, toml) = (dir.join("long.json"), dir.join("long.toml"));
    let (mut entries, mut rules) = (Vec::new(), String::new());
    for value in 0..1000 {
        entries.push(format!(
            r#"{{"names": ["kill"], "action": "SCMP_ACT_ALLOW", "args": [{{"index": 1, "value": {}, "op": "SCMP_CMP_EQ"}}, {{"index": 0, "value": 7, "op": "SCMP_CMP_EQ"}}]}}"#,
            value * 2
        ));
        rules.push_str(&format!(
            "[[syscalls.rule]]\nsyscall = 'kill'\naction = 'allow'\nargs = [{{ index = 1, op = 'eq', value = {} }}, {{ index = 0, op = 'eq', value = 7 }}]\n",
            value * 2
        ));
    }
    let text = format!(r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{}]}}"#, entries.join(","));
    std::fs::write(&json, text).expect("own directory");
    std::fs::write(&toml, format!("profile = 'custom'\n[syscalls]\ndefault = 'deny'\n{rules}")).expect("own directory");
    let words = "the policy needs a filter of more than 4096 instructions, which the kernel does not accept\n";
    let out = dir.join("out");
    let imported = run(Command::new(gatekeeper()).arg("import").arg(&json).arg("-o").arg(&out));
    imported.exits(2).complains(&format!("gatekeeper: import: {}: {words}", json.display()));
    let compiled =
        run(Command::new(gatekeeper()).args(["compile", "--to", "filter", "--config"]).arg(&toml).arg("-o").arg(&out));
    compiled.exits(2).complains(&format!("gatekeeper: compile: {words}"));
    let exported = run(Command::new(gatekeeper()).args(["compile", "--to", "oci", "--config"]).arg(&toml));
    exported.exits(2).prints("").complains(
        "gatekeeper: compile: kill: container profiles do not keep the order of rules, and without it this call needs too many rules\n",
    );
    assert!(!out.exists());
    let ran = run(Command::new(gatekeeper()).args(["run", "--config"]).arg(&toml).args(["--", "true"]));
    ran.exits(125).prints("");
}
