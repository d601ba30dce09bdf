//! The exec tool's JSON: the two examples of its specification word by word, then every key by itself.

use super::exec_tool::NOT_CUSTOM;
use super::*;
use std::path::Path;
use std::time::Duration;

const SPECIFIED: &str = include_str!("../../../tests/policy/exec-tool.json");

const STRICT: &str = r#"{
  "tools": {
    "exec": {
      "sandbox": {
        "enabled": true,
        "requireSandbox": false  // If true, fail instead of running unsandboxed
      }
    }
  }
}
"#;

fn json(text: &str) -> Result<Document, String> {
    parse(text.as_bytes(), Path::new("goclaw.json")).map_err(|error| error.to_string())
}

/// `tools.exec` with these entries.
fn exec(entries: &str) -> Result<Document, String> {
    json(&format!("{{\"tools\": {{\"exec\": {{{entries}}}}}}}"))
}

fn sandbox(entries: &str) -> Result<Document, String> {
    exec(&format!("\"sandbox\": {{{entries}}}"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What the specification says of a configuration that says nothing.
fn plain() -> Document {
    Document {
        profile: Some(vec![Profile::Minimal]),
        on_violation: Some(OnViolation::Kill),
        static_binaries: Some(StaticBinaries::Block),
        require_sandbox: Some(false),
        ..Document::default()
    }
}

#[test]
fn the_specified_example_is_read_as_it_stands() {
    let read = json(SPECIFIED).unwrap();
    let commands = Commands { allow: Vec::new(), block: words(&["rm", "dd", "mkfs"]) };
    assert_eq!(read, Document { commands, timeout: Some(Duration::from_secs(300)), ..plain() });
    let policy = Policy::resolve(read).unwrap();
    assert_eq!(policy.timeout, Some(Duration::from_secs(300)));
    assert_eq!(policy.on_violation, OnViolation::Kill);
    assert_eq!(policy.static_binaries, StaticBinaries::Block);
    assert!(!policy.require_sandbox);
}

#[test]
fn the_strict_example_is_read_as_it_stands() {
    assert_eq!(json(STRICT), Ok(plain()));
    let strict = STRICT.replace("\"requireSandbox\": false", "\"requireSandbox\": true");
    assert_eq!(json(&strict), Ok(Document { require_sandbox: Some(true), ..plain() }));
}

#[test]
fn a_sandbox_that_is_not_mentioned_is_on() {
    assert_eq!(exec(""), Ok(plain()));
    assert_eq!(exec("\"sandbox\": null, \"allowedCommands\": null"), Ok(plain()));
}

#[test]
fn every_profile() {
    for (name, profile) in [
        ("minimal", Profile::Minimal),
        ("network", Profile::Network),
        ("write", Profile::Write),
        ("unrestricted", Profile::Unrestricted),
        ("custom", Profile::Custom),
    ] {
        let read = sandbox(&format!("\"profile\": \"{name}\""));
        assert_eq!(read, Ok(Document { profile: Some(vec![profile]), ..plain() }));
    }
    let both = Some(vec![Profile::Write, Profile::Network]);
    assert_eq!(sandbox("\"profile\": \"write+network\""), Ok(Document { profile: both, ..plain() }));
}

#[test]
fn every_other_key() {
    let lists = Syscalls { allow: words(&["read", "@basic"]), deny: words(&["socket"]), ..Syscalls::default() };
    assert_eq!(
        sandbox("\"profile\": \"custom\", \"customAllow\": \"read:@basic\", \"customDeny\": \"socket\""),
        Ok(Document { profile: Some(vec![Profile::Custom]), syscalls: lists, ..plain() })
    );
    assert_eq!(
        sandbox("\"customAllow\": \"read:@basic\", \"customDeny\": [\"socket\"]"),
        Ok(Document {
            syscalls: Syscalls { deny: words(&["socket"]), ..Syscalls::default() },
            warnings: words(&[NOT_CUSTOM]),
            ..plain()
        }),
        "beside another profile, a list of denied calls counts, and one of allowed calls does not"
    );
    assert_eq!(sandbox("\"logViolations\": true"), Ok(Document { on_violation: Some(OnViolation::Log), ..plain() }));
    assert_eq!(
        sandbox("\"libsandboxPath\": \"/opt/libsandbox.so\""),
        Ok(Document { libsandbox: Some("/opt/libsandbox.so".into()), ..plain() })
    );
    for (word, action) in
        [("block", StaticBinaries::Block), ("warn", StaticBinaries::Warn), ("allow", StaticBinaries::Allow)]
    {
        let read = sandbox(&format!("\"staticBinaryAction\": \"{word}\""));
        assert_eq!(read, Ok(Document { static_binaries: Some(action), ..plain() }));
    }
    let commands = Commands { allow: words(&["ls"]), block: words(&["rm"]) };
    assert_eq!(
        exec("\"allowedCommands\": [\"ls\"], \"blockedCommands\": [\"rm\"], \"enabled\": true"),
        Ok(Document { commands, ..plain() })
    );
    let endless = exec("\"timeout\": 0").unwrap();
    assert_eq!(Policy::resolve(endless).unwrap().timeout, None);
}

#[test]
fn what_only_a_policy_has_is_an_error_beside_it() {
    let beside = |text: &str| json(&format!("{{\"tools\": {{\"exec\": {{}}}}, {text}}}"));
    for (text, key) in [
        ("\"paths\": {\"deny\": [\"/x\"]}", "paths"),
        ("\"network\": {\"mode\": \"none\"}", "network"),
        ("\"profile\": \"minimal\"", "profile"),
        ("\"require_sandbox\": true", "require_sandbox"),
        ("\"extends\": \"base.toml\"", "extends"),
    ] {
        let error = beside(text).expect_err(text);
        assert!(error.contains(&format!("{key}: it has no effect")) && error.contains("only tools.exec"), "{error}");
    }
    let toml = "[paths]\ndeny = ['/x']\n[tools.exec]\ntimeout = 1\n";
    let error = parse(toml.as_bytes(), Path::new("p.toml")).expect_err("both").to_string();
    assert!(error.contains("p.toml:1") && error.contains("paths: it has no effect"), "{error}");
    for text in [
        "\"env\": {\"vars\": {\"A\": \"b\"}}, \"commands\": {\"native\": true}",
        "\"profile\": \"fast\", \"timeout\": 30, \"network\": \"x\", \"limits\": {}, \"paths\": null",
    ] {
        assert_eq!(beside(text), Ok(plain()), "{text}: the agent's own");
    }
}

#[test]
fn a_sandbox_that_is_off_confines_nothing() {
    assert_eq!(
        sandbox("\"enabled\": false, \"profile\": \"custom\", \"customDeny\": \"socket\""),
        Ok(Document {
            profile: Some(vec![Profile::Unrestricted]),
            require_sandbox: Some(false),
            ..Document::default()
        })
    );
}

#[test]
fn what_belongs_to_the_agent_is_left_alone() {
    let whole =
        SPECIFIED.replacen('{', "{\"browser\": {\"profile\": 7}, \"model\": [1.5e3, null], \"profile\": \"x\", ", 1);
    assert_eq!(json(&whole), json(SPECIFIED));
    let beside = SPECIFIED.replacen("\"tools\": {", "\"tools\": {\"search\": {\"enabled\": false},", 1);
    assert_eq!(json(&beside), json(SPECIFIED));
}

#[test]
fn exec_that_is_disabled_is_its_own_refusal() {
    let error = parse(b"{\"tools\": {\"exec\":\n{\"enabled\": false}}}", Path::new("goclaw.json")).unwrap_err();
    assert!(matches!(error, PolicyError::ExecDisabled { .. }));
    assert_eq!(error.to_string(), "goclaw.json:2: exec is disabled by this policy");
}

#[test]
fn what_is_wrong_is_said() {
    for (read, message) in [
        (exec("\"timout\": 3"), "goclaw.json:1: unknown key 'tools.exec.timout'; did you mean 'tools.exec.timeout'?"),
        (
            exec("\"profile\": \"minimal\""),
            "goclaw.json:1: unknown key 'tools.exec.profile'; did you mean 'tools.exec.sandbox.profile'?",
        ),
        (
            sandbox("\n\"blockedCommands\": []"),
            "goclaw.json:2: unknown key 'tools.exec.sandbox.blockedCommands'; did you mean 'tools.exec.blockedCommands'?",
        ),
        (
            sandbox("\"requiresandbox\": true"),
            "goclaw.json:1: unknown key 'tools.exec.sandbox.requiresandbox'; did you mean 'tools.exec.sandbox.requireSandbox'?",
        ),
        (
            sandbox("\"profile\": \"readonly\""),
            "goclaw.json:1: tools.exec.sandbox.profile: unknown profile 'readonly'; did you mean 'read'?",
        ),
        (
            sandbox("// here\n/* and\nhere */ \"customAllow\": \"read:opne\""),
            "goclaw.json:3: tools.exec.sandbox.customAllow: unknown syscall 'opne'; did you mean 'open'?",
        ),
        (
            sandbox("\"staticBinaryAction\": \"blok\""),
            "goclaw.json:1: tools.exec.sandbox.staticBinaryAction: unknown action for static binaries 'blok'; did you mean 'block'?",
        ),
        (
            sandbox("\"enabled\": \"false\""),
            "goclaw.json:1: tools.exec.sandbox.enabled must be true or false, not a string",
        ),
        (sandbox("\"enabled\": false, \"enabled\": true"), "goclaw.json:1: 'enabled' is given twice"),
        (exec("\"timeout\": -1"), "goclaw.json:1: tools.exec.timeout: -1 is not between 0 and 1000000000"),
        (json("{\"tools\": {}}"), "goclaw.json:1: tools needs 'exec'"),
        (json("{\"tools\": []}"), "goclaw.json:1: tools must be a table, not a list"),
        (json("{\"tools\": {\"exec\": null}}"), "goclaw.json:1: tools.exec must be a table, not null"),
    ] {
        assert_eq!(read, Err(message.to_owned()));
    }
    let empty = sandbox("\"profile\": \"custom\", \"customAllow\": \"\"").unwrap();
    let error = Policy::resolve(empty).unwrap_err().to_string();
    assert_eq!(error, "profile 'custom' needs syscalls.allow or syscalls.deny");
}

/// Each listed key is taken by the reader, not merely listed: a fraction is wrong everywhere.
#[test]
fn every_listed_key_has_a_reader() {
    for (keys, wrap) in [(exec_tool::EXEC, exec as fn(&str) -> _), (exec_tool::SANDBOX, sandbox)] {
        for key in keys {
            let error = wrap(&format!("\"{key}\": 1.5")).unwrap_err();
            assert!(error.contains(&format!(".{key} must be ")), "{key}: {error}");
        }
    }
}
