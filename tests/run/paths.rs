//! Paths under Landlock: what a command can read and write, and what a policy may name.

use super::{Gate, User, act, errnos, layer, outside, owned_by, tree_owned_by, users};
use crate::support::{has, probe, run, skip};
use gatekeeper::plan::paths::CREDENTIALS;
use std::fs;
use std::path::Path;
use std::process::Command;

fn errno_of(gate: &Gate, words: &[&str]) -> i32 {
    let act = act();
    let done = gate.run(std::iter::once(act.to_str().unwrap()).chain(words.iter().copied()));
    *errnos(&done).last().expect("an operation")
}

/// A home outside of the working directory that contains every credential of the list.
fn home(user: User) -> std::path::PathBuf {
    let home = outside();
    for name in CREDENTIALS {
        let path = home.join(name);
        if path.is_dir() {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "secret").unwrap();
    }
    for name in ["ordinary", ".config/ordinary", ".cargo/config.toml"] {
        fs::write(home.join(name), "text").unwrap();
    }
    tree_owned_by(user, &home);
    home
}

#[test]
fn credentials_cannot_be_read_and_all_around_them_can() {
    for user in users() {
        let home = home(*user);
        for profile in ["minimal", "network", "write"] {
            let gate = Gate::profile(*user, profile).env("HOME", &home);
            let mut words = vec![act().to_str().unwrap().to_owned()];
            for name in CREDENTIALS {
                words.extend(["read".to_owned(), home.join(name).to_str().unwrap().to_owned(), ",".to_owned()]);
            }
            let ordinary = ["ordinary", ".config/ordinary", ".cargo/config.toml"];
            for name in ordinary {
                words.extend(["read".to_owned(), home.join(name).to_str().unwrap().to_owned(), ",".to_owned()]);
            }
            let done = gate.run(&words);
            let expected = "read 13\n".repeat(CREDENTIALS.len()) + &"read 0\n".repeat(ordinary.len());
            done.exits(0).prints(&expected);
            let plain = {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                super::become_user(&mut command, *user);
                run(&mut command)
            };
            plain.prints(&"read 0\n".repeat(CREDENTIALS.len() + ordinary.len()));
        }
    }
}

#[test]
fn system_credentials_stay_closed_to_root() {
    let gate = Gate::new(User::Own);
    match Path::new("/etc/shadow").exists() {
        true => assert_eq!(errno_of(&gate, &["read", "/etc/shadow"]), libc::EACCES),
        false => skip("/etc/shadow does not exist"),
    }
    assert_eq!(errno_of(&gate, &["read", "/etc/passwd"]), 0);
    // A disk contains every file, so it is a credential too. Its mode closes it to other users, the sandbox to root.
    let disks = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let disks = disks.map(|entry| Path::new("/dev").join(entry.file_name())).filter(|path| path.exists());
    let disks: Vec<_> = disks.take(3).collect();
    if disks.is_empty() {
        skip("no disk has a device node in /dev");
    }
    for disk in disks {
        assert_eq!(errno_of(&gate, &["read", disk.to_str().unwrap()]), libc::EACCES, "{}", disk.display());
    }
}

#[test]
fn a_read_flag_opens_one_again_and_no_other() {
    for user in users() {
        let home = home(*user);
        let netrc = home.join(".netrc");
        let gate = Gate::new(*user).env("HOME", &home).flags(["--read".as_ref(), netrc.as_os_str()]);
        assert_eq!(errno_of(&gate, &["read", netrc.to_str().unwrap()]), 0);
        assert_eq!(errno_of(&gate, &["read", home.join(".pgpass").to_str().unwrap()]), libc::EACCES);
        // `~` works too.
        let gate = Gate::new(*user).env("HOME", &home).flags(["--read", "~/.kube"]);
        assert_eq!(errno_of(&gate, &["read", home.join(".kube").to_str().unwrap()]), 0);
    }
}

#[test]
fn a_read_flag_for_a_directory_opens_no_credential_in_it() {
    for user in users() {
        let home = home(*user);
        let (all, netrc) = (home.as_os_str(), home.join(".netrc"));
        let gate = Gate::new(*user).env("HOME", &home).flags(["--read".as_ref(), all]);
        for name in [".netrc", ".pgpass", ".kube"] {
            assert_eq!(errno_of(&gate, &["read", home.join(name).to_str().unwrap()]), libc::EACCES, "{name}");
        }
        let gate = gate.flags(["--read".as_ref(), all, "--read".as_ref(), netrc.as_os_str()]);
        assert_eq!(errno_of(&gate, &["read", netrc.to_str().unwrap()]), 0);
    }
}

#[test]
fn a_list_names_one_file_of_a_credential_directory_and_opens_no_other() {
    for user in users() {
        let home = outside();
        fs::create_dir(home.join(".ssh")).expect("own directory");
        for name in ["named", "other"] {
            fs::write(home.join(".ssh").join(name), "").expect("own directory");
        }
        tree_owned_by(*user, &home);
        let text = |name: &str| home.join(name).to_string_lossy().into_owned();
        let (named, other) = (text(".ssh/named"), text(".ssh/other"));
        let gate = Gate::new(*user).env("HOME", &home);
        assert_eq!(errno_of(&gate, &["read", &named]), libc::EACCES);
        let policy = gate.file("policy.toml", "");
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        for list in ["['/', '~/.ssh/named']", "['~/.ssh/named', '~', '/']"] {
            for deny in ["", "deny = ['~/.ssh']"] {
                gate.file("policy.toml", format!("[paths]\nread = {list}\n{deny}\n"));
                let expected = if deny.is_empty() { 0 } else { libc::EACCES };
                assert_eq!(errno_of(&gate, &["read", &named]), expected, "{list} {deny}");
                assert_eq!(errno_of(&gate, &["read", &other]), libc::EACCES, "{list} {deny}");
            }
        }
    }
}

#[test]
fn a_denied_path_is_closed_in_every_profile() {
    for user in users() {
        for profile in ["minimal", "write", "unrestricted"] {
            let gate = Gate::profile(*user, profile);
            gate.file("open/data", "x");
            gate.file("closed/data", "x");
            gate.file("closed-file", "x");
            let gate = gate.flags(["--deny-path", "closed", "--deny-path", "closed-file"]);
            assert_eq!(errno_of(&gate, &["read", "open/data"]), 0, "{profile}");
            for path in ["closed/data", "closed-file"] {
                assert_eq!(errno_of(&gate, &["read", path]), libc::EACCES, "{profile} {path}");
                assert_eq!(errno_of(&gate, &["write", path]), libc::EACCES, "{profile} {path}");
            }
            if profile == "write" {
                assert_eq!(errno_of(&gate, &["write", "open/data"]), 0);
            }
        }
    }
}

/// Where it can be covered by a mount, a denied path takes nothing from the directory around it.
#[test]
fn files_can_be_created_beside_a_denied_path() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file("dd/p", "secret");
        gate.file("dd/q/deep", "secret");
        let flags = ["--deny-path", "dd/p", "--deny-path", "dd/q"];
        let gate = gate.flags(flags);
        gate.run(["sh", "-ec", "touch n dd/n; mv dd/n dd/m; rm n; echo x > dd/m; mkdir dd/new"]).exits(0);
        for attack in ["cat dd/p", "cat dd/q/deep", "rm dd/p", "mv dd/p taken", "mv dd taken", "echo x > dd/q/deep"] {
            let done = gate.run(["sh", "-c", attack]);
            assert!(done.code() != Some(0) && !done.stdout().contains("secret"), "{user:?} {attack}{done}");
        }
        for name in ["dd/p", "dd/q/deep"] {
            assert_eq!(fs::read_to_string(gate.dir.join(name)).unwrap(), "secret", "{user:?} {name}");
        }
        // Without namespaces the siblings are granted. No flag helps, and the layer says what cannot be done.
        let outer = probe("outer", &[]);
        let unshare = format!("{}=1", libc::SYS_unshare);
        let dir = gate.dir.clone();
        let gate = Gate::profile(*user, "write").in_directory(&dir).flags(flags);
        let gate = gate.under([outer.to_str().unwrap(), &unshare, "--"]);
        let (done, report) = gate.report(["touch", "n", "dd/o"]);
        done.exits(1);
        let denials = report["denials"].as_array().expect("a list");
        assert!(!denials.is_empty(), "{report:#}");
        for (denial, holder) in denials.iter().zip([&dir, &dir.join("dd")]) {
            assert_eq!(denial["allow_with"], serde_json::Value::Null, "{denial:#}");
            let rule = denial["rule"].as_str().expect("text");
            assert!(rule.starts_with(&format!("{} holds the denied path ", holder.display())), "{denial:#}");
        }
        let (_, detail) = layer(&report, "landlock");
        let told = format!("nothing can be mounted: {} {}", dir.display(), dir.join("dd").display());
        assert!(detail.contains(&told), "{detail}");
        gate.run(["sh", "-c", "echo y > dd/m"]).exits(0);
        assert_eq!(errno_of(&gate, &["read", "dd/p"]), libc::EACCES);
    }
}

#[test]
fn minimal_and_network_write_nothing() {
    for user in users() {
        for profile in ["minimal", "network"] {
            let gate = Gate::profile(*user, profile);
            gate.file("data", "x");
            assert_eq!(errno_of(&gate, &["create", "new"]), libc::EACCES);
            assert_eq!(errno_of(&gate, &["write", "data"]), libc::EACCES);
            for words in [
                &["unlink", "data"][..],
                &["rename", "data", "other"],
                &["mkdir", "d"],
                &["link", "data", "l"],
                &["symlink", "data", "s"],
                &["truncate", "data"],
                &["chmod", "data"],
                &["times", "data"],
            ] {
                assert_eq!(errno_of(&gate, words), libc::EPERM, "{words:?}");
            }
            assert_eq!(fs::read(gate.dir.join("data")).unwrap(), b"x");
        }
    }
}

#[test]
fn write_reaches_the_tree_and_nothing_else() {
    for user in users() {
        let outside = outside();
        let out = outside.join("data");
        fs::write(&out, "x").unwrap();
        tree_owned_by(*user, &outside);
        let out = out.to_str().unwrap();
        let gate = Gate::profile(*user, "write");
        gate.file("data", "x");
        gate.file("sub/data", "x");
        for words in [
            &["write", "data"][..],
            &["create", "new"],
            &["rename", "data", "sub/moved"],
            &["link", "new", "linked"],
            &["symlink", "new", "symbolic"],
            &["truncate", "sub/data"],
            &["unlink", "sub/moved"],
            &["mkdir", "dir"],
            &["rmdir", "dir"],
        ] {
            assert_eq!(errno_of(&gate, words), 0, "{words:?}");
        }
        let new = outside.join("new");
        let new = new.to_str().unwrap();
        for (words, errno) in [
            (&["write", out][..], libc::EACCES),
            (&["create", new], libc::EACCES),
            (&["unlink", out], libc::EACCES),
            (&["truncate", out], libc::EACCES),
            (&["mkdir", new], libc::EACCES),
            (&["symlink", "x", new], libc::EACCES),
            // Renames into and out of the tree.
            (&["rename", out, "stolen"], libc::EACCES),
            (&["rename", "new", new], libc::EACCES),
            (&["link", "new", new], libc::EACCES),
        ] {
            assert_eq!(errno_of(&gate, words), errno, "{words:?}");
        }
        // A hard link into the tree would make the outside writable.
        let linked = errno_of(&gate, &["link", out, "taken"]);
        assert!([libc::EXDEV, libc::EACCES].contains(&linked), "{linked}");
        // For a symbolic link, its target decides.
        assert_eq!(errno_of(&gate, &["symlink", out, "way-out"]), 0);
        assert_eq!(errno_of(&gate, &["write", "way-out"]), libc::EACCES);
        assert_eq!(fs::read(out).unwrap(), b"x");
        assert!(!outside.join("new").exists());
        // --write grants one more tree.
        let wider = Gate::profile(*user, "write").flags(["--write".as_ref(), outside.as_os_str()]);
        assert_eq!(errno_of(&wider, &["write", out]), 0);
    }
}

#[test]
fn devices_are_as_programs_expect_them() {
    for user in users() {
        for profile in ["minimal", "write"] {
            let gate = Gate::profile(*user, profile);
            for device in ["/dev/null", "/dev/zero", "/dev/full"] {
                assert_eq!(errno_of(&gate, &["read", device]), 0, "{device}");
            }
            assert_eq!(errno_of(&gate, &["write", "/dev/null"]), 0);
            assert_eq!(errno_of(&gate, &["open-truncate", "/dev/null"]), 0);
            assert_eq!(errno_of(&gate, &["write", "/dev/full"]), libc::ENOSPC);
            // ENXIO comes from the kernel, because there is no terminal, and not from the sandbox.
            assert_eq!(errno_of(&gate, &["read", "/dev/tty"]), libc::ENXIO);
        }
        let name = format!("/dev/shm/gatekeeper-test-{}-{user:?}", std::process::id());
        assert_eq!(errno_of(&Gate::new(*user), &["create", &name]), libc::EACCES);
        let act = act();
        let words = [act.to_str().unwrap(), "create", &name, ",", "unlink", &name];
        Gate::profile(*user, "write").run(words).exits(0).prints("create 0\nunlink 0\n");
    }
}

#[test]
fn odd_paths_in_a_policy_are_told_and_never_fatal() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let elsewhere = outside();
        let real = gate.file("real/data", "x");
        std::os::unix::fs::symlink(gate.dir.join("real"), elsewhere.join("linked")).unwrap();
        std::os::unix::fs::symlink("nowhere", gate.dir.join("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", gate.dir.join("loop")).unwrap();
        let text = "[paths]\nread = [\"/\", \"missing-read\"]\nwrite = [\"missing-write\", \"dangling\", \"loop\"]\n";
        let denied = format!("deny = [\"missing-deny\", \"{}\"]\n", elsewhere.join("linked").display());
        let policy = gate.file("policy.toml", text.to_owned() + &denied);
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        let (done, report) = gate.report(["true"]);
        done.exits(0);
        let detail = layer(&report, "landlock").1;
        for name in ["missing-read", "missing-write", "missing-deny", "dangling", "loop"] {
            assert!(detail.contains(gate.dir.join(name).to_str().unwrap()), "{name}: {detail}");
        }
        // Denying a symbolic link denies its target.
        assert_eq!(errno_of(&gate, &["read", real.to_str().unwrap()]), libc::EACCES);
    }
}

/// With a list of readable paths, only these and the system's are readable.
#[test]
fn a_read_list_closes_the_rest() {
    for user in users() {
        let outside = outside();
        fs::write(outside.join("data"), "x").unwrap();
        let gate = Gate::new(*user);
        gate.file("data", "x");
        let policy = gate.file("policy.toml", "[paths]\nread = [\".\"]\n");
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        let act = act();
        // The probe is not on the list, but executing the checked file is not a read by the command.
        let copy = gate.dir.join("act");
        fs::copy(&act, &copy).unwrap();
        let done = gate.run([
            copy.to_str().unwrap(),
            "read",
            "data",
            ",",
            "read",
            outside.join("data").to_str().unwrap(),
            ",",
            "read",
            "/etc/passwd",
        ]);
        done.exits(0).prints("read 0\nread 13\nread 13\n");
    }
}

#[test]
fn git_works_in_a_linked_worktree() {
    if !has("git") {
        return;
    }
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let outside = outside();
        owned_by(*user, &outside);
        let main = outside.join("main");
        let plain = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-ec", line, "sh"]).arg(&main).arg(gate.dir.join("linked"));
            command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &gate.dir).current_dir(&outside);
            super::become_user(&mut command, *user);
            run(&mut command).exits(0);
        };
        plain(
            "git init -q \"$1\"; cd \"$1\"; git config user.email a@b.c; git config user.name n; echo 1 >f; git add f; git commit -qm 1; git worktree add -q \"$2\"",
        );
        let line = "cd linked && echo 2 >>f && git add f && git commit -qm 2 && git log --oneline | wc -l && git status --porcelain | wc -l";
        // Started in the parent directory, gatekeeper does not look for worktrees, so the repository stays read-only.
        let linked = gate.dir.join("linked");
        let inside = gate.flags(["--cwd".as_ref(), linked.as_os_str()]);
        inside.run(["sh", "-c", line.strip_prefix("cd linked && ").unwrap()]).exits(0).prints("2\n0\n");
        // The repository's hooks and config are still protected, and its main tree is not writable.
        for (name, errno) in [(".git/config", libc::EROFS), ("f", libc::EACCES)] {
            let path = main.join(name);
            assert_eq!(errno_of(&inside, &["write", path.to_str().unwrap()]), errno, "{name}");
        }
        assert_eq!(errno_of(&inside, &["create", main.join(".git/hooks/pre-commit").to_str().unwrap()]), libc::EROFS);
        // A `.git` file that only claims to be a worktree grants nothing.
        let fake = Gate::profile(*user, "write");
        fake.file(".git", format!("gitdir: {}\n", main.join(".git").display()));
        assert_eq!(errno_of(&fake, &["create", main.join(".git/new").to_str().unwrap()]), libc::EACCES);
    }
}

#[test]
fn a_program_that_the_policy_denies_is_refused_by_plan_and_run() {
    for user in users() {
        for denied in ["/usr/bin/env", "/usr/bin", "/"] {
            for verb in ["run", "plan"] {
                let done = Gate::profile(*user, "read").flags(["--deny-path", denied]).verb(verb).run(["/usr/bin/env"]);
                done.exits(126);
                let rule = format!(
                    "/usr/bin/env must be read to start the command, and --deny-path (paths.deny) closes {denied}"
                );
                assert!(done.stderr().contains(&rule), "{user:?} {done}");
            }
        }
        Gate::profile(*user, "read").flags(["--deny-path", "/usr/bin/id"]).run(["/usr/bin/env"]).exits(0);
        // Its loader, too.
        for verb in ["run", "plan"] {
            let loader = fs::canonicalize("/lib64/ld-linux-x86-64.so.2");
            let Ok(loader) = loader else { return crate::support::skip("/lib64/ld-linux-x86-64.so.2 does not exist") };
            let gate = Gate::profile(*user, "read").flags(["--deny-path".as_ref(), loader.as_os_str()]);
            let done = gate.verb(verb).run(["/usr/bin/env"]);
            assert!(done.exits(126).stderr().contains("must be read to start the command"), "{user:?} {done}");
        }
    }
}
