//! Files that are closed by their name or by a pattern.

use super::{Hole, Severity};
use crate::run::{Gate, act, errnos, layer, outside, tree_owned_by, users};
use gatekeeper::plan::paths::CREDENTIALS;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Medium,
        attack: "read the credentials of agents, clouds, package managers, browsers, wallets and the histories of shells",
        reached: "125 of 156 well-known credential files were readable under `minimal`",
        held_by: &["every_known_credential_is_closed_and_the_file_beside_it_is_not"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "read `.env` in a subdirectory or with another ending, `master.key`, `*.tfstate`, `.npmrc` with a token",
        reached: "the project's secrets",
        held_by: &["secrets_of_a_project_are_closed_by_name_and_opened_by_name"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "read the files that `$KUBECONFIG`, `$AWS_SHARED_CREDENTIALS_FILE` and similar variables name",
        reached: "credentials outside of their default locations",
        held_by: &["files_that_variables_name_are_closed"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "read the file that `$GOOGLE_APPLICATION_CREDENTIALS` names relative to the working directory",
        reached: "the file was readable",
        held_by: &["files_that_variables_name_by_relative_paths_are_closed"],
    },
    Hole {
        severity: Severity::High,
        attack: "make 1,900 directories, each with an `.npmrc` without a token",
        reached: "the next run took those beyond the first 256 for harmless unread, and the project's own token was readable",
        held_by: &["many_harmless_settings_open_none_with_a_token"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "`--deny-path` for one file in a writable tree",
        reached: "`.env` in the same tree was readable",
        held_by: &["a_denied_path_does_not_open_the_secrets_beside_it"],
    },
    Hole {
        severity: Severity::High,
        attack: "read `.env.NAME`, `NAME.kdbx` or `NAME-service-account.json` where NAME is not UTF-8",
        reached: "the file was readable while the layer said `enforced`",
        held_by: &["secrets_whose_names_are_not_utf_8_are_closed"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "one run makes a link to `/usr/lib` or `/` whose name a `--deny-path` pattern of the next matches, or puts one before the wildcard",
        reached: "no later run could start its program, and none said why",
        held_by: &["a_link_that_a_pattern_matches_does_not_stop_the_next_run"],
    },
];

fn put(path: &Path) {
    fs::create_dir_all(path.parent().expect("below something")).unwrap();
    if !path.is_dir() {
        fs::write(path, "secret").unwrap();
    }
}

/// The errno of reading each path, in one run.
fn read(gate: &Gate, paths: &[std::path::PathBuf]) -> Vec<i32> {
    let mut words = vec![act().into_os_string()];
    for path in paths {
        words.extend(["read".into(), path.clone().into_os_string(), ",".into()]);
    }
    errnos(&gate.run(&words))
}

#[test]
fn every_known_credential_is_closed_and_the_file_beside_it_is_not() {
    for user in users() {
        let home = outside();
        // A credential that is the directory of another is closed as a whole.
        let secrets: Vec<_> = CREDENTIALS.iter().map(|name| home.join(name)).collect();
        secrets.iter().for_each(|path| put(path));
        let beside: Vec<_> = secrets.iter().map(|path| path.with_file_name("ordinary")).collect();
        let inside_one = |path: &&std::path::PathBuf| !secrets.iter().any(|secret| path.starts_with(secret));
        let mut beside: Vec<_> = beside.iter().filter(inside_one).cloned().collect();
        beside.sort();
        beside.dedup();
        beside.iter().for_each(|path| put(path));
        tree_owned_by(*user, &home);
        for profile in ["minimal", "write"] {
            let gate = Gate::profile(*user, profile).env("HOME", &home);
            for (path, errno) in secrets.iter().zip(read(&gate, &secrets)) {
                assert_eq!(errno, libc::EACCES, "{user:?} {profile} {}", path.display());
            }
            for (path, errno) in beside.iter().zip(read(&gate, &beside)) {
                assert_eq!(errno, 0, "{user:?} {profile} {}", path.display());
            }
        }
    }
}

#[test]
fn secrets_of_a_project_are_closed_by_name_and_opened_by_name() {
    let closed = [
        ".env",
        "a/.env",
        "a/b/c/.env.local",
        ".env.production",
        ".envrc",
        "config/master.key",
        "terraform.tfstate",
        "infra/terraform.tfstate.backup",
        "service-account.json",
        "a/my-service-account.json",
        ".netrc",
        ".pypirc",
        "id_ed25519",
        ".git-credentials",
        "credentials.json",
        "kubeconfig",
        "x.kdbx",
        ".htpasswd",
        "secrets.yml",
        ".vault_pass",
        ".aws/credentials",
        ".docker/config.json",
        ".dev.vars",
        ".env~",
        "a/.secrets",
    ];
    let open = [
        ".env.example",
        "a/.env.sample",
        ".env.dist",
        "x.p12",
        "main.rs",
        "a/config.json",
        "docs/credentials",
        "node_modules/p/.env",
    ];
    for user in users() {
        let gate = Gate::profile(*user, "minimal").env("HOME", outside());
        closed.iter().chain(&open).for_each(|name| drop(gate.file(name, "secret")));
        gate.file("with/.npmrc", "//registry/:_authToken=secret\n");
        gate.file("without/.npmrc", "engine-strict=true\n");
        gate.file("key.pem", "-----BEGIN PRIVATE KEY-----\n");
        let closed: Vec<_> = closed.iter().chain(&["with/.npmrc"]).map(|name| gate.dir.join(name)).collect();
        let open: Vec<_> = open.iter().chain(&["without/.npmrc", "key.pem"]).map(|name| gate.dir.join(name)).collect();
        for (path, errno) in closed.iter().zip(read(&gate, &closed)) {
            assert_eq!(errno, libc::EACCES, "{user:?} {}", path.display());
        }
        for (path, errno) in open.iter().zip(read(&gate, &open)) {
            assert_eq!(errno, 0, "{user:?} {}", path.display());
        }
        let (_, report) = gate.report(["true"]);
        let (_, detail) = layer(&report, "landlock");
        assert!(detail.contains("looked for .env and similar files in"), "{detail}");
        assert!(detail.contains("to a depth of 3"), "{detail}");
        let gate = gate.flags(["--read", "a/.env"]);
        assert_eq!(read(&gate, &[gate.dir.join("a/.env"), gate.dir.join(".env")]), [0, libc::EACCES]);
        // In a writable tree they are covered by mounts, and --write opens them too.
        let mut writer = Gate::profile(*user, "write").flags(["--write", ".envrc"]);
        writer.dir = gate.dir.clone();
        let gate = writer;
        for name in [".env", "a/b/c/.env.local", "terraform.tfstate"] {
            let done = gate.run(["cat", name]);
            assert!(!done.stdout().contains("secret"), "{user:?} {name} {done}");
        }
        gate.run(["cat", ".envrc"]).exits(0).prints("secret");
    }
}

#[test]
fn many_harmless_settings_open_none_with_a_token() {
    for user in users() {
        let gate = Gate::profile(*user, "minimal").env("HOME", outside());
        // Which of them the search finds first is up to the file system.
        let places: Vec<_> = (0..900).map(|at| (at % 90 == 0, gate.dir.join(format!("d{at}/.npmrc")))).collect();
        for (secret, path) in &places {
            fs::create_dir(path.parent().expect("a directory")).unwrap();
            fs::write(path, if *secret { "//registry/:_authToken=T\n" } else { "engine-strict=true\n" }).unwrap();
        }
        tree_owned_by(*user, &gate.dir);
        for profile in ["minimal", "write"] {
            let gate = Gate::profile(*user, profile).in_directory(&gate.dir);
            let paths: Vec<_> = places.iter().map(|(_, path)| path.clone()).collect();
            for ((secret, path), errno) in places.iter().zip(read(&gate, &paths)) {
                let expected = if *secret { libc::EACCES } else { 0 };
                assert_eq!(errno, expected, "{user:?} {profile} {}", path.display());
            }
        }
    }
}

#[test]
fn files_that_variables_name_are_closed() {
    for user in users() {
        let place = outside();
        let names = ["kube/one", "kube/two", "aws", "docker/config.json", "config/gh/hosts.yml", "ticket"];
        let secrets: Vec<_> = names.iter().map(|name| place.join(name)).collect();
        secrets.iter().for_each(|path| put(path));
        let beside = [place.join("kube/three"), place.join("docker/other"), place.join("config/other")];
        beside.iter().for_each(|path| put(path));
        tree_owned_by(*user, &place);
        let plain = Gate::profile(*user, "minimal");
        assert_eq!(read(&plain, &secrets), [0; 6], "the control");
        let at = |name: &str| place.join(name).display().to_string();
        let gate = plain
            .env("KUBECONFIG", format!("{}:{}", at("kube/one"), at("kube/two")))
            .env("AWS_SHARED_CREDENTIALS_FILE", at("aws"))
            .env("DOCKER_CONFIG", at("docker"))
            .env("XDG_CONFIG_HOME", at("config"))
            .env("KRB5CCNAME", format!("FILE:{}", at("ticket")));
        assert_eq!(read(&gate, &secrets), [libc::EACCES; 6], "{user:?}");
        assert_eq!(read(&gate, &beside), [0; 3], "{user:?}");
        // A directory that every program needs stays open even if such a variable names it.
        let gate = gate.env("KUBECONFIG", "/dev/null");
        gate.run(["cat", "/dev/null"]).exits(0);
    }
}

/// A variable that moves a directory of the home moves each credential in it.
#[test]
fn credentials_in_directories_that_variables_move_are_closed() {
    let moved: [(&str, &[&str]); 4] = [
        ("CLAUDE_CONFIG_DIR", &[".claude.json", ".credentials.json", "history.jsonl"]),
        ("CODEX_HOME", &["auth.json", "history.jsonl"]),
        ("HF_HOME", &["token", "stored_tokens"]),
        ("DOCKER_CONFIG", &["config.json", "contexts/tls/id/docker/key.pem"]),
    ];
    for user in users() {
        let place = outside();
        let files = |variable: &str, names: &[&str]| -> Vec<PathBuf> {
            let names = names.iter().chain(&["beside"]);
            names.map(|name| place.join(variable).join(name)).collect()
        };
        moved.iter().for_each(|(variable, names)| files(variable, names).iter().for_each(|path| put(path)));
        tree_owned_by(*user, &place);
        for (variable, names) in moved {
            let files = files(variable, names);
            let plain = || Gate::profile(*user, "minimal");
            assert_eq!(read(&plain(), &files), vec![0; files.len()], "the control");
            let closed = [vec![libc::EACCES; names.len()], vec![0]].concat();
            let gate = plain().env(variable, place.join(variable));
            assert_eq!(read(&gate, &files), closed, "{user:?} {variable}");
            // Relative to the working directory.
            let gate = plain().in_directory(&place).env(variable, variable);
            assert_eq!(read(&gate, &files), closed, "{user:?} {variable}");
        }
    }
}

#[test]
fn a_colon_or_a_tilde_in_a_variable_hides_no_credential() {
    for user in users() {
        let place = outside();
        let names = ["a:b.json", "c:d", "keys/x", "other"];
        let files = names.map(|name| place.join(name));
        files.iter().for_each(|path| put(path));
        tree_owned_by(*user, &place);
        let plain = Gate::profile(*user, "minimal").env("HOME", &place);
        assert_eq!(read(&plain, &files), [0; 4], "the control");
        let gate = plain
            .env("GOOGLE_APPLICATION_CREDENTIALS", &files[0])
            .env("KRB5CCNAME", format!("FILE:{}", files[1].display()))
            .env("AWS_SHARED_CREDENTIALS_FILE", "~/keys/x");
        assert_eq!(read(&gate, &files), [libc::EACCES, libc::EACCES, libc::EACCES, 0], "{user:?}");
    }
}

#[test]
fn files_that_variables_name_by_relative_paths_are_closed() {
    for user in users() {
        for profile in ["minimal", "write"] {
            let plain = Gate::profile(*user, profile);
            let files = ["sa-key.txt", "kube/a.yaml", "b.yaml", "docker/config.json", "other"];
            let paths: Vec<_> = files.iter().map(|name| plain.file(name, "secret")).collect();
            assert_eq!(read(&plain, &paths), [0; 5], "the control");
            let gate = plain
                .env("GOOGLE_APPLICATION_CREDENTIALS", "sa-key.txt")
                .env("KUBECONFIG", "kube/a.yaml::./b.yaml")
                .env("DOCKER_CONFIG", "docker")
                .env("GNUPGHOME", ".");
            let closed = [libc::EACCES, libc::EACCES, libc::EACCES, libc::EACCES, 0];
            assert_eq!(read(&gate, &paths), closed, "{user:?} {profile}");
            // With --cwd, the directory of the caller counts too.
            let beside = outside();
            tree_owned_by(*user, &beside);
            let from = gate.dir.clone();
            let gate = gate.env("PWD", &from).env("GNUPGHOME", "absent").flags(["--cwd".as_ref(), beside.as_os_str()]);
            assert_eq!(read(&gate, &paths), closed, "{user:?} {profile}");
        }
    }
}

#[test]
fn a_denied_path_does_not_open_the_secrets_beside_it() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".env", "secret");
        gate.file("denied", "x");
        gate.file("open", "x");
        let gate = gate.flags(["--deny-path", "denied"]);
        let done = gate.run(["cat", ".env"]);
        assert!(!done.stdout().contains("secret"), "{user:?} {done}");
        assert_eq!(read(&gate, &[gate.dir.join("denied"), gate.dir.join("open")]), [libc::EACCES, 0]);
    }
}

#[test]
fn secrets_whose_names_are_not_utf_8_are_closed() {
    for user in users() {
        for profile in ["minimal", "read", "write"] {
            let gate = Gate::profile(*user, profile).env("HOME", outside());
            let names: [(&[u8], i32); 8] = [
                (b".env.\xff", libc::EACCES),
                (b"cl\xe9.kdbx", libc::EACCES),
                (b"cl\xe9-service-account.json", libc::EACCES),
                (b"d\xe9/cl\xe9.tfstate", libc::EACCES),
                (b"d\xe9/.env", libc::EACCES),
                (b"cl\xe9.txt", 0),
                (b".env.\xff.example", 0),
                (b"\xff", 0),
            ];
            let paths: Vec<_> = names.iter().map(|(name, _)| gate.dir.join(OsStr::from_bytes(name))).collect();
            paths.iter().for_each(|path| put(path));
            tree_owned_by(*user, &gate.dir);
            for (path, (_, errno)) in paths.iter().zip(names) {
                let words = [act().into_os_string(), "read".into(), path.clone().into_os_string()];
                assert_eq!(errnos(&gate.run(&words)), [errno], "{user:?} {profile} {path:?}");
            }
        }
    }
}

#[test]
fn a_link_that_a_pattern_matches_does_not_stop_the_next_run() {
    for user in users() {
        for profile in ["read", "write"] {
            for target in ["/usr/lib", "/", "/usr/bin/env", "/etc", "."] {
                let gate = Gate::profile(*user, profile).flags(["--deny-path", "**/*.pem"]);
                let paths = [gate.file("b.pem", "secret"), gate.file("file", "x"), gate.file("keys/k", "secret")];
                symlink("keys/k", gate.dir.join("c.pem")).unwrap();
                tree_owned_by(*user, &gate.dir);
                let (_, report) = gate.report(["true"]);
                assert_eq!(layer(&report, "landlock").0, "enforced", "the control: {report:#}");
                symlink(target, gate.dir.join("a.pem")).unwrap();
                assert_eq!(read(&gate, &paths), [libc::EACCES, 0, libc::EACCES], "{user:?} {profile} {target}");
                let (done, report) = gate.report(["true"]);
                done.exits(0);
                let (status, detail) = layer(&report, "landlock");
                let named = format!("a denied pattern matches {}: a link", gate.dir.join("a.pem").display());
                assert!(
                    status == "partial" && detail.contains(&named),
                    "{user:?} {profile} {target} {status}: {detail}"
                );
            }
            // Links between programs are the system's own.
            let gate = Gate::profile(*user, profile).flags(["--deny-path", "/usr/bin/aw*"]);
            gate.run(["awk", "BEGIN {}"]).exits(126);
            let (_, report) = Gate::profile(*user, profile).flags(["--deny-path", "/usr/bin/python*"]).report(["true"]);
            assert_eq!(layer(&report, "landlock").0, "enforced", "{user:?} {profile} {report:#}");
            // Before the wildcard, as in a path without one.
            let gate = Gate::profile(*user, profile).flags(["--deny-path", "sub/*"]);
            gate.file("sub/x", "secret");
            gate.run(["true"]).exits(0);
            fs::remove_dir_all(gate.dir.join("sub")).unwrap();
            symlink("/usr", gate.dir.join("sub")).unwrap();
            let done = gate.run(["true"]);
            done.exits(125);
            assert!(done.stderr().contains("sub is a symbolic link to"), "{user:?} {profile}: {done}");
        }
    }
}
