//! Mounts and the file systems of the kernel: /proc, /dev/shm, files replaced under a mount.

use super::{Hole, Severity};
use crate::isolate;
use crate::run::{Gate, User, act, become_user, finish, layer, reports, unprivileged, users};
use crate::support::{Done, on_path, probe, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Critical,
        attack: "a program in the place of a browser, as root, writes /proc/sys/kernel/core_pattern; also inside of bubblewrap",
        reached: "every crash on the machine starts a program of the attacker's, as root; a user: oom_score_adj of others",
        held_by: &["a_browser_writes_nothing_in_proc_but_its_own_maps", "bubblewrap_closes_the_settings_of_the_kernel"],
    },
    Hole {
        severity: Severity::High,
        attack: "wait until a process outside runs `git config`, or saves `.env` by rename",
        reached: "the kernel drops the mount: .git/config written, .env read, and the report said read-only",
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
        attack: "open the files and sockets of other processes in /dev/shm, under `write`",
        reached: "shared memory of other programs of the user, read and written",
        held_by: &["shared_memory_is_the_commands_own", "without_namespaces_shared_memory_is_told"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "a second run puts a symbolic link in the way to a protected place while the first is set up",
        reached: "the mount lands elsewhere, and the protected place stays writable",
        held_by: &["a_place_that_is_not_as_planned_stops_the_run"],
    },
];

/// A run that does something once `go` is there, with what happens outside before that.
struct During {
    gate: Gate,
    child: Child,
    report: PathBuf,
}

impl During {
    /// Starts a line of the shell that first waits, and comes back when it does.
    fn start(gate: Gate, flags: &[&str], line: &str) -> During {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let report = reports().join(format!("during-{}.json", COUNT.fetch_add(1, Ordering::Relaxed)));
        let gate = gate.flags(flags).flags(["--timeout", "60s", "--report", report.to_str().expect("text")]);
        let line = format!("touch started; while [ ! -e go ]; do sleep 0.01; done; {line}");
        let mut command = gate.command(["sh", "-c", &line]);
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("started");
        wait_for(&gate.dir.join("started"));
        During { gate, child, report }
    }

    /// What the same user does outside.
    fn outside(&self, line: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.gate.dir).env("HOME", &self.gate.dir);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("PATH", "/usr/local/bin:/usr/bin:/bin");
        become_user(&mut command, self.gate.user);
        finish(command, None).exits(0);
    }

    /// Lets the command go on; its end and its report.
    fn finish(self) -> (Done, Value) {
        fs::write(self.gate.dir.join("go"), "").expect("own directory");
        let output = self.child.wait_with_output().expect("our child");
        let done = Done { shown: "the command that waited".to_owned(), output };
        let text = fs::read_to_string(&self.report).unwrap_or_else(|error| panic!("no report: {error}{done}"));
        (done, serde_json::from_str(&text).expect("JSON"))
    }
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(2));
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

/// The mode of the cover denies it, and for root the supervisor.
fn read_of_cover() -> String {
    format!("read {}\n", libc::EACCES)
}

#[test]
fn a_browser_writes_nothing_in_proc_but_its_own_maps() {
    for user in users() {
        let root = *user == User::Own && rustix::process::geteuid().is_root();
        let mut command = Command::new("sleep");
        command.arg("60");
        become_user(&mut command, *user);
        let mut victim = command.spawn().expect("sleep is there");
        let score = format!("/proc/{}/oom_score_adj", victim.id());
        let settings = "/proc/sys/kernel/core_pattern";
        // Opening alone is enough to show it, and changes nothing: the kernel writes when it is written to.
        let open = |path: &str| format!("(: >> {path}) 2>/dev/null && echo open || echo shut");
        let line = format!("{}; {}; {}", open(settings), open(&score), open("/proc/sys/vm/drop_caches"));
        let mut command = Command::new("sh");
        command.args(["-c", &line]);
        become_user(&mut command, *user);
        let control = finish(command, None);
        let free = if root { "open\nopen\nopen\n" } else { "shut\nopen\nshut\n" };
        control.exits(0).prints(free);

        let gate = Gate::profile(*user, "browser");
        gate.run(["sh", "-c", &line]).exits(0).prints("shut\nshut\nshut\n");
        let errnos = gate.run([act().to_str().unwrap(), "open-truncate", &score, ",", "open-truncate", settings]);
        errnos.exits(0).prints(&format!("open-truncate {}\nopen-truncate {}\n", libc::EACCES, libc::EACCES));
        // What its own sandbox is made of: ids of its own, and a score of its own processes.
        let own = "(: >> /proc/self/oom_score_adj) && echo own; sleep 9 & (: >> /proc/$!/oom_score_adj) && echo child; \
                   unshare --user --map-root-user id -u; \
                   unshare --user sh -c 'echo deny >/proc/self/setgroups && cat /proc/self/setgroups'";
        gate.run(["sh", "-c", own]).exits(0).prints("own\nchild\n0\ndeny\n");
        // Of the run, not of the machine, and for no other file of a process.
        let others = format!(
            "(: >> /proc/{}/oom_score_adj) || echo guardian; sleep 9 & (: >> /proc/$!/clear_refs) || echo refs; \
             (: >> /proc/self/comm) || echo comm",
            std::process::id()
        );
        gate.run(["sh", "-c", &others]).exits(0).prints("guardian\nrefs\ncomm\n");
        // Only the ids that it has: not a range, and not those of somebody else.
        let more = "unshare --user sh -c 'echo 0 0 1000 >/proc/self/uid_map || echo refused'";
        gate.run(["sh", "-c", more]).exits(0).prints("refused\n");
        // Where no profile asks for it, not even those.
        Gate::profile(*user, "write").run(["sh", "-c", own]).exits(1);
        victim.kill().expect("ours");
        victim.wait().expect("ours");
    }
}

#[test]
fn bubblewrap_closes_the_settings_of_the_kernel() {
    if !isolate::works() {
        return skip("bubblewrap does not work here");
    }
    let expected = |user: User| match user == User::Own && rustix::process::geteuid().is_root() {
        true => libc::EROFS,
        false => libc::EACCES,
    };
    for user in users() {
        for profile in ["write", "browser", "unrestricted"] {
            let gate = Gate::profile(*user, profile).flags(["--isolate", "required"]);
            let read = act().parent().expect("a directory").to_owned();
            let gate = gate.flags(["--read".as_ref(), read.as_os_str()]);
            let act = act();
            let settings = "/proc/sys/kernel/core_pattern";
            let words = ["open-truncate", settings, ",", "read", settings];
            let done = gate.run(std::iter::once(act.to_str().unwrap()).chain(words));
            done.exits(0).prints(&format!("open-truncate {}\nread 0\n", expected(*user)));
        }
    }
}

#[test]
fn what_is_replaced_from_outside_is_protected_again() {
    if !on_path("git") {
        return skip("git is not installed");
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
        // As editors save.
        during.outside("echo SECRET=2 >.env.new && mv .env.new .env");
        // As others do: the old file is kept under another name.
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

        // The control: nothing happens outside, and nothing is said.
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
        // The whole directory is exchanged for another, whose entries are protected as the old ones were.
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
        // Nothing can be mounted over a link that leads elsewhere.
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
    // A directory that its owner may enter and change, but not list, cannot be watched. Root lists everything.
    let user = unprivileged();
    if user == User::Own && rustix::process::geteuid().is_root() {
        return skip("there is no user without privileges");
    }
    for (mode, expected) in [(0o311, "partial"), (0o755, "enforced")] {
        let gate = tree(user);
        fs::set_permissions(gate.dir.join(".git"), fs::Permissions::from_mode(mode)).expect("own directory");
        let (done, report) = gate.report([act().to_str().unwrap(), "write", ".git/config"]);
        done.exits(0).prints(&format!("write {}\n", libc::EROFS));
        let (status, detail) = layer(&report, "namespaces");
        assert_eq!(status, expected, "{report:#}");
        assert_eq!(detail.contains("no watch can be made"), expected == "partial", "{detail}");
    }
}

#[test]
fn bubblewrap_ends_when_a_protected_file_is_replaced() {
    if !isolate::works() {
        return skip("bubblewrap does not work here");
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
        // The control: other files come and go.
        let during = During::start(tree(*user), &["--isolate", "required"], "echo survived");
        during.outside("echo other >new && mv new other && rm other");
        let (done, report) = during.finish();
        done.exits(0).prints("survived\n");
        assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
    }
}

/// A file in the machine's shared memory, removed at the end.
struct Shared(PathBuf);

impl Shared {
    fn new(user: User) -> Shared {
        let path = PathBuf::from(format!("/dev/shm/gatekeeper-{}-{user:?}", std::process::id()));
        fs::write(&path, "of somebody else\n").expect("everybody may");
        crate::run::owned_by(user, &path);
        Shared(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const SEMAPHORES: &str = "
from multiprocessing import Lock, shared_memory
with Lock(): pass
made = shared_memory.SharedMemory(create=True, size=16)
again = shared_memory.SharedMemory(name=made.name)
made.buf[0] = 7
print(again.buf[0])
again.close(); made.close(); made.unlink()
";

#[test]
fn shared_memory_is_the_commands_own() {
    for user in users() {
        let shared = Shared::new(*user);
        let path = shared.0.to_str().expect("text");
        let mine = format!("/dev/shm/made-{}-{user:?}", std::process::id());
        let gate = Gate::profile(*user, "write");
        let act = act();
        let act = act.to_str().expect("text");
        let (done, report) =
            gate.report([act, "read", path, ",", "write", path, ",", "exclusive", &mine, ",", "read", &mine]);
        done.exits(0).prints(&format!("read {0}\nwrite {0}\nexclusive 0\nread 0\n", libc::ENOENT));
        assert!(!Path::new(&mine).exists(), "left in the machine's own");
        assert_eq!(fs::read_to_string(path).expect("there"), "of somebody else\n");
        let (status, detail) = layer(&report, "namespaces");
        assert!(status == "enforced" && detail.contains("/dev/shm"), "{report:#}");
        assert_eq!(layer(&report, "landlock").0, "enforced");
        let mounted = gate.run(["grep", " /dev/shm ", "/proc/self/mountinfo"]);
        let last = mounted.exits(0).stdout().lines().last().unwrap_or_default().to_owned();
        assert!(last.contains("nosuid") && last.contains("nodev"), "{last}");
        match on_path("python3") {
            true => drop(gate.run(["python3", "-c", SEMAPHORES]).exits(0).prints("7\n")),
            false => skip("python3 is not installed"),
        }
        // As much as the memory limit, and no more.
        let limited = Gate::profile(*user, "write").flags(["--memory", "64M"]);
        let done = limited.run(["sh", "-c", "head -c 80M /dev/zero >/dev/shm/large; stat -c %s /dev/shm/large"]);
        done.exits(0).prints(&format!("{}\n", 64 << 20));
        // The control: asked for by name it is the machine's.
        let named = Gate::profile(*user, "write").flags(["--write", "/dev/shm"]);
        named.run([act, "read", path, ",", "write", path]).exits(0).prints("read 0\nwrite 0\n");
        // A working directory in it stays where it is, and the report tells what that means.
        let inside = Gate::profile(*user, "write").flags(["--cwd", "/dev/shm"]);
        let (done, report) = inside.report([act, "read", path]);
        done.exits(0).prints("read 0\n");
        let (status, detail) = layer(&report, "landlock");
        assert!(status == "partial" && detail.contains("/dev/shm is shared"), "{report:#}");
    }
}

#[test]
fn without_namespaces_shared_memory_is_told() {
    for user in users() {
        let outer = probe("outer", &[]);
        let words = [outer.to_str().unwrap().to_owned(), format!("{}=1", libc::SYS_unshare), "--".to_owned()];
        let gate = Gate::profile(*user, "write").under(words);
        let name = format!("/dev/shm/made-{}-{user:?}", std::process::id());
        let (done, report) = gate.report([act().to_str().unwrap(), "exclusive", &name, ",", "unlink", &name]);
        done.exits(0).prints("exclusive 0\nunlink 0\n");
        let (status, detail) = layer(&report, "landlock");
        assert!(status == "partial" && detail.contains("/dev/shm is shared"), "{report:#}");
        assert_eq!(layer(&report, "namespaces").0, "unavailable");
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
        // As if a link had come into the way to it between the plan and the mount.
        let gate = under(libc::ELOOP);
        let (done, report) = gate.report(["true"]);
        done.exits(125);
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("mounts: /") && error.contains("is not what was planned"), "{report:#}");
        // The control, and the other way to walk: the same call is not there at all.
        let (done, report) =
            under(libc::ENOSYS).report([act().to_str().unwrap(), "write", ".git/config", ",", "read", ".env"]);
        done.exits(0).prints(&format!("write {}\n{}", libc::EROFS, read_of_cover()));
        assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
    }
}
