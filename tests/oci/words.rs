//! The output of `gatekeeper diff`, and what is generated from the command line's definition: completions and man
//! pages.

use super::file;
use super::support::{Done, fresh, gatekeeper, run};
use std::process::Command;

fn diff(a: &str, b: &str) -> Done {
    run(Command::new(gatekeeper()).arg("diff").arg(file(a)).arg(file(b)))
}

/// The output without headings and file names.
fn told(done: &Done) -> Vec<String> {
    let line = |line: &str| match line {
        line if line.contains(" allows more than ") => "more".to_owned(),
        line if line.contains(" allows less than ") => "less".to_owned(),
        line => line.trim_start().to_owned(),
    };
    done.stdout().lines().map(line).collect()
}

#[test]
fn the_same_is_said_to_be_the_same() {
    let a = "profile = 'network'\n[syscalls]\ndeny = 'ptrace'\n";
    diff(a, a).exits(0);
    // Different text, same meaning: minimal does not grant ptrace anyway.
    diff("[syscalls]\ndeny = 'ptrace'\n", "profile = 'minimal'\n").exits(0);
    run(Command::new(gatekeeper()).args(["diff", "write", "write"]))
        .exits(0)
        .prints("write and write are equivalent\n");
}

#[test]
fn what_a_profile_writes_by_itself_is_told() {
    let done = run(Command::new(gatekeeper()).args(["diff", "read", "write"]));
    let expected = ["more", "paths.write: the working directory", "other changes:", "profile: write instead of read"];
    assert_eq!(told(done.exits(1)), expected, "{done}");
}

#[test]
fn what_is_more_and_less_is_told() {
    let a = "timeout = '30s'\n[paths]\nwrite = ['/srv', '/opt']\n[syscalls]\ndeny = 'getuid'\n";
    let b = "on_violation = 'kill'\n[paths]\nread = ['/usr']\nwrite = ['/opt']\ndeny = ['/root']\n[syscalls]\nallow = 'ptrace'\ndeny = 'getppid'\n";
    let done = diff(a, b);
    done.exits(1);
    assert_eq!(
        told(&done),
        [
            "more",
            "syscalls: ptrace, getuid",
            "timeout: none instead of 30s",
            "less",
            "syscalls: getppid",
            "paths.read: only /usr",
            "paths.write: no longer /srv",
            "paths.deny: /root",
            "other changes:",
            "on_violation: kill instead of errno",
        ],
        "{done}"
    );
}

/// A key that diff does not know would make two policies equivalent that are not.
#[test]
fn every_key_of_a_policy_is_compared() {
    const RULE: &str = "syscalls.rule = [{ syscall = 'getuid', action = 'deny', args = [] }]";
    const CREDENTIAL: &str = "network.credential = [{ env = 'A', host = 'a.org' }]";
    let changes = [
        ("profile", "", "profile = 'write'"),
        ("on_violation", "", "on_violation = 'kill'"),
        ("static_binaries", "", "static_binaries = 'warn'"),
        ("require_sandbox", "", "require_sandbox = false"),
        ("timeout", "", "timeout = '5s'"),
        ("libsandbox", "", "libsandbox = '/x.so'"),
        (
            "syscalls.default",
            "profile = 'custom'\nsyscalls.default = 'deny'",
            "profile = 'custom'\nsyscalls.default = 'allow'",
        ),
        ("syscalls.allow", "", "syscalls.allow = 'ptrace'"),
        ("syscalls.deny", "", "syscalls.deny = 'getuid'"),
        ("syscalls.rule", "", RULE),
        ("paths.read", "", "paths.read = ['/usr']"),
        ("paths.also_read", "", "paths.also_read = ['~/.ssh']"),
        ("paths.write", "", "paths.write = ['/srv']"),
        ("paths.execute", "", "paths.execute = ['/bin/true']"),
        ("paths.deny", "", "paths.deny = ['/srv']"),
        ("network.mode", "", "network.mode = 'own'"),
        ("network.hosts", "network.mode = 'hosts'", "network.mode = 'hosts'\nnetwork.hosts = ['a.org']"),
        ("network.ports", "profile = 'network'", "profile = 'network'\nnetwork.ports = [1]"),
        ("network.unix", "", "network.unix = ['/x']"),
        ("network.deny_private", "profile = 'network'", "profile = 'network'\nnetwork.deny_private = true"),
        (
            "network.local_ports",
            "profile = 'network'\nnetwork.deny_private = true",
            "profile = 'network'\nnetwork.deny_private = true\nnetwork.local_ports = [1]",
        ),
        (
            "network.upstream_ca",
            CREDENTIAL,
            "network.upstream_ca = ['/ca']\nnetwork.credential = [{ env = 'A', host = 'a.org' }]",
        ),
        ("network.http", "", "network.http = [{ host = 'a.org', methods = ['GET'] }]"),
        ("network.credential", "", CREDENTIAL),
        ("limits.memory", "", "limits.memory = '1G'"),
        ("limits.processes", "", "limits.processes = 9"),
        ("limits.files", "", "limits.files = 99"),
        ("limits.cpu", "", "limits.cpu = '5s'"),
        ("limits.output", "", "limits.output = '1M'"),
        ("limits.disk", "", "limits.disk = '1G'"),
        ("env.pass", "", "env.pass = ['X']"),
        ("env.set", "", "env.set.X = 'y'"),
        ("commands.allow", "", "commands.allow = ['true']"),
        ("commands.block", "", "commands.block = ['true']"),
        ("bubblewrap.mode", "", "bubblewrap.mode = 'required'"),
        ("bubblewrap.path", "", "bubblewrap.path = '/bwrap'"),
        ("bubblewrap.read", "", "bubblewrap.read = ['/x']"),
        ("bubblewrap.write", "", "bubblewrap.write = ['/x']"),
    ];
    for (key, a, b) in changes {
        let done = diff(a, b);
        done.exits(1);
        diff(b, b).exits(0);
        let table = key.split('.').next().unwrap_or(key);
        assert!(told(&done).iter().any(|line| line.starts_with(table)), "{key}: {done}");
    }
    // None is missing above. `extends` is another policy, and a policy with `box` is compared with none.
    let schema = run(Command::new(gatekeeper()).args(["schema", "policy"]));
    let schema: serde_json::Value = serde_json::from_slice(&schema.output.stdout).expect("JSON");
    let mut keys = Vec::new();
    for (name, entry) in schema["properties"].as_object().expect("keys") {
        match entry["properties"].as_object() {
            Some(inner) => keys.extend(inner.keys().map(|key| format!("{name}.{key}"))),
            None => keys.push(name.clone()),
        }
    }
    let mut known: Vec<String> = changes.iter().map(|(key, ..)| (*key).to_owned()).collect();
    known.extend(["extends".to_owned(), "box".to_owned()]);
    keys.sort();
    known.sort();
    assert_eq!(keys, known);
}

#[test]
fn arguments_are_compared_exactly() {
    let rule = |value: &str| {
        format!(
            "profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = 'read'\n[[syscalls.rule]]\nsyscall = 'kill'\naction = 'allow'\nargs = [{{ index = 1, op = 'le', value = {value} }}]\n"
        )
    };
    let wider = diff(&rule("9"), &rule("15"));
    assert_eq!(told(wider.exits(1)), ["more", "syscalls: kill (some arguments)"]);
    assert_eq!(told(diff(&rule("15"), &rule("9")).exits(1)), ["less", "syscalls: kill (some arguments)"]);
    let two = rule("15").replace("'le'", "'ge'");
    assert_eq!(
        told(diff(&rule("9"), &two).exits(1)),
        ["other changes:", "syscalls: kill (some arguments more, some less)"]
    );
    // `lt 10` equals `le 9`.
    diff(&rule("9"), &rule("10").replace("'le'", "'lt'")).exits(0);
}

#[test]
fn an_engines_profile_is_the_same_after_a_round_trip() {
    for profile in [Some(super::docker()), super::podman()].into_iter().flatten() {
        let dir = fresh("round");
        let gatekeeper = |words: &[&str]| run(Command::new(gatekeeper()).args(words).current_dir(&dir));
        std::fs::write(dir.join("engine.json"), profile).expect("own directory");
        gatekeeper(&["import", "engine.json", "-o", "first.toml"]).exits(0);
        gatekeeper(&["compile", "--config", "first.toml", "--to", "oci", "--lossy", "-o", "ours.json"]).exits(0);
        gatekeeper(&["import", "ours.json", "-o", "second.toml"]).exits(0);
        gatekeeper(&["diff", "first.toml", "second.toml"])
            .exits(0)
            .prints("first.toml and second.toml are equivalent\n");
        // A difference in one family of sockets is still seen.
        let second = std::fs::read_to_string(dir.join("second.toml")).expect("a policy");
        let socket = "[[syscalls.rule]]\nsyscall = 'socket'\naction = 'errno:EPROTO'\nargs = [{ index = 0, op = 'eq', value = 17 }]\n";
        let (before, rules) = second.split_at(second.find("[[syscalls.rule]]").expect("rules"));
        std::fs::write(dir.join("third.toml"), format!("{before}{socket}{rules}")).expect("own directory");
        assert_eq!(
            told(gatekeeper(&["diff", "first.toml", "third.toml"]).exits(1)),
            ["less", "syscalls: socket (some arguments)"]
        );
    }
}

#[test]
fn rules_too_intricate_to_compare_are_no_difference_and_not_the_same() {
    // Each rule ties a bit of one argument to a bit of another.
    let rule = |at: u32| {
        let bit = |index: u32| format!("{{ index = {index}, op = 'masked_eq', value = {0}, mask = {0} }}", 1u32 << at);
        format!("[[syscalls.rule]]\nsyscall = 'kill'\naction = 'allow'\nargs = [{}, {}]\n", bit(0), bit(1))
    };
    let policy = |bits: &mut dyn Iterator<Item = u32>, deny: &str| {
        format!(
            "profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = 'read:write'\ndeny = '{deny}'\n{}",
            bits.map(rule).collect::<String>()
        )
    };
    let (a, b) = (policy(&mut (0..24), ""), policy(&mut (0..24).rev(), ""));
    let done = diff(&a, &b);
    assert_eq!(told(done.exits(2)), ["too intricate to compare:", "syscalls: kill"]);
    done.complains("gatekeeper: diff: some rules are too intricate to compare, and nothing else differs\n");
    let json = |a: &str, b: &str| {
        let done = run(Command::new(gatekeeper()).args(["diff", "--json"]).arg(file(a)).arg(file(b)));
        serde_json::from_slice::<serde_json::Value>(&done.output.stdout).expect("JSON")
    };
    let document = json(&a, &b);
    assert_eq!((&document["same"], &document["more"]), (&serde_json::Value::Null, &serde_json::json!([])));
    assert_eq!(document["unknown"], serde_json::json!([{"key": "syscalls", "what": "kill"}]));
    // What differs elsewhere is told, too.
    let less = policy(&mut (0..24).rev(), "write");
    assert_eq!(
        told(diff(&a, &less).exits(1)),
        ["less", "syscalls: write", "too intricate to compare:", "syscalls: kill"]
    );
    assert_eq!(json(&a, &less)["same"], false);
    // The same rules are the same, and few of them are compared.
    diff(&a, &a).exits(0);
    let few = |bits: &mut dyn Iterator<Item = u32>| policy(bits, "");
    assert_eq!(json(&few(&mut (0..6)), &few(&mut (0..6).rev()))["same"], true);
    assert_eq!(told(diff(&few(&mut (0..6)), &few(&mut (0..5))).exits(1)), ["less", "syscalls: kill (some arguments)"]);
}

#[test]
fn networks_and_lists_are_compared() {
    let hosts = |hosts: &str| format!("[network]\nmode = 'hosts'\nhosts = [{hosts}]\n");
    let done = diff(&hosts("'a.org', 'b.org'"), &hosts("'b.org', 'c.org'"));
    assert_eq!(told(done.exits(1)), ["more", "network.hosts: c.org", "less", "network.hosts: no longer a.org"]);
    let done = diff("[network]\nmode = 'full'\n", "[network]\nmode = 'loopback'\n");
    let calls = "syscalls: socket (some arguments), sendto (some arguments), sendmsg (some arguments), \
                 setsockopt (some arguments), sendmmsg (some arguments)";
    assert_eq!(told(done.exits(1)), ["less", calls, "network.mode: loopback instead of full"], "{done}");
    let done = diff("[commands]\nallow = ['git']\n", "[commands]\nblock = ['rm']\n");
    assert_eq!(
        told(done.exits(1)),
        [
            "more",
            // With a list of commands, no program may be executed from memory.
            "syscalls: memfd_create (some arguments)",
            "commands.allow: everything, instead of only git",
            "less",
            "commands.block: rm"
        ]
    );
}

#[test]
fn a_difference_is_also_json() {
    let done = run(Command::new(gatekeeper()).args(["diff", "--json", "minimal", "network"]));
    done.exits(1);
    let document: serde_json::Value = serde_json::from_slice(&done.output.stdout).expect("JSON");
    assert_eq!(document["same"], false);
    assert_eq!(document["less"], serde_json::json!([]));
    let keys: Vec<_> = document["more"].as_array().expect("a list").iter().map(|change| &change["key"]).collect();
    assert!(keys.iter().any(|key| *key == "network.mode"), "{document:#}");
    run(Command::new(gatekeeper()).args(["diff", "minimal", "/nowhere.toml"])).exits(2).prints("");
    run(Command::new(gatekeeper()).args(["diff", "minimal"])).exits(2);
}

/// The commands that `--help` shows.
fn commands() -> Vec<String> {
    let help = run(Command::new(gatekeeper()).arg("--help"));
    help.exits(0);
    let text = help.stdout();
    let list = text.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list of commands");
    list.lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn completions_know_every_command() {
    let commands = commands();
    assert!(commands.len() >= 9, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let done = run(Command::new(gatekeeper()).args(["completions", shell]));
        done.exits(0).complains("");
        for command in &commands {
            assert!(done.stdout().contains(command.as_str()), "{shell} lacks {command}");
        }
        // They work when typed, and are for the build and the tests.
        for hidden in ["__probe", "Write a man page for each command"] {
            assert!(!done.stdout().contains(hidden), "{shell} offers {hidden}");
        }
    }
    run(Command::new(gatekeeper()).args(["completions", "tcsh"])).exits(2);
}

#[test]
fn bash_takes_its_completions() {
    let script = fresh("completions").join("gatekeeper.bash");
    let done = run(Command::new(gatekeeper()).args(["completions", "bash"]));
    std::fs::write(&script, &done.output.stdout).expect("own directory");
    let words = r#"source "$0"; COMP_WORDS=(gatekeeper comp); COMP_CWORD=1; _gatekeeper gatekeeper comp gatekeeper; echo "${COMPREPLY[@]}""#;
    run(Command::new("bash").args(["-c", words]).arg(&script)).exits(0).prints("compile completions\n");
    let all = r#"source "$0"; COMP_WORDS=(gatekeeper ""); COMP_CWORD=1; _gatekeeper gatekeeper "" gatekeeper; printf '%s\n' "${COMPREPLY[@]}""#;
    let offered = run(Command::new("bash").args(["-c", all]).arg(&script)).stdout();
    let offered: std::collections::BTreeSet<&str> = offered.lines().filter(|word| !word.starts_with('-')).collect();
    let mut shown: Vec<String> = commands();
    // A visible alias of `why`.
    shown.push("explain".to_owned());
    assert_eq!(offered, shown.iter().map(String::as_str).collect());
}

#[test]
fn every_command_has_a_man_page() {
    let dir = fresh("man");
    run(Command::new(gatekeeper()).arg("man").arg(&dir)).exits(0).prints("").complains("");
    for command in commands().iter().filter(|command| *command != "help") {
        let page = std::fs::read_to_string(dir.join(format!("gatekeeper-{command}.1"))).expect("a page");
        assert!(page.contains(".TH"), "{page}");
        for section in [".SH EXAMPLES\n", ".SH \"EXIT STATUS\"\n", ".SH \"SEE ALSO\"\n"] {
            assert!(page.contains(section), "{section}{page}");
        }
        assert!(!page.contains("EXTRA"), "{page}");
    }
    run(Command::new(gatekeeper()).args(["man", "/nowhere"])).exits(2);
}

#[test]
fn man_pages_are_not_written_through_links() {
    let dir = fresh("man-links");
    let (work, precious) = (dir.join("work"), dir.join("precious"));
    std::fs::create_dir(&work).expect("own directory");
    std::fs::write(&precious, "precious").expect("own directory");
    let man = || run(Command::new(gatekeeper()).args(["man", "."]).current_dir(&work));
    let kept = || assert_eq!(std::fs::read_to_string(&precious).expect("own file"), "precious");

    std::os::unix::fs::symlink(&precious, work.join("gatekeeper.1")).expect("own directory");
    let refused = man();
    refused.exits(2).prints("");
    assert!(refused.stderr().contains("gatekeeper.1 is a symbolic link"), "{refused}");
    kept();

    std::fs::remove_file(work.join("gatekeeper.1")).expect("own link");
    std::fs::hard_link(&precious, work.join("gatekeeper.1")).expect("own file");
    man().exits(0).prints("").complains("");
    kept();
    let page = std::fs::read_to_string(work.join("gatekeeper.1")).expect("a page");
    assert!(page.contains(".TH gatekeeper 1") && page.contains("gatekeeper\\-policy (5)"), "{page}");
}
