//! Error messages say what failed, why, and what to do next.

use super::{Gate, gatekeeper, unprivileged, users};
use crate::support::run;
use std::fs;
use std::os::unix::fs::PermissionsExt;
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

/// A TMPDIR that this user may not enter is named, and nothing is said about a directory that was never made.
#[test]
fn a_closed_tmpdir_is_named() {
    let gate = Gate::profile(unprivileged(), "write");
    let closed = gate.file("closed/file", "").parent().unwrap().to_owned();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let work = Gate::profile(unprivileged(), "write");
    let done = work.env("TMPDIR", &closed).run(["touch", "marker"]);
    done.exits(125);
    let told = format!(
        "run directory: Permission denied (os error 13); no directory can be made in {}: set TMPDIR to one that you may enter and write",
        closed.display()
    );
    assert!(done.stderr().contains(&told) && !done.stderr().contains("could not be removed"), "{done}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    // The control.
    Gate::profile(unprivileged(), "write").env("TMPDIR", &closed).run(["touch", "marker"]).exits(0);
}

/// The directory of the caller is needed only for relative paths.
#[test]
fn a_removed_working_directory_is_no_obstacle_with_another() {
    for user in users() {
        for (flags, code) in [
            (&["--cwd", "/usr"][..], 0),
            (&[], 125),
            (&["--cwd", "sub"], 125),
            (&["--cwd", "/usr", "--cache", "c"], 125),
        ] {
            let gate = Gate::new(*user);
            let line = "mkdir gone && cd gone && rmdir ../gone && exec \"$@\"";
            let done = gate.under(["sh", "-c", line, "sh"]).flags(flags).run(["/bin/pwd"]);
            done.exits(code);
            match code {
                0 => drop(done.prints("/usr\n")),
                _ => assert!(done.stderr().contains("the working directory: No such file or directory (os error 2); it was removed: change to another one, or name one by its full path with --cwd"), "{done}"),
            }
        }
    }
}

#[test]
fn a_home_without_room_for_stages_is_answered_with_the_variable_to_set() {
    let gate = Gate::profile(unprivileged(), "write").flags(["--stage", "s"]).env("HOME", "/proc/nowhere");
    let done = gate.run(["true"]);
    done.exits(125);
    assert!(done.stderr().contains("; set XDG_STATE_HOME to a directory that you may write"), "{done}");
}
