//! Several processes at one stage, processes that are killed, and a real tree that changes under `apply`.

use super::*;
use crate::support::has;
use std::process::{Child, Stdio};
use std::time::Duration;

fn spawn(place: &Place, words: &[&str]) -> Child {
    place.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
}

/// Delays that reach from the start of a command to its end, whatever the speed of this machine.
fn delays(whole: Duration) -> impl Iterator<Item = Duration> {
    (1..=8).map(move |part| whole * part / 8)
}

fn timed(action: impl FnOnce()) -> Duration {
    let began = std::time::Instant::now();
    action();
    began.elapsed()
}

#[test]
fn a_run_that_is_killed_at_any_moment_leaves_the_real_tree_alone_and_the_stage_whole() {
    for user in users() {
        let place = place(user);
        let before = tree(&place.at("work"));
        let words =
            ["run", "-p", "write", "--stage", "s", "-c", "echo x > text; rm -r dir; mkdir -p dir/n; echo y > dir/n/y"];
        let whole = timed(|| {
            place.run(&words).exits(0);
        });
        place.run(&["stage", "discard", "s"]).exits(0);
        for wait in delays(whole) {
            let mut child = spawn(&place, &words);
            std::thread::sleep(wait);
            let _ = child.kill();
            child.wait().expect("ended");
            assert_eq!(tree(&place.at("work")), before, "killed after {wait:?}");
            // Killed before there was a stage, or with one that can be read, compared and used again.
            let done = place.run(&["stage", "diff", "--json", "s"]);
            assert!(
                matches!(done.code(), Some(0 | 1)) || done.stderr().contains("there is no stage s"),
                "{wait:?}: {done}"
            );
            staged(&place, "true").exits(0);
        }
        place.run(&words).exits(0);
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -qx x text; test \"$(find dir | sort | tr '\\n' ' ')\" = 'dir dir/n dir/n/y '");
    }
}

#[test]
fn a_discard_that_is_killed_can_be_repeated_and_leaves_the_real_tree_alone() {
    let place = place(users().last().copied().flatten());
    let before = tree(&place.at("work"));
    let make = "mkdir many; i=0; while [ $i -lt 500 ]; do echo $i > many/$i; i=$((i+1)); done; rm -r dir";
    staged(&place, make).exits(0);
    let whole = timed(|| {
        place.run(&["stage", "discard", "s"]).exits(0);
    });
    for wait in delays(whole) {
        staged(&place, make).exits(0);
        let mut child = spawn(&place, &["stage", "discard", "s"]);
        std::thread::sleep(wait);
        let _ = child.kill();
        child.wait().expect("ended");
        assert_eq!(tree(&place.at("work")), before);
        place.run(&["stage", "list"]).exits(0);
        // Half removed, it is no stage any more, and the next run starts from the real tree.
        let done = place.run(&["stage", "diff", "s"]);
        if done.code() == Some(2) {
            staged(&place, "ls many 2>&1; cat dir/g")
                .exits(0)
                .prints("ls: cannot access 'many': No such file or directory\ng\n");
        }
        place.run(&["stage", "discard", "s"]).exits(0);
    }
}

#[test]
fn of_several_applies_at_once_one_works_and_the_others_are_refused() {
    for user in users() {
        let place = place(user);
        staged(&place, "i=0; while [ $i -lt 500 ]; do echo $i > n$i; i=$((i+1)); done; rm -r dir; echo x >> text")
            .exits(0);
        let all: Vec<Child> = (0..4).map(|_| spawn(&place, &["stage", "apply", "s"])).collect();
        let codes: Vec<_> = all.into_iter().map(|mut child| child.wait().expect("ends").code()).collect();
        assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
        assert!(codes.iter().all(|code| matches!(code, Some(0 | 2))), "{codes:?}");
        sh(&place, "test $(ls | grep -c '^n') = 500; test ! -e dir; grep -q x text");
    }
}

#[test]
fn an_apply_beside_runs_takes_what_a_run_has_finished() {
    let place = place(users().last().copied().flatten());
    staged(&place, "echo 0 > count").exits(0);
    let line = "n=$(cat count); echo $((n+1)) > count; cat count > copy";
    let mut running: Vec<Child> = Vec::new();
    for _ in 0..6 {
        running.push(spawn(&place, &["run", "-p", "write", "--stage", "s", "-c", line]));
        running.push(spawn(&place, &["stage", "apply", "s"]));
        running.iter_mut().for_each(|child| drop(child.wait()));
        // Never half of a run: both files are of the same one.
        sh(&place, "test ! -e copy || cmp -s copy count");
        running.clear();
    }
    staged(&place, "echo last > count; echo last > copy").exits(0);
    place.run(&["stage", "apply", "s"]).exits(0);
    sh(&place, "grep -qx last count; grep -qx last copy");
}

/// A hostile process swaps a directory of the real tree for a link, over and over, while `apply` works in it.
#[test]
fn a_directory_that_is_swapped_for_a_link_under_apply_leads_nowhere() {
    if !has("python3") {
        return;
    }
    for user in users() {
        let place = place(user);
        sh(
            &place,
            "mkdir ../outside swap; echo safe > ../outside/f0; i=0; while [ $i -lt 300 ]; do echo o > swap/f$i; i=$((i+1)); done",
        );
        staged(&place, "for f in swap/f*; do echo evil > $f; done; i=0; while [ $i -lt 300 ]; do echo evil > swap/n$i; i=$((i+1)); done")
            .exits(0);
        let swap = "import os, ctypes\nlibc = ctypes.CDLL(None)\nos.symlink('../outside', 'bad')\nprint('on', flush=True)\n\
                    while not os.path.exists('../tmp/stop'):\n libc.renameat2(-100, b'swap', -100, b'bad', 2)\n\
                    if os.path.islink('swap'):\n libc.renameat2(-100, b'swap', -100, b'bad', 2)\nos.unlink('bad')";
        let mut swapping = place.any("python3".as_ref(), &["-c", swap]);
        let mut swapping = swapping.stdout(Stdio::piped()).spawn().expect("starts");
        let mut on = [0; 3];
        std::io::Read::read_exact(swapping.stdout.as_mut().expect("piped"), &mut on).expect("it swaps");
        for _ in 0..20 {
            let done = place.run(&["stage", "apply", "s"]);
            assert!(matches!(done.code(), Some(0..=2)), "{done}");
            if done.code() == Some(0) {
                break;
            }
        }
        sh(&place, "touch ../tmp/stop");
        assert!(swapping.wait().expect("ends").success());
        sh(&place, "test \"$(ls -A ../outside)\" = f0; grep -qx safe ../outside/f0; rm ../tmp/stop");
    }
}

/// What somebody still has open is copied: a later write through that descriptor does not reach the real tree.
#[test]
fn a_file_of_the_stage_that_is_still_open_is_not_moved_into_the_tree() {
    use std::io::Write;
    for user in users() {
        let place = place(user);
        staged(&place, "echo reviewed > open; echo reviewed > shut; echo reviewed > one; ln one two").exits(0);
        let upper = store(&place).join("s/upper");
        let inode = |path: &Path| fs::metadata(path).expect("there").ino();
        let shut = inode(&upper.join("shut"));
        let mut open = fs::OpenOptions::new().append(true).open(upper.join("open")).expect("root's or one's own");
        place.run(&["stage", "apply", "s"]).exits(0);
        open.write_all(b"evil\n").expect("still open");
        sh(&place, "grep -qx reviewed open; ! grep -q evil open; echo more >> one; ! grep -q more two");
        assert_eq!(inode(&place.at("work/shut")), shut, "moved, where nothing speaks against it");
    }
}

/// The marks of overlayfs in the real tree were set by a command that ran without a stage.
#[test]
fn marks_of_overlayfs_in_the_real_tree_reach_nothing_else() {
    if !has("python3") {
        return;
    }
    for user in users() {
        let place = place(user);
        sh(&place, "echo secret > ../home/secret; : > empty; : > dir/empty; echo m > meta");
        let forge = "import os\nfor path in ['.', 'dir', 'text', 'empty', 'dir/empty']:\n\
                     \x20for name, value in [('opaque', b'x'), ('redirect', b'/home'), ('whiteout', b'y'), ('origin', b'x' * 40), ('impure', b'y')]:\n\
                     \x20 try: os.setxattr(path, 'user.overlay.' + name, value)\n\
                     \x20 except OSError: pass\nos.setxattr('meta', 'user.overlay.metacopy', b'')";
        sh(&place, &format!("python3 -c \"{forge}\""));
        let before = tree(&place.at("work"));
        staged(&place, "cat text dir/g; echo more >> text; echo n > dir/n; echo e > dir/empty; mv text dir/moved")
            .exits(0);
        // A file whose contents would have to come from elsewhere is not opened at all.
        staged(&place, "cat meta 2>&1").exits(1).prints("cat: meta: Operation not permitted\n");
        assert_eq!(tree(&place.at("work")), before);
        let diff = place.run(&["stage", "diff", "s"]);
        assert!(!diff.stdout().contains("secret"), "{diff}");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -q more dir/moved; grep -q n dir/n; grep -qx e dir/empty; grep -qx g dir/g; test ! -e text");
        let marks = sh(
            &place,
            "python3 -c \"import os; print([os.listxattr(p) for p in ['dir/n', 'dir/moved', 'dir/empty']])\"",
        );
        assert_eq!(marks.stdout(), "[[], [], []]\n");
    }
}

/// Opening a file breaks a lease on it, and the kernel tells the holder by a signal. A backup or an indexer may come at any time.
#[test]
fn apply_survives_a_program_that_opens_a_file_of_the_stage_at_the_wrong_moment() {
    use std::os::unix::fs::OpenOptionsExt;
    if !has("strace") {
        return;
    }
    let place = place(None);
    let gatekeeper = crate::support::gatekeeper_for_all().display().to_string();
    let log = place.at("tmp/strace").display().to_string();
    let broken = (0..10).any(|number| {
        staged(&place, &format!("echo {number} > file")).exits(0);
        let file = store(&place).join("s/upper/file");
        // Every fcntl takes longer, also the one that takes the lease.
        let slow = ["-f", "-qq", "-o", &log, "-e", "trace=fcntl", "-e", "inject=fcntl:delay_exit=20000", &gatekeeper];
        let words: Vec<&str> = slow.into_iter().chain(["stage", "apply", "s"]).collect();
        let mut apply = place.any("strace".as_ref(), &words).stdout(Stdio::null()).spawn().expect("starts");
        let mut broken = false;
        let status = loop {
            if let Some(status) = apply.try_wait().expect("a child") {
                break status;
            }
            let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&file);
            broken |= opened.is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN));
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(status.success(), "{status}");
        sh(&place, &format!("grep -qx {number} file"));
        broken
    });
    assert!(broken, "the file was never opened while apply had the lease");
}
