//! gatekeeper's paragraph on stderr appears only if gatekeeper affected the outcome.

use super::Place;
use crate::support::run;
use std::process::Command;

#[test]
fn a_failure_of_its_own_gets_no_word() {
    let place = Place::new(None);
    for words in
        [&["run", "--", "false"][..], &["run", "-c", "exit 9"], &["run", "-c", "kill -SEGV $$"], &["run", "--", "true"]]
    {
        place.run(words).complains("");
    }
}

#[test]
fn a_denial_is_told_with_what_would_allow_it() {
    let place = Place::new(None);
    let line = "import socket; socket.socket()";
    let done = place.run(&["run", "--", "/usr/bin/python3", "-c", line]);
    done.exits(1);
    let told = done.stderr();
    let told = told.lines().find(|line| line.starts_with("gatekeeper: ")).unwrap_or_else(|| panic!("{done}"));
    for part in
        ["socket(AF_INET", "was denied (network mode none)", "--profile network", "in the policy", "Retrying will fail"]
    {
        assert!(told.contains(part), "{part} in {told}");
    }
    let quiet = place.run(&["run", "--quiet", "--", "/usr/bin/python3", "-c", line]);
    assert!(!quiet.stderr().contains("gatekeeper:"), "{quiet}");
}

#[test]
fn limits_and_time_are_told_with_a_higher_one() {
    let place = Place::new(None);
    let done = place.run(&["run", "--timeout", "300ms", "--", "sleep", "60"]);
    done.exits(124).complains(
        "gatekeeper: stopped: the time limit was reached (--timeout 300ms). Retrying only helps with a higher limit: \
         --timeout 600ms, or timeout = \"600ms\" in the policy\n",
    );
    let done =
        place.run(&["run", "--disk", "4K", "-p", "write", "--", "dd", "if=/dev/zero", "of=x", "bs=64k", "count=1"]);
    assert!(done.stderr().contains("gatekeeper: stopped: a file exceeded 4K (--disk). Retrying only helps with a higher limit: --disk 8K, or disk = \"8K\" under [limits] in the policy\n"), "{done}");
    place.run(&["run", "--quiet", "--timeout", "300ms", "--", "sleep", "60"]).exits(124).complains("");
}

#[test]
fn refusals_are_told() {
    let place = Place::new(None);
    std::fs::write(place.at("work").join("p.toml"), "[commands]\nblock = [\"env\"]\n").expect("own directory");
    let done = place.run(&["run", "--config", "p.toml", "--", "env"]);
    done.exits(126);
    let told = done.stderr();
    assert!(told.starts_with("gatekeeper: refused: env is blocked by the policy ([commands] block"), "{done}");
    assert!(told.trim_end().ends_with("Nothing was run; retrying will fail the same way"), "{done}");
    assert_eq!(told.lines().count(), 1, "{done}");
    let done = place.run(&["run", "--", "no-such-program"]);
    done.exits(127);
    assert!(done.stderr().starts_with("gatekeeper: no-such-program"), "{done}");
}

/// git exits with 0 where it cannot write .git/config: the new branch tracks nothing.
#[test]
fn a_success_without_what_git_wanted_to_keep_is_told() {
    let place = Place::new(None);
    let work = place.at("work");
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=n", "-c", "user.email=e"];
        run(Command::new("git").args(identity).args(words).current_dir(&work)).exits(0).stdout()
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&["remote", "add", "origin", "."]);
    for name in ["x", "y"] {
        git(&["update-ref", &format!("refs/remotes/origin/{name}"), "HEAD"]);
    }
    let config = work.join(".git/config").canonicalize().expect("git made it").display().to_string();
    let done = place.run(&["run", "-p", "write", "--", "git", "checkout", "-q", "-b", "x", "origin/x"]);
    let told = done.exits(0).stderr();
    let ours: Vec<&str> = told.lines().filter(|line| line.starts_with("gatekeeper: ")).collect();
    let expected = format!(
        "gatekeeper: git: rename({config}) was denied 2 times (protected: {config} is read-only in a writable tree); --write {config} would \
         allow it, or paths.write = [\"{config}\"] in the policy. The command went on without it"
    );
    assert_eq!(ours, [expected.as_str()], "{done}");
    // git itself says the error by its name.
    let failed = place.run(&["run", "-p", "write", "--", "git", "config", "user.name", "me"]);
    assert_eq!(failed.code(), Some(4), "{failed}");
    assert!(failed.stderr().contains("could not write config file .git/config: Read-only file system"), "{failed}");
    let granted =
        place.run(&["run", "-p", "write", "--write", &config, "--", "git", "checkout", "-q", "-b", "y", "origin/y"]);
    granted.exits(0).complains("");
    assert_eq!(git(&["config", "branch.y.merge"]), "refs/heads/y\n");
}

/// npm makes many refused calls in a warm cache of the user's home; one flag is named, once.
#[test]
fn denials_with_one_remedy_are_one_sentence() {
    let place = Place::new(None);
    std::fs::create_dir_all(place.at("home").join(".npm")).expect("own directory");
    let line = "for i in 1 2 3 4 5; do echo > ~/.npm/$i; done; exit 1";
    let done = place.run(&["run", "-p", "write", "-c", line]);
    let told = done.exits(1).stderr();
    let told = told.lines().find(|line| line.starts_with("gatekeeper: ")).unwrap_or_else(|| panic!("{done}"));
    assert!(told.contains(".npm/5) was denied, and 4 more calls (may write only"), "{done}");
    assert!(told.ends_with(" would allow all of them. Retrying will fail the same way"), "{done}");
    assert_eq!(told.matches("--cache ").count(), 1, "{done}");
}

/// Java tries to write the settings of its own process at every start. That is told only if nothing else was denied.
#[test]
fn what_programs_try_in_passing_is_not_told_beside_a_cause() {
    let place = Place::new(None);
    let tried = "echo 1 > /proc/self/coredump_filter";
    let told = |line: &str| {
        let done = place.run(&["run", "-p", "write", "-c", line]);
        let stderr = done.exits(1).stderr();
        stderr.lines().find(|line| line.starts_with("gatekeeper: ")).unwrap_or_else(|| panic!("{done}")).to_owned()
    };
    let both = told(&format!("{tried}; echo > ~/.npmrc; {tried}; exit 1"));
    assert!(both.contains("/.npmrc) was denied") && !both.contains("coredump_filter"), "{both}");
    assert!(both.ends_with(". 1 more was denied. Retrying will fail the same way"), "{both}");
    let alone = told(&format!("{tried}; exit 1"));
    assert!(alone.contains("/coredump_filter) was denied") && !alone.contains("Retrying"), "{alone}");
}

/// A command that listens or sends only to itself needs no more than a loopback.
#[test]
fn a_loopback_of_ones_own_is_named_before_the_network() {
    let place = Place::new(None);
    let line = "import socket; s = socket.socket(); s.bind(('', 0)); s.listen()";
    let done = place.run(&["run", "-p", "write", "--", "/usr/bin/python3", "-c", line]);
    let told = done.exits(1).stderr();
    assert!(
        told.contains("; --net own would allow it on a loopback of its own; --profile network would allow it, or"),
        "{done}"
    );
    let done = place.run(&["run", "-p", "write", "--net", "loopback", "--", "/usr/bin/python3", "-c", line]);
    assert!(done.stderr().contains("; --net own would allow it on a loopback of its own; --net full"), "{done}");
    place.run(&["run", "-p", "write", "--net", "own", "--", "/usr/bin/python3", "-c", line]).exits(0).complains("");
}
