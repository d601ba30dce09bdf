//! Denials by the path layers: predicted, recorded by real path, and allowed by the narrowest grant.

use super::{Violation, place, violate};
use crate::support::{has, skip};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

const EACCES: i32 = 13;
const EPERM: i32 = 1;
const EXDEV: i32 = 18;

fn words(words: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    std::iter::once(violate().into_os_string()).chain(words.iter().map(|word| word.as_ref().to_owned())).collect()
}

#[test]
fn a_new_file_is_granted_by_its_directory() {
    let dir = place("new");
    let path = dir.join("a b");
    Violation::new(&[], &words(&[&"open", &path]))
        .exits(EACCES)
        .record(json!({
            "layer": "landlock", "syscall": "openat", "path": path, "host": null, "errno": "EACCES", "count": 1,
            "args": ["AT_FDCWD", path, "O_WRONLY|O_CREAT|O_CLOEXEC", "0640"],
            "comm": "violate_pthread", "exe": violate(), "rule": "profile minimal writes nothing",
            "allow_with": format!("--write {}", dir.display()),
            "allow_with_policy": format!("paths.write = [\"{}\"]", dir.display()),
        }))
        .passes();
}

#[test]
fn a_file_that_exists_is_granted_by_itself() {
    for (what, args) in [("open-existing", "O_RDWR"), ("open-trunc", "O_RDONLY|O_TRUNC")] {
        let path = place("existing").join("it's");
        fs::write(&path, "text").expect("own directory");
        Violation::new(&["--profile", "network"], &words(&[&what, &path]))
            .exits(EACCES)
            .record(json!({
                "layer": "landlock", "syscall": "openat", "path": path, "errno": "EACCES",
                "args": ["AT_FDCWD", path, args],
                "allow_with": format!("--write '{}'", path.display().to_string().replace('\'', r"'\''")),
            }))
            .passes();
    }
}

/// The remedy is not the machine's /dev/shm, but a profile that starts programs and has a private one.
#[test]
fn shared_memory_is_granted_as_a_private_one() {
    let path = format!("/dev/shm/gatekeeper-denied-{}", std::process::id());
    let denied = Violation::new(&[], &words(&[&"open", &path])).exits(EACCES);
    denied.record(json!({"syscall": "openat", "path": path, "allow_with": "--profile read"})).passes();
    assert!(!std::path::Path::new(&path).exists());
}

/// Bubblewrap mounts everything that is not granted read-only, and its EROFS comes before Landlock's EACCES.
#[test]
fn what_isolation_mounts_read_only_is_recorded() {
    if !has("bwrap") {
        return;
    }
    let dir = place("isolated");
    let path = dir.join("new");
    Violation::new(&["--isolate", "required", "--profile", "read"], &["touch".as_ref(), path.as_os_str()])
        .cwd(&dir)
        .exits(1)
        .record(json!({
            "layer": "landlock", "syscall": "openat", "path": path, "errno": "EROFS",
            "allow_with": format!("--write {}", dir.display()),
        }))
        .passes();
}

#[test]
fn an_unnamed_file_is_granted_by_its_directory() {
    let dir = place("unnamed");
    Violation::new(&[], &words(&[&"open-tmpfile", &dir]))
        .exits(EACCES)
        .record(json!({
            "layer": "landlock", "syscall": "openat", "path": dir, "args": ["AT_FDCWD", dir, "O_RDWR|O_TMPFILE", "0600"],
            "allow_with": format!("--write {}", dir.display()),
        }))
        .passes();
}

/// With a grant elsewhere, the filter allows the calls that write, and only the paths are refused.
#[test]
fn every_way_to_change_a_directory_is_foreseen() {
    let other = place("granted");
    let granted = other.display().to_string();
    let flags = ["--profile", "network", "--write", &granted];
    let refused = |what: &str, syscall: &str, make: &dyn Fn(&std::path::Path), second: bool, args: &[&str]| {
        let dir = place(what);
        let path = dir.join("name");
        make(&path);
        let mut command = words(&[&what]);
        if second {
            command.push(dir.join("source").into());
            fs::write(dir.join("source"), "").expect("own directory");
        }
        command.push(path.clone().into());
        let named = if what == "rename" { dir.join("source") } else { path };
        let mut expected = json!({
            "layer": "landlock", "syscall": syscall, "path": named, "errno": "EACCES",
            "rule": format!("may write only below {granted}"), "allow_with": format!("--write {}", dir.display()),
        });
        if !args.is_empty() {
            let args = args.iter().map(|arg| if *arg == "PATH" { json!(named) } else { json!(arg) });
            expected["args"] = args.collect();
        }
        Violation::new(&flags, &command).exits(EACCES).record(expected).passes();
    };
    let nothing = |_: &std::path::Path| {};
    let file = |path: &std::path::Path| fs::write(path, "").expect("own directory");
    refused("creat", "creat", &nothing, false, &["PATH", "0600"]);
    refused("mkdir", "mkdir", &nothing, false, &["PATH", "0755"]);
    refused("rmdir", "rmdir", &|path| fs::create_dir(path).expect("own directory"), false, &["PATH"]);
    refused("unlink", "unlink", &file, false, &["PATH"]);
    refused("rename", "rename", &nothing, true, &[]);
    refused("symlink", "symlink", &nothing, true, &[]);
    refused("mkfifo", "mknodat", &nothing, false, &["AT_FDCWD", "PATH", "S_IFIFO|0600", "0"]);
}

#[test]
fn a_second_name_needs_both_of_its_directories() {
    let (from, to) = (place("from"), place("to"));
    fs::write(from.join("x"), "").expect("own directory");
    let granted = from.display().to_string();
    Violation::new(&["--write", &granted], &words(&[&"rename", &from.join("x"), &to.join("y")]))
        .fails()
        .record(json!({
            "layer": "landlock", "syscall": "rename", "path": to.join("y"),
            "allow_with": format!("--write {}", to.display()),
        }))
        .passes();
    fs::write(from.join("x"), "").expect("own directory");
    Violation::new(&["--write", &granted], &words(&[&"link", &from.join("x"), &to.join("z")]))
        .fails()
        .record(json!({"layer": "landlock", "syscall": "link", "path": to.join("z")}))
        .passes();
}

/// Landlock answers EXDEV if only the file is outside, and EACCES if the new name is.
#[test]
fn a_refused_link_is_recorded_with_the_errno_that_the_program_sees() {
    let (inside, outside) = (place("inside"), place("outside"));
    fs::write(inside.join("x"), "").expect("own directory");
    fs::write(outside.join("x"), "").expect("own directory");
    let granted = inside.display().to_string();
    for (from, to, errno, name, path) in [
        (&outside, &inside, EXDEV, "EXDEV", outside.join("x")),
        (&inside, &outside, EACCES, "EACCES", outside.join("new")),
        (&outside, &outside, EACCES, "EACCES", outside.join("x")),
    ] {
        Violation::new(&["--write", &granted], &words(&[&"link", &from.join("x"), &to.join("new")]))
            .exits(errno)
            .record(json!({"layer": "landlock", "syscall": "link", "path": path, "errno": name}))
            .passes();
        fs::remove_file(to.join("new")).expect("the remedy made it");
    }
}

#[test]
fn cutting_a_file_off_is_foreseen() {
    let path = place("truncate").join("file");
    fs::write(&path, "long text").expect("own directory");
    let granted = place("granted").display().to_string();
    Violation::new(&["--write", &granted], &words(&[&"truncate", &path]))
        .exits(EACCES)
        .record(json!({
            "layer": "landlock", "syscall": "truncate", "path": path, "args": [path, "3"],
            "allow_with": format!("--write {}", path.display()),
        }))
        .passes();
}

#[test]
fn links_and_descriptors_are_followed_to_the_real_path() {
    let dir = place("links");
    for name in ["sub", "real"] {
        fs::create_dir(dir.join(name)).expect("own directory");
    }
    symlink("../real", dir.join("sub/link")).expect("own directory");
    Violation::new(&[], &words(&[&"openat", &dir.join("sub"), &"link/./../real/new"]))
        .exits(EACCES)
        .record(json!({
            "layer": "landlock", "syscall": "openat", "path": dir.join("real/new"),
            "args": ["3", "link/./../real/new", "O_WRONLY|O_CREAT", "0600"],
            "allow_with": format!("--write {}", dir.join("real").display()),
        }))
        .passes();
    Violation::new(&[], &words(&[&"openat-cwd", &dir.join("sub"), &"link/other"]))
        .exits(EACCES)
        .record(json!({"syscall": "openat", "path": dir.join("real/other")}))
        .passes();
    Violation::new(&[], &words(&[&"mkdirat", &dir.join("sub"), &"link/dir"]))
        .exits(EPERM)
        .record(json!({
            "layer": "seccomp", "syscall": "mkdirat", "path": dir.join("real/dir"), "args": ["3", "link/dir", "0711"],
            "errno": "EPERM", "rule": "not in profile minimal",
        }))
        .passes();
}

#[test]
fn a_link_out_of_a_granted_tree_is_no_way_out_and_is_recorded() {
    let (inside, outside) = (place("inside"), place("outside"));
    fs::write(outside.join("file"), "").expect("own directory");
    symlink(outside.join("file"), inside.join("link")).expect("own directory");
    let granted = inside.display().to_string();
    Violation::new(&["--write", &granted], &words(&[&"open-existing", &inside.join("link")]))
        .exits(EACCES)
        .record(json!({"layer": "landlock", "path": outside.join("file"), "syscall": "openat"}))
        .passes();
}

#[test]
fn a_name_that_is_no_text_is_shown_and_its_directory_granted() {
    let dir = place("bytes");
    let path = dir.join(OsStr::from_bytes(b"\xff\xfename"));
    Violation::new(&[], &words(&[&"open", &path]))
        .exits(EACCES)
        .record(json!({
            "syscall": "openat", "path": format!("{}/\u{fffd}\u{fffd}name", dir.display()),
            "allow_with": format!("--write {}", dir.display()),
        }))
        .passes();
}

#[test]
fn a_socket_file_is_foreseen() {
    let path = place("bind").join("socket");
    Violation::new(&["--profile", "write"], &words(&[&"bind-unix", &path]))
        .exits(EACCES)
        .record(json!({
            "layer": "landlock", "syscall": "bind", "path": path, "host": null, "args": ["3", path, "110"],
            "allow_with": format!("--write {}", path.parent().expect("a directory").display()),
        }))
        .passes();
}

#[test]
fn credentials_are_recorded_and_granted_by_name() {
    let home = place("home");
    fs::create_dir(home.join(".ssh")).expect("own directory");
    fs::write(home.join(".ssh/id"), "").expect("own directory");
    for flags in [&["--explain"][..], &[]] {
        Violation::new(flags, &words(&[&"open-read", &home.join(".ssh/id")]))
            .home(&home)
            .exits(EACCES)
            .record(json!({
                "layer": "landlock", "syscall": "openat", "path": home.join(".ssh/id"), "errno": "EACCES",
                "args": ["AT_FDCWD", home.join(".ssh/id"), "O_RDONLY"],
                "rule": format!("credentials: {}", home.join(".ssh").display()),
                "allow_with": format!("--read {}", home.join(".ssh/id").display()),
                "allow_with_policy": format!("paths.read = [\"/\", \"{}\"]", home.join(".ssh/id").display()),
            }))
            .passes();
    }
}

/// The command may choose the name: a grant of its directory would open all that is beside it.
#[test]
fn a_name_that_cannot_be_typed_has_no_remedy() {
    use std::os::unix::ffi::OsStrExt;
    let home = place("home");
    for name in [&b"ex*"[..], b"\xff", b"a\x01b", b"sC\xc2\x85"] {
        let odd = home.join(std::ffi::OsStr::from_bytes(name));
        fs::write(&odd, "").expect("own directory");
        for (call, path, granted) in [("open", &odd, false), ("open", &home.join("plain"), true)] {
            fs::write(path, "").expect("own directory");
            let denied = Violation::new(&["--profile", "write"], &words(&[&call, path])).home(&home).exits(EACCES);
            let denial = &denied.denials()[0];
            let flag = if granted { json!(format!("--write {}", path.display())) } else { json!(null) };
            assert_eq!(denial["allow_with"], flag, "{denial:#}");
            assert_eq!(denial["allow_with_policy"].is_null(), !granted, "{denial:#}");
        }
    }
    let cwd = place("cwd");
    fs::write(cwd.join(".env.a*b"), "").expect("own directory");
    let denied = Violation::new(&[], &words(&[&"open-read", &cwd.join(".env.a*b")])).cwd(&cwd).exits(EACCES);
    assert_eq!(denied.denials()[0]["allow_with"], json!(null), "{:#}", denied.denials()[0]);
}

#[test]
fn a_file_in_a_protected_directory_is_named_in_a_warning() {
    let cwd = place("cwd");
    fs::create_dir(cwd.join(".vscode")).expect("own directory");
    fs::write(cwd.join(".vscode/s.json"), "").expect("own directory");
    let start = |named: &str, code: i32| {
        let flags = ["--profile", "write", "--write", named];
        Violation::new(&flags, &words(&[&"open", &cwd.join(".vscode/s.json")])).cwd(&cwd).exits(code).done
    };
    let warning = format!(".vscode/s.json: stays read-only, because {} is protected", cwd.join(".vscode").display());
    let done = start(".vscode/s.json", libc::EROFS);
    assert!(done.stderr().contains(&warning), "{done}");
    let done = start(".vscode", 0);
    assert!(!done.stderr().contains("stays read-only"), "{done}");
}

#[test]
fn a_denied_path_has_no_remedy() {
    let dir = place("denied");
    fs::write(dir.join("file"), "").expect("own directory");
    let denied = dir.display().to_string();
    Violation::new(&["--explain", "--deny-path", &denied], &words(&[&"open-read", &dir.join("file")]))
        .exits(EACCES)
        .record(json!({
            "layer": "landlock", "syscall": "openat", "path": dir.join("file"),
            "rule": format!("denied path {denied}"), "allow_with": null, "allow_with_policy": null,
        }));
}

#[test]
fn a_program_that_is_not_allowed_is_recorded() {
    let dir = place("commands");
    let (config, program) = (dir.join("policy.toml"), violate());
    fs::write(&config, "profile = \"write\"\n[commands]\nallow = [\"sh\"]\n").expect("own directory");
    let (config, line) = (config.display().to_string(), format!("{} fork", program.display()));
    Violation::new(&["--config", &config], &["sh", "-c", &line]).exits(126).record(json!({
        "layer": "landlock", "syscall": "execve", "path": program, "errno": "EACCES", "allow_with": null,
        "rule": "not among the programs that may be executed",
        "allow_with_policy": format!("commands.allow = [\"{}\"]", program.display()),
    }));
    // With that line the command passes.
    let more = format!("profile = \"write\"\n[commands]\nallow = [\"sh\", \"{}\"]\n", program.display());
    fs::write(&config, more).expect("own directory");
    Violation::new(&["--explain", "--config", &config], &["sh", "-c", &line]).exits(0);
}

#[test]
fn protected_hooks_are_a_read_only_place() {
    let repo = place("repo");
    fs::create_dir_all(repo.join(".git/hooks")).expect("own directory");
    let hook = repo.join(".git/hooks/pre-commit");
    let denied = Violation::new(&["--profile", "write"], &words(&[&"open", &hook])).cwd(&repo);
    let (done, report) = denied.start(&denied.flags);
    let layers = report["layers"].as_array().expect("layers");
    if layers.iter().any(|layer| layer["layer"] == "namespaces" && layer["status"] != "enforced") {
        return skip("no mount namespace can be made here");
    }
    done.exits(30);
    Violation::new(&["--profile", "write"], &words(&[&"open", &hook]))
        .cwd(&repo)
        .exits(30)
        .record(json!({
            "layer": "namespaces", "syscall": "openat", "path": hook, "errno": "EROFS",
            "rule": format!("protected: {} is read-only in a writable tree", repo.join(".git/hooks").display()),
            "allow_with": format!("--write {}", repo.join(".git/hooks").display()),
        }))
        .passes();
}

#[test]
fn what_fails_by_itself_is_not_the_sandbox() {
    let dir = place("itself");
    fs::write(dir.join("there"), "").expect("own directory");
    let flags = ["--write", "/dev/shm"];
    let errno = |what: &str, path: std::path::PathBuf, code: i32| {
        let denied = Violation::new(&flags, &words(&[&what, &path])).exits(code);
        assert_eq!(denied.denials().len(), 0, "{what}: {:#?}", denied.denials());
    };
    errno("unlink", dir.join("missing"), libc::ENOENT);
    errno("mkdir", dir.join("there"), libc::EEXIST);
    errno("open", dir.join("no/such"), libc::ENOENT);
    errno("open-existing", dir.join("missing"), libc::ENOENT);
    errno("open-existing", dir, libc::EISDIR);
    errno("open-existing", "/dev/null".into(), 0);
}

#[test]
fn a_program_that_fails_harmlessly_is_recorded_and_makes_no_noise() {
    let dir = place("harmless");
    let line = format!("{} open {}; exit 0", violate().display(), dir.join("x").display());
    let denied = Violation::new(&["--allow", "@process"], &["sh", "-c", &line]).exits(0);
    denied.done.complains("");
    denied.record(json!({"layer": "landlock", "syscall": "openat", "path": dir.join("x")}));
}
