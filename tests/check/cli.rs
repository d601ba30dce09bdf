//! `gatekeeper check`: its output and exit codes.

use super::{check, codes, gatekeeper, program, verdict, verdicts};
use crate::support::{fresh, probe, run, skip};
use std::process::Command;

#[test]
fn all_preloadable_exits_0_some_blocked_1_error_2() {
    let (dynamic, fixed) = (probe("check_probe", &[]), probe("check_probe", &["-static"]));
    check([&dynamic]).exits(0);
    check([&dynamic, &fixed]).exits(1);
    check(["no-such-command-anywhere"]).exits(1);
    check(["--frobnicate"]).exits(2);
    run(Command::new(gatekeeper()).arg("check")).exits(2);
}

#[test]
fn json_is_one_array_in_the_documented_shape() {
    let path = probe("check_probe", &[]);
    let found = verdict(&path);
    assert_eq!(found["path"], path.to_str().unwrap());
    assert_eq!(found["verdict"], "preload");
    assert_eq!(found["reasons"], serde_json::json!([]));
    let link = &found["chain"][0];
    for (key, value) in [
        ("path", serde_json::json!(path)),
        ("kind", "elf".into()),
        ("machine", std::env::consts::ARCH.into()),
        ("class", 64.into()),
        ("linkage", "dynamic".into()),
        ("libc", "glibc".into()),
        ("setuid", false.into()),
        ("setgid", false.into()),
        ("file_caps", false.into()),
    ] {
        assert_eq!(link[key], value, "{key} of {link}");
    }
    assert!(link["interpreter"].as_str().is_some_and(|name| name.contains("ld-linux")), "{link}");
    assert_eq!(link["needed"], serde_json::json!(["libc.so.6"]));
}

#[test]
fn static_programs_are_blocked_warned_of_or_allowed() {
    let fixed = probe("check_probe", &["-static"]);
    let with = |action: &str| run(Command::new(gatekeeper()).args(["check", "--static", action]).arg(&fixed));
    with("block").exits(1).complains("");
    with("allow").exits(0).complains("");
    let warned = with("warn");
    warned.exits(0);
    assert!(warned.stderr().contains("warning") && warned.stderr().lines().count() == 1, "{warned}");
    with("sometimes").exits(2);
    // --static affects static programs only.
    let missing = run(Command::new(gatekeeper()).args(["check", "--static", "allow", "/nonexistent"]));
    missing.exits(1);
}

#[test]
fn command_names_are_looked_up_as_execvp_does() {
    let dir = fresh("lookup");
    let (first, second) = (dir.join("first"), dir.join("second"));
    std::fs::create_dir_all(&first).unwrap();
    std::fs::create_dir_all(&second).unwrap();
    std::fs::write(first.join("tool"), "not executable").unwrap();
    std::fs::copy(probe("check_probe", &[]), second.join("tool")).unwrap();
    std::fs::copy(probe("check_probe", &["-static"]), dir.join("here")).unwrap();
    let asked = |path: &str, name: &str| {
        let mut command = Command::new(gatekeeper());
        command.args(["check", "--json", name]).current_dir(&dir).env("PATH", path);
        verdicts(&mut command).remove(0)
    };
    let both = format!("/nonexistent:{}:{}", first.display(), second.display());
    assert_eq!(asked(&both, "tool")["path"], second.join("tool").to_str().unwrap(), "EACCES goes on");
    assert_eq!(codes(&asked(first.to_str().unwrap(), "tool")), ["not_executable"], "unless nothing better comes");
    assert_eq!(codes(&asked(&both, "here")), ["not_found"]);
    assert_eq!(codes(&asked(&format!("{both}:"), "here")), ["static"], "an empty element is the working directory");
    assert_eq!(asked("", "./here")["path"], "./here");
    assert_eq!(codes(&asked("first:second", "tool")), [""; 0], "relative elements");
    let mut unset = Command::new(gatekeeper());
    let found = verdicts(unset.args(["check", "--json", "sh"]).env_remove("PATH")).remove(0);
    assert_eq!(found["path"], "/bin/sh", "no PATH at all is /bin:/usr/bin");
    assert_eq!(codes(&asked(&both, "")), ["not_found"]);
}

#[test]
fn directories_are_searched_for_programs_only() {
    let dir = fresh("tree");
    let deep = dir.join("a/b");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::copy(probe("check_probe", &[]), deep.join("dynamic")).unwrap();
    std::fs::copy(probe("check_probe", &["-static"]), dir.join("static")).unwrap();
    std::fs::write(dir.join("README"), "nobody executes this").unwrap();
    std::os::unix::fs::symlink(&dir, deep.join("back")).unwrap();
    program(&dir.join("script"), "#!/bin/sh\n");
    let mut command = Command::new(gatekeeper());
    let found = verdicts(command.args(["check", "-r", "--json"]).arg(&dir));
    let names: Vec<_> = found.iter().map(|verdict| verdict["path"].as_str().unwrap_or_default()).collect();
    let expected = ["a/b/dynamic", "script", "static"].map(|name| dir.join(name).display().to_string());
    assert_eq!(names, expected);
    let table = run(Command::new(gatekeeper()).args(["check", "-r"]).arg(&dir));
    table.exits(1);
    let last = table.stdout().lines().last().unwrap_or_default().to_owned();
    assert_eq!(last, "3 files: preload 2, enforce 1 (static 1), refuse 0; skipped 1 file that is not executable");
    // Without -r a directory is one thing that cannot be executed.
    assert_eq!(codes(&verdict(&dir)), ["not_executable"]);
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error() {
    let done = check(["-r", "/proc/self/task/1/nonexistent", "/proc/self/map_files/../fd/../nonexistent-directory"]);
    done.exits(1);
    if !crate::support::is_root() {
        return skip("only root can create a directory that another user cannot read");
    }
    // Closed, and one whose files can be listed and not looked at.
    for mode in [0o700, 0o744] {
        let dir = fresh("locked");
        program(&dir.join("program"), "#!/bin/sh\n");
        super::chmod(&dir, mode);
        use std::os::unix::process::CommandExt;
        let nobody = crate::support::NOBODY;
        let mut command = Command::new(crate::support::gatekeeper_for_all());
        let done = run(command.args(["check", "-r"]).arg(&dir).uid(nobody).gid(nobody));
        done.exits(2);
        let wanted = format!("gatekeeper: check: {}: Permission denied", dir.display());
        assert!(done.stderr().starts_with(&wanted), "{mode:o}: {done}");
    }
}

#[test]
fn the_table_has_no_colours_and_no_control_characters_in_a_pipe() {
    let odd = program(&fresh("odd").join("evil\x1b[31m\nname"), std::fs::read(probe("check_probe", &[])).unwrap());
    let done = check([&odd]);
    done.exits(0);
    assert!(!done.stdout().contains('\x1b'), "{done}");
    assert_eq!(done.stdout().lines().count(), 2, "{done}");
}

#[test]
fn a_line_for_a_shell_is_the_shell_and_a_guess() {
    let mut command = Command::new(gatekeeper());
    let found = verdicts(command.args(["check", "--json", "-c", "ls -l | wc"]));
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["path"], "/bin/sh");
    assert!(found[1]["path"].as_str().is_some_and(|path| path.ends_with("/ls")), "{found:?}");
    assert!(found[1]["notes"][0].as_str().is_some_and(|note| note.starts_with("a guess")), "{found:?}");
}

#[test]
fn a_preload_that_no_loader_takes_is_said_to_be_so() {
    let dir = fresh("preload");
    let library = crate::support::libsandbox();
    let target = probe("check_probe", &[]);
    let with = |path: &std::path::Path| {
        let mut command = Command::new(gatekeeper());
        verdicts(command.args(["check", "--json", "--preload"]).arg(path).arg(&target).current_dir(&dir)).remove(0)
    };
    assert_eq!(with(library)["verdict"], "preload");
    for (name, from) in [
        ("with space.so", Some(library)),
        ("with:colon.so", Some(library)),
        ("with$LIB.so", Some(library)),
        ("missing.so", None),
    ] {
        let path = dir.join(name);
        if let Some(from) = from {
            std::fs::copy(from, &path).unwrap();
        }
        let found = with(&path);
        assert_eq!((found["verdict"].as_str(), codes(&found)), (Some("enforce"), vec!["preload_unusable"]), "{name}");
    }
    std::fs::copy(library, dir.join("relative.so")).unwrap();
    assert_eq!(codes(&with("relative.so".as_ref())), ["preload_unusable"]);
    assert_eq!(codes(&with(&dir)), ["preload_unusable"], "a directory");
    std::fs::write(dir.join("text.so"), "text").unwrap();
    assert_eq!(codes(&with(&dir.join("text.so"))), ["preload_unusable"]);
    assert_eq!(codes(&with("/usr/aarch64-linux-gnu/lib/libc.so.6".as_ref())), ["preload_unusable"]);
}

#[test]
fn a_shortage_of_descriptors_is_an_error_and_not_only_a_verdict() {
    let file = program(&fresh("shortage").join("program"), std::fs::read(probe("check_probe", &[])).unwrap());
    let with = |descriptors: &str| {
        let line = format!("ulimit -n {descriptors}; exec \"$0\" check --json \"$1\"");
        run(Command::new("/bin/sh").arg("-c").arg(line).arg(gatekeeper()).arg(&file))
    };
    with("64").exits(0).complains("");
    let done = with("4");
    assert!(done.exits(2).stderr().contains("a verdict of it is not about the file"), "{done}");
}

#[test]
fn a_name_that_is_here_and_not_in_path_is_told() {
    let dir = fresh("here");
    program(&dir.join("tool-of-mine"), "#!/bin/sh\n");
    let reason = |name: &str| {
        let found = verdicts(Command::new(gatekeeper()).args(["check", "--json", name]).current_dir(&dir));
        found[0]["reasons"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(
        reason("tool-of-mine"),
        "tool-of-mine is in no directory of PATH; write ./tool-of-mine for the file here"
    );
    assert_eq!(reason("tool-of-yours"), "tool-of-yours is in no directory of PATH");
}
