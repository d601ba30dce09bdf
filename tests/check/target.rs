//! The launcher executes the descriptor that was checked, with the arguments that the kernel would pass.

use super::program;
use crate::support::{fresh, probe, run};
use gatekeeper::check::{Checked, Context, Decision, Disk, Preload, check};
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn checked(command: &OsStr, cwd: &Path, path: &OsStr) -> Checked {
    let mut context = Context::of_this_process(Preload::embedded());
    context.cwd = cwd.into();
    context.path = Some(path.into());
    check(command, &context, &Disk::new())
}

/// Executes the target's descriptor and the command itself, and compares the arguments that arrive.
#[track_caller]
fn same_words(command: &Path, cwd: &Path, path: &OsStr) {
    let target = checked(command.as_os_str(), cwd, path).target.expect("it runs");
    let kernel = run(Command::new(command).args(["user", "words"]).current_dir(cwd).env("PATH", path));
    kernel.exits(0);
    let (first, rest) = target.argv.split_first().expect("argv[0]");
    let descriptor = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), target.file.as_raw_fd()));
    let ours =
        run(Command::new(descriptor).arg0(first).args(rest).args(["user", "words"]).current_dir(cwd).env("PATH", path));
    assert_eq!(ours.stdout(), kernel.stdout(), "{ours}");
}

#[test]
fn the_words_are_those_of_the_kernel_and_of_env() {
    let dir = fresh("target");
    let argv = probe("check_argv", &[]);
    std::os::unix::fs::symlink(&argv, dir.join("argv")).unwrap();
    let path = dir.as_os_str();
    same_words(&argv, &dir, path);
    let mut interpreter = argv.display().to_string();
    for depth in 1..=5 {
        let script = program(&dir.join(format!("script{depth}")), format!("#!{interpreter} a{depth}  b \n"));
        same_words(&script, &dir, path);
        interpreter = script.display().to_string();
    }
    let inner = dir.join("script2").display().to_string();
    for (name, line) in [
        ("plain", "#!argv\n".into()),
        ("empty-argument", "#!argv ".into()),
        ("no-newline", "#!argv one two".into()),
        ("long", format!("#!argv {}\n", "x ".repeat(200))),
        ("env", "#!/usr/bin/env argv\n".into()),
        ("env-split", "#!/usr/bin/env -S argv -a 'b  c' \"d\\te\" f\\_g \\# # no\n".into()),
        ("env-attached", "#!/usr/bin/env -Sargv x\n".into()),
        ("env-long", "#!/usr/bin/env --split-string=argv y\\c z\n".into()),
        ("env-end", "#!/usr/bin/env -S -- argv y\n".into()),
        ("env-script", format!("#!/usr/bin/env -S {inner} q\n")),
        ("env-quotes", "#!/usr/bin/env -S argv '' \"\" 'a\\'b' \"x y\"z\n".into()),
        ("env-backslash", "#!/usr/bin/env -S argv 'a\\nb' \"a\\nb\" \\\"q\\\"\n".into()),
    ] as [(&str, String); 12]
    {
        same_words(&program(&dir.join(name), line), &dir, path);
        same_words(&Path::new(".").join(name), &dir, path);
    }
}

#[test]
fn the_descriptor_is_the_file_that_was_looked_at() {
    let dir = fresh("descriptor");
    let file = dir.join("program");
    std::fs::copy(probe("check_probe", &[]), &file).unwrap();
    let inode = std::fs::metadata(&file).unwrap().ino();
    let Checked { verdict, target } = checked(OsStr::new("program"), &dir, dir.as_os_str());
    assert_eq!(verdict.verdict, Decision::Preload);
    let target = target.expect("it runs");
    std::fs::remove_file(&file).unwrap();
    std::fs::copy(probe("check_probe", &["-static"]), &file).unwrap();
    assert_eq!(target.file.metadata().unwrap().ino(), inode, "not what lies there now");
    assert_eq!((target.path, target.argv), (file, vec!["program".into()]));
}

#[test]
fn what_is_refused_has_no_target() {
    let dir = fresh("refused");
    let file = program(&dir.join("x"), "#!/nonexistent\n");
    assert!(checked(file.as_os_str(), &dir, dir.as_os_str()).target.is_none());
}
