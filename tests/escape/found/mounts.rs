//! The kernel's own file systems: /proc and /dev/shm.

use super::{Hole, Severity};
use crate::isolate;
use crate::run::{Gate, User, act, become_user, finish, layer, users};
use crate::support::{has, is_root, probe};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Critical,
        attack: "a program run as the browser writes /proc/sys/kernel/core_pattern as root, also inside bubblewrap",
        reached: "every crash on the machine started the attacker's program as root; a user could write oom_score_adj of other processes",
        held_by: &["a_browser_writes_nothing_in_proc_but_its_own_maps", "bubblewrap_closes_the_settings_of_the_kernel"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "open the files and sockets of other processes in /dev/shm, under `write`",
        reached: "shared memory of the user's other programs was readable and writable",
        held_by: &["shared_memory_is_the_commands_own", "without_namespaces_shared_memory_is_told"],
    },
];

#[test]
fn a_browser_writes_nothing_in_proc_but_its_own_maps() {
    for user in users() {
        let root = *user == User::Own && is_root();
        let mut command = Command::new("sleep");
        command.arg("60");
        become_user(&mut command, *user);
        let mut victim = command.spawn().expect("sleep is there");
        let score = format!("/proc/{}/oom_score_adj", victim.id());
        let settings = "/proc/sys/kernel/core_pattern";
        // Opening is proof enough and changes nothing: only a write changes the setting.
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
        // A browser's own sandbox maps its ids and sets oom_score_adj of its processes.
        let own = "(: >> /proc/self/oom_score_adj) && echo own; sleep 9 & (: >> /proc/$!/oom_score_adj) && echo child; \
                   unshare --user --map-root-user id -u; \
                   unshare --user sh -c 'echo deny >/proc/self/setgroups && cat /proc/self/setgroups'";
        gate.run(["sh", "-c", own]).exits(0).prints("own\nchild\n0\ndeny\n");
        // It may not do so for processes outside the run, nor write other files of its processes.
        let others = format!(
            "(: >> /proc/{}/oom_score_adj) || echo guardian; sleep 9 & (: >> /proc/$!/clear_refs) || echo refs; \
             (: >> /proc/self/comm) || echo comm",
            std::process::id()
        );
        gate.run(["sh", "-c", &others]).exits(0).prints("guardian\nrefs\ncomm\n");
        // It may map only its own id: no range, and no id of another user.
        let more = "unshare --user sh -c 'echo 0 0 1000 >/proc/self/uid_map || echo refused'";
        gate.run(["sh", "-c", more]).exits(0).prints("refused\n");
        // Other profiles do not grant even these.
        Gate::profile(*user, "write").run(["sh", "-c", own]).exits(1);
        victim.kill().expect("ours");
        victim.wait().expect("ours");
    }
}

#[test]
fn bubblewrap_closes_the_settings_of_the_kernel() {
    if !isolate::works() {
        return;
    }
    let expected = |user: User| match user == User::Own && is_root() {
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
        if has("python3") {
            gate.run(["python3", "-c", SEMAPHORES]).exits(0).prints("7\n");
        }
        // The size is the memory limit.
        let limited = Gate::profile(*user, "write").flags(["--memory", "64M"]);
        let done = limited.run(["sh", "-c", "head -c 80M /dev/zero >/dev/shm/large; stat -c %s /dev/shm/large"]);
        done.exits(0).prints(&format!("{}\n", 64 << 20));
        // The control: named with --write, it is the machine's /dev/shm.
        let named = Gate::profile(*user, "write").flags(["--write", "/dev/shm"]);
        named.run([act, "read", path, ",", "write", path]).exits(0).prints("read 0\nwrite 0\n");
        // With a working directory in it, it stays shared, and the report says so.
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
