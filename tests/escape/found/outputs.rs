//! What gatekeeper itself executes or writes in a tree that an earlier run could write: helpers, reports, results,
//! spills.

use super::{Hole, Severity, gate, is_untouched, plant, precious};
use crate::isolate;
use crate::run::{Gate, finish, gatekeeper, outside, owned_by, users};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "write `bwrap` into a directory of PATH inside the tree, and wait for `--isolate` or `doctor`",
        reached: "it was executed without filter and Landlock",
        held_by: &["a_helper_planted_in_path_is_not_executed"],
    },
    Hole {
        severity: Severity::High,
        attack: "leave a link where `--report`, `learn -o`, `compile -o`, `import -o` or `extract` writes, or write there \
                 during the run",
        reached: "any file of the user could be overwritten, and the report forged",
        held_by: &[
            "a_report_in_the_tree_is_neither_forged_nor_followed",
            "no_result_is_written_through_a_planted_link",
        ],
    },
    Hole {
        severity: Severity::Medium,
        attack: "replace the `--spill` directory with a link, before or during the run",
        reached: "files were created outside of the tree, and the spill could be forged",
        held_by: &["a_spill_directory_is_held_and_never_followed"],
    },
];

#[test]
fn a_helper_planted_in_path_is_not_executed() {
    for user in users() {
        let gate = gate(*user, "write");
        let escaped = outside().join("escaped");
        let script = format!("#!/bin/sh\\ntouch {}\\nexit 1\\n", escaped.display());
        plant(
            &gate,
            &format!(
                "mkdir tools; for name in bwrap true sh getent; do printf '{script}' > tools/$name; done; chmod 755 tools/*"
            ),
        );
        let path = format!("{}/tools:tools:/usr/bin:/bin", gate.dir.display());
        let policy = gate
            .file("policy.toml", "profile = \"write\"\n[bubblewrap]\nmode = \"required\"\npath = \"tools/bwrap\"\n");
        let tree = gate.dir.clone();
        let isolated = gate.flags(["--isolate", "required"]).env("PATH", &path);
        let done = isolated.run(["/bin/echo", "inside"]);
        match isolate::works() {
            true => done.exits(0).prints("inside\n"),
            false => done.exits(125),
        };
        assert!(!escaped.exists(), "{done}");
        let plan = isolated.verb("plan").run(["/bin/true"]);
        assert!(!plan.stdout().contains("tools/bwrap"), "{plan}");

        let gate = Gate::new(*user).env("PATH", &path);
        let gate = gate.in_directory(&tree);
        finish(gate.verb("doctor").command(crate::run::NOTHING), None);
        assert!(!escaped.exists(), "doctor");

        // If the policy names it, gatekeeper refuses it by name.
        let gate = Gate::new(*user).env("PATH", &path).flags(["--config".as_ref(), policy.as_os_str()]);
        let gate = gate.in_directory(&tree);
        let done = gate.run(["/bin/true"]);
        done.exits(125);
        assert!(done.stderr().contains("tools/bwrap is not used: "), "{done}");
        assert!(!escaped.exists(), "{done}");

        // The control: a shell that searches PATH executes it.
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "bwrap"]).env("PATH", &path).current_dir(&gate.dir);
        crate::run::become_user(&mut command, *user);
        finish(command, None).exits(1);
        assert!(escaped.exists());
    }
}

#[test]
fn a_report_in_the_tree_is_neither_forged_nor_followed() {
    for user in users() {
        let victim = precious(*user);
        let gate = gate(*user, "write").flags(["--report", "report.json"]);
        let report = gate.dir.join("report.json");
        let outcome = || {
            let text = fs::read_to_string(&report).expect("a report");
            let value: serde_json::Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(report.symlink_metadata().expect("there").is_file());
            value["exit_code"].as_i64().expect("a number")
        };
        // gatekeeper replaces whatever the command, or its background process, writes there.
        for (code, line) in [
            (3, "echo '{\"exit_code\":0}' > report.json; exit 3".to_owned()),
            (4, format!("ln -s {} report.json; exit 4", victim.display())),
            (5, format!("ln {} report.json; exit 5", victim.display())),
            (6, "mkfifo report.json; exit 6".to_owned()),
            (7, "(while :; do echo forged > report.json; done) & sleep 0.1; exit 7".to_owned()),
        ] {
            gate.run(["sh", "-c", &line]).exits(code);
            assert_eq!(outcome(), i64::from(code), "{line}");
            is_untouched(&victim);
        }
        // What an earlier run left there is refused before anything runs.
        for (line, word) in [
            (format!("rm report.json; ln -s {} report.json", victim.display()), "symbolic link"),
            ("rm report.json; ln -s /dev/null report.json".to_owned(), "symbolic link"),
            ("rm report.json; mkfifo report.json".to_owned(), "FIFO"),
        ] {
            plant(&gate, &line);
            let done = gate.run(["touch", "ran"]);
            done.exits(125);
            assert!(done.stderr().contains("--report report.json: ") && done.stderr().contains(word), "{done}");
            assert!(!gate.dir.join("ran").exists(), "{done}");
            is_untouched(&victim);
        }
        // The same goes for the directories above it.
        plant(&gate, &format!("rm report.json; ln -s {} out", victim.parent().expect("one").display()));
        let done = crate::run::Gate::profile(*user, "write").flags(["--report", "out/precious"]);
        let done = done.env("HOME", outside()).in_directory(&gate.dir).run(["true"]);
        done.exits(125);
        is_untouched(&victim);
        // The controls: a plain file, and paths that are not files.
        gate.run(["true"]).exits(0);
        assert_eq!(outcome(), 0);
        for place in ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"] {
            let to = Gate::profile(*user, "minimal").flags(["--report", place]);
            let done = to.run(["true"]);
            done.exits(0);
            assert!(done.stderr().starts_with("{\"schema\":1,"), "{place}: {done}");
        }
        let linked = outside().join("linked.json");
        owned_by(*user, linked.parent().expect("one"));
        symlink(&victim, &linked).expect("own");
        Gate::profile(*user, "minimal").flags(["--report".as_ref(), linked.as_os_str()]).run(["true"]).exits(0);
        assert_ne!(
            fs::read_to_string(&victim).expect("there"),
            "precious\n",
            "links outside of writable trees are followed"
        );
    }
}

#[test]
fn no_result_is_written_through_a_planted_link() {
    for user in users() {
        let victim = precious(*user);
        let gate = gate(*user, "write");
        gate.file(
            "oci.json",
            r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]}"#,
        );
        plant(&gate, &format!("ln -s {} result", victim.display()));
        let run = |words: &[&str]| {
            let mut command = std::process::Command::new(gatekeeper());
            command.args(words).current_dir(&gate.dir);
            crate::run::become_user(&mut command, *user);
            finish(command, None)
        };
        let all: [(&[&str], i32); 5] = [
            (&["learn", "-o", "result", "--", "true"], 125),
            (&["compile", "--to", "oci", "--profile", "write", "-o", "result"], 2),
            (&["import", "oci.json", "-o", "result"], 2),
            (&["extract", "result"], 2),
            (&["browser", "--wrapper", "result", "--", "/bin/true"], 125),
        ];
        for (words, code) in all {
            let done = run(words);
            done.exits(code);
            assert!(done.stderr().contains("result is a symbolic link to "), "{done}");
            is_untouched(&victim);
        }
        fs::remove_file(gate.dir.join("result")).expect("the link");
        for (words, _) in all {
            run(words).exits(0);
            assert!(fs::metadata(gate.dir.join("result")).expect("the control").len() > 0);
            fs::remove_file(gate.dir.join("result")).expect("written");
        }
    }
}

#[test]
fn a_spill_directory_is_held_and_never_followed() {
    for user in users() {
        let target = outside();
        owned_by(*user, &target);
        let count = |directory: &Path| fs::read_dir(directory).expect("readable").count();
        let gate = gate(*user, "write").flags(["--json", "--output", "100", "--spill", "spill"]);
        plant(&gate, &format!("ln -s {} spill", target.display()));
        let done = gate.run(["seq", "1000"]);
        done.exits(125);
        assert!(done.stdout().contains("is a symbolic link to "), "{done}");
        plant(&gate, "rm spill; mkdir spill");
        // The command replaces the directory during the run, and tries to forge its files.
        let line = format!(
            "mv spill old; ln -s {} spill; seq 1000; for f in old/*; do echo forged > $f; done",
            target.display()
        );
        let done = gate.run(["sh", "-c", &line]);
        done.exits(0);
        assert_eq!(count(&target), 0, "{done}");
        let files: Vec<PathBuf> =
            fs::read_dir(gate.dir.join("old")).expect("held").map(|entry| entry.expect("readable").path()).collect();
        let whole = files.iter().filter(|file| file.extension().is_some_and(|end| end == "stdout"));
        let whole: Vec<String> = whole.map(|file| fs::read_to_string(file).expect("spilled")).collect();
        assert_eq!(whole.len(), 1, "{files:?}");
        assert!(whole[0].starts_with("1\n2\n3\n") && whole[0].ends_with("\n1000\n"), "{}", whole[0]);
    }
}
