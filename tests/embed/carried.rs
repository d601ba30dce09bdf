//! The library that a program embeds: sealed in memory, or as a private file that other users cannot prepare.

use super::rust::example;
use crate::plumbing::users;
use crate::support::{Done, fresh, run, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command under the embedded library. Once it is loaded, its variables are gone from the environment.
fn preload(example: &Path, user: Option<u32>, how: &str, places: &[(&str, &Path)]) -> Command {
    let mut command = Command::new(example);
    command.arg(how).args(["sh", "-c", "echo ${SECCOMP_SYSCALL_DENY-loaded}; readlink -f ${LD_PRELOAD}"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("SECCOMP_SYSCALL_DENY", "ptrace");
    command.envs(places.iter().copied());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

/// A directory of this user with this mode.
fn own(user: Option<u32>, mode: u32) -> PathBuf {
    let dir = fresh("carried").canonicalize().expect("a fresh directory");
    if user.is_some() {
        std::os::unix::fs::chown(&dir, user, user).expect("root may");
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("own directory");
    dir
}

/// The only file below a directory.
#[track_caller]
fn placed(base: &Path) -> PathBuf {
    let found: Vec<PathBuf> =
        fs::read_dir(base.join("libsandbox")).expect("it was made").flatten().map(|entry| entry.path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[track_caller]
fn is_loaded_from(done: &Done, path: &Path) {
    done.exits(0).prints(&format!("loaded\n{}\n", path.display())).complains("");
}

#[track_caller]
fn is_refused(done: &Done, why: &str) {
    done.exits(1).prints("");
    assert!(done.stderr().contains(why), "{why}: {done}");
}

#[test]
fn a_sealed_library_in_memory_is_loaded() {
    let Some(example) = example("preload") else { return };
    for user in users() {
        let done = run(&mut preload(&example, user, "sealed", &[]));
        done.exits(0).complains("");
        assert!(done.stdout().starts_with("loaded\n"), "{done}");
    }
}

#[test]
fn nobody_can_change_what_is_sealed() {
    use std::io::Write;
    let sealed = gatekeeper::library::Sealed::new().expect("memory");
    let bytes = fs::read(sealed.path()).expect("it is readable");
    assert_eq!(Some(bytes.as_slice()), libsandbox_embed::LIBSANDBOX);
    let mut file = fs::File::options().write(true).open(sealed.path()).expect("seals are on the file, not its name");
    assert_eq!(file.write(b"x").map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
    assert_eq!(file.set_len(0).map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)));
    assert_eq!(fs::read(sealed.path()).expect("it is readable"), bytes);
}

#[test]
fn a_private_file_is_written_once_and_repaired() {
    let Some(example) = example("preload") else { return };
    for user in users() {
        let base = own(user, 0o700);
        let places = [("XDG_RUNTIME_DIR", base.as_path())];
        let start = || run(&mut preload(&example, user, "on-disk", &places));
        let done = start();
        let path = placed(&base);
        is_loaded_from(&done, &path);
        let first = fs::metadata(&path).expect("it is there");
        assert_eq!(
            (first.mode() & 0o7777, base.join("libsandbox").metadata().map(|m| m.mode() & 0o7777).ok()),
            (0o500, Some(0o700))
        );
        is_loaded_from(&start(), &path);
        assert_eq!(fs::metadata(&path).expect("it is there").ino(), first.ino(), "it was written again");

        // A damaged file, one that others may write, and links are replaced and never followed.
        let good = fs::read(&path).expect("it is there");
        let elsewhere = own(user, 0o700).join("elsewhere");
        let damage: [&dyn Fn(); 4] = [
            &|| {
                let mut bad = good.clone();
                bad[good.len() / 2] ^= 1;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("own file");
                fs::write(&path, bad).expect("own file");
                fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).expect("own file");
            },
            &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("own file"),
            &|| {
                fs::write(&elsewhere, b"untouched").expect("own directory");
                fs::remove_file(&path).expect("own file");
                symlink(&elsewhere, &path).expect("own directory");
            },
            &|| fs::hard_link(&path, elsewhere.with_extension("hard")).expect("own file"),
        ];
        for harm in damage {
            harm();
            is_loaded_from(&start(), &path);
            assert!(fs::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.mode() & 0o7777 == 0o500));
            assert_eq!(fs::read(&path).expect("it is there"), good);
        }
        assert_eq!(fs::read(&elsewhere).expect("own file"), b"untouched");
    }
}

#[test]
fn a_place_that_others_can_prepare_is_not_used() {
    let Some(example) = example("preload") else { return };
    for user in users() {
        let good = own(user, 0o700);
        let open = own(user, 0o777);
        // A directory of another user is skipped, and the next one is used.
        let start = |places: &[(&str, &Path)]| run(&mut preload(&example, user, "on-disk", places));
        let done = start(&[("XDG_RUNTIME_DIR", &open), ("XDG_CACHE_HOME", &good)]);
        is_loaded_from(&done, &placed(&good));
        assert!(!open.join("libsandbox").exists());
        is_refused(&start(&[("XDG_RUNTIME_DIR", &open)]), "other users may write to it");
        is_refused(&start(&[("XDG_RUNTIME_DIR", Path::new("/tmp"))]), "other users may write to it");
        is_refused(&start(&[]), "no private directory");
        is_refused(&start(&[("XDG_RUNTIME_DIR", Path::new("relative"))]), "no private directory");
        is_refused(&start(&[("HOME", Path::new("/nonexistent"))]), "no private directory");

        // A private directory in one where other users could replace it, because the sticky bit is not set.
        let below = own(user, 0o777).join("below");
        let mut make = Command::new("install");
        make.args(["-d", "-m", "700"]).arg(&below);
        if let Some(user) = user {
            make.args(["-o", &user.to_string()]);
        }
        run(&mut make).exits(0);
        is_refused(&start(&[("XDG_RUNTIME_DIR", &below)]), "other users may replace");
        let above = below.parent().expect("it has one");
        fs::set_permissions(above, fs::Permissions::from_mode(0o1777)).expect("own directory");
        is_loaded_from(&start(&[("XDG_RUNTIME_DIR", &below)]), &placed(&below));

        // The directory `libsandbox` in it is a link, or other users may enter it.
        let linked = own(user, 0o700);
        symlink(good.join("libsandbox"), linked.join("libsandbox")).expect("own directory");
        is_refused(&start(&[("XDG_RUNTIME_DIR", &linked)]), "not private to this user");
        let entered = own(user, 0o700);
        fs::create_dir(entered.join("libsandbox")).expect("own directory");
        fs::set_permissions(entered.join("libsandbox"), fs::Permissions::from_mode(0o755)).expect("own directory");
        is_refused(&start(&[("XDG_RUNTIME_DIR", &entered)]), "not private to this user");

        // Paths that LD_PRELOAD cannot name.
        let spaced = own(user, 0o700).join("a b");
        is_refused(&start(&[("XDG_RUNTIME_DIR", &spaced)]), "space or a colon");
    }
    if users().len() > 1 {
        // root could use a directory of another user, but does not.
        let theirs = own(Some(65534), 0o700);
        is_refused(
            &run(&mut preload(&example, None, "on-disk", &[("XDG_RUNTIME_DIR", &theirs)])),
            "other users may write",
        );
        assert!(!theirs.join("libsandbox").exists());
        let within = theirs.join("within");
        fs::create_dir(&within).expect("root may");
        fs::set_permissions(&within, fs::Permissions::from_mode(0o700)).expect("own directory");
        let refused = run(&mut preload(&example, None, "on-disk", &[("XDG_RUNTIME_DIR", &within)]));
        is_refused(&refused, "other users may replace");
        // A file of another user in the right place is replaced, even if its bytes are right.
        let base = own(None, 0o700);
        let places = [("XDG_RUNTIME_DIR", base.as_path())];
        let start = || run(&mut preload(&example, None, "on-disk", &places));
        start().exits(0);
        let path = placed(&base);
        std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
        is_loaded_from(&start(), &path);
        assert_eq!(fs::metadata(&path).expect("it is there").uid(), 0);
    }
}

#[test]
fn a_hundred_processes_at_once_leave_one_file() {
    let Some(example) = example("preload") else { return };
    let base = own(None, 0o700);
    let places = [("XDG_RUNTIME_DIR", base.as_path())];
    let start = |_| {
        let mut command = preload(&example, None, "on-disk", &places);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let started: Vec<_> = (0..100).map(start).collect();
    let outputs: Vec<_> = started.into_iter().map(|child| child.wait_with_output().expect("own child")).collect();
    let path = placed(&base);
    for output in outputs {
        is_loaded_from(&Done { shown: "preload on-disk".to_owned(), output }, &path);
    }
}

#[test]
fn a_place_where_no_code_may_run_is_not_used() {
    let Some(example) = example("preload") else { return };
    let base = own(None, 0o700);
    let mount = |options: &str| {
        let script = format!("mount -t tmpfs -o mode=700,{options} none {} && exec \"$@\"", base.display());
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"]).arg(&example);
        command.args(["on-disk", "sh", "-c", "echo ${SECCOMP_SYSCALL_DENY-loaded}"]);
        command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("SECCOMP_SYSCALL_DENY", "ptrace");
        run(command.env("XDG_RUNTIME_DIR", &base))
    };
    let control = mount("exec");
    if control.stderr().contains("unshare") || control.stderr().contains("mount:") {
        return skip(&format!("no mount namespace can be created here: {}", control.stderr().trim()));
    }
    control.exits(0).prints("loaded\n").complains("");
    is_refused(&mount("noexec"), "mounted noexec");
}
