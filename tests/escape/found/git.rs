//! Git directories: what a planted `.git` grants to the next run, and what a command leaves for the user's next git
//! command.

use super::{Hole, Severity, errno, place_of, plain, text};
use crate::run::{Gate, layer, users};
use crate::support::has;
use std::fs;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Critical,
        attack: "one run writes a `.git` file that names a git directory in the tree whose `commondir` is `/`; the next runs under `write`",
        reached: "every file of the user was writable",
        held_by: &[
            "a_git_file_of_the_tree_grants_nothing",
            "a_worktree_of_a_bare_repository_does_not_open_what_is_beside_it",
        ],
    },
    Hole {
        severity: Severity::Medium,
        attack: "the command writes `.git/commondir` or the configuration of a submodule or worktree, or replaces a `.git` file",
        reached: "the user's next `git status` executed a program that the command had written",
        held_by: &["git_status_after_a_run_executes_nothing_of_it", "a_git_file_cannot_be_replaced"],
    },
];

#[test]
fn a_git_file_of_the_tree_grants_nothing() {
    for user in users() {
        let goal = place_of(*user);
        let new = goal.join("new");
        for (common, gitdir) in
            [("/", ".g"), (text(&goal), ".g"), (text(&goal), ".g/worktrees/x"), ("../..", ".g/worktrees/x")]
        {
            let gate = Gate::profile(*user, "write");
            // As complete as the command can make it, with links to its goal.
            let plant = format!(
                "mkdir -p {gitdir}; echo 'gitdir: {gitdir}' >.git; echo \"$PWD/.git\" >{gitdir}/gitdir; echo {common} >{gitdir}/commondir; \
                 echo ref: refs/heads/main >.g/HEAD; mkdir -p .g/refs; ln -s {} .g/objects",
                goal.display()
            );
            gate.run(["sh", "-c", &plant]).exits(0);
            assert_eq!(errno(&gate, &["create", text(&new)]), libc::EACCES, "{user:?} {common} {gitdir}");
            assert_eq!(errno(&gate, &["create", "own"]), 0, "the control");
        }
        // An unrelated directory that contains the right names, but does not point back to this tree.
        let gate = Gate::profile(*user, "write");
        plain(*user, &goal, "mkdir -p objects refs worktrees/x; echo ref: x >HEAD; echo ../.. >worktrees/x/commondir; echo /nowhere/.git >worktrees/x/gitdir").exits(0);
        gate.file(".git", format!("gitdir: {}/worktrees/x\n", goal.display()));
        assert_eq!(errno(&gate, &["create", text(&new)]), libc::EACCES, "{user:?}");
        // The control: once it points back, it is a worktree.
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
        // The control: unconfined, the attack works.
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
        // Existing files are read-only.
        for name in [
            ".git/modules/a/b/config",
            ".git/modules/a/b/hooks/new",
            ".git/worktrees/wt/commondir",
            ".git/worktrees/wt/gitdir",
        ] {
            assert_eq!(errno(&gate, &["create", name]), libc::EROFS, "{user:?} {name}");
        }
        assert_eq!(errno(&gate, &["create", ".git/modules/a/b/FETCH_HEAD"]), 0, "the control");
        // If the configuration enables per-worktree configuration, a planted one is removed too.
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
