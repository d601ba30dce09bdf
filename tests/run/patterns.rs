//! Paths denied by a pattern, and files closed by their names.

use super::{Gate, User, act, layer, outside, owned_by, unprivileged, users};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The errno of each operation, in order: `read a , write b`.
fn errnos(gate: &Gate, words: &str) -> Vec<i32> {
    let act = act();
    super::errnos(&gate.run(std::iter::once(act.to_str().unwrap()).chain(words.split(' '))))
}

/// Asserts that the file's contents are not readable. In a writable tree root reads the empty cover.
fn is_closed(gate: &Gate, user: User, profile: &str, path: &str) {
    let done = gate.run(["cat", path]);
    assert!(!done.stdout().contains("secret"), "{user:?} {profile} {path}: {done}");
    if profile != "write" || user == User::Nobody {
        let done = gate.run([act().to_str().unwrap(), "read", path]);
        done.exits(0).prints(&format!("read {}\n", libc::EACCES));
    }
}

#[test]
fn patterns_close_what_they_match_at_any_depth_and_nothing_else() {
    let closed = [
        "k.pem",
        "a/k.pem",
        ".git/k.pem",
        "node_modules/x/y/z/w/k.pem",
        "secrets/one.json",
        "keys/deep/x",
        "a b/k.pem",
    ];
    let open = ["k.pem.txt", "a/other", "secrets/one.txt", "secrets/deep/two.json", "keysx/x", "a b/other"];
    for user in users() {
        for profile in ["minimal", "write", "unrestricted"] {
            let gate = Gate::profile(*user, profile);
            closed.iter().chain(&open).for_each(|name| drop(gate.file(name, "secret")));
            let gate =
                gate.flags(["--deny-path", "**/*.pem", "--deny-path", "secrets/*.json", "--deny-path", "keys/**"]);
            closed.iter().for_each(|path| is_closed(&gate, *user, profile, path));
            for path in open {
                gate.run(["cat", path]).exits(0).prints("secret");
            }
            let (_, report) = gate.report(["true"]);
            let (_, detail) = layer(&report, "landlock");
            assert!(detail.contains("**/*.pem matches 5") && detail.contains("secrets/*.json matches 1"), "{detail}");
            assert!(detail.contains("files that the command creates under these names are not closed"), "{detail}");
        }
    }
}

/// In a writable tree, a closed file can be neither changed nor moved, and new files can be created beside it.
#[test]
fn what_a_pattern_closes_in_a_writable_tree_stays_as_it_is() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file("a/b/k.pem", "secret");
        gate.file("a/b/other", "x");
        let gate = gate.flags(["--deny-path", "**/*.pem"]);
        let moved =
            errnos(&gate, "unlink a/b/k.pem , rename a/b/k.pem a/b/taken , rename a/b a/taken , rename a taken");
        assert_eq!(moved, [libc::EACCES, libc::EACCES, libc::EBUSY, libc::EBUSY], "{user:?}");
        let linked = errnos(&gate, "link a/b/k.pem taken");
        assert!([libc::EXDEV, libc::EPERM, libc::EACCES].contains(&linked[0]), "{linked:?}");
        gate.run(["sh", "-c", "echo changed > a/b/k.pem"]);
        assert_eq!(fs::read_to_string(gate.dir.join("a/b/k.pem")).unwrap(), "secret", "{user:?}");
        assert_eq!(errnos(&gate, "create a/b/new , write a/b/other , create new , unlink a/b/new"), [0; 4], "{user:?}");
        // The command may create and read its own file with such a name.
        assert_eq!(errnos(&gate, "create own.pem , read own.pem"), [0, 0]);
    }
}

#[test]
fn patterns_hold_at_home_at_the_root_and_in_named_trees() {
    for user in users() {
        let home = outside();
        let named = outside();
        for path in [home.join("x/deep/k.key"), home.join("x.key"), named.join("sub/k.key"), named.join("sub/open")] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "secret").unwrap();
        }
        let pattern = format!("{}/**/k.key", home.display());
        let of = |flags: &[&str]| {
            let gate = Gate::profile(*user, "minimal").env("HOME", &home).flags(flags);
            let files =
                [home.join("x/deep/k.key"), home.join("x.key"), named.join("sub/k.key"), named.join("sub/open")];
            files.map(|file| errnos(&gate, &format!("read {}", file.display()))[0])
        };
        const NO: i32 = libc::EACCES;
        assert_eq!(of(&["--deny-path", "~/*.key"]), [0, NO, 0, 0]);
        assert_eq!(of(&["--deny-path", "~/x/**"]), [NO, 0, 0, 0]);
        assert_eq!(of(&["--deny-path", &pattern]), [NO, 0, 0, 0]);
        assert_eq!(of(&["--deny-path", "**/*.key"]), [0, 0, 0, 0]);
        let named = named.to_str().unwrap();
        assert_eq!(of(&["--deny-path", "**/*.key", "--read", named]), [0, 0, NO, 0]);
    }
}

#[test]
fn odd_names_and_links_are_matched_as_well() {
    use std::os::unix::ffi::OsStrExt;
    for user in users() {
        let gate = Gate::profile(*user, "minimal");
        gate.file("star*", "secret");
        gate.file("starry", "open");
        gate.file("pages/[id].tsx", "secret");
        gate.file("elsewhere/real", "secret");
        let raw = gate.dir.join(std::ffi::OsStr::from_bytes(b"\xff\xfe.pem"));
        fs::write(&raw, "secret").unwrap();
        owned_by(*user, &raw);
        symlink("elsewhere/real", gate.dir.join("link.pem")).unwrap();
        let gate = gate.flags([r"--deny-path", r"star\*", "--deny-path", "pages/[id].tsx", "--deny-path", "**/*.pem"]);
        for path in ["star*", "pages/[id].tsx", "link.pem", "elsewhere/real"] {
            assert_eq!(errnos(&gate, &format!("read {path}")), [libc::EACCES], "{user:?} {path}");
        }
        let done = gate.run([act().as_os_str(), "read".as_ref(), raw.as_os_str()]);
        assert!(done.exits(0).stdout().trim_end().ends_with("13"), "{done}");
        assert_eq!(errnos(&gate, "read starry"), [0]);
    }
}

#[test]
fn what_cannot_be_a_pattern_or_cannot_be_searched_is_refused() {
    let gate = Gate::profile(unprivileged(), "minimal");
    let wrong = Gate::profile(unprivileged(), "minimal").flags(["--deny-path", "**/[a"]).run(["true"]);
    assert!(wrong.exits(125).stderr().contains("**/[a"), "{wrong}");
    let kernel = Gate::profile(unprivileged(), "minimal").flags(["--deny-path", "/proc/*/environ"]).run(["true"]);
    assert!(kernel.exits(125).stderr().contains("/proc"), "{kernel}");
    let nothing = Gate::profile(unprivileged(), "minimal").flags(["--deny-path", "**/*.nothing"]).report(["true"]);
    assert!(layer(&nothing.1, "landlock").1.contains("**/*.nothing matches nothing"), "{}", nothing.1);
    // Files in such a directory can be opened by name but not listed, so the pattern could not be enforced.
    gate.file("shut/k.pem", "secret");
    fs::set_permissions(gate.dir.join("shut"), fs::Permissions::from_mode(0o311)).unwrap();
    let gate = gate.flags(["--deny-path", "**/*.pem"]);
    let refused = gate.run(["true"]);
    assert!(refused.exits(125).stderr().contains("shut cannot be listed"), "{refused}");
    fs::set_permissions(gate.dir.join("shut"), fs::Permissions::from_mode(0o755)).unwrap();
    gate.run(["true"]).exits(0);
}

/// The names in such a directory can be listed, but not those below; and a command of its owner can chmod it.
#[test]
fn a_directory_that_can_be_listed_but_not_entered_is_refused() {
    for (pattern, named) in [("shut/**/*.pem", "shut/ cannot be listed"), ("**/*.pem", "shut cannot be listed")] {
        let gate = Gate::profile(unprivileged(), "write");
        gate.file("shut/sub/k.pem", "secret");
        let gate = gate.flags(["--deny-path", pattern]);
        let (shut, script) = (gate.dir.join("shut"), "chmod 700 shut; cat shut/sub/k.pem");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o400)).unwrap();
        let refused = gate.run(["sh", "-c", script]);
        assert!(refused.exits(125).stderr().contains(named) && refused.stdout().is_empty(), "{pattern}: {refused}");
        fs::set_permissions(&shut, fs::Permissions::from_mode(0o700)).unwrap();
        let denied = gate.run(["sh", "-c", script]);
        assert!(denied.exits(1).stdout().is_empty(), "{pattern}: {denied}");
    }
}

/// Without namespaces, the other files of the directory are granted one by one.
#[test]
fn without_namespaces_a_pattern_still_holds() {
    let user = unprivileged();
    let gate = Gate::profile(user, "write");
    gate.file("a/k.pem", "secret");
    gate.file("a/other", "x");
    // The filter of an outer gatekeeper denies namespaces.
    let outer = [super::gatekeeper().to_str().unwrap(), "run", "-q", "-p", "write", "--"];
    let gate = gate.under(outer).flags(["--deny-path", "**/*.pem"]);
    assert_eq!(errnos(&gate, "read a/k.pem , write a/k.pem , write a/other"), [libc::EACCES, libc::EACCES, 0]);
    assert_eq!(fs::read_to_string(gate.dir.join("a/k.pem")).unwrap(), "secret");
}

/// Among five thousand files, the secret is covered by one mount instead of five thousand rules.
#[test]
fn in_a_crowded_directory_a_secret_is_covered() {
    for user in users() {
        let gate = Gate::profile(*user, "minimal");
        gate.file(".env", "secret");
        (0..600).for_each(|number| drop(gate.file(&format!("file-{number}"), "x")));
        let done = gate.run(["cat", ".env"]);
        assert!(!done.stdout().contains("secret"), "{done}");
        let (_, report) = gate.report(["cat", "file-599"]);
        assert!(layer(&report, "namespaces").1.contains(".env"), "{report:#}");
    }
}
