//! What a learned policy leaves out: directories that are too wide, credentials, and names that a policy cannot express.

use super::Bench;
use std::fs;
use std::path::Path;

/// The policy that is learned from a shell line, and what `learn` said.
#[track_caller]
fn learned(bench: &Bench, line: &str) -> (String, String) {
    let done = bench.learn(&["sh", "-c", line]);
    (bench.policy(), done.stderr().to_string())
}

fn write_of(policy: &str) -> Option<&str> {
    policy.lines().find(|line| line.starts_with("write ="))
}

#[test]
fn a_name_that_exists_needs_no_grant() {
    let bench = Bench::new("exists");
    for line in ["mkdir -p /usr/share", "mkdir /etc || true", "ln -sT x /usr/share || true", "mkdir -p ~ /var/tmp"] {
        let (policy, said) = learned(&bench, line);
        assert_eq!(write_of(&policy), None, "{line}\n{policy}");
        assert!(
            !policy.contains("not granted") && said.lines().all(|line| !line.starts_with("gatekeeper")),
            "{policy}"
        );
        // Under the policy the call fails with EEXIST again.
        bench.run(&["sh", "-c", line]).exits(0);
    }
    // A name that did not exist is granted by its directory.
    let (policy, _) = learned(&bench, "mkdir -p new/er");
    assert_eq!(write_of(&policy), Some("write = [\".\"]"), "{policy}");
}

#[test]
fn the_home_is_never_granted() {
    let bench = Bench::new("wide");
    let home = bench.home.display();
    fs::write(bench.home.join("own"), "").expect("own directory");
    for line in ["touch ~", "chmod 755 ~", "echo x > ~ || true", "rmdir ~ /usr 2>/dev/null || true"] {
        let (policy, said) = learned(&bench, line);
        assert_eq!(write_of(&policy), None, "{line}\n{policy}");
        if line.contains("echo") {
            continue;
        }
        let note = format!("not granted: changing {home}, which is too wide to grant as a whole\n");
        let noted = line.starts_with("rmdir") || policy.contains(&format!("# {note}")) && said.contains(&note);
        assert!(noted, "{line}\n{policy}{said}");
    }
    // Nor by the name of the call, which would change every file of the user.
    let (policy, _) = learned(&bench, "chmod 755 ~");
    assert!(!policy.contains("allow = [\"fchmod") && !policy.contains("allow = [\"chmod"), "{policy}");
    let confined = bench.run(&["sh", "-c", "chmod 755 ~"]);
    assert!(confined.stderr().contains("Operation not permitted"), "{confined}");
    // A single file there is granted.
    let (policy, _) = learned(&bench, "echo x >> ~/own");
    assert_eq!(write_of(&policy), Some("write = [\"~/own\"]"), "{policy}");
}

#[test]
fn a_program_built_at_home_is_granted_alone() {
    let bench = Bench::new("program");
    let (policy, _) = learned(&bench, "cp /bin/true ~/program; ~/program");
    assert!(policy.contains("\"~/program\"") && !policy.contains("\"~\"") && !policy.contains("\"~/\""), "{policy}");
}

#[test]
fn credentials_are_granted_one_by_one_and_never_silently() {
    let bench = Bench::new("keys");
    fs::create_dir(bench.home.join(".ssh")).expect("own directory");
    fs::write(bench.home.join(".ssh/key"), "secret\n").expect("own directory");
    fs::write(bench.home.join(".ssh/other"), "other\n").expect("own directory");
    for (line, did, list) in [
        ("echo x > ~/.ssh/known_hosts", "wrote", "write = [\"~/.ssh/known_hosts\"]"),
        ("cat ~/.ssh/key", "read", "\"~/.ssh/key\"]"),
    ] {
        // The shell starts cat in both, so that the policy allows it.
        let line = format!("cat /etc/hostname; {line}");
        let (policy, said) = learned(&bench, &line);
        let name = line.rsplit('/').next().unwrap_or_default();
        let note = format!("CREDENTIALS: it {did} {}, which", bench.home.join(".ssh").join(name).display());
        assert!(
            policy.contains(list) && policy.contains(&format!("# {note}")) && said.contains(&note),
            "{policy}{said}"
        );
        bench.run(&["sh", "-c", &line]).exits(0);
        let other = bench.run(&["sh", "-c", "cat ~/.ssh/other"]);
        assert!(other.stderr().contains("Permission denied") && !other.stdout().contains("other"), "{policy}{other}");
        let other = bench.run(&["sh", "-c", "echo x >> ~/.ssh/other"]);
        assert!(other.stderr().contains("Permission denied"), "{policy}{other}");
    }
    let (policy, _) = learned(&bench, "chmod 700 ~/.ssh");
    let note = format!("# not granted: changing {}, which holds credentials", bench.home.join(".ssh").display());
    assert!(write_of(&policy).is_none() && policy.contains(&note), "{policy}");
    let (policy, _) = learned(&bench, "echo x > ~/.ssh/new; rm ~/.ssh/new");
    let note = format!("# not granted: new files in {}, which holds credentials", bench.home.join(".ssh").display());
    assert!(write_of(&policy).is_none() && policy.contains(&note), "{policy}");
}

#[test]
fn credentials_of_the_project_are_granted_by_name() {
    for (line, list) in [
        ("cat .env && echo x >> .env", "write = [\"./.env\"]"),
        ("cat .env && echo x > new", "read = [\"./.env\"]"),
        ("mv .env .moved && mv .moved .env", "write = [\".\", \"./.env\"]"),
    ] {
        let bench = Bench::new("env");
        bench.write(".env", "secret\n");
        let (policy, said) = learned(&bench, line);
        assert!(policy.contains(list) && policy.contains("# CREDENTIALS: it "), "{line}\n{policy}");
        assert!(said.contains("CREDENTIALS: it "), "{line}\n{said}");
        bench.run(&["sh", "-c", line]).exits(0);
        // A writable directory alone does not open it.
        let wide = policy.replace(", \"./.env\"", "").replace("\"./.env\"", "").replace("write = []", "");
        fs::write(&bench.policy, wide).expect("own directory");
        assert_ne!(bench.run(&["sh", "-c", line]).code(), Some(0), "{line}\n{}", bench.policy());
    }
}

#[test]
fn a_name_that_no_policy_can_hold_is_left_out() {
    let bench = Bench::new("odd");
    fs::create_dir(bench.home.join("sub")).expect("own directory");
    for (odd, plain) in [("~/'w*d'", "~/word"), ("~/sub/$(printf 'a\\001b')", "~/sub/ab")] {
        let (policy, said) = learned(&bench, &format!(": >> {odd}; echo x >> {odd}"));
        let wide = ["\"~\"", "\"~/\"", "/home\""].iter().any(|wide| policy.contains(wide));
        if odd.contains("sub") {
            // A new file is granted by its directory, whatever its name is.
            assert_eq!(write_of(&policy), Some("write = [\"~/sub\"]"), "{policy}");
        } else {
            assert!(write_of(&policy).is_none() && !wide, "{policy}");
            assert!(
                policy.contains("which a policy file cannot name") && said.contains("not granted"),
                "{policy}{said}"
            );
        }
        // It exists now: the same for reading and writing an existing file.
        let (policy, _) = learned(&bench, &format!("read x < {odd}; echo x >> {odd}"));
        assert!(write_of(&policy).is_none(), "{policy}");
        assert!(policy.contains("read = []") && policy.contains("which a policy file cannot name"), "{policy}");
        let (policy, _) = learned(&bench, &format!("echo x > {plain}; echo x >> {plain}"));
        assert!(write_of(&policy).is_some(), "{policy}");
    }
    let (policy, _) = learned(&bench, "cp /bin/true ~/'tr*ue'; ~/'tr*ue'");
    assert!(policy.contains("# not granted: executing ") && !policy.contains("\"~"), "{policy}");
}

#[test]
fn what_will_fail_is_noted() {
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        return crate::support::skip("there is no /usr/bin/python3");
    }
    let bench = Bench::new("fails");
    let run = |line: &str| {
        let words = [python, "-ISc", line];
        bench.learn(&words).exits(0);
        (bench.policy(), bench.run(&words))
    };
    let (policy, confined) = run("import os; os.memfd_create('x')");
    assert!(policy.contains("# not granted: memory files without MFD_NOEXEC_SEAL"), "{policy}");
    assert!(confined.stderr().contains("[Errno 38]"), "{confined}");
    let (policy, confined) = run("import os; os.memfd_create('x', 8)");
    assert!(!policy.contains("not granted"), "{policy}");
    confined.exits(0);
    let (policy, confined) = run("import os; os.openpty()");
    assert!(policy.contains("# not granted: /dev/ptmx, because only profile write grants terminals"), "{policy}");
    assert!(confined.stderr().contains("[Errno 13]"), "{confined}");
    // These are granted.
    let (policy, confined) = run("import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)");
    assert!(policy.contains("allow = [\"socketpair\"]"), "{policy}");
    confined.exits(0);
    let (policy, confined) = run("import socket; socket.socketpair()");
    assert!(!policy.contains("socketpair\"]"), "{policy}");
    confined.exits(0);
}
