//! The command's environment is rebuilt: variables that are not on the list are removed.

use super::{Gate, NOTHING, finish, gatekeeper, unprivileged, users};
use crate::support::probe;
use std::fs;
use std::process::Command;

fn variables(gate: Gate) -> Vec<String> {
    let done = gate.run(["env", "-0"]);
    done.exits(0);
    done.stdout().split('\0').filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn secrets_and_steering_variables_are_dropped() {
    for user in users() {
        let mut gate = Gate::new(*user);
        let secret = [
            "AWS_SECRET_ACCESS_KEY",
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "SSH_AGENT_PID",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "LD_DEBUG",
            "GCONV_PATH",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "PERL5LIB",
            "RUBYOPT",
            "BASH_ENV",
            "ENV",
            "BASH_FUNC_ls%%",
            "GIT_SSH_COMMAND",
            "GIT_EXTERNAL_DIFF",
            "GIT_CONFIG_GLOBAL",
            "DBUS_SESSION_BUS_ADDRESS",
            "XDG_RUNTIME_DIR",
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "DOCKER_HOST",
            "KUBECONFIG",
            "http_proxy",
            "HTTPS_PROXY",
            "SECCOMP_SYSCALL_ALLOW",
            "SANDBOX_FILTER",
            "GLIBC_TUNABLES",
            "MALLOC_CHECK_",
            "IFS",
            "random_variable",
        ];
        for name in secret {
            gate = gate.env(name, if name == "LD_PRELOAD" { "" } else { "secret" });
        }
        let seen = variables(gate.env("LANG", "C").env("TERM", "dumb"));
        for name in secret {
            assert!(!seen.iter().any(|line| line.starts_with(&format!("{name}="))), "{name} passed");
        }
        for kept in
            ["LANG=C", "TERM=dumb", "LC_ALL=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin", "GATEKEEPER_SANDBOX=minimal"]
        {
            assert!(seen.iter().any(|line| line == kept), "{kept} is missing: {seen:?}");
        }
    }
}

#[test]
fn variables_pass_and_are_set_on_request() {
    for user in users() {
        let gate = Gate::new(*user).env("TOKEN", "t").env("OTHER", "o");
        let seen = variables(gate.flags(["--env", "TOKEN", "--env", "NEW=a=b", "--env", "LANG=xx"]));
        for line in ["TOKEN=t", "NEW=a=b", "LANG=xx"] {
            assert!(seen.iter().any(|seen| seen == line), "{line}: {seen:?}");
        }
        assert!(!seen.iter().any(|line| line.starts_with("OTHER=")));
        let proxied = variables(Gate::profile(*user, "network").env("https_proxy", "http://127.0.0.1:1"));
        assert!(proxied.iter().any(|line| line == "https_proxy=http://127.0.0.1:1"));
    }
}

#[test]
fn a_preload_of_the_callers_passes_only_by_name() {
    let library = probe("preloaded", &["-shared", "-fPIC"]);
    for user in users() {
        // The library may also be loaded into gatekeeper. Two lines mean that it was loaded into the command too.
        let dropped = Gate::new(*user).env("LD_PRELOAD", &library).run(["/bin/true"]);
        let kept = Gate::new(*user).env("LD_PRELOAD", &library).flags(["--env", "LD_PRELOAD"]).run(["/bin/true"]);
        let times = |text: String| text.matches("preloaded\n").count();
        assert_eq!(times(kept.stderr()), times(dropped.stderr()) + 1, "{kept}{dropped}");
    }
}

#[test]
fn the_marker_names_the_profile_and_cannot_be_forged() {
    for profile in ["minimal", "network", "write", "write+network", "unrestricted"] {
        let gate = Gate::profile(unprivileged(), profile).env("GATEKEEPER_SANDBOX", "forged");
        let seen = variables(gate);
        let marks: Vec<_> = seen.iter().filter(|line| line.starts_with("GATEKEEPER_SANDBOX=")).collect();
        assert_eq!(marks, [&format!("GATEKEEPER_SANDBOX={profile}")]);
    }
    Gate::new(unprivileged()).flags(["--env", "GATEKEEPER_SANDBOX=x"]).run(["true"]).exits(125);
    Gate::new(unprivileged()).flags(["--env", "GATEKEEPER_SANDBOX"]).run(["true"]).exits(125);
}

#[test]
fn write_has_a_temporary_directory_of_its_own() {
    for user in users() {
        let done = Gate::profile(*user, "write")
            .flags([
                "-c",
                r#"
            set -e; test -d "$TMPDIR"; test -w "$TMPDIR"; f=$(mktemp); echo x >"$f"
            case "$f" in "$TMPDIR"/*) ;; *) exit 8;; esac; stat -c %a "$TMPDIR"; echo "$TMPDIR" "${TMPPREFIX%/*}""#,
            ])
            .run(NOTHING);
        done.exits(0);
        let text = done.stdout();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("700"));
        let (tmp, prefix) = lines.next().unwrap().split_once(' ').unwrap();
        assert_eq!(tmp, prefix);
        assert!(!std::path::Path::new(tmp).exists(), "removed at the end");
    }
}

/// Values that are neither on the command line, which every user can read, nor in gatekeeper's own environment.
#[test]
fn variables_are_read_from_a_descriptor_and_change_nothing_else() {
    for user in users() {
        let gate = Gate::new(*user);
        let cluster = gate.dir.join("cluster");
        fs::write(&cluster, "secret\n").expect("own directory");
        let run = |set: &str, words: &[&str]| {
            let script = format!("printf '{set}' | {{ exec 5<&0 </dev/null; exec \"$@\"; }}");
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]).arg(gatekeeper()).args(["run", "--env-fd", "5"]).args(words);
            command.current_dir(&gate.dir).env("KUBECONFIG", &cluster);
            super::become_user(&mut command, gate.user);
            finish(command, None)
        };
        let both = r"A=b=c\nd\0KUBECONFIG=/dev/null\0";
        run(both, &["--", "printenv", "A", "KUBECONFIG"]).exits(0).prints("b=c\nd\n/dev/null\n");
        // The later value holds, whatever the flags say.
        run(both, &["--env", "A=x", "--env", "KUBECONFIG", "--", "printenv", "A", "KUBECONFIG"])
            .exits(0)
            .prints("b=c\nd\n/dev/null\n");
        let fds = run(both, &["-p", "read", "-c", "ls /proc/self/fd"]);
        assert!(!fds.exits(0).stdout().lines().any(|fd| fd == "5"), "{fds}");
        // The caller's own KUBECONFIG stays closed, and is not closed where the caller has none.
        let denied = run(both, &["--", "cat", "cluster"]);
        assert!(denied.exits(1).prints("").stderr().contains("Permission denied"), "{denied}");
        gate.run(["cat", "cluster"]).exits(0).prints("secret\n");
        for (set, words) in [
            (r"A=b", "something is missing"),
            (r"A=s3cret\0s3cret\0", "NAME=VALUE is needed"),
            (r"A=\377\0", "\"A\" is not UTF-8"),
            (r"LD_AUDIT=x\0", "LD_AUDIT"),
        ] {
            let done = run(set, &["--", "echo", "ran"]);
            let said = done.exits(125).prints("").stderr();
            assert!(said.contains(words) && !said.contains("s3cret"), "{set}: {done}");
        }
        gate.flags(["--env-fd", "77"]).run(["echo", "ran"]).exits(125).prints("");
    }
}
