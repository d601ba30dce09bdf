//! Error messages say what failed, why, and what to do next.

use super::{Gate, gatekeeper, unprivileged, users};
use crate::support::run;
use std::process::Command;

#[test]
fn a_directory_is_no_program() {
    let done = Gate::new(unprivileged()).run(["/etc"]);
    done.exits(126);
    assert!(done.stderr().contains("/etc is a directory, not a program"), "{done}");
}

#[test]
fn hosts_inside_of_a_closed_network_name_the_outer_sandbox() {
    let own = gatekeeper().to_str().unwrap();
    for user in users() {
        let inner = [own, "run", "--net", "hosts=example.org", "--", "true"];
        let done = Gate::profile(*user, "read").run(inner);
        done.exits(125);
        let told = "proxy: cannot open a port: ";
        let next = "--net hosts=... needs a port on the loopback interface, and an outer sandbox forbids it. Give the outer one --net loopback";
        assert!(done.stderr().contains(told) && done.stderr().contains(next), "{done}");
    }
}

#[test]
fn a_browser_that_cannot_start_says_what_to_do() {
    let gate = Gate::new(unprivileged());
    let empty = gate.file("empty.json", "{}");
    let browser = |words: &[&str]| {
        let mut command = Command::new(gatekeeper());
        run(command.arg("browser").args(words).args(["--", "true"]))
    };
    let done = browser(&["--config", empty.to_str().unwrap()]);
    done.exits(125);
    let needs = r#"the file needs 'browser', for example {"browser": {"sandbox": {"enabled": true}}}; if this is a policy, pass it to run --config"#;
    assert!(done.stderr().contains(needs), "{done}");
    let done = browser(&["--workspace", "/no-such/workspace"]);
    done.exits(125);
    let told = "--workspace /no-such/workspace: No such file or directory (os error 2); create it first with mkdir -p";
    assert!(done.stderr().contains(told), "{done}");
    let domains = gate.file("domains.json", r#"{"browser": {"profileDomains": {"a.example": "work"}}}"#);
    let done = browser(&["--config", domains.to_str().unwrap()]);
    done.exits(125);
    assert!(done.stderr().contains("browser.profileDomains: gatekeeper starts one browser with one profile"), "{done}");
}

#[test]
fn without_a_command_there_is_an_example() {
    let done = run(Command::new(gatekeeper()).arg("run"));
    done.exits(125);
    assert!(done.stderr().ends_with("For example: gatekeeper run -- wc -l README.md\n"), "{done}");
    let done = run(&mut Command::new(gatekeeper()));
    done.exits(2);
    assert!(done.stderr().contains("Examples:\n  gatekeeper run -- ls"), "{done}");
    let done = run(Command::new(gatekeeper()).args(["run", "--help"]));
    for heading in ["Permissions:", "Confinement:", "Limits:", "Reporting:", "Examples:"] {
        assert!(done.stdout().lines().any(|line| line == heading), "{heading}{done}");
    }
}
