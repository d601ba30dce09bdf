//! What one run leaves in a writable tree, and gatekeeper itself opens, writes, removes or executes in the next.

use super::{Hole, Severity};
use crate::isolate;
use crate::run::{Gate, User, finish, gatekeeper, outside, owned_by, users};
use crate::support::{probe, skip};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "write `bwrap` into a directory of PATH inside the tree, wait for `--isolate` or `doctor`",
        reached: "executed without filter and Landlock",
        held_by: &["a_helper_planted_in_path_is_not_executed"],
    },
    Hole {
        severity: Severity::High,
        attack: "leave a link where `--report`, `learn -o`, `compile -o`, `import -o` or `extract` writes, or write there \
                 during the run",
        reached: "any file of the user's overwritten; a forged report",
        held_by: &[
            "a_report_in_the_tree_is_neither_forged_nor_followed",
            "no_result_is_written_through_a_planted_link",
        ],
    },
    Hole {
        severity: Severity::Medium,
        attack: "put a link in the place of the `--spill` directory, before or during the run",
        reached: "files made outside of the tree; a forged spill",
        held_by: &["a_spill_directory_is_held_and_never_followed"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "TMPDIR inside the tree: put a link in the place of the run's own directory before the clean-up",
        reached: "files outside of the tree removed",
        held_by: &["the_clean_up_removes_nothing_outside", "a_temporary_directory_in_the_tree_is_not_used"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "a tree of thousands of directories, each in the one before, in TMPDIR",
        reached: "left behind unsaid; the MCP server's stack overflowed",
        held_by: &["a_deep_tree_is_removed", "what_cannot_be_removed_is_told"],
    },
    Hole {
        severity: Severity::Low,
        attack: "newlines, escape sequences and bidirectional overrides in paths and arguments",
        reached: "forged `allow:` lines in `why` and on stderr",
        held_by: &["names_make_no_lines_of_their_own"],
    },
    Hole {
        severity: Severity::Low,
        attack: "a standard stream that is a directory or an O_PATH descriptor: `openat(0, ...)`",
        reached: "files past the mounts",
        held_by: &["a_directory_as_a_standard_stream_is_refused", "a_file_to_read_cannot_be_opened_again_to_write"],
    },
    Hole {
        severity: Severity::Low,
        attack: "a FIFO, a device or a link in the place of a file that gatekeeper reads",
        reached: "a hang; another policy than the one that is protected",
        held_by: &["files_to_read_are_regular_and_a_policy_is_no_link"],
    },
];

/// A run in a working directory of its own, with a home elsewhere.
fn gate(user: User, profile: &str) -> Gate {
    let home = outside();
    owned_by(user, &home);
    Gate::profile(user, profile).env("HOME", home)
}

/// The same in another's directory.
fn within(directory: &Path, mut gate: Gate) -> Gate {
    gate.dir = directory.to_owned();
    gate
}

/// Runs a line of the shell under `write`, as an attack on the next run.
#[track_caller]
fn plant(scene: &Gate, line: &str) {
    within(&scene.dir, gate(scene.user, "write")).run(["sh", "-ec", line]).exits(0);
}

/// A file of the user's, outside of every tree that a run may write.
fn precious(user: User) -> PathBuf {
    let directory = outside();
    let file = directory.join("precious");
    fs::write(&file, "precious\n").expect("own");
    owned_by(user, &directory);
    owned_by(user, &file);
    file
}

#[track_caller]
fn is_untouched(file: &Path) {
    assert_eq!(fs::read_to_string(file).expect("still there"), "precious\n");
}

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
        let gate = within(&tree, gate);
        finish(gate.verb("doctor").command(crate::run::NOTHING), None);
        assert!(!escaped.exists(), "doctor");

        // Named by the policy it is refused by name.
        let gate = Gate::new(*user).env("PATH", &path).flags(["--config".as_ref(), policy.as_os_str()]);
        let gate = within(&tree, gate);
        let done = gate.run(["/bin/true"]);
        done.exits(125);
        assert!(done.stderr().contains("tools/bwrap is not used: "), "{done}");
        assert!(!escaped.exists(), "{done}");

        // The control: whoever looks in PATH executes it.
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
        // What the command puts there is replaced, also what it leaves to a process in the background.
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
        // What an earlier run left there stops this one, before anything runs.
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
        // The directories above it are held to the same.
        plant(&gate, &format!("rm report.json; ln -s {} out", victim.parent().expect("one").display()));
        let done = crate::run::Gate::profile(*user, "write").flags(["--report", "out/precious"]);
        let done = within(&gate.dir, done.env("HOME", outside())).run(["true"]);
        done.exits(125);
        is_untouched(&victim);
        // The controls: a plain file, and what is no file at all.
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
            "outside of such trees links are the user's own"
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
        // Exchanged while it runs, and its files looked for.
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
        // The control: one beside the tree.
        let beside = outside();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).expect("own");
        owned_by(*user, &beside);
        let done = Gate::profile(*user, "write").env("TMPDIR", &beside).run(["sh", "-c", "echo $TMPDIR"]);
        assert!(Path::new(done.exits(0).stdout().trim()).starts_with(&beside), "{done}");
        assert_eq!(fs::read_dir(&beside).expect("own").count(), 0);
    }
}

/// With every place for temporary files granted, the command can exchange the run's own directory.
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

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_deep_tree_is_removed() {
    let deep = probe("deep", &[]);
    for user in users() {
        let beside = outside();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).expect("own");
        owned_by(*user, &beside);
        // A removal that keeps a descriptor open for each level gets no further than this.
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

#[test]
fn names_make_no_lines_of_their_own() {
    const FORGED: &str = "   allow:  --write forged";
    let name = format!("{}/x\n{FORGED}\r\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{2066}\u{2028}", outside().display());
    let odd = |text: &str| {
        text.chars()
            .find(|letter| letter.is_control() && *letter != '\n' || "\u{202e}\u{2066}\u{2028}".contains(*letter))
    };
    let is_plain = |text: &str| {
        assert!(!text.lines().any(|line| line.starts_with(FORGED) || line.starts_with("forged")), "{text}");
        assert_eq!(odd(text), None, "{text:?}");
        assert!(
            text.contains("\\n   allow:  --write forged\\r\\u{1b}[2J\\u{9b}\\u{7f}\\u{202e}\\u{2066}\\u{2028}"),
            "{text}"
        );
    };
    for user in users() {
        let gate = gate(*user, "minimal");
        // A probe that says nothing itself.
        let quiet = crate::run::act();
        let gate = gate.flags(["--read".as_ref(), quiet.as_os_str()]);
        let (done, report) = gate.report([
            "sh".as_ref(),
            "-c".as_ref(),
            std::ffi::OsStr::new("exec 2>/dev/null; : > \"$1\""),
            "sh".as_ref(),
            name.as_ref(),
        ]);
        assert_eq!(report["denials"][0]["path"], name.as_str(), "{report:#}");
        is_plain(&done.stderr());
        gate.file("report.json", report.to_string());
        let why = within(&gate.dir, Gate::new(*user)).verb("why").flags(["report.json"]).run(crate::run::NOTHING);
        why.exits(0);
        is_plain(&why.stdout());
        // What is not found, what is planned, what is refused.
        is_plain(&gate.run([&name]).exits(127).stderr());
        is_plain(&Gate::profile(*user, "minimal").verb("plan").run(["echo", &name]).exits(0).stdout());
        is_plain(&Gate::new(*user).flags(["--config", &name]).run(["true"]).exits(125).stderr());
        is_plain(&Gate::new(*user).flags(["--cwd", &name]).run(["true"]).exits(125).stderr());
        let nowhere = format!("/nowhere{name}");
        is_plain(&Gate::new(*user).flags(["--report", &nowhere]).run(["true"]).exits(125).stderr());
    }
}

#[test]
fn a_directory_as_a_standard_stream_is_refused() {
    use rustix::fs::{Mode, OFlags, open};
    for user in users() {
        let gate = gate(*user, "minimal");
        gate.file("in", "contents\n");
        let opened = |path: &Path, flags: OFlags| -> OwnedFd { open(path, flags, Mode::empty()).expect("there") };
        let ways = [
            opened(Path::new("/etc"), OFlags::RDONLY | OFlags::DIRECTORY),
            opened(Path::new("/"), OFlags::PATH | OFlags::DIRECTORY),
            opened(&gate.dir.join("in"), OFlags::PATH),
        ];
        for isolated in [&[][..], &["--isolate", "required"]] {
            if !isolated.is_empty() && !isolate::works() {
                skip("bubblewrap does not work here");
                continue;
            }
            for way in &ways {
                for at in 0..3 {
                    let stream = || Stdio::from(way.try_clone().expect("a copy"));
                    let flags = within(&gate.dir, Gate::profile(*user, "minimal")).flags(isolated);
                    let mut command = flags.command(["touch", "ran"]);
                    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                    match at {
                        0 => command.stdin(stream()),
                        1 => command.stdout(stream()),
                        _ => command.stderr(stream()),
                    };
                    assert_eq!(command.status().expect("starts").code(), Some(125), "stream {at} {isolated:?}");
                }
            }
        }
        let done = gate.stdin("contents\n").run(["cat"]);
        done.exits(0).prints("contents\n");
    }
}

/// /proc/self/fd leads to the file itself: Landlock judges it by its path all the same.
#[test]
fn a_file_to_read_cannot_be_opened_again_to_write() {
    for user in users() {
        for profile in ["minimal", "write"] {
            let victim = precious(*user);
            let line = "read -r x; echo $x; echo changed > /proc/self/fd/0";
            let mut command = gate(*user, profile).command(["sh", "-c", line]);
            let output = command.stdin(File::open(&victim).expect("own")).output().expect("starts");
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("ermission denied"), "{output:?}");
            assert_eq!(output.stdout, b"precious\n");
            is_untouched(&victim);
            // The control: where it may write, by the same way.
            if profile == "write" {
                let gate = gate(*user, profile);
                let own = gate.file("own", "precious\n");
                let output =
                    gate.command(["sh", "-c", line]).stdin(File::open(&own).expect("own")).output().expect("starts");
                assert_eq!(output.status.code(), Some(0), "{output:?}");
                assert_eq!(fs::read_to_string(&own).expect("own"), "changed\n");
            }
        }
    }
}

#[test]
fn files_to_read_are_regular_and_a_policy_is_no_link() {
    for user in users() {
        let gate = gate(*user, "write");
        let policy = outside().join("policy.toml");
        fs::write(&policy, "profile = \"minimal\"\n").expect("own");
        plant(
            &gate,
            &format!("mkfifo fifo; ln -s /dev/zero zero; ln -s {} link.toml; mkdir d; ln -s . d/up", policy.display()),
        );
        fs::copy(&policy, gate.dir.join("real.toml")).expect("own");
        let run = |words: &[&str]| {
            let mut command = std::process::Command::new(gatekeeper());
            command.args(words).current_dir(&gate.dir);
            crate::run::become_user(&mut command, *user);
            let began = Instant::now();
            let done = finish(command, None);
            assert!(began.elapsed() < Duration::from_secs(60), "{done}");
            done
        };
        for (file, word) in [("fifo", "FIFO"), ("/dev/zero", "device"), ("/etc", "directory"), ("zero", "")] {
            for (words, code) in [
                (&["run", "--config", file, "--", "true"][..], 125),
                (&["why", file], 2),
                (&["lint", file], 2),
                (&["import", file], 2),
                (&["compile", "--to", "oci", "--config", file], 2),
                (&["browser", "--config", file, "--", "/bin/true"], 125),
                (&["learn", "--from-denials", file, "-o", "learned"], 2),
            ] {
                let done = run(words);
                done.exits(code);
                assert!(done.stderr().contains(word) && done.stderr().contains(file), "{done}");
            }
        }
        for link in ["link.toml", "d/up/up/../real.toml"] {
            let done = run(&["run", "--config", link, "--", "true"]);
            done.exits(125);
            assert!(done.stderr().contains("is a symbolic link to "), "{done}");
        }
        run(&["run", "--config", "real.toml", "--", "true"]).exits(0);
        let beside = outside().join("beside.toml");
        symlink(&policy, &beside).expect("own");
        run(&["run", "--config", beside.to_str().expect("text"), "--", "true"]).exits(0);
    }
}
