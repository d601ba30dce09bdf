//! Home directories: credentials stay closed and start-up files protected, whatever HOME, mounts and links say.

use super::{Hole, Severity, errno, place_of, text};
use crate::run::{Gate, User, act, become_user, finish, layer, outside, owned_by, users};
use crate::support::{fresh, gatekeeper_for_all, has, is_root, run, skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "HOME is unset or names another directory; as root, the homes of other users",
        reached: "~/.ssh was readable",
        held_by: &["credentials_are_closed_whatever_home_says"],
    },
    Hole {
        severity: Severity::High,
        attack: "the home directory is mounted a second time",
        reached: "~/.ssh was readable by its other name",
        held_by: &["credentials_are_closed_by_every_mount"],
    },
    Hole {
        severity: Severity::High,
        attack: "profile `write` with the home directory or `/` as the working directory",
        reached: "every start-up file was writable while the layer said `enforced`; as root also /proc/sys and /sys",
        held_by: &["a_home_is_writable_only_if_it_is_named", "no_tree_holds_the_files_of_the_kernel"],
    },
    Hole {
        severity: Severity::High,
        attack: "a server runs out of descriptors while a plan reads the mounts or /etc/passwd",
        reached: "credentials were readable by a second mount, or in a home that HOME does not name",
        held_by: &["a_plan_for_which_something_could_not_be_read_is_refused"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "`[commands] allow` names a program in the tree, and the command puts a link to a key in its place",
        reached: "the key was readable, because it was granted as a program",
        held_by: &["an_allowed_program_that_is_a_link_to_a_key_opens_nothing"],
    },
];

/// A run as this user in a mount namespace that root prepares with this shell line.
fn prepared(user: User, profile: &str, line: &str) -> Gate {
    let mut gate = Gate::profile(user, profile);
    let drop = if user == User::Nobody { "setpriv --reuid 65534 --regid 65534 --clear-groups" } else { "" };
    gate.user = User::Own;
    gate.under(["unshare", "-m", "sh", "-ec", &format!("{line}\nexec {drop} \"$@\""), "sh"])
}

fn may_mount() -> bool {
    if !is_root() {
        skip("only root can prepare a mount namespace");
    }
    is_root() && has("setpriv") && has("unshare")
}

/// A home with a key and an ordinary file.
fn home_with_keys(user: User) -> PathBuf {
    let home = place_of(user);
    fs::create_dir(home.join(".ssh")).expect("own directory");
    for name in ["", ".ssh", ".ssh/id", "notes"] {
        if name.ends_with("id") || name == "notes" {
            fs::write(home.join(name), "x").expect("own directory");
        }
        owned_by(user, &home.join(name));
    }
    home
}

#[test]
fn credentials_are_closed_whatever_home_says() {
    if !may_mount() {
        return;
    }
    for user in users() {
        let (own, other) = (home_with_keys(*user), home_with_keys(*user));
        let uid = if *user == User::Nobody { 65534 } else { 0 };
        let passwd = outside().join("passwd");
        let lines =
            [format!("u:x:{uid}:0::{}:/bin/sh", own.display()), format!("o:x:4711:0::{}:/bin/sh\n", other.display())];
        fs::write(&passwd, lines.join("\n")).expect("own directory");
        let line = format!("mount --bind {} /etc/passwd", passwd.display());
        for home in ["", "/tmp", "/nonexistent", "relative"] {
            for profile in ["minimal", "write"] {
                let mut gate = prepared(*user, profile, &line).env("HOME", home);
                if home.is_empty() {
                    gate = gate.under(["env", "-u", "HOME"]);
                }
                assert_eq!(errno(&gate, &["read", text(&own.join(".ssh/id"))]), libc::EACCES, "{user:?} HOME={home}");
                assert_eq!(errno(&gate, &["read", text(&own.join("notes"))]), 0, "the control");
                // Keys in other homes are closed to root. A user depends on their file modes, which are open here.
                let closed = if *user == User::Own { libc::EACCES } else { 0 };
                assert_eq!(errno(&gate, &["read", text(&other.join(".ssh/id"))]), closed, "{user:?} HOME={home}");
            }
        }
    }
}

/// A run with a root directory in which this shell line can make files: that of the machine, with a new directory at its top.
fn with_own_root(user: User, profile: &str, line: &str) -> Gate {
    let mut gate = Gate::profile(user, profile);
    let root = outside();
    let drop = if user == User::Nobody { "setpriv --reuid 65534 --regid 65534 --clear-groups" } else { "" };
    let script = format!(
        "root={root}; mount -t tmpfs -o mode=755 root $root\n\
         for entry in /*; do\n\
           if [ -L $entry ]; then cp -P $entry $root$entry\n\
           elif [ -d $entry ]; then mkdir $root$entry; mount --rbind $entry $root$entry; fi\n\
         done\n\
         cd $root; {line}\n\
         exec unshare --root $root sh -c 'cd {work}; exec {drop} \"$@\"' sh \"$@\"",
        root = root.display(),
        work = gate.dir.display(),
    );
    gate.user = User::Own;
    gate.under(["unshare", "-m", "sh", "-ec", &script, "sh"])
}

/// Users of a container whom its image does not know have `/` as their home.
#[test]
fn credentials_directly_below_the_root_are_closed() {
    if !may_mount() {
        return;
    }
    let line = "mkdir .ssh .aws keys keys/deep\n\
                for name in .netrc .ssh/id .aws/credentials gcp-key.json plain keys/deep/one; do echo x >$name; done\n\
                chmod -R a+rX .netrc .ssh .aws keys";
    for user in users() {
        for profile in ["minimal", "read"] {
            let gate = || with_own_root(*user, profile, line);
            let each = |gate: &Gate| {
                let files = ["/.netrc", "/.ssh/id", "/.aws/credentials", "/gcp-key.json", "/keys/deep/one", "/plain"];
                files.map(|file| errno(gate, &["read", file]))
            };
            assert_eq!(each(&gate()), [0; 6], "the control");
            let closed = libc::EACCES;
            assert_eq!(each(&gate().env("HOME", "/")), [closed, closed, closed, 0, 0, 0], "{user:?} {profile}");
            let named = gate().env("GOOGLE_APPLICATION_CREDENTIALS", "/gcp-key.json").env("CLOUDSDK_CONFIG", "/keys");
            assert_eq!(each(&named), [0, 0, 0, closed, closed, 0], "{user:?} {profile}");
            // What the machine is made of stays open.
            let named = gate().env("CLOUDSDK_CONFIG", "/etc").env("GNUPGHOME", "/");
            assert_eq!(errno(&named, &["read", "/etc/passwd"]), 0, "{user:?} {profile}");
        }
    }
}

#[test]
fn credentials_of_sessions_are_closed_whatever_xdg_runtime_dir_says() {
    if !may_mount() {
        return;
    }
    for user in users() {
        let uid = if *user == User::Nobody { 65534 } else { 0 };
        let line = format!(
            "mount -t tmpfs -o mode=755 run /run\n\
             for uid in {uid} 4711; do\n\
               mkdir -p /run/user/$uid/containers; echo x >/run/user/$uid/containers/auth.json; echo x >/run/user/$uid/other\n\
             done"
        );
        let elsewhere = place_of(*user);
        fs::create_dir(elsewhere.join("containers")).expect("own directory");
        fs::write(elsewhere.join("containers/auth.json"), "x").expect("own directory");
        let elsewhere = text(&elsewhere);
        for runtime in [elsewhere, "", "/nonexistent"] {
            let gate = prepared(*user, "minimal", &line).env("XDG_RUNTIME_DIR", runtime);
            let of = |uid: u32, name: &str| errno(&gate, &["read", &format!("/run/user/{uid}/{name}")]);
            assert_eq!(of(uid, "containers/auth.json"), libc::EACCES, "{user:?} XDG_RUNTIME_DIR={runtime}");
            assert_eq!(of(uid, "other"), 0, "the control");
            // Those of others are closed to root. A user depends on their file modes, which are open here.
            let closed = if *user == User::Own { libc::EACCES } else { 0 };
            assert_eq!(of(4711, "containers/auth.json"), closed, "{user:?} XDG_RUNTIME_DIR={runtime}");
            let named = if runtime == elsewhere { libc::EACCES } else { 0 };
            assert_eq!(errno(&gate, &["read", &format!("{elsewhere}/containers/auth.json")]), named, "{user:?}");
        }
    }
}

#[test]
fn a_tilde_means_the_home_of_this_user_also_without_home() {
    if !may_mount() {
        return;
    }
    for user in users() {
        let home = home_with_keys(*user);
        let uid = if *user == User::Nobody { 65534 } else { 0 };
        let passwd = outside().join("passwd");
        let mount = format!("mount --bind {} /etc/passwd; mount -t tmpfs home /home", passwd.display());
        let gate = || prepared(*user, "minimal", &mount).env("HOME", "relative").flags(["--deny-path", "~/notes"]);
        fs::write(&passwd, format!("u:x:{uid}:0::{}:/bin/sh\n", home.display())).expect("own directory");
        assert_eq!(errno(&gate(), &["read", text(&home.join("notes"))]), libc::EACCES, "{user:?}");
        let control = prepared(*user, "minimal", &mount).env("HOME", "relative");
        assert_eq!(errno(&control, &["read", text(&home.join("notes"))]), 0, "the control");
        // Nothing is denied if nothing says what it means, so nothing runs.
        fs::write(&passwd, "o:x:4711:0::/o:/bin/sh\n").expect("own directory");
        let refused = gate().run(["true"]);
        assert!(refused.exits(125).stderr().contains("paths.deny ~/notes: HOME names no home directory"), "{refused}");
        control.run(["true"]).exits(0);
    }
}

#[test]
fn credentials_are_closed_by_every_mount() {
    if !may_mount() {
        return;
    }
    for user in users() {
        let home = home_with_keys(*user);
        let (second, keys) = (outside(), outside());
        let line = format!(
            "mount --bind {0} {1}; mount --bind {0}/.ssh {2}",
            home.display(),
            second.display(),
            keys.display()
        );
        for profile in ["minimal", "write"] {
            let gate = prepared(*user, profile, &line).env("HOME", &home);
            for path in [home.join(".ssh/id"), second.join(".ssh/id"), keys.join("id")] {
                assert_eq!(errno(&gate, &["read", text(&path)]), libc::EACCES, "{user:?} {}", path.display());
            }
            for path in [home.join("notes"), second.join("notes")] {
                assert_eq!(errno(&gate, &["read", text(&path)]), 0, "{user:?} {}", path.display());
            }
            // The remedy names the path by which it was tried.
            let key = second.join(".ssh/id");
            let (_, report) = gate.report(["cat", text(&key)]);
            let denial = &report["denials"][0];
            assert!(denial["rule"].as_str().is_some_and(|rule| rule.starts_with("credentials: ")), "{denial:#}");
            assert!(denial["allow_with"].to_string().contains("--read"), "{denial:#}");
        }
    }
}

#[test]
fn a_home_is_writable_only_if_it_is_named() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let home = gate.dir.clone();
        let gate = gate.env("HOME", &home);
        gate.file(".xprofile", "kept\n");
        let refused = gate.run(["true"]);
        refused.exits(125);
        for word in ["--cwd", "--write", text(&home)] {
            assert!(refused.stderr().contains(word), "{word}: {refused}");
        }
        for wide in [Path::new("/"), home.parent().expect("scratch")] {
            let gate = Gate::profile(*user, "write").env("HOME", &home).flags(["--cwd", text(wide)]);
            gate.run(["true"]).exits(125);
        }
        // Named with --write, the home is writable, and the report lists what stays unprotected.
        let gate = gate.flags(["--write", text(&home)]);
        let (done, report) = gate.report([text(&act()), "create", "new", ",", "write", ".xprofile"]);
        done.exits(0).prints(&format!("create 0\nwrite {}\n", libc::EROFS));
        let (status, detail) = layer(&report, "landlock");
        assert_eq!(status, "partial", "{detail}");
        for name in [".bash_logout", ".config/autostart", ".bashrc"] {
            assert!(detail.contains(text(&home.join(name))), "{name}: {detail}");
        }
        assert!(!detail.contains(".xprofile"), "{detail}");
        // Without writing, the home may be the working directory.
        let reads = Gate::new(*user).in_directory(&home);
        assert_eq!(errno(&reads.env("HOME", &home), &["read", "new"]), 0);
    }
}

#[test]
fn no_tree_holds_the_files_of_the_kernel() {
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--write", "/"]);
        // Writing it is harmless, and the control does so.
        assert_eq!(errno(&gate, &["write", "/proc/self/comm"]), libc::EACCES, "{user:?}");
        assert_eq!(errno(&gate, &["create", "own"]), 0);
        for tree in ["/proc", "/proc/sys", "/sys", "/proc/self"] {
            Gate::profile(*user, "write").flags(["--write", tree]).run(["true"]).exits(125);
        }
        let one = Gate::profile(*user, "write").flags(["--write", "/proc/self/comm"]);
        assert_ne!(one.run(["true"]).code(), None);
        let mut command = Command::new(act());
        command.args(["write", "/proc/self/comm"]);
        become_user(&mut command, *user);
        finish(command, None).prints("write 0\n");
    }
}

#[test]
fn an_allowed_program_that_is_a_link_to_a_key_opens_nothing() {
    for user in users() {
        let home = home_with_keys(*user);
        let policy = outside().join("policy.toml");
        fs::write(&policy, "profile = \"write\"\n[commands]\nallow = [\"cat\", \"./tool\"]\n").expect("own directory");
        let gate = Gate::new(*user).env("HOME", &home).flags(["--config", text(&policy)]);
        symlink(home.join(".ssh/id"), gate.dir.join("tool")).expect("own directory");
        fs::write(home.join(".ssh/id"), "SECRET").expect("own directory");
        let done = gate.run(["cat", text(&home.join(".ssh/id"))]);
        assert!(done.code() == Some(1) && done.stderr().contains("Permission denied"), "{user:?} {done}");
        gate.run(["cat", text(&home.join("notes"))]).exits(0).prints("x");
    }
}

/// What could not be read for want of descriptors is not empty: credentials that it would have named would stay open.
#[test]
fn a_plan_for_which_something_could_not_be_read_is_refused() {
    if !has("strace") || !is_root() {
        return skip("needs strace, and root, to trace as another user");
    }
    let home = fresh("home");
    fs::write(home.join(".netrc"), "machine a login b password c").unwrap();
    let denied = fresh("denied");
    fs::create_dir(denied.join("inner")).unwrap();
    fs::write(denied.join("inner/file"), "").unwrap();
    for file in ["/proc/self/mountinfo", "/etc/passwd", text(&denied)] {
        let ran = fresh("work").join("ran");
        let mut command = Command::new("strace");
        // As root: gatekeeper's memory is closed to other processes of its user.
        command.args(["-u", "nobody", "-f", "-qq", "-o", "/dev/null", "-P", file, "-e", "trace=?open,openat"]);
        command.args(["-e", "inject=?open,openat:error=EMFILE"]).arg(gatekeeper_for_all());
        command
            .args(["run", "--profile", "write", "--deny-path"])
            .arg(denied.join("inner/file"))
            .args(["--", "touch"])
            .arg(&ran)
            .env_clear()
            .env("HOME", &home);
        let done = run(command.current_dir(ran.parent().unwrap()));
        done.exits(125);
        assert!(done.stderr().contains(file) && done.stderr().contains("(os error 24)"), "{done}");
        assert!(!ran.exists(), "{done}");
    }
}
