//! Protected entries inside the writable tree withstand every way to change a file.

use super::{Gate, User, act, layer, outside, tree_owned_by, users};
use crate::support::probe;
use std::fs;

const ENTRIES: &[&str] = &[
    ".git/hooks/pre-commit",
    ".git/config",
    ".bashrc",
    ".zshrc",
    ".vscode/settings.json",
    ".mcp.json",
    ".exrc",
    ".zed/tasks.json",
    "policy.toml",
];

/// A typical working tree of an agent, with a policy file.
fn tree(user: User) -> Gate {
    let gate = Gate::profile(user, "write");
    for entry in ENTRIES {
        gate.file(entry, "kept\n");
    }
    let policy = gate.file("policy.toml", "on_violation = \"errno\"\n#kept\n");
    gate.file(".git/HEAD", "ref: refs/heads/main\n");
    gate.file("other", "other\n");
    gate.flags(["--config".as_ref(), policy.as_os_str()])
}

fn kept(gate: &Gate) -> bool {
    ENTRIES.iter().all(|entry| fs::read_to_string(gate.dir.join(entry)).is_ok_and(|text| text.ends_with("kept\n")))
}

fn attack(gate: &Gate, words: &[&str]) -> String {
    let act = act();
    let done = gate.run(std::iter::once(act.to_str().unwrap()).chain(words.iter().copied()));
    done.exits(0).stdout()
}

#[test]
fn protected_entries_hold_against_every_way_in() {
    for user in users() {
        let gate = tree(*user);
        let mut ways: Vec<Vec<String>> = Vec::new();
        for entry in ENTRIES {
            let absolute = gate.dir.join(entry).to_str().unwrap().to_owned();
            for op in [
                "write",
                "append",
                "open-truncate",
                "truncate",
                "unlink",
                "chmod",
                "times",
                "setxattr",
                "fchmod",
                "ftimes",
                "proc-chmod",
            ] {
                ways.push(vec![op.into(), (*entry).into()]);
                ways.push(vec![op.into(), absolute.clone()]);
            }
            ways.push(vec!["rename".into(), (*entry).into(), "stolen".into()]);
            ways.push(vec!["rename".into(), "other".into(), (*entry).into()]);
            ways.push(vec!["exchange".into(), "other".into(), (*entry).into()]);
            ways.push(vec!["link".into(), (*entry).into(), "linked".into()]);
        }
        for way in [
            &["create", ".git/hooks/post-commit"][..],
            &["create", ".vscode/tasks.json"],
            &["mkdir", ".git/hooks/dir"],
            &["rename", ".git", "moved"],
            &["rename", ".git/hooks", "hooks"],
            &["rename", ".git/hooks", ".git/hooks2"],
            &["exchange", "other", ".git"],
            &["rename", ".vscode", "moved"],
            &["rmdir", ".git/hooks"],
        ] {
            ways.push(way.iter().map(|word| (*word).to_owned()).collect());
        }
        for way in ways {
            let words: Vec<&str> = way.iter().map(String::as_str).collect();
            let text = attack(&gate, &words);
            let errno: i32 = text.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
            let expected = [libc::EROFS, libc::EBUSY, libc::EXDEV, libc::EPERM, libc::ENOTEMPTY];
            assert!(expected.contains(&errno), "{user:?} {way:?}: {text}");
            assert!(kept(&gate), "{user:?} {way:?}");
            let hooks: Vec<_> =
                fs::read_dir(gate.dir.join(".git/hooks")).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(hooks, ["pre-commit"], "{way:?}");
            let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(gate.dir.join(".git/config")).unwrap());
            assert_eq!(mode & 0o777, 0o644, "{way:?}");
        }
        // The control: unprotected files beside it can be changed.
        assert_eq!(
            attack(&gate, &["create", ".git/index", ",", "rename", ".git/index", ".git/x", ",", "chmod", "other"]),
            "create 0\nrename 0\nchmod 0\n"
        );
    }
}

/// Through relative and absolute symbolic links, and through one that replaces the parent directory.
#[test]
fn protected_entries_hold_against_symbolic_links() {
    for user in users() {
        let gate = tree(*user);
        let absolute = gate.dir.join(".git/config").to_str().unwrap().to_owned();
        for target in [".git/config", absolute.as_str(), "/proc/self/cwd/.git/config"] {
            let ways = ["write", "truncate", "chmod", "times", "setxattr", "chown"];
            let mut words = vec!["symlink", target, "way"];
            ways.iter().for_each(|op| words.extend([",", op, "way"]));
            words.extend([",", "unlink", "way"]);
            let text = attack(&gate, &words);
            for (line, op) in text.lines().skip(1).zip(ways) {
                let errno: i32 = line.rsplit(' ').next().unwrap().parse().unwrap();
                assert!([libc::EROFS, libc::EPERM].contains(&errno), "{user:?} {op} by {target}: {text}");
            }
            assert!(kept(&gate));
        }
    }
}

#[test]
fn the_report_names_what_is_protected() {
    for user in users() {
        let gate = tree(*user);
        let (done, report) = gate.report(["true"]);
        done.exits(0);
        let (status, detail) = layer(&report, "namespaces");
        assert_eq!(status, "enforced", "{report:#}");
        for entry in [".git/hooks", ".git/config", ".bashrc", ".zshrc", ".vscode", ".mcp.json", "policy.toml"] {
            assert!(detail.contains(gate.dir.join(entry).to_str().unwrap()), "{entry}: {detail}");
        }
        assert_eq!(layer(&report, "landlock").0, "enforced");
        // With nothing to protect, the namespace contains only the private /dev/shm.
        let (_, report) = Gate::profile(*user, "write").report(["true"]);
        assert_eq!(layer(&report, "namespaces"), ("enforced", "private and discarded at the end: /dev/shm"));
        let (_, report) = Gate::profile(*user, "write").flags(["--write", "/dev/shm"]).report(["true"]);
        assert_eq!(layer(&report, "namespaces").0, "off");
    }
}

/// Without namespaces, the report names each entry that stays writable, and changes of metadata are still refused.
#[test]
fn without_namespaces_the_report_says_partial_and_names_them() {
    for user in users() {
        let outer = probe("outer", &[]);
        let words = [outer.to_str().unwrap().to_owned(), format!("{}=1", libc::SYS_unshare), "--".to_owned()];
        let gate = tree(*user).under(words);
        let (done, report) = gate.report([act().to_str().unwrap(), "chmod", ".git/config", ",", "chmod", "other"]);
        done.exits(0).prints("chmod 1\nchmod 0\n");
        let (status, detail) = layer(&report, "landlock");
        assert_eq!(status, "partial", "{report:#}");
        for entry in [".git/hooks", ".git/config", ".bashrc", ".zshrc", ".vscode", ".mcp.json", "policy.toml"] {
            assert!(detail.contains(gate.dir.join(entry).to_str().unwrap()), "{entry}: {detail}");
        }
        let plan = tree(*user).verb("plan").run(["true"]);
        assert!(plan.exits(0).stdout().contains(".git/hooks"), "{plan}");
        // A closed file is open then, and the run says so before it starts; --deny-path closes it all the same.
        let words = [outer.to_str().unwrap().to_owned(), format!("{}=1", libc::SYS_unshare), "--".to_owned()];
        let secret = |flags: &[&str]| {
            let gate = tree(*user).flags(flags).under(words.clone());
            let secret = gate.file(".env", "SECRET=1\n");
            let (done, report) = gate.report([act().to_str().unwrap(), "read", ".env"]);
            (done, layer(&report, "landlock").1.to_owned(), secret.display().to_string())
        };
        let (done, detail, path) = secret(&[]);
        done.exits(0).prints("read 0\n");
        let warned = format!("no mount namespace can be created here, so the command can read and write {path};");
        assert!(done.stderr().contains(&warned), "{done}");
        assert!(detail.contains(&format!("stays readable and writable: {path}")), "{detail}");
        let (done, detail, path) = secret(&["--deny-path", ".env"]);
        done.exits(0).prints(&format!("read {}\n", libc::EACCES));
        assert!(!done.stderr().contains(&path) && !detail.contains("readable and writable"), "{done}{detail}");
    }
}

/// A protected entry that is named with --write is writable.
#[test]
fn a_write_flag_opens_a_protected_entry() {
    for user in users() {
        let gate = tree(*user).flags(["--write", ".git/config"]);
        assert_eq!(
            attack(&gate, &["write", ".git/config", ",", "write", ".bashrc"]),
            format!("write 0\nwrite {}\n", libc::EROFS)
        );
    }
}

/// Credentials inside the working directory are covered, and readable if they are named.
#[test]
fn dotenv_in_the_tree_is_covered() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".env", "SECRET=1\n");
        gate.file("data", "x");
        let text = attack(&gate, &["read", "data", ",", "rename", ".env", "taken", ",", "link", ".env", "taken"]);
        let errnos: Vec<i32> = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(errnos[0], 0);
        assert!(
            errnos[1..].iter().all(|errno| [libc::EBUSY, libc::EXDEV, libc::EROFS, libc::EACCES].contains(errno)),
            "{text}"
        );
        let done = gate.run(["cat", ".env"]);
        assert!(!done.stdout().contains("SECRET"), "{user:?} {done}");
        Gate::profile(*user, "minimal").run(["true"]).exits(0);
        let gate = gate.flags(["--read", ".env"]);
        gate.run(["cat", ".env"]).exits(0).prints("SECRET=1\n");
    }
}

/// A grant to read a closed file is none to change it.
#[test]
fn a_secret_that_may_be_read_in_a_writable_tree_may_not_be_changed() {
    for user in users() {
        let home = outside();
        fs::create_dir(home.join(".ssh")).unwrap();
        let gate = Gate::profile(*user, "write");
        [".env", "sa-key.txt", "keys/k"].iter().for_each(|name| drop(gate.file(name, "secret")));
        std::os::unix::fs::symlink(gate.dir.join("keys/k"), home.join(".ssh/k")).unwrap();
        tree_owned_by(*user, &home);
        for name in [".env", "sa-key.txt", "keys/k"] {
            gate.file("other", "secret");
            let dir = gate.dir.clone();
            let open = Gate::profile(*user, "write").in_directory(&dir).env("HOME", &home);
            let open = open.env("GOOGLE_APPLICATION_CREDENTIALS", "sa-key.txt").flags(["--read", name]);
            open.run(["cat", name]).exits(0).prints("secret");
            let line =
                format!("echo pwn > {name}; rm {name}; mv {name} taken; ln {name} second; echo x > other; cat {name}");
            let done = open.run(["sh", "-c", &line]);
            assert!(done.stdout().ends_with("secret"), "{user:?} {name}{done}");
            assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "secret", "{user:?} {name}{done}");
            assert_eq!(fs::read_to_string(dir.join("other")).unwrap(), "x\n", "{user:?} {name}{done}");
            // Named with --write, it can be.
            let open = open.flags(["--write", name]);
            open.run(["sh", "-c", &format!("echo new > {name} && cat {name} && rm {name}")]).exits(0).prints("new\n");
            gate.file(name, "secret");
        }
    }
}

/// The mounts are private to the command: they are not visible outside, and none is left at the end.
#[test]
fn mounts_are_private() {
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let gate = tree(super::unprivileged());
    gate.run(["sh", "-c", "grep -c pre-commit /proc/self/mountinfo; exit 0"]).exits(0);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    // The command has no capability in the new user namespace, so it cannot undo the mounts.
    let done = gate.run(["grep", "-E", "^Cap(Eff|Prm|Inh)", "/proc/self/status"]);
    done.exits(0).prints("CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n");
}
