//! Protected files that are replaced from outside during a run, or whose place is not as planned when they are mounted.

use super::{Hole, Severity};
use crate::isolate;
use crate::plumbing::eventually;
use crate::run::{Gate, User, act, become_user, finish, layer, reports, unprivileged, users};
use crate::support::{Done, has, probe};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "wait until a process outside runs `git config`, or saves `.env` by rename",
        reached: "the kernel dropped the mount: .git/config was writable and .env readable, while the report said read-only",
        held_by: &[
            "what_is_replaced_from_outside_is_protected_again",
            "what_cannot_be_protected_again_ends_the_run",
            "what_is_removed_or_moved_from_outside_is_told_and_watched",
            "without_a_watch_the_report_says_so",
            "bubblewrap_ends_when_a_protected_file_is_replaced",
        ],
    },
    Hole {
        severity: Severity::Medium,
        attack: "a second run puts a symbolic link into the path of a protected file while the first is set up",
        reached: "the mount landed elsewhere, and the protected file stayed writable",
        held_by: &["a_place_that_is_not_as_planned_stops_the_run"],
    },
];

/// A run that waits until the file `go` exists, so that something can happen outside first.
struct During {
    gate: Gate,
    child: Child,
    report: PathBuf,
}

impl During {
    /// Starts a shell line that first waits, and returns once it waits.
    fn start(gate: Gate, flags: &[&str], line: &str) -> During {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let report = reports().join(format!("during-{}.json", COUNT.fetch_add(1, Ordering::Relaxed)));
        let gate = gate.flags(flags).flags(["--timeout", "60s", "--report", report.to_str().expect("text")]);
        let line = format!("touch started; while [ ! -e go ]; do sleep 0.01; done; {line}");
        let mut command = gate.command(["sh", "-c", &line]);
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("started");
        eventually("the command waits", || gate.dir.join("started").exists());
        During { gate, child, report }
    }

    /// Runs a shell line as the same user, unconfined.
    fn outside(&self, line: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.gate.dir).env("HOME", &self.gate.dir);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("PATH", "/usr/local/bin:/usr/bin:/bin");
        become_user(&mut command, self.gate.user);
        finish(command, None).exits(0);
    }

    /// Lets the command continue, and returns its result and report.
    fn finish(self) -> (Done, Value) {
        fs::write(self.gate.dir.join("go"), "").expect("own directory");
        let output = self.child.wait_with_output().expect("our child");
        let done = Done { shown: "the command that waited".to_owned(), output };
        let text = fs::read_to_string(&self.report).unwrap_or_else(|error| panic!("no report: {error}{done}"));
        (done, serde_json::from_str(&text).expect("JSON"))
    }
}

/// A repository with a secret in it.
fn tree(user: User) -> Gate {
    let gate = Gate::profile(user, "write");
    gate.file(".git/HEAD", "ref: refs/heads/main\n");
    gate.file(".git/config", "[core]\n\tbare = false\n");
    gate.file(".git/objects/info/x", "");
    gate.file(".git/refs/heads/x", "");
    gate.file(".env", "SECRET=1\n");
    gate
}

fn acts(words: &str) -> String {
    format!("{} {words}", act().display())
}

/// The result of reading a covered file. The mode of the cover denies it; to root, the supervisor does.
fn read_of_cover() -> String {
    format!("read {}\n", libc::EACCES)
}

#[test]
fn what_is_replaced_from_outside_is_protected_again() {
    if !has("git") {
        return;
    }
    for user in users() {
        let during = During::start(
            tree(*user),
            &[],
            &acts(
                "write .git/config , rename .git/config .git/moved , unlink .git/config , read .env , write .git/HEAD",
            ),
        );
        during.outside("git config user.name somebody");
        // Some editors write a new file and rename it.
        during.outside("echo SECRET=2 >.env.new && mv .env.new .env");
        // Others rename the old file and write a new one.
        during.outside("mv .env .env~ && echo SECRET=3 >.env");
        std::thread::sleep(Duration::from_millis(200));
        let gate = during.gate.dir.clone();
        let (done, report) = during.finish();
        let lines = format!("write {0}\nrename {0}\nunlink {0}\n", libc::EROFS);
        done.exits(0).prints(&format!("{lines}{}write 0\n", read_of_cover()));
        assert!(fs::read_to_string(gate.join(".git/config")).expect("there").contains("name = somebody"), "{done}");
        let (status, detail) = layer(&report, "namespaces");
        assert_eq!(status, "partial", "{report:#}");
        for entry in [".git/config", ".env"] {
            let told = format!("{} was replaced", gate.join(entry).display());
            assert!(detail.contains(&told), "{told}: {detail}");
        }

        // The control: nothing happens outside, and the layer is enforced.
        let during = During::start(tree(*user), &[], &acts("write .git/config"));
        let (done, report) = during.finish();
        done.exits(0).prints(&format!("write {}\n", libc::EROFS));
        assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
    }
}

#[test]
fn what_is_removed_or_moved_from_outside_is_told_and_watched() {
    for user in users() {
        let during = During::start(tree(*user), &[], &acts("write .git/config , write .git2/config , read .env"));
        // The whole directory is replaced, and the entries of the new one are protected too.
        during.outside("mv .git .git2 && mkdir .git && sleep 0.2 && cp .git2/config .git/config && rm .env");
        std::thread::sleep(Duration::from_millis(200));
        let gate = during.gate.dir.clone();
        let (done, report) = during.finish();
        let lines = format!("write {}\nwrite {}\nread {}\n", libc::EROFS, libc::EROFS, libc::ENOENT);
        done.exits(0).prints(&lines);
        let (status, detail) = layer(&report, "namespaces");
        assert_eq!(status, "partial", "{report:#}");
        for (entry, what) in [(".git", "replaced"), (".git/config", "replaced"), (".env", "removed")] {
            let told = format!("{} was {what} from outside", gate.join(entry).display());
            assert!(detail.contains(&told), "{told}: {detail}");
        }
    }
}

#[test]
fn what_cannot_be_protected_again_ends_the_run() {
    for user in users() {
        let during = During::start(tree(*user), &[], "sleep 30; echo survived");
        let config = during.gate.dir.join(".git/config");
        // gatekeeper does not mount over a link that leads elsewhere.
        during.outside("ln -s /etc/hostname link && mv -T link .git/config");
        let (done, report) = during.finish();
        done.exits(128 + libc::SIGKILL).prints("");
        let error = report["error"].as_str().unwrap_or_default();
        assert!(
            error.contains(config.to_str().unwrap()) && error.contains("could not be protected again"),
            "{report:#}"
        );
        assert_eq!(layer(&report, "namespaces").0, "partial");
    }
}

#[test]
fn without_a_watch_the_report_says_so() {
    // inotify cannot watch a directory that its owner may not read. Root may read every directory.
    let user = unprivileged();
    for (mode, expected) in [(0o311, "partial"), (0o755, "enforced")] {
        let gate = tree(user);
        fs::set_permissions(gate.dir.join(".git"), fs::Permissions::from_mode(mode)).expect("own directory");
        let (done, report) = gate.report([act().to_str().unwrap(), "write", ".git/config"]);
        done.exits(0).prints(&format!("write {}\n", libc::EROFS));
        let (status, detail) = layer(&report, "namespaces");
        assert_eq!(status, expected, "{report:#}");
        assert_eq!(detail.contains("they cannot be watched"), expected == "partial", "{detail}");
    }
}

#[test]
fn bubblewrap_ends_when_a_protected_file_is_replaced() {
    if !isolate::works() {
        return;
    }
    for user in users() {
        let during = During::start(tree(*user), &["--isolate", "required"], "sleep 30; echo survived");
        let config = during.gate.dir.join(".git/config");
        during.outside("cp .git/config new && mv new .git/config");
        let (done, report) = during.finish();
        done.exits(128 + libc::SIGKILL).prints("");
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.contains(config.to_str().unwrap()), "{report:#}");
        assert_eq!(layer(&report, "namespaces").0, "partial");
        // The control: other files may be created and removed.
        let during = During::start(tree(*user), &["--isolate", "required"], "echo survived");
        during.outside("echo other >new && mv new other && rm other");
        let (done, report) = during.finish();
        done.exits(0).prints("survived\n");
        assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
    }
}

#[test]
fn a_place_that_is_not_as_planned_stops_the_run() {
    let outer = probe("outer", &[]);
    for user in users() {
        let under = |errno: i32| {
            let rule = format!("{}={errno}", libc::SYS_openat2);
            tree(*user).under([outer.to_str().unwrap().to_owned(), rule, "--".to_owned()])
        };
        // ELOOP, as if a link had appeared in the path between the plan and the mount.
        let gate = under(libc::ELOOP);
        let (done, report) = gate.report(["true"]);
        done.exits(125);
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("mounts: /") && error.contains("is not what was planned"), "{report:#}");
        // The control, which also tests the fallback for kernels without openat2.
        let (done, report) =
            under(libc::ENOSYS).report([act().to_str().unwrap(), "write", ".git/config", ",", "read", ".env"]);
        done.exits(0).prints(&format!("write {}\n{}", libc::EROFS, read_of_cover()));
        assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
    }
}
