//! What a command sees inside bubblewrap, what it does not see, and what stays as without bubblewrap.

use super::{isolated, works};
use crate::network::{confined, users};
use crate::support::{fresh, is_root};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

#[test]
fn the_working_directory_is_there_and_little_else() {
    if !works() {
        return;
    }
    for user in users() {
        let dir = fresh("world");
        let outside = fresh("world-outside");
        fs::write(outside.join("secret"), "s").expect("own directory");
        let line = format!(
            "echo made > made; cat made; cat {0}/secret; ls {0}; cat /etc/shadow; ls /root /home /var /srv; \
             echo t > /tmp/t && cat /tmp/t; ls /dev/sda /dev/mem /dev/kmsg; cat /dev/null; head -c1 /dev/urandom | wc -c; \
             cat /proc/1/environ; ls -d /proc/[0-9]* | wc -l",
            outside.display()
        );
        let ran = isolated(&dir, user, &["--profile", "write"]).args(&["-c", &line]).go();
        let out = ran.done.stdout();
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(&lines[..3], ["made", "t", "1"], "{}", ran.done);
        let processes: usize = lines[3].parse().expect("a number");
        assert!(processes < 10, "only its own processes are seen: {processes}");
        let errors = ran.done.stderr();
        for gone in [
            "secret: No such file",
            "/etc/shadow: No such file",
            "'/root': No such",
            "'/var': No such",
            "'/dev/sda'",
            "'/dev/mem'",
            "'/dev/kmsg'",
        ] {
            assert!(errors.contains(gone), "{gone}: {}", ran.done);
        }
        assert_eq!(fs::read_to_string(dir.join("made")).expect("made by the command"), "made\n");
        let (status, detail) = ran.layer("namespaces");
        assert_eq!(status, "enforced");
        assert!(detail.contains("mount, pid, ipc, uts, network"), "{detail}");
        for layer in ["seccomp", "landlock"] {
            assert_eq!(ran.layer(layer).0, "enforced", "{layer} holds inside as well");
        }
    }
}

/// On Debian, awk is a link to /etc/alternatives/awk; with busybox, every command is a link to /bin/busybox.
#[test]
fn a_program_that_is_an_absolute_link_runs() {
    if !works() {
        return;
    }
    let awk = std::path::Path::new("/usr/bin/awk");
    if !fs::read_link(awk).is_ok_and(|to| to.is_absolute()) {
        return crate::support::skip("/usr/bin/awk is no link to an absolute path");
    }
    for user in users() {
        let dir = fresh("linked");
        fs::write(dir.join("script"), "#!/usr/bin/awk -f\nBEGIN { print 2 }\n").expect("own directory");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.join("script"), mode).expect("own file");
        let ran = isolated(&dir, user, &["--profile", "read"]).args(&["awk", "BEGIN { print 1 }"]).go();
        ran.done.exits(0).prints("1\n");
        assert_eq!(ran.layer("namespaces").0, "enforced");
        isolated(&dir, user, &["--profile", "read"]).args(&["./script"]).go().done.exits(0).prints("2\n");
    }
}

/// The program directories are empty inside, but for what the list names.
#[test]
fn programs_of_an_allow_list_are_there_by_all_their_names() {
    if !works() {
        return;
    }
    for user in users() {
        let (dir, outside) = (fresh("allowed"), fresh("allowed-policy"));
        let run = |allow: &str, words: &[&str]| {
            let policy = outside.join("policy.toml");
            fs::write(&policy, format!("[commands]\nallow = [{allow}]\n")).expect("own directory");
            let config = policy.to_str().expect("text");
            isolated(&dir, user, &["--profile", "read", "--config", config]).args(words).go()
        };
        for (allow, words) in [
            ("'sh', 'ls'", &["sh", "-c", "ls -d /"][..]),
            ("'/bin/sh', '/usr/bin/ls'", &["/bin/sh", "-c", "/bin/ls -d /"]),
            ("'bash', 'ls'", &["bash", "-c", "ls -d /"]),
            ("'ls'", &["-c", "ls -d /"]),
            ("'ls'", &["ls", "-d", "/"]),
            ("'awk'", &["awk", "BEGIN { print \"/\" }"]),
        ] {
            let ran = run(allow, words);
            ran.done.exits(0).prints("/\n");
            assert_eq!(ran.layer("namespaces").0, "enforced", "{words:?}");
        }
        // What the list does not name is not there, and links stay links: a program may look for its files beside their targets.
        let ran = run("'ls', 'sh', 'readlink'", &["-c", "ls /usr/bin; readlink /usr/bin/sh; cat /dev/null"]);
        ran.done.exits(127);
        let out = ran.done.stdout();
        let sh = fs::read_link("/usr/bin/sh").map(|to| to.display().to_string()).unwrap_or_default();
        assert!(out.lines().all(|line| ["ls", "sh", "readlink", &sh].contains(&line)), "{}", ran.done);
        assert!(out.ends_with(&format!("{sh}\n")), "{}", ran.done);
    }
}

#[test]
fn files_of_the_system_are_copies_that_nothing_can_change() {
    if !works() {
        return;
    }
    // Named once more, as a directory that is mounted, and below it.
    let named = ["--read", "/etc/ssl", "--read", "/etc/ssl/openssl.cnf", "--read", "/etc/passwd"];
    for user in users() {
        for (profile, flags) in [("write", &[][..]), ("write", &named[..]), ("unrestricted", &[][..])] {
            let dir = fresh("copies");
            let line = "cat /etc/passwd; for file in /etc/passwd /etc/new; do (echo x > $file) 2>/dev/null && echo wrote; done; \
                        chmod 777 /etc/passwd 2>/dev/null && echo changed; mv /etc/group /etc/other 2>/dev/null && echo moved; echo done";
            let flags = [&["--profile", profile][..], flags].concat();
            let ran = isolated(&dir, user, &flags).args(&["-c", line]).go();
            let passwd = fs::read_to_string("/etc/passwd").expect("readable by all");
            assert_eq!(ran.done.stdout(), passwd + "done\n", "{flags:?}: {}", ran.done);
        }
    }
}

#[test]
fn a_temporary_directory_that_cannot_be_kept_is_a_warning() {
    if !works() {
        return;
    }
    let dir = fresh("kept");
    let ran = isolated(&dir, None, &["--profile", "write", "--keep-tmp"]).args(&["true"]).go();
    let warning = "gatekeeper: warning: --keep-tmp keeps nothing with --isolate: TMPDIR is in the private /tmp inside bubblewrap\n";
    ran.done.exits(0).complains(warning);
    assert!(ran.report.get("kept").is_none(), "{}", ran.done);
}

#[test]
fn a_plan_tells_of_the_isolation() {
    if !works() {
        return;
    }
    use crate::support::{gatekeeper, run};
    use std::process::Command;
    let dir = fresh("planned").canonicalize().expect("real");
    let plan = |flags: &[&str], path: &str| {
        let mut command = Command::new(gatekeeper());
        command.arg("plan").args(flags).args(["--", "/bin/true"]).current_dir(&dir).env("PATH", path);
        run(&mut command)
    };
    let line = |done: &crate::support::Done| {
        let text = done.stdout();
        text.lines().find_map(|line| line.strip_prefix("isolation ")).map(|rest| rest.trim_start().to_owned())
    };
    let path = "/usr/bin:/bin";
    assert_eq!(line(plan(&[], path).exits(0)), None);
    let told = line(plan(&["--isolate", "required", "-p", "write"], path).exits(0)).expect("a step");
    assert!(told.starts_with("required, by /") && told.contains("/bwrap: bubblewrap: "), "{told}");
    assert!(told.contains(&format!("mount, pid, ipc, uts, network; writable {}", dir.display())), "{told}");
    let told = line(plan(&["--isolate", "preferred", "--net", "full"], path).exits(0)).expect("a step");
    assert!(told.starts_with("preferred, by /") && !told.contains("network"), "{told}");
    let missing = "bubblewrap does not work here: it is not installed (package bubblewrap)";
    let without = |flags: &[&str]| {
        let hidden = "mount --bind /dev/null \"$(command -v bwrap)\"; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(if is_root() { "-m" } else { "-rm" }.split(' '));
        command.args(["sh", "-ec", hidden, "sh"]).arg(gatekeeper()).arg("plan").args(flags).args(["--", "/bin/true"]);
        run(command.current_dir(&dir).env("PATH", path))
    };
    assert_eq!(
        line(without(&["--isolate", "preferred"]).exits(0)),
        Some(format!("preferred, none: {missing}; the other layers hold"))
    );
    let refused = without(&["--isolate", "required"]);
    refused.exits(125).prints("");
    refused.complains(&format!("gatekeeper: isolation is required and {missing}; nothing was run\n"));
}

#[test]
fn denials_are_reported_as_without_it() {
    if !works() {
        return;
    }
    for user in users() {
        let dir = fresh("denials");
        let words = ["--", "python3", "-c", "import socket\ntry: socket.socket()\nexcept OSError as e: print(e.errno)"];
        let (with, without) =
            (isolated(&dir, user, &[]).args(&words).go(), confined(&dir, user, &[]).args(&words).go());
        for ran in [&with, &without] {
            ran.done.prints("97\n").exits(0);
        }
        let same = |ran: &crate::network::Ran| {
            let denial = ran.denials().iter().find(|denial| denial["syscall"] == "socket").expect("a record").clone();
            ["layer", "args", "rule", "allow_with", "count", "errno"].map(|key| denial[key].clone())
        };
        assert_eq!(same(&with), same(&without));
    }
}

#[test]
fn exit_codes_signals_and_time_are_as_without_it() {
    if !works() {
        return;
    }
    for user in users() {
        let dir = fresh("codes");
        let code = |flags: &[&str], words: &[&str]| isolated(&dir, user, flags).args(words).go();
        code(&[], &["-c", "exit 7"]).done.exits(7);
        let killed = code(&[], &["-c", "kill -KILL $$"]);
        killed.done.exits(137);
        assert_eq!((&killed.report["outcome"], &killed.report["signal"]), (&"signaled".into(), &9.into()));
        let late = code(&["--timeout", "1s"], &["--", "sleep", "100"]);
        late.done.exits(124);
        assert_eq!(late.report["outcome"], "timeout");
        code(&["--on-violation", "kill"], &["--", "python3", "-c", "import socket; socket.socket()"]).done.exits(159);
        code(&[], &["--", "/nowhere/at-all"]).done.exits(127);
    }
}

#[test]
fn a_signal_reaches_the_command_and_its_answer_comes_back() {
    if !works() {
        return;
    }
    for user in users() {
        let dir = fresh("signal");
        let line = "trap 'echo heard > heard; exit 3' TERM; echo > ready; while :; do sleep 0.05; done";
        let mut child =
            isolated(&dir, user, &["--profile", "write"]).args(&["-c", line]).command.spawn().expect("starts");
        wait_for("the command is ready", || dir.join("ready").exists());
        // SAFETY: no memory is passed; the process is a child that has not been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let status = child.wait().expect("own child");
        assert_eq!((status.code(), status.signal()), (Some(3), None));
        assert!(dir.join("heard").exists());
    }
}

#[test]
fn nothing_outlives_a_gatekeeper_that_was_killed() {
    if !works() {
        return;
    }
    for user in users() {
        let dir = fresh("outlives");
        fs::create_dir(dir.join(".git")).expect("own directory");
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(dir.join(".git"), fs::Permissions::from_mode(0o777)).expect("own");
        let line = "(setsid sh -c 'while :; do echo x >> beat; sleep 0.02; done' &) ; echo > ready; sleep 100";
        let mut child =
            isolated(&dir, user, &["--profile", "write"]).args(&["-c", line]).command.spawn().expect("starts");
        wait_for("the command is ready", || dir.join("ready").exists() && dir.join("beat").exists());
        assert!(dir.join(".git/hooks").exists(), "closed before it exists");
        child.kill().expect("own child");
        child.wait().expect("own child");
        let size = || fs::metadata(dir.join("beat")).map(|meta| meta.len()).unwrap_or(0);
        wait_for("the whole tree has ended", || {
            let before = size();
            std::thread::sleep(Duration::from_millis(300));
            before == size()
        });
        wait_for("the mount point is gone", || !dir.join(".git/hooks").exists());
    }
}

#[test]
fn closed_places_stay_closed_and_leave_nothing_behind() {
    if !works() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    for user in users() {
        // The working directory is the home itself, named with --write: all of it is granted except credentials.
        let dir = fresh("closed");
        let flags = ["--profile", "write", "--write", "."];
        fs::create_dir_all(dir.join(".ssh")).expect("own directory");
        fs::write(dir.join(".ssh/id_rsa"), "key").expect("own directory");
        fs::write(dir.join(".env"), "token").expect("own directory");
        fs::create_dir(dir.join(".git")).expect("own directory");
        for path in [".ssh", ".ssh/id_rsa", ".env", ".git"] {
            fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o777)).expect("own");
        }
        let before = listing(&dir);
        let line = "cat .ssh/id_rsa .env; for f in .bashrc .bash_profile .ssh/new .gnupg/new .git/hooks/pre-commit; do \
                    (echo x > $f) 2>/dev/null && echo wrote $f; done; mv .git moved && echo moved; \
                    ln -s .ssh link; cat link/id_rsa; rm -f link; echo fine > .git/HEAD; cat .git/HEAD; rm .git/HEAD";
        let ran = isolated(&dir, user, &flags).env("HOME", &dir).args(&["-c", line]).go();
        ran.done.prints("fine\n");
        let after: Vec<String> = listing(&dir).into_iter().filter(|name| !name.contains("report-")).collect();
        assert_eq!(after, before, "{}", ran.done);
    }
}

#[test]
fn hooks_that_are_there_are_read_only() {
    if !works() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    for user in users() {
        let dir = fresh("hooks");
        fs::create_dir_all(dir.join(".git/hooks")).expect("own directory");
        fs::write(dir.join(".git/hooks/pre-commit"), "#!/bin/sh\necho hook\n").expect("own directory");
        for path in [".git", ".git/hooks", ".git/hooks/pre-commit"] {
            fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o777)).expect("own");
        }
        let line = ".git/hooks/pre-commit; echo x >> .git/hooks/pre-commit || echo kept; mv .git/hooks x || echo stays";
        let ran = isolated(&dir, user, &["--profile", "write"]).args(&["-c", line]).go();
        ran.done.prints("hook\nkept\nstays\n");
    }
}

#[test]
fn a_local_server_and_the_proxy_are_both_reached_from_inside() {
    if !works() {
        return;
    }
    let files = fresh("inside-files");
    fs::write(files.join("file"), "hello").expect("own directory");
    let server = crate::network::server::Server::of(&files);
    for user in users() {
        let dir = fresh("inside-hosts");
        let listed = format!("hosts=a.test,{}", server.host());
        let fetch =
            |flags: &[&str], url: &str| isolated(&dir, user, flags).args(&["--", "curl", "-sS", "-m", "20", url]).go();
        fetch(&["--net", &listed], &server.url("file")).done.prints("hello").exits(0);
        let denied = fetch(&["--net", &listed], "http://denied.test/");
        assert_eq!(denied.denial("proxy", "denied.test:80")["allow_with"], format!("--net {listed},denied.test:80"));
        fetch(&["--net", "loopback"], &server.url("file")).done.prints("hello").exits(0);
        // Without a network, the host's loopback is not reachable either.
        let none = fetch(&["--profile", "unrestricted", "--net", "none"], &server.url("file"));
        none.done.exits(7);
        assert!(none.denials().is_empty(), "not refused, but not there: {:#}", none.report);
    }
}

#[track_caller]
fn wait_for(what: &str, is: impl Fn() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(240), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn listing(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut stack = vec![dir.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in fs::read_dir(directory).expect("own directory").flatten() {
            names.push(entry.path().display().to_string());
            if entry.file_type().expect("own").is_dir() {
                stack.push(entry.path());
            }
        }
    }
    names.sort();
    names
}

/// Toolchains in home are there read-only, and of git's settings only the identity.
#[test]
fn toolchains_and_gits_identity_are_shown() {
    if !works() {
        return;
    }
    for user in users() {
        let (dir, home) = (fresh("tools"), fs::canonicalize(fresh("tools-home")).expect("just made"));
        fs::create_dir_all(home.join(".cargo/bin")).expect("new");
        fs::write(home.join(".cargo/bin/tool"), "#!/bin/sh\necho tool\n").expect("new");
        fs::write(home.join(".cargo/credentials.toml"), "secret").expect("new");
        fs::write(home.join(".gitconfig"), "[user]\nname = Ann\n[credential]\nhelper = store\n").expect("new");
        let line = "sh ~/.cargo/bin/tool; git config --global user.name; git config --global credential.helper; \
                    ls -A ~/.cargo; echo x 2>/dev/null >~/.cargo/bin/new || echo read-only; ls -A ~";
        let home = home.to_str().expect("text");
        let ran = isolated(&dir, user, &["--profile", "write"]).env("HOME", home).args(&["-c", line]).go();
        assert_eq!(ran.done.stdout(), "tool\nAnn\nbin\nread-only\n.cargo\n.gitconfig\n", "{}", ran.done);
        // A policy that lists what may be read decides alone.
        let listed = isolated(&dir, user, &["--profile", "write", "--config", "policy.toml"]);
        fs::write(dir.join("policy.toml"), "paths.read = [\"/usr\"]\n").expect("own");
        let ran = listed.env("HOME", home).args(&["-c", "ls -A ~ 2>/dev/null"]).go();
        assert_eq!(ran.done.stdout(), "", "{}", ran.done);
    }
}
