//! Which paths are granted: git directories, homes, links.

use super::{Hole, Severity};
use crate::mcp::Client;
use crate::plumbing::{Place, users as places};
use crate::run::{Gate, User, act, become_user, finish, layer, outside, owned_by, users};
use crate::support::{Done, has, is_root, skip};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Critical,
        attack: "one run writes a `.git` file that names a git directory in the tree, whose `commondir` names `/`; the next runs under `write`",
        reached: "every file of the user writable",
        held_by: &[
            "a_git_file_of_the_tree_grants_nothing",
            "a_worktree_of_a_bare_repository_does_not_open_what_is_beside_it",
        ],
    },
    Hole {
        severity: Severity::High,
        attack: "one run swaps a directory that the next names by `--cache`, `--write`, `--read`, `--deny-path`, `--unix` or `--cwd` for a link",
        reached: "files outside written, keys read",
        held_by: &["a_directory_swapped_for_a_link_is_refused"],
    },
    Hole {
        severity: Severity::High,
        attack: "the same in one MCP session, with a directory of `--grantable`, and by a `.git` file",
        reached: "files outside written",
        held_by: &["one_mcp_session_cannot_widen_its_own_grants"],
    },
    Hole {
        severity: Severity::High,
        attack: "`.bashrc`, `.git/hooks` or the policy file is a symbolic link, and the command replaces the link",
        reached: "start-up files, hooks and the policy of the next run",
        held_by: &["links_to_protected_places_cannot_be_replaced", "a_link_to_a_secret_cannot_be_replaced"],
    },
    Hole {
        severity: Severity::High,
        attack: "HOME is unset or leads elsewhere; as root, the homes of others",
        reached: "~/.ssh",
        held_by: &["credentials_are_closed_whatever_home_says"],
    },
    Hole {
        severity: Severity::High,
        attack: "the home directory is mounted a second time",
        reached: "~/.ssh by its other name",
        held_by: &["credentials_are_closed_by_every_mount"],
    },
    Hole {
        severity: Severity::High,
        attack: "profile `write` with the home directory or `/` as the working directory",
        reached: "every start-up file, while the layer said `enforced`; as root /proc/sys and /sys",
        held_by: &["a_home_is_writable_only_if_it_is_named", "no_tree_holds_the_files_of_the_kernel"],
    },
    Hole {
        severity: Severity::High,
        attack: "an MCP call with a granted `--write` leaves a link where a path of the policy was",
        reached: "what the link leads to, in later calls without a grant",
        held_by: &["what_a_granted_mcp_call_leaves_widens_no_other"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "the command writes `.git/commondir`, the configuration of a submodule or worktree, or replaces a `.git` file",
        reached: "the user's next `git status` executes a program of the command's",
        held_by: &["git_status_after_a_run_executes_nothing_of_it", "a_git_file_cannot_be_replaced"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "a denied path in the working directory beside a `.env`",
        reached: "the `.env`, which was then neither covered nor left out",
        held_by: &["a_denied_path_leaves_other_secrets_closed"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "`[commands] allow` names a program in the tree, and the command puts a link to a key in its place",
        reached: "the key, granted as a program",
        held_by: &["an_allowed_program_that_is_a_link_to_a_key_opens_nothing"],
    },
];

fn acts(gate: &Gate, words: &[&str]) -> Done {
    gate.run([&[act().to_str().expect("text")], words].concat())
}

#[track_caller]
fn errno(gate: &Gate, words: &[&str]) -> i32 {
    let done = acts(gate, words);
    done.exits(0).stdout().trim_end().rsplit(' ').next().and_then(|text| text.parse().ok()).expect("a number")
}

/// A line of the shell as this user, unconfined.
#[track_caller]
fn plain(user: User, directory: &Path, line: &str) -> Done {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(directory).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", directory).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_COUNT", "2");
    for (at, (key, value)) in [("user.name", "n"), ("user.email", "a@b.c")].iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    become_user(&mut command, user);
    finish(command, None)
}

fn place_of(user: User) -> PathBuf {
    let place = outside();
    owned_by(user, &place);
    place
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_git_file_of_the_tree_grants_nothing() {
    for user in users() {
        let goal = place_of(*user);
        let new = goal.join("new");
        for (common, gitdir) in
            [("/", ".g"), (text(&goal), ".g"), (text(&goal), ".g/worktrees/x"), ("../..", ".g/worktrees/x")]
        {
            let gate = Gate::profile(*user, "write");
            // As complete as the command can make it, with links to where it wants to get.
            let plant = format!(
                "mkdir -p {gitdir}; echo 'gitdir: {gitdir}' >.git; echo \"$PWD/.git\" >{gitdir}/gitdir; echo {common} >{gitdir}/commondir; \
                 echo ref: refs/heads/main >.g/HEAD; mkdir -p .g/refs; ln -s {} .g/objects",
                goal.display()
            );
            gate.run(["sh", "-c", &plant]).exits(0);
            assert_eq!(errno(&gate, &["create", text(&new)]), libc::EACCES, "{user:?} {common} {gitdir}");
            assert_eq!(errno(&gate, &["create", "own"]), 0, "the control");
        }
        // Somebody's directory with the right names in it, that knows nothing of this tree.
        let gate = Gate::profile(*user, "write");
        plain(*user, &goal, "mkdir -p objects refs worktrees/x; echo ref: x >HEAD; echo ../.. >worktrees/x/commondir; echo /nowhere/.git >worktrees/x/gitdir").exits(0);
        gate.file(".git", format!("gitdir: {}/worktrees/x\n", goal.display()));
        assert_eq!(errno(&gate, &["create", text(&new)]), libc::EACCES, "{user:?}");
        // The control: with the way back it is a worktree.
        fs::write(goal.join("worktrees/x/gitdir"), format!("{}/.git\n", gate.dir.display())).expect("root's or own");
        assert_eq!(errno(&gate, &["create", text(&new)]), 0, "{user:?}");
        for name in ["gitdir", "commondir"] {
            let path = goal.join("worktrees/x").join(name);
            assert_eq!(errno(&gate, &["write", text(&path)]), libc::EROFS, "{user:?} {name}");
        }
    }
}

#[test]
fn a_worktree_of_a_bare_repository_does_not_open_what_is_beside_it() {
    if !has("git") {
        return;
    }
    for user in users() {
        let top = place_of(*user);
        plain(*user, &top, "git init -q seed; cd seed; echo 1 >f; git add f; git commit -qm 1; git clone -q --bare . ../bare; cd ../bare; git worktree add -q one -b one; git worktree add -q two -b two; mkdir logs").exits(0);
        let one = top.join("bare/one");
        let gate = Gate::profile(*user, "write").flags(["--cwd", text(&one)]);
        let flags = [
            "--env",
            "GIT_AUTHOR_NAME=n",
            "--env",
            "GIT_AUTHOR_EMAIL=a@b",
            "--env",
            "GIT_COMMITTER_NAME=n",
            "--env",
            "GIT_COMMITTER_EMAIL=a@b",
        ];
        let gate = gate.flags(flags);
        gate.run(["sh", "-c", "echo 2 >>f; git commit -qam 2; git log --oneline | wc -l"]).exits(0).prints("2\n");
        for path in ["bare/two/f", "bare/config", "bare/HEAD"] {
            assert_eq!(errno(&gate, &["write", text(&top.join(path))]), libc::EACCES, "{user:?} {path}");
        }
    }
}

#[test]
fn a_directory_swapped_for_a_link_is_refused() {
    for user in users() {
        let goal = place_of(*user);
        for flag in ["--cache", "--write", "--read", "--deny-path", "--unix", "--cwd"] {
            for profile in ["write", "minimal"] {
                let gate = Gate::profile(*user, profile);
                gate.file("named/inside", "x");
                let again = |profile| Gate::profile(*user, profile).in_directory(&gate.dir);
                again(profile).flags([flag, "named"]).run(["true"]).exits(0);
                let swap = format!("rm -r named; ln -s {} named", goal.display());
                again("write").run(["sh", "-c", &swap]).exits(0);
                let refused = again(profile).flags([flag, "named"]).run(["true"]);
                refused.exits(125);
                let named = gate.dir.join("named");
                assert!(
                    refused.stderr().contains(&format!("{} is a symbolic link to {}", named.display(), goal.display())),
                    "{refused}"
                );
                assert!(refused.stderr().contains("name its target instead"), "{refused}");
                assert_eq!(fs::read_dir(&goal).expect("there").count(), 0, "{refused}");
            }
        }
        // The control: a link of the user's outside of such trees leads where it leads.
        let link = place_of(*user).join("link");
        symlink(&goal, &link).expect("own directory");
        let gate = Gate::profile(*user, "write").flags(["--write", text(&link)]);
        assert_eq!(errno(&gate, &["create", text(&goal.join("new"))]), 0);
    }
}

#[test]
fn what_a_granted_mcp_call_leaves_widens_no_other() {
    for user in places() {
        let place = Place::new(user);
        let shared = place.at("shared");
        fs::create_dir_all(shared.join("notes")).expect("own directory");
        for path in [&shared, &shared.join("notes")] {
            std::os::unix::fs::chown(path, user, user).expect("own, or root's to give");
        }
        let secret = place.at("home").join("secret");
        fs::write(&secret, "SECRET\n").expect("own directory");
        let flags = [
            "--profile".to_owned(),
            "read".to_owned(),
            "--grantable".to_owned(),
            format!("--write {}", shared.display()),
            "--read".to_owned(),
            shared.join("notes").display().to_string(),
        ];
        let mut client = Client::start(&place, &flags.iter().map(String::as_str).collect::<Vec<_>>());
        let code = |result: &serde_json::Value| result["structuredContent"]["exit_code"].clone();
        assert_eq!(code(&client.exec(json!({"line": "true"}))), 0, "the control");
        let swap = format!("cd {} && rmdir notes && ln -s {} notes", shared.display(), place.at("home").display());
        let grant = format!("--write {}", shared.display());
        assert_eq!(code(&client.exec(json!({"line": swap, "grants": [grant]}))), 0);
        let result = client.exec(json!({"line": "true"}));
        assert_eq!(code(&result), 125, "{result}");
        assert!(result.to_string().contains("is a symbolic link"), "{result}");
    }
}

#[test]
fn one_mcp_session_cannot_widen_its_own_grants() {
    for user in places() {
        let place = Place::new(user);
        let goal = place.at("home").join("new");
        let flags = ["--profile", "write", "--grantable", "--write out", "--grantable", "--read keys"];
        let mut client = Client::start(&place, &flags);
        let code = |result: &serde_json::Value| result["structuredContent"]["exit_code"].clone();
        assert_eq!(
            code(&client.exec(json!({"line": "mkdir out keys && touch out/new", "grants": ["--write out"]}))),
            0
        );
        let swap = format!("rm -r out keys; ln -s {0} out; ln -s {0} keys", place.at("home").display());
        assert_eq!(code(&client.exec(json!({"line": swap}))), 0);
        let touch = format!("touch {}", goal.display());
        for grant in ["--write out", "--read keys"] {
            let result = client.exec(json!({"line": touch, "grants": [grant]}));
            assert_eq!(code(&result), 125, "{result}");
            assert!(result.to_string().contains("is a symbolic link"), "{result}");
        }
        let plant = "rm out keys; mkdir .g; echo 'gitdir: .g' >.git; echo ../.git >.g/gitdir; echo / >.g/commondir";
        assert_eq!(code(&client.exec(json!({"line": plant}))), 0);
        let result = client.exec(json!({"line": touch}));
        assert_eq!(code(&result), 1, "{result}");
        assert!(!goal.exists());
        assert_eq!(code(&client.exec(json!({"line": "touch fine"}))), 0, "the control");
    }
}

#[test]
fn links_to_protected_places_cannot_be_replaced() {
    for user in users() {
        let elsewhere = place_of(*user);
        let gate = Gate::profile(*user, "write");
        gate.file("dots/bashrc", "kept\n");
        gate.file("dots/hooks/pre-commit", "kept\n");
        gate.file("conf/policy.toml", "on_violation = \"errno\"\n");
        gate.file(".git/HEAD", "ref: refs/heads/main\n");
        gate.file("other", "other\n");
        fs::write(elsewhere.join("zshrc"), "kept\n").expect("own directory");
        let zshrc = elsewhere.join("zshrc");
        let links = [
            ("dots/bashrc", ".bashrc"),
            ("../dots/hooks", ".git/hooks"),
            (text(&zshrc), ".zshrc"),
            ("other", "free"),
            ("nowhere", ".profile"),
        ];
        for (target, link) in links {
            symlink(target, gate.dir.join(link)).expect("own directory");
            owned_by(*user, &gate.dir.join(link));
        }
        let gate_dir = gate.dir.clone();
        let gate = gate.flags(["--config", "conf/policy.toml"]);
        gate.file(".git/other", "other\n");
        for (_, link) in links.iter().filter(|(_, link)| *link != "free") {
            // In the same directory: what is kept in place is a mount, and no rename leads from one into another.
            let (other, away) = (Path::new(link).with_file_name("other"), Path::new(link).with_file_name("away"));
            let (other, away) = (text(&other), text(&away));
            let ways =
                [&["unlink", link][..], &["rename", link, away], &["rename", other, link], &["exchange", other, link]];
            for words in ways {
                assert_eq!(errno(&gate, words), libc::EROFS, "{user:?} {words:?}");
            }
        }
        for (link, written) in [
            (".bashrc", libc::EROFS),
            ("dots/bashrc", libc::EROFS),
            (".git/hooks/pre-commit", libc::EROFS),
            ("conf/policy.toml", libc::EROFS),
            (".zshrc", libc::EACCES),
        ] {
            assert_eq!(errno(&gate, &["write", link]), written, "{user:?} {link}");
            assert_eq!(errno(&gate, &["read", link]), 0, "it goes on leading there: {link}");
        }
        assert_eq!(errno(&gate, &["unlink", "free"]), 0, "the control");
        let (_, report) = gate.report(["true"]);
        let (status, detail) = layer(&report, "namespaces");
        assert!(status == "enforced" && detail.contains(text(&gate.dir.join(".bashrc"))), "{detail}");
        if !crate::isolate::works() {
            continue;
        }
        // Inside of bubblewrap root has no capability to mount with, and the report says so.
        let (done, report) =
            gate.flags(["--isolate", "required"]).report([text(&act()), "unlink", ".bashrc", ",", "write", ".bashrc"]);
        match layer(&report, "landlock") {
            ("enforced", _) => done.exits(0).prints(&format!("unlink {}\nwrite {}\n", libc::EROFS, libc::EROFS)),
            (status, detail) => {
                assert!(status == "partial" && detail.contains(text(&gate_dir.join(".bashrc"))), "{detail}");
                assert_eq!(*user, User::Own, "{detail}");
                assert!(is_root(), "{detail}");
                &done
            }
        };
    }
}

#[test]
fn a_link_to_a_secret_cannot_be_replaced() {
    for user in users() {
        let elsewhere = place_of(*user);
        fs::write(elsewhere.join("shared.env"), "SECRET\n").expect("own directory");
        let gate = Gate::profile(*user, "write");
        symlink(elsewhere.join("shared.env"), gate.dir.join(".env")).expect("own directory");
        gate.file("other", "x");
        for words in [&["unlink", ".env"][..], &["rename", "other", ".env"]] {
            assert_eq!(errno(&gate, words), libc::EROFS, "{user:?} {words:?}");
        }
        assert_eq!(errno(&gate, &["read", text(&elsewhere.join("shared.env"))]), libc::EACCES);
        assert_eq!(errno(&gate.flags(["--read", text(&elsewhere.join("shared.env"))]), &["read", ".env"]), 0);
    }
}

/// gatekeeper as this user, in a mount namespace that root has prepared with this line.
fn prepared(user: User, profile: &str, line: &str) -> Gate {
    let mut gate = Gate::profile(user, profile);
    let drop = if user == User::Nobody { "setpriv --reuid 65534 --regid 65534 --clear-groups" } else { "" };
    gate.user = User::Own;
    gate.under(["unshare", "-m", "sh", "-ec", &format!("{line}\nexec {drop} \"$@\""), "sh"])
}

fn may_mount() -> bool {
    if !is_root() {
        skip("only root can prepare a mount namespace");
    }
    is_root() && has("setpriv") && has("unshare")
}

/// A home with a key in it, and one file that is none.
fn home_with_keys(user: User) -> PathBuf {
    let home = place_of(user);
    fs::create_dir(home.join(".ssh")).expect("own directory");
    for name in ["", ".ssh", ".ssh/id", "notes"] {
        if name.ends_with("id") || name == "notes" {
            fs::write(home.join(name), "x").expect("own directory");
        }
        owned_by(user, &home.join(name));
    }
    home
}

#[test]
fn credentials_are_closed_whatever_home_says() {
    if !may_mount() {
        return skip("only root can put another /etc/passwd in place for one process");
    }
    for user in users() {
        let (own, other) = (home_with_keys(*user), home_with_keys(*user));
        let uid = if *user == User::Nobody { 65534 } else { 0 };
        let passwd = outside().join("passwd");
        let lines =
            [format!("u:x:{uid}:0::{}:/bin/sh", own.display()), format!("o:x:4711:0::{}:/bin/sh\n", other.display())];
        fs::write(&passwd, lines.join("\n")).expect("own directory");
        let line = format!("mount --bind {} /etc/passwd", passwd.display());
        for home in ["", "/tmp", "/nonexistent", "relative"] {
            for profile in ["minimal", "write"] {
                let mut gate = prepared(*user, profile, &line).env("HOME", home);
                if home.is_empty() {
                    gate = gate.under(["env", "-u", "HOME"]);
                }
                assert_eq!(errno(&gate, &["read", text(&own.join(".ssh/id"))]), libc::EACCES, "{user:?} HOME={home}");
                assert_eq!(errno(&gate, &["read", text(&own.join("notes"))]), 0, "the control");
                // Others' keys are closed to root; to a user their permissions are, and here there are none.
                let closed = if *user == User::Own { libc::EACCES } else { 0 };
                assert_eq!(errno(&gate, &["read", text(&other.join(".ssh/id"))]), closed, "{user:?} HOME={home}");
            }
        }
    }
}

#[test]
fn credentials_are_closed_by_every_mount() {
    if !may_mount() {
        return skip("only root can mount");
    }
    for user in users() {
        let home = home_with_keys(*user);
        let (second, keys) = (outside(), outside());
        let line = format!(
            "mount --bind {0} {1}; mount --bind {0}/.ssh {2}",
            home.display(),
            second.display(),
            keys.display()
        );
        for profile in ["minimal", "write"] {
            let gate = prepared(*user, profile, &line).env("HOME", &home);
            for path in [home.join(".ssh/id"), second.join(".ssh/id"), keys.join("id")] {
                assert_eq!(errno(&gate, &["read", text(&path)]), libc::EACCES, "{user:?} {}", path.display());
            }
            for path in [home.join("notes"), second.join("notes")] {
                assert_eq!(errno(&gate, &["read", text(&path)]), 0, "{user:?} {}", path.display());
            }
        }
    }
}

#[test]
fn a_home_is_writable_only_if_it_is_named() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let home = gate.dir.clone();
        let gate = gate.env("HOME", &home);
        gate.file(".xprofile", "kept\n");
        let refused = gate.run(["true"]);
        refused.exits(125);
        for word in ["--cwd", "--write", text(&home)] {
            assert!(refused.stderr().contains(word), "{word}: {refused}");
        }
        for wide in [Path::new("/"), home.parent().expect("scratch")] {
            let gate = Gate::profile(*user, "write").env("HOME", &home).flags(["--cwd", text(wide)]);
            gate.run(["true"]).exits(125);
        }
        // Meant, and told.
        let gate = gate.flags(["--write", text(&home)]);
        let (done, report) = gate.report([text(&act()), "create", "new", ",", "write", ".xprofile"]);
        done.exits(0).prints(&format!("create 0\nwrite {}\n", libc::EROFS));
        let (status, detail) = layer(&report, "landlock");
        assert_eq!(status, "partial", "{detail}");
        for name in [".bash_logout", ".config/autostart", ".bashrc"] {
            assert!(detail.contains(text(&home.join(name))), "{name}: {detail}");
        }
        assert!(!detail.contains(".xprofile"), "{detail}");
        // A home is still a place to read and compute in.
        let reads = Gate::new(*user).in_directory(&home);
        assert_eq!(errno(&reads.env("HOME", &home), &["read", "new"]), 0);
    }
}

#[test]
fn no_tree_holds_the_files_of_the_kernel() {
    for user in users() {
        let gate = Gate::profile(*user, "write").flags(["--write", "/"]);
        // Harmless to write, and written by the control.
        assert_eq!(errno(&gate, &["write", "/proc/self/comm"]), libc::EACCES, "{user:?}");
        assert_eq!(errno(&gate, &["create", "own"]), 0);
        for tree in ["/proc", "/proc/sys", "/sys", "/proc/self"] {
            Gate::profile(*user, "write").flags(["--write", tree]).run(["true"]).exits(125);
        }
        let one = Gate::profile(*user, "write").flags(["--write", "/proc/self/comm"]);
        assert_ne!(one.run(["true"]).code(), None);
        let mut command = Command::new(act());
        command.args(["write", "/proc/self/comm"]);
        become_user(&mut command, *user);
        finish(command, None).prints("write 0\n");
    }
}

#[test]
fn git_status_after_a_run_executes_nothing_of_it() {
    if !has("git") {
        return;
    }
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let marker = place_of(*user).join("marker");
        plain(*user, &gate.dir, "git init -q .; echo 1 >f; git add f; git commit -qm 1; git init -q .git/modules/a/b --bare; git worktree add -q wt").exits(0);
        let attack = format!(
            "mkdir -p .git/evil; cp -r .git/objects .git/refs .git/HEAD .git/evil; printf '#!/bin/sh\\ntouch {0}\\n' >.git/evil/program; chmod +x .git/evil/program; \
             printf '[core]\\n\\tfsmonitor = %s/.git/evil/program\\n' \"$PWD\" >.git/evil/config; echo evil >.git/commondir",
            marker.display()
        );
        // The control: it works where nothing is in its way.
        plain(*user, &gate.dir, &attack).exits(0);
        plain(*user, &gate.dir, "git status >/dev/null").exits(0);
        assert!(marker.exists(), "{user:?}: git does not do this any more");
        plain(*user, &gate.dir, &format!("rm -r {} .git/commondir .git/evil", marker.display())).exits(0);

        let (done, report) = gate.report(["sh", "-c", &attack]);
        done.exits(0);
        let (status, detail) = layer(&report, "namespaces");
        assert!(status == "partial" && detail.contains(".git/commondir"), "{detail}");
        plain(*user, &gate.dir, "git status >/dev/null; git log --oneline | grep -c .").exits(0).prints("1\n");
        assert!(!marker.exists(), "{user:?}");
        // What was there already is read-only.
        for name in [
            ".git/modules/a/b/config",
            ".git/modules/a/b/hooks/new",
            ".git/worktrees/wt/commondir",
            ".git/worktrees/wt/gitdir",
        ] {
            assert_eq!(errno(&gate, &["create", name]), libc::EROFS, "{user:?} {name}");
        }
        assert_eq!(errno(&gate, &["create", ".git/modules/a/b/FETCH_HEAD"]), 0, "the control");
        // Where the configuration lets a worktree have its own, that is kept away too.
        plain(*user, &gate.dir, "git config extensions.worktreeConfig true").exits(0);
        gate.run(["sh", "-c", "printf '[core]\\n\\tfsmonitor = x\\n' >.git/config.worktree"]).exits(0);
        assert!(!gate.dir.join(".git/config.worktree").exists());
    }
}

#[test]
fn a_git_file_cannot_be_replaced() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".git", "gitdir: ../elsewhere\n");
        gate.file("other", "x");
        for (words, expected) in [
            (&["unlink", ".git"][..], libc::EROFS),
            (&["rename", "other", ".git"], libc::EROFS),
            (&["write", ".git"], libc::EROFS),
        ] {
            assert_eq!(errno(&gate, words), expected, "{user:?} {words:?}");
        }
        assert_eq!(errno(&gate, &["unlink", "other"]), 0, "the control");
    }
}

#[test]
fn a_denied_path_leaves_other_secrets_closed() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".env", "SECRET\n");
        gate.file("closed/data", "x");
        gate.file("open/data", "x");
        let gate = gate.flags(["--deny-path", "closed"]);
        assert!(!gate.run(["cat", ".env"]).stdout().contains("SECRET"), "{user:?}");
        assert_eq!(errno(&gate, &["write", "open/data"]), 0, "the control");
    }
}

#[test]
fn an_allowed_program_that_is_a_link_to_a_key_opens_nothing() {
    for user in users() {
        let home = home_with_keys(*user);
        let policy = outside().join("policy.toml");
        fs::write(&policy, "profile = \"write\"\n[commands]\nallow = [\"cat\", \"./tool\"]\n").expect("own directory");
        let gate = Gate::new(*user).env("HOME", &home).flags(["--config", text(&policy)]);
        symlink(home.join(".ssh/id"), gate.dir.join("tool")).expect("own directory");
        fs::write(home.join(".ssh/id"), "SECRET").expect("own directory");
        let done = gate.run(["cat", text(&home.join(".ssh/id"))]);
        assert!(done.code() == Some(1) && done.stderr().contains("Permission denied"), "{user:?} {done}");
        gate.run(["cat", text(&home.join("notes"))]).exits(0).prints("x");
    }
}
