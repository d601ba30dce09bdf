//! What `paths.deny`, `paths.execute` and credentials close stays closed whatever else a policy grants: the right to execute,
//! terminals, shared memory.

use super::{Gate, User, act, errnos, layer, owned_by, users};
use crate::support::{probe, skip};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The errno of one operation of the probe `act` for each path, in one run.
#[track_caller]
fn each(gate: &Gate, operation: &str, paths: &[&Path]) -> Vec<i32> {
    let mut words = vec![act().into_os_string()];
    for path in paths {
        words.extend([operation.into(), path.as_os_str().to_owned(), ",".into()]);
    }
    errnos(&gate.run(&words))
}

fn with_policy(gate: Gate, text: &str) -> Gate {
    let policy = gate.file("policy.toml", text);
    gate.flags(["--config".as_ref(), policy.as_os_str()])
}

/// On a host without mounts.
fn unmounted(gate: Gate) -> Gate {
    let outer = probe("outer", &[]);
    gate.under([outer.to_str().unwrap().to_owned(), format!("{}=1", libc::SYS_unshare), "--".to_owned()])
}

#[test]
fn a_directory_of_programs_opens_nothing_that_is_closed_in_it() {
    for user in users() {
        for profile in ["minimal", "read", "write"] {
            for listed in [r#"["/usr", "/lib", "/lib64", "."]"#, r#"["/"]"#] {
                for mounts in [true, false] {
                    let gate = Gate::profile(*user, profile);
                    let secret = gate.file("app/secret.key", "D");
                    let by_name = gate.file(".env", "E");
                    let ordinary = gate.file("app/ordinary", "x");
                    let copy = gate.dir.join("app/act");
                    crate::support::copy_program(&act(), &copy);
                    let home = PathBuf::from(gate.env_of("HOME"));
                    fs::create_dir(home.join(".ssh")).unwrap();
                    fs::write(home.join(".ssh/id_rsa"), "K").unwrap();
                    super::tree_owned_by(*user, &home);
                    let policy = format!(
                        "[paths]\nread = [\"/\"]\nexecute = {listed}\ndeny = [\"app/secret.key\", \"/dev/full\"]\n"
                    );
                    let gate = with_policy(gate, &policy);
                    let gate = if mounts { gate } else { unmounted(gate) };
                    let mut words = vec![copy.clone().into_os_string()];
                    // Without mounts, a `.env` in a writable tree stays open, and the report says so.
                    let env = if profile == "write" && !mounts { 0 } else { libc::EACCES };
                    let closed = [&secret, &by_name, &home.join(".ssh/id_rsa"), Path::new("/dev/full"), &ordinary];
                    closed.iter().for_each(|path| words.extend(["read".into(), path.into(), ",".into()]));
                    let expected = [libc::EACCES, env, libc::EACCES, libc::EACCES, 0];
                    assert_eq!(errnos(&gate.run(&words)), expected, "{user:?} {profile} {listed} {mounts}");
                }
            }
        }
    }
}

/// What the command builds in a writable tree can be executed there, although something in the tree is closed.
#[test]
fn a_closed_file_in_a_writable_tree_takes_no_program_from_it() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".env", "E");
        let gate = with_policy(gate, "[paths]\nexecute = [\"/usr\", \"/lib\", \"/lib64\", \".\"]\n");
        let line = "mkdir built && cp /usr/bin/id built/own && ./built/own -u";
        gate.run(["sh", "-c", line]).exits(0);
    }
}

#[test]
fn a_list_of_commands_takes_from_the_list_of_programs_and_adds_nothing() {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        return skip("/lib64/ld-linux-x86-64.so.2 does not exist");
    }
    for user in users() {
        let of = |policy: &str| {
            let gate = with_policy(Gate::profile(*user, "read"), policy);
            let line = "id -u >/dev/null 2>&1; echo $?; ls -d / >/dev/null 2>&1; echo $?; \
                        /lib64/ld-linux-x86-64.so.2 /usr/bin/id >/dev/null 2>&1; echo $?";
            gate.run(["sh", "-c", line]).exits(0).stdout()
        };
        let listed = "[paths]\nexecute = [\"/usr/bin/id\", \"/bin/sh\", \"/lib64/ld-linux-x86-64.so.2\"]\n";
        assert_eq!(of(listed), "0\n126\n0\n", "the control");
        // Neither: `id` is not among the commands, and `ls` is not among the programs.
        assert_eq!(of(&format!("{listed}[commands]\nallow = [\"sh\", \"ls\"]\n")), "126\n126\n127\n", "{user:?}");
        // A directory of programs does not make readable what the commands leave out.
        let wide = "[paths]\nexecute = [\"/usr\", \"/lib64\"]\n[commands]\nallow = [\"sh\", \"ls\"]\n";
        assert_eq!(of(wide), "126\n0\n127\n", "{user:?}");
        assert_eq!(of("[paths]\nexecute = [\"/usr\", \"/lib64\"]\n"), "0\n0\n0\n", "the control");
    }
}

/// A terminal that belongs to a user, and both of its ends.
struct Terminal {
    path: PathBuf,
    _ends: [OwnedFd; 2],
}

impl Terminal {
    fn new(user: User) -> Terminal {
        let (mut main, mut other) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: openpty writes two descriptors, and takes null for a name and settings that nobody asks for.
        let opened = unsafe { libc::openpty(&mut main, &mut other, null, std::ptr::null(), std::ptr::null()) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: openpty has just opened both.
        let ends = unsafe { [OwnedFd::from_raw_fd(main), OwnedFd::from_raw_fd(other)] };
        let path = fs::read_link(format!("/proc/self/fd/{}", ends[1].as_raw_fd())).expect("a name");
        owned_by(user, &path);
        Terminal { path, _ends: ends }
    }
}

#[test]
fn one_terminal_can_be_denied() {
    for user in users() {
        let (denied, other) = (Terminal::new(*user), Terminal::new(*user));
        let paths = [denied.path.as_path(), other.path.as_path()];
        let gate = || Gate::profile(*user, "write");
        assert_eq!(each(&gate(), "write", &paths), [0, 0], "the control");
        let gate = || gate().flags(["--deny-path".as_ref(), denied.path.as_os_str()]);
        for operation in ["read", "write"] {
            assert_eq!(each(&gate(), operation, &paths), [libc::EACCES, 0], "{user:?} {operation}");
            assert_eq!(each(&unmounted(gate()), operation, &paths), [libc::EACCES, 0], "{user:?} {operation}");
        }
        // New ones can be made where a mount closes the one.
        gate().run(["python3", "-c", "import os; os.open(os.ttyname(os.openpty()[1]), os.O_RDWR)"]).exits(0);
        let (_, report) = unmounted(gate()).report(["true"]);
        let detail = layer(&report, "landlock").1;
        assert!(detail.contains("nothing can be created, because a denied path is in it"), "{detail}");
        assert!(detail.contains(": /dev/pts"), "{detail}");
    }
}

/// A directory in the machine's shared memory, removed at the end.
struct Shared(PathBuf);

impl Shared {
    fn new(user: User) -> Shared {
        let path = PathBuf::from(format!("/dev/shm/gatekeeper-denied-{}-{user:?}", std::process::id()));
        fs::create_dir(&path).expect("everybody may");
        for name in ["secret", "other"] {
            fs::write(path.join(name), "x").expect("own directory");
        }
        super::tree_owned_by(user, &path);
        Shared(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_denied_in_shared_memory_stays_closed_where_it_is_the_machines() {
    for user in users() {
        let shared = Shared::new(*user);
        let (secret, other) = (shared.0.join("secret"), shared.0.join("other"));
        let paths = [secret.as_path(), other.as_path()];
        let closed = [libc::EACCES, 0];
        let program = shared.0.join("act");
        crate::support::copy_program(&act(), &program);
        let each_by = |gate: &Gate, operation: &str| {
            let words = [operation, secret.to_str().unwrap(), ",", operation, other.to_str().unwrap()];
            errnos(&gate.run([&[program.to_str().unwrap()], &words[..]].concat()))
        };
        for profile in ["read", "write"] {
            let gate = || Gate::profile(*user, profile);
            // The program is in it, so it is not private.
            assert_eq!(each_by(&gate(), "write"), [0, 0], "the control");
            let denying = || gate().flags(["--deny-path".as_ref(), secret.as_os_str()]);
            // Closed because a variable names it as a credential.
            let named = || gate().env("GOOGLE_APPLICATION_CREDENTIALS", &secret);
            for operation in ["read", "write"] {
                assert_eq!(each_by(&denying(), operation), closed, "{user:?} {profile} {operation}");
                assert_eq!(each_by(&named(), operation), closed, "{user:?} {profile} {operation}");
            }
            // Without mounts it is not private either.
            assert_eq!(each(&unmounted(gate()), "write", &paths), [0, 0], "the control");
            for gate in [denying(), named()] {
                let gate = unmounted(gate);
                assert_eq!(each(&gate, "write", &paths), closed, "{user:?} {profile}");
                let (_, report) = gate.report(["true"]);
                let (status, detail) = layer(&report, "landlock");
                assert!(status == "partial" && detail.contains("nothing can be created"), "{detail}");
            }
            let all = gate().flags(["--deny-path", "/dev/shm"]);
            assert_eq!(each(&unmounted(all), "write", &paths), [libc::EACCES; 2], "{user:?} {profile}");
            // A private one holds neither.
            assert_eq!(each(&denying(), "read", &paths), [libc::ENOENT; 2], "{user:?} {profile}");
        }
    }
}
