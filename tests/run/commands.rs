//! `-c LINE`, and `[commands]`: the kernel enforces `allow` at any depth, and `block` checks the words of the line.

use super::{Gate, NOTHING, User, act, unprivileged, users};
use crate::support::{fresh, gatekeeper_for_all, has, is_root, probe, run, skip};
use std::fs;
use std::process::Command;

fn allowing(user: User, profile: &str, commands: &[&str]) -> Gate {
    let gate = Gate::profile(user, profile);
    let list: Vec<String> = commands.iter().map(|command| format!("{command:?}")).collect();
    let policy = gate.file("policy.toml", format!("[commands]\nallow = [{}]\n", list.join(", ")));
    gate.flags(["--config".as_ref(), policy.as_os_str()])
}

#[test]
fn a_line_goes_through_the_shell_with_processes_granted() {
    for user in users() {
        let gate = Gate::new(*user);
        gate.file("data", "b\na\n");
        let done = gate.flags(["-c", "sort data | head -n 1; (exit 3)"]).run(NOTHING);
        done.exits(3).prints("a\n");
        // A command without -c may start no program.
        let act = act();
        let (done, report) = Gate::new(*user).report([act.to_str().unwrap(), "fork", ",", "exec", "/bin/true"]);
        done.exits(0).prints("fork 1\nexec 1\n");
        assert_eq!(report["denials"].as_array().unwrap().len(), 2, "{report:#}");
        let plan = Gate::new(*user).verb("plan").flags(["-c", "true"]).run(NOTHING);
        assert!(plan.exits(0).stdout().contains("new programs and processes may be started"), "{plan}");
    }
}

#[test]
fn the_summary_names_what_is_writable_although_it_is_not_executable() {
    for user in users() {
        let gate = allowing(*user, "write", &["sh", "cat"]);
        let done = gate.flags(["-c", "pwd; cat $GATEKEEPER_SUMMARY"]).run(NOTHING);
        let text = done.exits(0).stdout();
        let work = text.lines().next().unwrap_or_default().to_owned();
        let write = text.lines().find_map(|line| line.strip_prefix("write: ")).unwrap_or_default();
        assert!(write.split(' ').any(|path| path == work), "{text}");
    }
}

#[test]
fn a_line_and_a_command_are_not_given_together() {
    Gate::new(unprivileged()).flags(["-c", "true"]).run(["true"]).exits(125);
    // Options after the command belong to the command.
    Gate::new(unprivileged()).run(["sh", "-c", "exit 4"]).exits(4);
}

#[test]
fn allow_is_enforced_by_the_kernel_at_any_depth() {
    for user in users() {
        let act = act();
        let act = act.to_str().unwrap();
        for profile in ["minimal", "write"] {
            let gate = allowing(*user, profile, &["cat", "sh", act]);
            let line = |line: &str| allowing(*user, profile, &["cat", "sh", act]).flags(["-c", line]).run(NOTHING);
            gate.run(["cat", "/dev/null"]).exits(0);
            gate.run(["/usr/bin/cat", "/dev/null"]).exits(0);
            gate.run(["ls"]).exits(126);
            line("echo x | cat").exits(0).prints("x\n");
            // The shell turns EACCES into 126.
            line("ls").exits(126);
            // Also for a child of a child.
            line("sh -c 'sh -c ls'").exits(126);
            line("sh -c 'sh -c \"cat /dev/null\"'").exits(0);
            line(&format!("{act} exec /usr/bin/ls")).exits(0).prints("exec 13\n");
            line(&format!("{act} spawn /usr/bin/cat </dev/null")).exits(0).prints("spawn 0\n");
        }
    }
}

/// A name allows the program that PATH finds, not every file with that name.
#[test]
fn a_name_allows_one_program_not_its_namesakes() {
    for user in users() {
        let gate = allowing(*user, "write", &["cat"]);
        let fake = gate.dir.join("cat");
        fs::copy(probe("act", &[]), &fake).unwrap();
        gate.run(["./cat", "tcp"]).exits(126).prints("");
        gate.run([fake.to_str().unwrap(), "tcp"]).exits(126).prints("");
        gate.run(["cat", "/dev/null"]).exits(0);
    }
}

/// A program that the command writes itself is not allowed.
#[test]
fn a_copy_in_the_writable_tree_is_not_allowed() {
    for user in users() {
        let act = act();
        let act = act.to_str().unwrap();
        let copied = probe("socket", &[]);
        let copied = copied.to_str().unwrap();
        let line = format!("cp {copied} ./mine && ./mine");
        let gate = allowing(*user, "write", &["cp", "sh", act]).flags(["-c", &line]);
        gate.run(NOTHING).exits(126).prints("");
        assert!(gate.dir.join("mine").exists(), "the copy itself worked");
        // Nor in the private TMPDIR and in /dev/shm.
        for place in ["$TMPDIR", "/dev/shm"] {
            let line = format!("n={place}/gatekeeper-test-$$; cp {copied} $n && $n; s=$?; rm -f $n; exit $s");
            allowing(*user, "write", &["cp", "sh", "rm", act]).flags(["-c", &line]).run(NOTHING).exits(126);
        }
        // The control: without a list of commands the same line runs it.
        Gate::profile(*user, "write").flags(["-c", &line]).run(NOTHING).exits(libc::EAFNOSUPPORT);
        // Programs that are not allowed are not readable either, so that they cannot be copied or passed to a loader.
        allowing(*user, "write", &["cp", "sh"]).flags(["-c", "cp /usr/bin/ls ."]).run(NOTHING).exits(1);
    }
}

/// The kernel may open the interpreters and loaders of allowed programs. A script runs only if it is allowed itself.
#[test]
fn interpreters_of_allowed_scripts_run() {
    for user in users() {
        let gate = Gate::new(*user);
        let tool = gate.file("tool", "#!/usr/bin/env python3\nprint('tool')\n");
        fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        if !has("python3") {
            return;
        }
        let policy = gate.file("policy.toml", format!("[commands]\nallow = [{:?}]\n", tool.to_str().unwrap()));
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        gate.run([&tool]).exits(0).prints("tool\n");
        gate.run(["ls"]).exits(126);
        let gate = gate.flags(["-c", "./tool; ls"]);
        gate.run(NOTHING).exits(126).prints("tool\n");
    }
}

/// The loader must be executable for every dynamic program, but must not run another program that is not allowed.
#[test]
fn a_loader_does_not_stand_in_for_other_programs() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !std::path::Path::new(loader).exists() {
        return crate::support::skip("/lib64/ld-linux-x86-64.so.2 does not exist");
    }
    for user in users() {
        let line = format!("{loader} /usr/bin/ls /");
        let done = allowing(*user, "minimal", &["cat", "sh"]).flags(["-c", &line]).run(NOTHING);
        assert_ne!(done.code(), Some(0), "{done}");
        done.prints("");
        // The control: without the list of commands it runs.
        Gate::new(*user).flags(["-c", &line]).run(NOTHING).exits(0);
    }
}

#[test]
fn block_looks_at_every_word_of_the_line() {
    let gate = || {
        let gate = Gate::profile(unprivileged(), "write");
        let policy = gate.file("policy.toml", "[commands]\nblock = [\"rm\", \"/usr/bin/id\"]\n");
        gate.file("data", "");
        gate.flags(["--config".as_ref(), policy.as_os_str()])
    };
    for line in [
        "rm data",
        "true; rm data",
        "true && /bin/rm data",
        "x=$(rm data)",
        "`rm data`",
        "(rm data)",
        "\"rm\" data",
        "'rm' data",
        "{ rm data; }",
        "sh -c 'rm data'",
        "/usr/bin/id",
    ] {
        let gate = gate().flags(["-c", line]);
        let done = gate.run(NOTHING);
        done.exits(126);
        assert!(done.stderr().contains("[commands] block"), "{done}");
        assert!(gate.dir.join("data").exists());
    }
    gate().run(["rm", "data"]).exits(126);
    gate().run(["/bin/rm", "data"]).exits(126);
    gate().run(["echo", "rm"]).exits(0).prints("rm\n");
    gate().flags(["-c", "echo form"]).run(NOTHING).exits(0);
}

/// A program of `[commands] allow` that could not be looked up for want of descriptors is not one that is missing.
#[test]
fn a_listed_program_that_could_not_be_looked_up_is_an_error() {
    if !has("strace") || !is_root() {
        return skip("needs strace, and root, to trace as another user");
    }
    let place = fresh("work");
    let (policy, ran) = (place.join("policy.toml"), place.join("ran"));
    fs::write(&policy, "profile = 'write'\n[commands]\nallow = ['/usr/bin/touch', '/usr/bin/head']\n").unwrap();
    for (injected, code) in [(Some("inject=?open,openat:error=EMFILE"), 125), (None, 0)] {
        let mut command = Command::new("strace");
        command.args([
            "-u",
            "nobody",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-P",
            "/usr/bin/head",
            "-e",
            "trace=?open,openat",
        ]);
        command.args(injected.iter().flat_map(|injected| ["-e", *injected])).arg(gatekeeper_for_all());
        command.args(["run", "--config"]).arg(&policy).args(["--", "/usr/bin/touch"]).arg(&ran).env_clear();
        let done = run(command.env("HOME", fresh("home")).current_dir(&place));
        done.exits(code);
        assert_eq!(ran.exists(), code == 0, "{done}");
        // The text of an error is the C library's; its number is not.
        let named =
            done.stderr().contains("/usr/bin/head cannot be opened: ") && done.stderr().contains("(os error 24)");
        assert_eq!(named, code != 0, "{done}");
    }
}
