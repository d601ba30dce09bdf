//! Extending a policy: what it denies stays denied, and reports can extend it too.

use super::Bench;
use crate::denials::violate;
use crate::support::{gatekeeper, run};
use serde_json::json;
use std::fs;
use std::process::Command;

#[test]
fn what_the_older_policy_denies_stays_denied() {
    let bench = Bench::new("merge");
    let denied = bench.write("denied/file", "text");
    bench.write("file", "text");
    let old = bench.policy.with_file_name("old.toml");
    let text = format!(
        "profile = \"minimal\"\ntimeout = \"9s\"\n[syscalls]\ndeny = [\"socket\"]\n[paths]\nread = [\"/etc\"]\ndeny = [\"{}\"]\n[network]\nmode = \"none\"\n",
        denied.parent().expect("a directory").display()
    );
    fs::write(&old, text).expect("own directory");
    let program = violate();
    let program = program.display();
    let line = format!("cat denied/file file; {program} socket 2 1; true");
    let old = old.display().to_string();
    bench.learn_with(&["--merge", &old], &["sh", "-c", &line]).exits(0);
    let policy = bench.policy();
    for kept in ["deny = [\"socket\"]", "mode = \"none\"", "timeout = \"9s\"", "\"/etc\"", "\"@process\""] {
        assert!(policy.contains(kept), "{kept}\n{policy}");
    }
    let again = bench.run(&["sh", "-c", &line]);
    again.exits(0).prints("text");
    let socket = bench.run(&[program.to_string().as_str(), "socket", "2", "1"]);
    socket.exits(1);
}

#[test]
fn a_policy_grows_from_refused_runs() {
    let bench = Bench::new("grow");
    let program = violate();
    let path = bench.cwd.join("new");
    let line = format!("{0} open {1} && {0} socket 2 1 && {0} ptrace", program.display(), path.display());
    let words = ["sh", "-c", &line];
    let report = bench.policy.with_file_name("report.json");
    fs::write(&bench.policy, "profile = \"minimal\"\n").expect("own directory");
    let mut rounds = 0;
    loop {
        let mut refused = bench.gatekeeper("run");
        refused.arg("--quiet").arg("--config").arg(&bench.policy).arg("--report").arg(&report).arg("--").args(words);
        if run(&mut refused).code() == Some(0) {
            break;
        }
        rounds += 1;
        assert!(rounds < 8, "{}", bench.policy());
        let mut grow = bench.gatekeeper("learn");
        grow.arg("-o").arg(&bench.policy).arg("--merge").arg(&bench.policy).arg("--from-denials").arg(&report);
        run(&mut grow).exits(0);
    }
    let policy = bench.policy();
    for granted in ["network", "read", "ptrace", &bench.cwd.display().to_string()] {
        assert!(policy.contains(granted), "{granted}\n{policy}");
    }
}

#[test]
fn a_report_cannot_ask_for_what_no_remedy_is() {
    let bench = Bench::new("foreign");
    let report = bench.policy.with_file_name("report.json");
    let learn = |allow: &str| {
        let text = json!({"schema": 1, "outcome": "exited", "exit_code": 1, "denials": [
            {"layer": "seccomp", "syscall": "clone", "rule": "r", "allow_with": allow}]});
        fs::write(&report, text.to_string()).expect("own directory");
        run(Command::new(gatekeeper()).args(["learn", "-o"]).arg(&bench.policy).arg("--from-denials").arg(&report))
    };
    for foreign in [
        "--config /tmp/x",
        "--require-sandbox=false",
        "--write",
        "--write a --",
        "rm -rf /",
        "--write $(id)",
        "--write a;b",
        "--deny x",
        "--allow nosuchcall",
        "--write a*",
    ] {
        learn(foreign).exits(2);
    }
    // A remedy that proposes `unrestricted` does not extend the policy.
    learn("--profile unrestricted").exits(0);
    assert!(
        !bench.policy().contains("unrestricted\"") && bench.policy().contains("# stays denied: clone"),
        "{}",
        bench.policy()
    );
}

#[test]
fn what_cannot_be_written_or_read_is_known_before_anything_runs() {
    let bench = Bench::new("before");
    let made = bench.cwd.join("made");
    let line = format!("touch {}", made.display());
    let learn = |words: &[&str]| run(bench.gatekeeper("learn").args(words).args(["--", "sh", "-c", &line]));
    learn(&["-o", "/no/such/directory/policy.toml"]).exits(125);
    let policy = bench.policy.display().to_string();
    learn(&["-o", &policy, "--merge", "/no/such/policy.toml"]).exits(125);
    assert!(!made.exists());
    run(bench.gatekeeper("learn").args(["-o", &policy, "--", "no-such-command-anywhere"])).exits(127);
    assert!(!bench.policy.exists(), "an empty file would be a policy");
    run(bench.gatekeeper("learn").args(["-o", &policy, "--from-denials", "/dev/null"])).exits(2);
}
