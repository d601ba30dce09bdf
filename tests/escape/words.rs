//! What the sandbox does not stop: the report says so, and a flag stops it.

use super::scene::{Scene, attacker};
use super::{Delivery, confined, results};
use crate::run::{Gate, layer, users};
use std::fs;

/// An allowed program can make its loader run code that it has written. The report says so.
#[test]
fn the_report_tells_that_allowed_programs_run_what_they_read() {
    for user in users() {
        let scene = Scene::new(*user);
        let attacker = attacker();
        let policy = fs::canonicalize(crate::support::fresh("commands")).expect("just made").join("policy.toml");
        fs::write(&policy, format!("[commands]\nallow = [{attacker:?}]\n")).expect("own directory");
        let flags = ["--config".to_owned(), policy.display().to_string()];
        let names = ["exec-own-copy", "exec-script", "exec-memfd", "exec-after-fork", "exec-own-by-loader"];
        let program = attacker.to_str().expect("text");
        let done = confined(&scene, Delivery::BeforeExec, "write", &flags, &names, program);
        let seen = results(done.exits(0));
        // EPERM comes from the new program, which runs under the same filter.
        assert_eq!(names.map(|name| seen[name].as_str()), ["EACCES", "EACCES", "ENOSYS", "EPERM", "EPERM"], "{done}");
        scene.unchanged("commands");
        let gate = Gate::profile(*user, "write").flags(&flags);
        let (_, report) = gate.report([program, "list"]);
        let (_, detail) = layer(&report, "landlock");
        assert!(detail.contains("what they read and run themselves"), "{report:#}");
        let plan = Gate::profile(*user, "write").flags(&flags).verb("plan").run([program, "list"]);
        assert!(plan.exits(0).stdout().contains("what they read and run themselves"), "{plan}");
    }
}

/// A profile that grants new terminals also grants the user's other terminals, unless `--deny-path /dev/pts` closes
/// them.
#[test]
fn other_terminals_are_closed_by_a_flag() {
    for user in users() {
        let scene = Scene::new(*user);
        let attacker = attacker();
        let flags = ["--deny-path".to_owned(), "/dev/pts".to_owned()];
        let names = ["terminal-read", "terminal-write"];
        let program = attacker.to_str().expect("text");
        let seen = results(confined(&scene, Delivery::BeforeExec, "write", &flags, &names, program).exits(0));
        assert_eq!(names.map(|name| seen[name].as_str()), ["EACCES", "EACCES"]);
        scene.unchanged("terminals");
    }
}
