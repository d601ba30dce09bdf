//! `-c LINE`, and `[commands]`: allow in the kernel at any depth, block over the words of the line.

use super::{Gate, NOTHING, User, act, unprivileged, users};
use crate::support::{on_path, probe};
use std::fs;

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
        // A plain command may start nothing.
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
    // What follows the line's own options belongs to the command.
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
            // EACCES is 126 of the shell.
            line("ls").exits(126);
            // A child of a child.
            line("sh -c 'sh -c ls'").exits(126);
            line("sh -c 'sh -c \"cat /dev/null\"'").exits(0);
            line(&format!("{act} exec /usr/bin/ls")).exits(0).prints("exec 13\n");
            line(&format!("{act} spawn /usr/bin/cat </dev/null")).exits(0).prints("spawn 0\n");
        }
    }
}

/// A name means what PATH finds, not whatever file bears it.
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

/// A program that the command writes itself is not one of those allowed.
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
        // In the private TMPDIR and in /dev/shm neither.
        for place in ["$TMPDIR", "/dev/shm"] {
            let line = format!("n={place}/gatekeeper-test-$$; cp {copied} $n && $n; s=$?; rm -f $n; exit $s");
            allowing(*user, "write", &["cp", "sh", "rm", act]).flags(["-c", &line]).run(NOTHING).exits(126);
        }
        // The control: without a list of commands the same line runs it.
        Gate::profile(*user, "write").flags(["-c", &line]).run(NOTHING).exits(libc::EAFNOSUPPORT);
        // And what is not allowed cannot be read where programs are kept, to be copied or given to a loader.
        allowing(*user, "write", &["cp", "sh"]).flags(["-c", "cp /usr/bin/ls ."]).run(NOTHING).exits(1);
    }
}

/// Interpreters and loaders of what is allowed run, because the kernel opens them; a script runs only if it is allowed.
#[test]
fn interpreters_of_allowed_scripts_run() {
    for user in users() {
        let gate = Gate::new(*user);
        let tool = gate.file("tool", "#!/usr/bin/env python3\nprint('tool')\n");
        fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        if !on_path("python3") {
            return crate::support::skip("python3 is not installed");
        }
        let policy = gate.file("policy.toml", format!("[commands]\nallow = [{:?}]\n", tool.to_str().unwrap()));
        let gate = gate.flags(["--config".as_ref(), policy.as_os_str()]);
        gate.run([&tool]).exits(0).prints("tool\n");
        gate.run(["ls"]).exits(126);
        let gate = gate.flags(["-c", "./tool; ls"]);
        gate.run(NOTHING).exits(126).prints("tool\n");
    }
}

/// The loader is executable, since every dynamic program needs it: given another program it must not become that.
#[test]
fn a_loader_does_not_stand_in_for_other_programs() {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !std::path::Path::new(loader).exists() {
        return crate::support::skip("not the loader of this machine");
    }
    for user in users() {
        let line = format!("{loader} /usr/bin/ls /");
        let done = allowing(*user, "minimal", &["cat", "sh"]).flags(["-c", &line]).run(NOTHING);
        assert_ne!(done.code(), Some(0), "{done}");
        done.prints("");
        // The control: nothing but the list of commands stops it.
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
