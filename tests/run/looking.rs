//! Profile `read`: programs may start programs to read, and nothing outside of the private TMPDIR changes.

use super::{Gate, act, marker, outside, users};
use crate::support::{gatekeeper, run};
use std::process::Command;

#[test]
fn programs_start_programs_and_look_around() {
    for user in users() {
        let gate = Gate::profile(*user, "read");
        gate.file("a", "2\n1\n");
        gate.file("b", "1\n3\n");
        gate.run(["bash", "-c", "diff <(sort a) <(sort b)"]).exits(1).prints("2c2\n< 2\n---\n> 3\n");
        gate.run(["env", "ls"]).exits(0).prints("a\nb\n");
        gate.run(["bash", "-c", "sort <<END\nb\na\nEND"]).exits(0).prints("a\nb\n");
        let in_tmp = "d=$(mktemp -d) && echo kept > $d/x && mkdir $d/y && chmod 700 $d/y && cat $d/x && rm -r $d";
        gate.run(["sh", "-c", in_tmp]).exits(0).prints("kept\n");
        gate.run(["sh", "-c", "sleep 30 & kill $!; wait $!"]).exits(143);
        // The positive control: `minimal` starts no programs.
        let done = Gate::profile(*user, "minimal").run(["env", "ls"]);
        assert_ne!(done.stdout(), "a\nb\n", "{done}");
    }
}

#[test]
fn nothing_outside_of_the_private_directory_changes() {
    let act = act();
    let act = act.to_str().unwrap();
    for user in users() {
        let gate = Gate::profile(*user, "read");
        let elsewhere = outside().join("new");
        let create = |path: &str| gate.run([act, "create", path]);
        create("marker").exits(0).prints("create 13\n");
        create(elsewhere.to_str().unwrap()).exits(0).prints("create 13\n");
        gate.run(["mkdir", "marker"]).exits(1);
        let done = gate.run(["sh", "-c", "echo lost > marker"]);
        assert!(done.stderr().contains("Permission denied"), "{done}");
        assert!(!marker(&gate).exists() && !elsewhere.exists());
        // The network is denied as under `minimal`.
        let refused = Gate::profile(*user, "minimal").run([act, "tcp"]).stdout();
        assert_ne!(refused, "tcp 0\n");
        gate.run([act, "tcp"]).exits(0).prints(&refused);
        // The positive control: `write` writes.
        Gate::profile(*user, "write").run([act, "create", "marker"]).exits(0).prints("create 0\n");
        Gate::profile(*user, "read+network").run([act, "tcp"]).exits(0).prints("tcp 0\n");
    }
}

/// A compiled filter runs without Landlock, so it cannot allow writes to TMPDIR only.
#[test]
fn a_compiled_filter_of_read_changes_no_files() {
    let list = |profile: &str| {
        let done = run(Command::new(gatekeeper()).args(["compile", "--lossy", "--profile", profile, "--to", "list"]));
        let text = done.exits(0).stdout();
        text.trim().split(':').map(str::to_owned).collect::<Vec<_>>()
    };
    let (read, write) = (list("read"), list("write"));
    for call in ["execve", "wait4", "openat"] {
        assert!(read.iter().any(|known| known == call), "{call}: {read:?}");
    }
    for call in ["mkdir", "unlinkat", "renameat2", "truncate", "symlinkat"] {
        assert!(!read.iter().any(|known| known == call), "{call}: {read:?}");
        assert!(write.iter().any(|known| known == call), "{call}: {write:?}");
    }
}
