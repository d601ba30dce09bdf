//! gatekeeper's paragraph on stderr appears only if gatekeeper affected the outcome.

use super::Place;

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
