//! chmod, chown, times and attributes, made by the supervisor: allowed inside the tree, refused outside.

use super::{Gate, User, act, denials, outside, owned_by, users};
use crate::support::probe;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

#[test]
fn inside_the_tree_metadata_can_be_changed() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let file = gate.file("data", "x");
        gate.file("dir/inner", "x");
        std::os::unix::fs::symlink("data", gate.dir.join("link")).unwrap();
        owned_by(*user, &gate.dir.join("link"));
        let act = act();
        let (done, report) = gate.report([
            act.to_str().unwrap(),
            "chmod",
            "data",
            ",",
            "fchmod",
            "dir/inner",
            ",",
            "fchmodat",
            "dir",
            "inner",
            ",",
            "chown",
            "data",
            ",",
            "lchown",
            "link",
            ",",
            "times",
            "data",
            ",",
            "link-times",
            "link",
            ",",
            "ftimes",
            "data",
            ",",
            "proc-chmod",
            "data",
            ",",
            "chmod",
            "missing",
            ",",
            "chmod",
            "link",
        ]);
        done.exits(0).prints(
            "chmod 0\nfchmod 0\nfchmodat 0\nchown 0\nlchown 0\ntimes 0\nlink-times 0\nftimes 0\nproc-chmod 0\nchmod 2\nchmod 0\n",
        );
        assert_eq!(report["denials"], serde_json::json!([]), "{report:#}");
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.mode() & 0o777, meta.mtime()), (0o777, 1_000_000_000));
        assert_eq!(fs::symlink_metadata(gate.dir.join("link")).unwrap().mtime(), 1_000_000_000);
        // If the file system does not support attributes, the result is the same as unconfined.
        let plain = {
            let mut command = std::process::Command::new(&act);
            command.args(["setxattr", "data", ",", "removexattr", "data"]).current_dir(&gate.dir);
            super::become_user(&mut command, *user);
            super::finish(command, None).stdout()
        };
        gate.run([act.to_str().unwrap(), "setxattr", "data", ",", "removexattr", "data"]).exits(0).prints(&plain);
    }
}

/// A file of the user that no run is granted.
fn file_outside(user: User) -> PathBuf {
    let file = outside().join("data");
    fs::write(&file, "x").unwrap();
    owned_by(user, &file);
    file
}

#[test]
fn outside_the_tree_it_is_refused_with_a_record() {
    for user in users() {
        let file = file_outside(*user);
        let before = fs::metadata(&file).unwrap();
        let path = file.to_str().unwrap();
        for (op, calls) in [
            ("chmod", &["chmod", "fchmodat"][..]),
            ("fchmod", &["fchmod"]),
            ("chown", &["chown", "fchownat"]),
            ("times", &["utimensat"]),
            ("ftimes", &["utimensat"]),
            ("setxattr", &["setxattr"]),
            ("removexattr", &["removexattr"]),
            ("proc-chmod", &["chmod", "fchmodat"]),
        ] {
            let gate = Gate::profile(*user, "write");
            std::os::unix::fs::symlink(&file, gate.dir.join("way-out")).unwrap();
            for name in [path, "way-out"] {
                let (done, report) = gate.report([act().to_str().unwrap(), op, name]);
                done.exits(0).prints(&format!("{op} 1\n"));
                let found: Vec<_> = calls.iter().flat_map(|call| denials(&report, call)).collect();
                let [denial] = found[..] else { panic!("{op}: {report:#}") };
                assert_eq!(denial["path"], path, "{report:#}");
                assert_eq!(denial["allow_with"], format!("--write {path}"), "{report:#}");
            }
        }
        let after = fs::metadata(&file).unwrap();
        assert_eq!((before.mode(), before.mtime(), before.ctime()), (after.mode(), after.mtime(), after.ctime()));
        // The remedy works.
        let gate = Gate::profile(*user, "write").flags(["--write", path]);
        gate.run([act().to_str().unwrap(), "chmod", path]).exits(0).prints("chmod 0\n");
    }
}

/// One thread switches a symbolic link between inside and outside while another changes modes through it, 10,000 times.
#[test]
fn a_swapped_link_never_reaches_a_file_outside() {
    for user in users() {
        let file = file_outside(*user);
        let before = fs::metadata(&file).unwrap();
        let gate = Gate::profile(*user, "write");
        gate.file("inside", "x");
        fs::create_dir(gate.dir.join("dir")).unwrap();
        fs::write(gate.dir.join("dir/data"), "x").unwrap();
        owned_by(*user, &gate.dir.join("dir"));
        owned_by(*user, &gate.dir.join("dir/data"));
        let swap = probe("swap", &["-pthread"]);
        let outside = file.parent().unwrap().to_str().unwrap();
        let done = gate.run([swap.to_str().unwrap(), outside, "10000"]);
        done.exits(0);
        let counts: Vec<u32> = done.stdout().split_whitespace().map(|word| word.parse().unwrap()).collect();
        // Both targets must have been hit, or it was not a race.
        assert!(counts[0] > 0 && counts[1] > 0, "{done}");
        let after = fs::metadata(&file).unwrap();
        assert_eq!(
            (before.mode(), before.mtime(), before.ctime()),
            (after.mode(), after.mtime(), after.ctime()),
            "{done}"
        );
    }
}

const MOMENTS: &str = "
import os, sys, threading
outside = sys.argv[1]
def refused(change):
    try:
        change()
    except PermissionError:
        return 'refused'
    return 'CHANGED'
def opened():
    return os.open('new', os.O_CREAT | os.O_WRONLY)
words = set()
for _ in range(100):
    fd, other = opened(), os.open(outside, os.O_RDONLY)
    os.fchmod(fd, 0o640)
    os.dup2(other, fd)
    words.add(refused(lambda: os.fchmod(fd, 0o777)))
    words.add(refused(lambda: os.utime(fd, (1, 1))))
    d, above = os.open('dir', os.O_RDONLY), os.open(os.path.dirname(outside), os.O_RDONLY)
    os.chmod('inner', 0o640, dir_fd=d)
    words.add(refused(lambda: os.chmod('way-out', 0o777, dir_fd=d)))
    os.dup2(above, d)
    words.add(refused(lambda: os.chmod(os.path.basename(outside), 0o777, dir_fd=d)))
    for each in (fd, other, d, above):
        os.close(each)
thread = threading.Thread(target=lambda: os.fchmod(opened(), 0o604))
thread.start()
thread.join()
try:
    os.fchmod(999, 0o600)
except OSError as error:
    words.add(error.errno)
print(*sorted(map(str, words)), oct(os.stat('new').st_mode & 0o777), oct(os.stat('dir/inner').st_mode & 0o777))
";

/// The supervisor remembers for a moment which file a thread has opened and where a directory is. Another file behind the same
/// number, and a link in the same directory, get nothing from that.
#[test]
fn what_was_opened_a_moment_ago_gives_no_right_to_another_file() {
    for user in users() {
        let file = file_outside(*user);
        let before = fs::metadata(&file).unwrap();
        let gate = Gate::profile(*user, "write");
        gate.file("dir/inner", "x");
        std::os::unix::fs::symlink(&file, gate.dir.join("dir/way-out")).unwrap();
        let (done, report) = gate.report(["/usr/bin/python3", "-c", MOMENTS, file.to_str().unwrap()]);
        done.exits(0).prints("9 refused 0o604 0o640\n");
        let recorded: u64 =
            report["denials"].as_array().unwrap().iter().map(|denial| denial["count"].as_u64().unwrap()).sum();
        assert_eq!(recorded, 400, "{report:#}");
        assert!(report["denials"].as_array().unwrap().iter().all(|denial| denial["path"] == file.to_str().unwrap()));
        let after = fs::metadata(&file).unwrap();
        assert_eq!((before.mode(), before.mtime(), before.ctime()), (after.mode(), after.mtime(), after.ctime()));
    }
}

/// Odd addresses and descriptors do no harm to the supervisor.
#[test]
fn hostile_addresses_do_no_harm() {
    let gate = Gate::profile(super::unprivileged(), "write");
    let addresses = probe("addresses", &[]);
    gate.run([&addresses]).exits(0).prints("survived\n");
}

/// A new directory often gets the inode of one that was removed a moment ago. What was known of that one does not count.
#[test]
fn a_directory_with_the_inode_of_a_removed_one_is_writable() {
    if !crate::support::has("python3") {
        return;
    }
    let script = r#"
import os
for n in range(200):
    os.mkdir(f"d{n}"); fd = os.open(f"d{n}", os.O_RDONLY)
    open(f"d{n}/f", "w").close(); os.utime("f", dir_fd=fd); os.chmod("f", 0o600, dir_fd=fd)
    os.remove(f"d{n}/f"); os.close(fd); os.rmdir(f"d{n}")
print("done")
"#;
    for user in users() {
        Gate::profile(*user, "write").run(["python3", "-c", script]).exits(0).prints("done\n");
    }
}

/// Prints the errno of calls that the kernel refuses for their arguments.
const ARGUMENTS: &str = r#"
import ctypes, mmap, os, platform
libc = ctypes.CDLL(None, use_errno=True)
HERE, NOFOLLOW, EMPTY, EXECUTE = -100, 0x100, 0x1000, 0x200
utimensat, fchownat, fchmodat2 = (280, 260, 452) if platform.machine() == "x86_64" else (88, 54, 452)
def show(name, *calls):
    print(name, *[0 if call() >= 0 else ctypes.get_errno() for call in calls])
def attempt(name, act):
    try: act(); print(name, 0)
    except OSError as error: print(name, error.errno)
open("file", "w").close(); os.symlink("file", "link")
fd, held = os.open("file", os.O_RDONLY), os.open("file", os.O_PATH)
mode = os.stat(".").st_mode
attempt("chmod", lambda: os.chmod("", 0o711))
attempt("chown", lambda: os.chown("", -1, -1))
attempt("lchown", lambda: os.lchown("", -1, -1))
attempt("utime", lambda: os.utime("", (1, 1)))
attempt("setxattr", lambda: os.setxattr("", "user.x", b"1"))
attempt("lsetxattr", lambda: os.setxattr("", "user.x", b"1", follow_symlinks=False))
attempt("removexattr", lambda: os.removexattr("", "user.x"))
show("old calls", lambda: libc.chmod(b"", 0o711), lambda: libc.chown(b"", -1, -1), lambda: libc.lchown(b"", -1, -1),
     lambda: libc.utime(b"", None), lambda: libc.utimes(b"", None), lambda: libc.truncate(b"", 1))
print(os.stat(".").st_mode == mode)
null = ctypes.c_void_p(None)
owner = lambda at, path, flags: lambda: libc.syscall(fchownat, at, path, -1, -1, flags)
times = lambda at, path, flags: lambda: libc.syscall(utimensat, at, path, null, flags)
bits = lambda at, path, flags: lambda: libc.syscall(fchmodat2, at, path, 0o600, flags)
show("flags", owner(HERE, b"file", 0x8000), times(HERE, b"file", EXECUTE), bits(HERE, b"file", 0x8000), times(fd, null, NOFOLLOW))
show("null", owner(fd, null, 0), owner(HERE, null, EMPTY), bits(fd, null, 0), times(HERE, null, 0), times(fd, null, 0))
show("O_PATH", lambda: libc.fchmod(held, 0o600), lambda: libc.fchown(held, -1, -1), times(held, null, 0),
     lambda: libc.fsetxattr(held, b"user.x", b"1", 1, 0), lambda: libc.fremovexattr(held, b"user.x"))
show("O_PATH by name", owner(held, b"", EMPTY), times(held, b"", EMPTY), bits(held, b"", EMPTY), owner(HERE, b"", EMPTY))
show("links", owner(HERE, b"link", NOFOLLOW), times(HERE, b"link", NOFOLLOW), bits(HERE, b"link", NOFOLLOW))
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0)
last = ctypes.c_void_p(start + mmap.PAGESIZE - 2)
show("values", lambda: libc.setxattr(b"file", b"user.whole", last, 2, 0), lambda: libc.setxattr(b"file", b"user.cut", last, 9, 0),
     lambda: libc.getxattr(b"file", b"user.cut", None, 0))
"#;

#[test]
fn what_the_kernel_refuses_of_the_arguments_is_refused_alike() {
    if !crate::support::has("python3") {
        return;
    }
    for user in users() {
        let plain = {
            let directory = Gate::new(*user).dir;
            let mut command = std::process::Command::new("/usr/bin/python3");
            command.args(["-c", ARGUMENTS]).current_dir(directory);
            super::become_user(&mut command, *user);
            super::finish(command, None)
        };
        let expected = plain.exits(0).stdout();
        assert!(
            expected.contains("chmod 2\nchown 2\n") && expected.contains("old calls 2 2 2 2 2 2\nTrue\n"),
            "{plain}"
        );
        let (done, report) = Gate::profile(*user, "write").report(["/usr/bin/python3", "-c", ARGUMENTS]);
        done.exits(0).prints(&expected);
        assert_eq!(report["denials"], serde_json::json!([]), "{report:#}");
    }
}
