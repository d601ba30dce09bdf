//! Commands run again under the learned policy, with the same output and exit code.

use super::Bench;
use crate::denials::violate;
use crate::support::{has, is_root, skip};

/// Learns a policy from a shell line, then runs the line again under it.
#[track_caller]
fn again(line: &str) {
    let bench = Bench::new("again");
    bench.write("file", "one\ntwo\nthree\n");
    bench.write("src/main.c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n");
    let learned = bench.learn(&["sh", "-c", line]);
    learned.exits(0);
    bench.write("file", "one\ntwo\nthree\n");
    let confined = bench.run(&["sh", "-c", line]);
    assert_eq!(confined.code(), Some(0), "{line}\n{}{confined}", bench.policy());
    assert_eq!(confined.stdout(), learned.stdout(), "{line}\n{}{confined}", bench.policy());
}

#[test]
fn readers() {
    for line in [
        "cat file",
        "wc -l file",
        "grep -r one .",
        "sort -r file",
        "head -1 file; tail -1 file",
        "find . -name '*.c'",
        "ls -l src",
        "awk '{print $1}' file",
        "sed s/one/1/ file",
        "cut -c1 file | sort | uniq -c",
        "sha256sum file",
        "diff file file",
        "od -c file",
        "cat /etc/passwd | wc -l",
    ] {
        again(line);
    }
}

#[test]
fn writers() {
    for line in [
        "echo x > new; rm new",
        "cp file copy; rm copy",
        "mkdir -p a/b; touch a/b/c; rm -r a",
        "mv file other; mv other file",
        "ln -s file link; readlink link; rm link",
        "sed -i s/one/1/ file",
        "tar cf t.tar file; tar xf t.tar; rm t.tar",
        "gzip -k file; gunzip -c file.gz; rm file.gz",
        "tee copy < file; rm copy",
        "chmod 600 file",
        "f=$(mktemp); echo x > $f; cat $f; rm $f",
    ] {
        again(line);
    }
}

#[test]
fn toolchains() {
    for (program, line) in [
        ("cc", "cc -o program src/main.c && ./program"),
        (
            "git",
            "git init -q repo && cd repo && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --format=%s; cd ..; rm -rf repo",
        ),
        ("perl", "perl -e 'print 1+1'"),
        ("make", "printf 'all:\\n\\t@echo built\\n' > Makefile; make"),
        ("node", "node -e 'console.log(1)'"),
        ("xargs", "echo file | xargs cat"),
    ] {
        if has(program) {
            again(line);
        }
    }
    if has("/usr/bin/python3") {
        again("/usr/bin/python3 -c 'import json, socket, threading; print(json.dumps([1]))'");
        again(
            "/usr/bin/python3 -c 'import subprocess; print(subprocess.run([\"echo\", \"x\"], capture_output=True).stdout)'",
        );
    }
}

#[test]
fn single_calls_are_learned_with_their_arguments() {
    for (words, expected) in [
        (&["socket", "1", "2"][..], "value = 2, mask = 0xf"),
        (&["socket", "2", "1"], "profile = \"network\""),
        (&["ptrace"], "allow = [\"ptrace\"]"),
        (&["personality"], "value = 0x40000"),
        (&["fork"], "allow = [\"@process\"]"),
        (&["socket-thread"], "profile = \"network\""),
    ] {
        let bench = Bench::new("call");
        let program = violate();
        let command: Vec<&std::ffi::OsStr> =
            std::iter::once(program.as_os_str()).chain(words.iter().map(std::ffi::OsStr::new)).collect();
        bench.learn(&command).exits(0);
        assert!(bench.policy().contains(expected), "{words:?}: {}", bench.policy());
        bench.run(&command).exits(0);
    }
}

#[test]
fn a_local_server_needs_no_more_than_this_machine() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port().to_string();
    let bench = Bench::new("loopback");
    let program = violate();
    let command = [program.as_os_str(), "connect".as_ref(), port.as_ref()];
    bench.learn(&command).exits(0);
    let policy = bench.policy();
    assert!(policy.contains("mode = \"loopback\"") && policy.contains("profile = \"minimal\""), "{policy}");
    assert!(policy.contains(&format!("# addresses connected to: 127.0.0.1:{port}")), "{policy}");
    bench.run(&command).exits(0);
}

#[test]
fn the_exit_code_is_the_commands() {
    let bench = Bench::new("code");
    bench.learn(&["sh", "-c", "exit 7"]).exits(7);
    bench.run(&["sh", "-c", "exit 7"]).exits(7);
    bench.learn(&["sh", "-c", "kill -9 $$"]).exits(137);
    bench.learn(&["no-such-command-anywhere"]).exits(127);
}

#[test]
fn what_was_not_done_is_not_granted() {
    let bench = Bench::new("narrow");
    bench.write("file", "text");
    bench.write("other", "text");
    bench.learn(&["cat", "file"]).exits(0);
    bench.run(&["cat", "file"]).exits(0).prints("text");
    // The policy allows no other program, no writing, and no path that was not read.
    let other = Bench::new("elsewhere");
    let secret = other.write("secret", "text");
    let refused = bench.run(&["cat".as_ref(), secret.as_os_str()]);
    refused.exits(1).prints("");
    let touch = bench.run(&["touch", "new"]);
    assert_ne!(touch.code(), Some(0), "{touch}");
    assert!(!bench.cwd.join("new").exists());
}

#[test]
fn the_home_is_never_granted_whole_and_credentials_are_flagged() {
    let bench = Bench::new("home");
    std::fs::write(bench.home.join(".netrc"), "machine x").expect("own directory");
    std::fs::write(bench.home.join("notes"), "n").expect("own directory");
    std::fs::write(bench.home.join("other"), "o").expect("own directory");
    let line = "cat ~/.netrc ~/notes; echo x > ~/made";
    let learned = bench.learn(&["sh", "-c", line]);
    learned.exits(0);
    let policy = bench.policy();
    let home = bench.home.display().to_string();
    for whole in ["\"~\"".to_owned(), format!("\"{home}\""), "\"/\"".to_owned()] {
        assert!(!policy.contains(&whole), "{policy}");
    }
    assert!(
        policy.contains("\"~/.netrc\"") && policy.contains("\"~/notes\"") && policy.contains("\"~/made\""),
        "{policy}"
    );
    assert!(policy.contains("# CREDENTIALS: it read"), "{policy}");
    assert!(learned.stderr().contains("CREDENTIALS"), "{learned}");
    bench.run(&["sh", "-c", line]).exits(0);
    bench.run(&["cat".as_ref(), bench.home.join("other").as_os_str()]).exits(1);
}

#[test]
fn another_user_learns_as_well() {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return skip("only root can run as another user");
    }
    let bench = Bench::new("nobody");
    let line = "echo x > new; cat new; rm new";
    let mut learn = bench.gatekeeper("learn");
    learn.arg("-o").arg(&bench.policy).args(["--", "sh", "-c", line]).uid(65534).gid(65534);
    crate::support::run(&mut learn).exits(0).prints("x\n");
    let mut run = bench.gatekeeper("run");
    run.arg("--config").arg(&bench.policy).args(["--", "sh", "-c", line]).uid(65534).gid(65534);
    crate::support::run(&mut run).exits(0).prints("x\n");
}

/// What a run makes and executes is made again: in a directory that is not there yet, and in another TMPDIR.
#[test]
fn programs_that_the_run_makes() {
    for line in [
        "rm -rf made; mkdir -p made/bin; printf '#!/bin/sh\\necho ran\\n' >made/bin/x; chmod +x made/bin/x; ./made/bin/x; rm -rf made",
        "printf '#!/bin/sh\\necho ran\\n' >$TMPDIR/x; chmod +x $TMPDIR/x; $TMPDIR/x",
    ] {
        again(line);
    }
}

/// What a policy with a list of readable paths grants anyway is not listed: the system, and what the profile lets it write. A
/// file of /etc is listed, even where a link below /usr leads to it: without that it would be denied.
#[test]
fn what_is_granted_anyway_is_not_listed() {
    let bench = Bench::new("anyway");
    bench.write("file", "one\n");
    let line =
        "cat file > copy; cat copy /usr/lib/os-release /proc/self/status /dev/null > $TMPDIR/all; : < /etc/ld.so.cache";
    bench.learn(&["sh", "-c", line]).exits(0);
    let policy = bench.policy();
    assert!(policy.contains("profile = \"write\"") && policy.contains("\nread = []\n"), "{policy}");
    bench.run(&["sh", "-c", line]).exits(0).complains("");
    if !std::path::Path::new("/etc/locale.alias").exists() {
        return skip("this system has no /etc/locale.alias");
    }
    for (file, code) in [("/etc/locale.alias", 1), ("/usr/lib/os-release", 0)] {
        bench.run(&["cat", file]).exits(code);
    }
    bench.learn(&["cat", "/etc/locale.alias"]).exits(0);
    assert!(bench.policy().contains("read = [\"/etc/locale.alias\"]"), "{}", bench.policy());
    bench.run(&["cat", "/etc/locale.alias"]).exits(0);
}
