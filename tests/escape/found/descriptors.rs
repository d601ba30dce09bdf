//! What a run is given to read: standard streams, policy files and other inputs, and names that it prints.

use super::{Hole, Severity, gate, is_untouched, plant, precious};
use crate::isolate;
use crate::run::{Gate, finish, gatekeeper, outside, users};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Low,
        attack: "newlines, escape sequences and bidirectional overrides in paths and arguments",
        reached: "`allow:` lines in the output of `why` and on stderr could be forged",
        held_by: &["names_make_no_lines_of_their_own"],
    },
    Hole {
        severity: Severity::Low,
        attack: "a standard stream that is a directory or an O_PATH descriptor: `openat(0, ...)`",
        reached: "files under the mounts were reachable",
        held_by: &["a_directory_as_a_standard_stream_is_refused", "a_file_to_read_cannot_be_opened_again_to_write"],
    },
    Hole {
        severity: Severity::Low,
        attack: "replace a file that gatekeeper reads with a FIFO, a device or a link",
        reached: "gatekeeper hung, or read another policy than the protected one",
        held_by: &["files_to_read_are_regular_and_a_policy_is_no_link"],
    },
];

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
        // A probe that prints nothing about the path.
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
        let why = Gate::new(*user).in_directory(&gate.dir).verb("why").flags(["report.json"]).run(crate::run::NOTHING);
        why.exits(0);
        is_plain(&why.stdout());
        // Also in messages about commands, plans and flags.
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
        for isolated in isolate::ways() {
            for way in &ways {
                for at in 0..3 {
                    let stream = || Stdio::from(way.try_clone().expect("a copy"));
                    let flags = Gate::profile(*user, "minimal").in_directory(&gate.dir).flags(*isolated);
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

/// Opening /proc/self/fd reopens the file itself, but Landlock still checks the file's path.
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
            // The control: in the writable tree the same works.
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
