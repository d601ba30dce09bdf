//! Symbolic links in closed directories: what they lead to is closed by its own path as well.

use super::{Hole, Severity, place_of, text};
use crate::run::{Gate, act, errnos, layer, tree_owned_by, users};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "read a key through a symbolic link in `~/.ssh`, `~/.kube` or `$GNUPGHOME`, as managers of dotfiles make them",
        reached: "the key was readable while the layer said `enforced`",
        held_by: &["what_links_in_directories_of_credentials_lead_to_is_closed"],
    },
    Hole {
        severity: Severity::High,
        attack: "read a file through a symbolic link in a directory that `--deny-path` names",
        reached: "the file was readable while the layer said `enforced`",
        held_by: &["what_links_in_denied_directories_lead_to_is_closed"],
    },
    Hole {
        severity: Severity::High,
        attack: "read a key through a symbolic link in `~/.ssh` to a directory outside the homes",
        reached: "the key was readable while the layer said `enforced`",
        held_by: &["directories_of_the_user_that_links_lead_to_are_closed_wherever_they_are"],
    },
];

const PROFILES: [&str; 3] = ["minimal", "read", "write"];

fn put(path: &Path) {
    fs::create_dir_all(path.parent().expect("below something")).expect("new");
    fs::write(path, "secret").expect("new");
}

/// A link, whose directory is made.
fn link(to: &str, at: &Path) {
    fs::create_dir_all(at.parent().expect("below something")).expect("new");
    symlink(to, at).expect("new");
}

/// The errno of reading each path, in one run.
#[track_caller]
fn read(gate: &Gate, paths: &[PathBuf]) -> Vec<i32> {
    let mut words = vec![act().into_os_string()];
    for path in paths {
        words.extend(["read".into(), path.clone().into_os_string(), ",".into()]);
    }
    errnos(&gate.run(&words))
}

fn all(top: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| top.join(name)).collect()
}

#[test]
fn what_links_in_directories_of_credentials_lead_to_is_closed() {
    for user in users() {
        let (home, elsewhere) = (place_of(*user), place_of(*user));
        let files =
            ["keys/k", "keys/other", "dot/kubeconf", "dot/gh/hosts.yml", "gnupg/x", "deep/k", "far/k", "open/k"];
        files.iter().for_each(|name| put(&home.join(name)));
        put(&elsewhere.join("k"));
        put(&elsewhere.join("other"));
        link("../keys/k", &home.join(".ssh/id_rsa"));
        link(text(&elsewhere.join("k")), &home.join(".ssh/id_elsewhere"));
        link("../dot/kubeconf", &home.join(".kube/config"));
        link("../../dot/gh", &home.join(".config/gh/hosts"));
        link("../gnupg/x", &home.join("moved/pubring"));
        link("../../../deep/k", &home.join(".aws/a/b/k"));
        // A link to a directory of links.
        link("../chain", &home.join(".azure/chain"));
        link("../far/k", &home.join("chain/k"));
        put(&home.join(".ssh/plain"));
        [&home, &elsewhere].into_iter().for_each(|top| tree_owned_by(*user, top));
        let links = [
            ".ssh/plain",
            ".ssh/id_rsa",
            ".ssh/id_elsewhere",
            ".kube/config",
            ".config/gh/hosts/hosts.yml",
            "moved/pubring",
            ".azure/chain/k",
            ".aws/a/b/k",
        ];
        let targets = ["keys/k", "dot/kubeconf", "dot/gh/hosts.yml", "gnupg/x", "far/k", "deep/k"];
        let open = [all(&home, &["keys/other", "open/k"]), vec![elsewhere.join("other")]].concat();
        for profile in PROFILES {
            let gate = Gate::profile(*user, profile).env("HOME", &home).env("GNUPGHOME", home.join("moved"));
            for path in [all(&home, &links), all(&home, &targets), vec![elsewhere.join("k")]].concat() {
                assert_eq!(
                    read(&gate, std::slice::from_ref(&path)),
                    [libc::EACCES],
                    "{user:?} {profile} {}",
                    path.display()
                );
            }
            assert_eq!(read(&gate, &open), [0; 3], "{user:?} {profile}");
            let (_, report) = gate.report(["cat", text(&home.join(".ssh/id_rsa"))]);
            let denial = &report["denials"][0];
            let named = format!("--read {}", home.join("keys/k").display());
            assert_eq!(denial["allow_with"].as_str(), Some(named.as_str()), "{denial:#}");
            // Named, it is open.
            let gate = gate.flags(["--read", text(&home.join("keys/k"))]);
            assert_eq!(read(&gate, &all(&home, &["keys/k", "dot/kubeconf"])), [0, libc::EACCES], "{user:?} {profile}");
        }
    }
}

#[test]
fn directories_of_the_user_that_links_lead_to_are_closed_wherever_they_are() {
    for user in users() {
        for profile in PROFILES {
            let (home, data) = (place_of(*user), place_of(*user));
            ["keys/id", "other/x", "work/x"].iter().for_each(|name| put(&data.join(name)));
            link(text(&data.join("keys")), &home.join(".ssh/keys"));
            link("/usr/share", &home.join(".ssh/system"));
            link("/var/lib", &home.join(".ssh/state"));
            [&home, &data].into_iter().for_each(|top| tree_owned_by(*user, top));
            let gate = Gate::profile(*user, profile).env("HOME", &home);
            let paths = [home.join(".ssh/keys/id"), data.join("keys/id"), data.join("other/x")];
            assert_eq!(read(&gate, &paths), [libc::EACCES, libc::EACCES, 0], "{user:?} {profile}");
            gate.run(["ls", "/usr/share", "/var/lib"]).exits(0);
            let (_, report) = gate.report(["true"]);
            assert_eq!(layer(&report, "landlock").0, "enforced", "{user:?} {profile}");
            // One that holds the working directory stays open.
            link(text(&data), &home.join(".ssh/all"));
            let gate = gate.in_directory(&data.join("work"));
            let (done, report) = gate.report(["cat", "x"]);
            done.exits(0);
            let (status, detail) = layer(&report, "landlock");
            let named = format!("symbolic links in closed directories lead to {}, which stays open", data.display());
            assert!(status == "partial" && detail.contains(&named), "{user:?} {profile} {status}: {detail}");
        }
    }
}

#[test]
fn what_links_in_denied_directories_lead_to_is_closed() {
    for user in users() {
        for profile in PROFILES {
            for denied in ["dd", "dd/**", "dd/*", "d?"] {
                let outer = place_of(*user);
                let gate = Gate::profile(*user, profile).env("HOME", place_of(*user));
                for name in ["oo/t", "oo/open", "od/x"] {
                    put(&outer.join(name));
                    put(&gate.dir.join(name));
                }
                link("../oo/t", &gate.dir.join("dd/l"));
                link("../od", &gate.dir.join("dd/directory"));
                link(text(&outer.join("oo/t")), &gate.dir.join("dd/outer"));
                link(text(&outer.join("od")), &gate.dir.join("dd/outer-directory"));
                [&gate.dir, &outer].into_iter().for_each(|top| tree_owned_by(*user, top));
                let gate = gate.flags(["--deny-path", denied]);
                let links = all(&gate.dir, &["dd/l", "dd/directory/x", "dd/outer", "dd/outer-directory/x"]);
                let targets = [all(&gate.dir, &["oo/t", "od/x"]), all(&outer, &["oo/t", "od/x"])].concat();
                for path in links.iter().chain(&targets) {
                    let errno = read(&gate, std::slice::from_ref(path));
                    // Root sees an empty directory where a mount covers the links.
                    let gone = links.contains(path) && errno == [libc::ENOENT];
                    assert!(
                        gone || errno == [libc::EACCES],
                        "{user:?} {profile} {denied} {} {errno:?}",
                        path.display()
                    );
                }
                assert_eq!(
                    read(&gate, &[gate.dir.join("oo/open"), outer.join("oo/open")]),
                    [0, 0],
                    "{profile} {denied}"
                );
                let (_, report) = gate.report(["cat", "dd/l"]);
                assert_eq!(report["denials"][0]["allow_with"], serde_json::Value::Null, "{report:#}");
            }
        }
    }
}

/// Links may lead anywhere, and an earlier command may have made those in the working directory.
#[test]
fn links_in_closed_directories_do_not_close_what_every_program_needs() {
    for user in users() {
        for profile in PROFILES {
            let home = place_of(*user);
            put(&home.join("notes"));
            put(&home.join(".ssh/plain"));
            let gate = Gate::profile(*user, profile).env("HOME", &home).flags(["--deny-path", "dd"]);
            let mine = gate.dir.join("mine/file");
            [&mine, &gate.dir.join("file")].into_iter().for_each(|path| put(path));
            let everywhere = ["/", "/usr", "/usr/bin/env", "/bin/sh", "/etc", "/etc/passwd", "/etc/ssl", "/dev/null"];
            let wide = ["/proc/self/exe", "/proc", text(&home), text(home.parent().expect("one")), text(&gate.dir)];
            for top in [home.join(".ssh"), home.join(".kube"), gate.dir.join(".ssh"), gate.dir.join("dd")] {
                for (at, target) in everywhere.iter().chain(&wide).enumerate() {
                    // What a denied directory leads to is the user's own choice, but for directories and programs.
                    if !top.ends_with("dd") || *target != "/etc/passwd" {
                        link(target, &top.join(format!("link-{at}")));
                    }
                }
            }
            // Nothing below the working directory closes a directory.
            link("../mine", &gate.dir.join(".ssh/mine"));
            [&gate.dir, &home].into_iter().for_each(|top| tree_owned_by(*user, top));
            gate.run(["cat", "/etc/passwd"]).exits(0);
            assert_eq!(read(&gate, &[home.join("notes"), gate.dir.join("file"), mine]), [0; 3], "{user:?} {profile}");
            assert_eq!(read(&gate, &[home.join(".ssh/plain")]), [libc::EACCES]);
        }
    }
}

#[test]
fn a_search_for_links_that_ends_early_is_told_and_leaves_those_of_the_user_alone() {
    for user in users() {
        let home = place_of(*user);
        put(&home.join("key"));
        link("../key", &home.join(".kube/config"));
        tree_owned_by(*user, &home);
        for profile in PROFILES {
            let gate = Gate::profile(*user, profile).env("HOME", &home);
            gate.file("target", "x");
            let (_, report) = gate.report(["true"]);
            let (_, detail) = layer(&report, "landlock");
            assert!(!detail.contains("symbolic links"), "{detail}");
            (0..300).for_each(|at| link("../target", &gate.dir.join(format!(".ssh/{at}"))));
            tree_owned_by(*user, &gate.dir);
            let (done, report) = gate.report(["true"]);
            done.exits(0);
            let (status, detail) = layer(&report, "landlock");
            let named = format!("not all symbolic links in {} were followed", gate.dir.join(".ssh").display());
            assert!(status == "partial" && detail.contains(&named), "{user:?} {profile} {status}: {detail}");
            assert_eq!(read(&gate, &[home.join("key")]), [libc::EACCES], "{user:?} {profile}");
        }
    }
}
