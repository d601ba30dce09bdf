//! Temporary directories: where gatekeeper creates them, and what it removes at the end.

use super::{Hole, Severity, gate, is_untouched};
use crate::plumbing::eventually;
use crate::run::{Gate, User, outside, owned_by, users};
use crate::support::{probe, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Medium,
        attack: "with TMPDIR inside the tree, replace the run's temporary directory with a link before it is removed",
        reached: "files outside of the tree were removed",
        held_by: &["the_clean_up_removes_nothing_outside", "a_temporary_directory_in_the_tree_is_not_used"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "create thousands of nested directories in TMPDIR",
        reached: "they were silently left behind; the MCP server's stack overflowed",
        held_by: &["a_deep_tree_is_removed", "what_cannot_be_removed_is_told"],
    },
];

#[test]
fn a_temporary_directory_in_the_tree_is_not_used() {
    for user in users() {
        let gate = gate(*user, "write");
        let inside = gate.file("tmp/x", "").parent().expect("a directory").to_owned();
        let gate = gate.env("TMPDIR", &inside);
        let done = gate.run(["sh", "-c", "touch $TMPDIR/works && echo $TMPDIR"]);
        done.exits(0);
        assert!(!Path::new(done.stdout().trim()).starts_with(&gate.dir), "{done}");
        let plan = gate.verb("plan").run(["true"]);
        assert!(plan.stdout().contains("is not used: it is in a tree that confined commands may write"), "{plan}");
        // The control: a TMPDIR outside of the tree is used.
        let beside = outside();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).expect("own");
        owned_by(*user, &beside);
        let done = Gate::profile(*user, "write").env("TMPDIR", &beside).run(["sh", "-c", "echo $TMPDIR"]);
        assert!(Path::new(done.exits(0).stdout().trim()).starts_with(&beside), "{done}");
        assert_eq!(fs::read_dir(&beside).expect("own").count(), 0);
    }
}

/// If all directories for temporary files are granted, the command can replace the run's own one.
#[test]
fn the_clean_up_removes_nothing_outside() {
    for user in users() {
        for killed in [false, true] {
            let victim = outside();
            fs::create_dir(victim.join("tmp")).expect("new");
            fs::write(victim.join("tmp/precious"), "precious\n").expect("new");
            for path in [&victim, &victim.join("tmp"), &victim.join("tmp/precious")] {
                owned_by(*user, path);
            }
            let moved = outside();
            owned_by(*user, &moved);
            let line = format!(
                "own=${{TMPDIR%/tmp}}; echo x > $TMPDIR/mine; mv $own {0}/moved; ln -s {1} $own; echo $own > {0}/name; exec sleep {2}",
                moved.display(),
                victim.display(),
                if killed { "60" } else { "0" }
            );
            let gate = gate(*user, "write").flags(["--write", "/tmp", "--write", "/var/tmp"]);
            let mut child = gate.command(["sh", "-ec", &line]).stdin(Stdio::null()).spawn().expect("starts");
            if killed {
                eventually("the directory is exchanged", || moved.join("name").exists());
                child.kill().expect("own child");
            }
            let status = child.wait().expect("own child");
            assert_eq!(status.code(), if killed { None } else { Some(0) });
            eventually("what was moved is emptied", || !moved.join("moved/tmp").exists());
            is_untouched(&victim.join("tmp/precious"));
            let link = fs::read_to_string(moved.join("name")).expect("told");
            fs::remove_file(link.trim()).expect("the link is left, as everything that is not the run's own");
        }
    }
}

#[test]
fn a_deep_tree_is_removed() {
    let deep = probe("deep", &[]);
    for user in users() {
        let beside = outside();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).expect("own");
        owned_by(*user, &beside);
        // Few descriptors, so that a removal that keeps one open per level would fail.
        let few = ["sh", "-c", "ulimit -n 128; exec \"$@\"", "sh"];
        let gate = gate(*user, "write").under(few).env("TMPDIR", &beside).flags(["--read".as_ref(), deep.as_os_str()]);
        let (done, report) = gate.report([deep.as_os_str(), "600".as_ref()]);
        done.exits(0).complains("");
        assert!(report.get("kept").is_none(), "{report:#}");
        assert_eq!(fs::read_dir(&beside).expect("own").count(), 0);
    }
}

#[test]
fn what_cannot_be_removed_is_told() {
    if !users().contains(&User::Nobody) {
        return skip("only root can leave something behind for another user");
    }
    let beside = outside();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).expect("own");
    owned_by(User::Nobody, &beside);
    let gate = gate(User::Nobody, "write").env("TMPDIR", &beside);
    let (told, go) = (gate.dir.join("told"), gate.dir.join("go"));
    let put = std::thread::spawn(move || {
        eventually("the command tells where", || fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n')));
        let place = PathBuf::from(fs::read_to_string(&told).expect("told").trim()).join("root's");
        fs::create_dir(&place).expect("root may");
        fs::write(place.join("file"), "").expect("root may");
        fs::write(go, "").expect("root may");
    });
    let (done, report) = gate.report(["sh", "-c", "echo $TMPDIR > told; while ! test -e go; do sleep 0.05; done"]);
    put.join().expect("put there");
    done.exits(0);
    let kept = report["kept"].as_str().expect("told");
    assert!(Path::new(kept).starts_with(&beside) && Path::new(kept).exists(), "{report:#}");
    assert_eq!(report["kept_because"], "Operation not permitted (os error 1)", "{report:#}");
    assert!(done.stderr().contains(&format!("gatekeeper: warning: {kept} could not be removed: ")), "{done}");
}
