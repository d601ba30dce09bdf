//! Every way in which git can be told where its hooks are. Git itself is the control: it runs the hook, unconfined, before
//! the command tries to change it.

use super::{Hole, Severity, errno, text};
use crate::run::{Gate, User, become_user, finish, layer, owned_by, users};
use crate::support::{fresh, has};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "hooks are named by the configuration of the user, of a worktree, of a nested include or of a repository above the working directory, with a comment, quotes or `~`, or in more than 8 KB",
        reached: "the program that the user's next git command executes was writable while the layer said `enforced`",
        held_by: &[
            "hooks_are_protected_wherever_their_directory_is_configured",
            "programs_that_the_configuration_names_are_protected",
            "configuration_that_is_included_and_absent_is_removed_after_the_run",
            "what_is_not_known_of_hooks_is_told",
        ],
    },
    Hole {
        severity: Severity::High,
        attack: "write to a hook or to settings of an editor that are a symbolic link to a file of the project",
        reached: "the program that the user's next git command executes was writable, while the report said that its directory is read-only",
        held_by: &["what_links_in_protected_directories_lead_to_is_protected"],
    },
    Hole {
        severity: Severity::High,
        attack: "write to a script of the project that git's configuration names without a slash, in a pipe or a substitution, in an alias, or by a key such as `pager.status` or `difftool.*.path`",
        reached: "the program that the user's next git command executes was writable",
        held_by: &[
            "programs_that_the_configuration_names_in_any_way_are_protected",
            "programs_that_are_not_known_are_told",
        ],
    },
];

/// A run in a tree, with a home of its own that git reads too.
struct Scene {
    gate: Gate,
    home: PathBuf,
}

impl Scene {
    fn new(user: User) -> Scene {
        let home = fs::canonicalize(fresh("home")).expect("just made");
        owned_by(user, &home);
        Scene { gate: Gate::profile(user, "write").env("HOME", &home), home }
    }

    /// Runs a shell line unconfined, in a directory of the tree.
    #[track_caller]
    fn plain(&self, directory: &Path, env: &[(&str, &str)], line: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(directory).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", &self.home).envs(env.iter().copied());
        for name in ["GIT_AUTHOR", "GIT_COMMITTER"] {
            command.env(format!("{name}_NAME"), "n").env(format!("{name}_EMAIL"), "a@b.c");
        }
        become_user(&mut command, self.gate.user);
        finish(command, None).exits(0).stdout()
    }
}

/// How a repository in the working directory is told that `.h` has its hooks: a shell line, and variables.
const SAID: &[(&str, &[(&str, &str)])] = &[
    ("git config core.hooksPath .h", &[]),
    ("git config core.hooksPath \"$PWD/.h\"", &[]),
    ("printf '[core]\\n\\thooksPath = .h # x\\n' >>.git/config", &[]),
    ("printf '[core]\\n\\thooksPath = \".h\" ; c\\n' >>.git/config", &[]),
    ("printf '[CORE] hooksPath = \\\\\\n .\"h\"\\n' >>.git/config", &[]),
    ("printf '[core]\\n\\thooksPath = other\\n[core]\\n\\thooksPath = .h\\n' >>.git/config", &[]),
    (
        "for n in $(seq 300); do printf '[branch \"b%s\"]\\n\\tremote = origin\\n' $n; done >>.git/config; git config core.hooksPath .h",
        &[],
    ),
    ("git config include.path ../.shared; git config -f .shared core.hooksPath .h", &[]),
    (
        "git config include.path ../.a; git config -f .a include.path sub/b; mkdir sub; git config -f sub/b core.hooksPath .h",
        &[],
    ),
    ("git config includeIf.gitdir:/.path ../.shared; git config -f .shared core.hooksPath .h", &[]),
    ("ln -s \"$PWD\" ~/proj; git config core.hooksPath '~/proj/.h'", &[]),
    ("git config extensions.worktreeConfig true; git config --worktree core.hooksPath .h", &[]),
    ("git config --global core.hooksPath .h", &[]),
    ("git config --global core.hooksPath \"$PWD/.h\"", &[]),
    ("git config -f ~/dotfile core.hooksPath .h; ln -s dotfile ~/.gitconfig", &[]),
    ("git config -f ~/.work core.hooksPath .h; git config --global include.path .work", &[]),
    ("mkdir -p ~/.config/git; git config -f ~/.config/git/config core.hooksPath .h", &[]),
    ("git config -f global core.hooksPath .h", &[("GIT_CONFIG_GLOBAL", "global")]),
    ("git config -f system core.hooksPath .h", &[("GIT_CONFIG_SYSTEM", "system")]),
    (":", &[("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "core.hooksPath"), ("GIT_CONFIG_VALUE_0", ".h")]),
];

/// The same for other layouts: the line makes them, the command runs in the directory, and the hooks are there.
const LAYOUTS: &[(&str, &str, &str)] = &[
    (
        "git init -q main; cd main; git config core.hooksPath .h; git commit -q --allow-empty -m 1; git worktree add -q ../wt",
        "wt",
        ".h",
    ),
    ("git init -q --separate-git-dir git top; cd top; git config core.hooksPath .h", "top", ".h"),
    ("git init -q .; mkdir package; git config core.hooksPath package/.h", "package", ".h"),
    (
        "git init -q sub; cd sub; git commit -q --allow-empty -m 1; cd ..; git init -q main; cd main; \
         git -c protocol.file.allow=always submodule --quiet add ../sub; git -C sub config core.hooksPath .h",
        "main",
        "sub/.h",
    ),
];

/// Lets git run the hook in this directory, then lets a confined command try to change it.
fn attack(scene: &Scene, cwd: &Path, hooks: &str, env: &[(&str, &str)], what: &str) {
    let marker = scene.home.join("ran");
    let hook = format!("mkdir -p {hooks} && printf '#!/bin/sh\\ntouch {}\\n' >{hooks}/pre-commit", marker.display());
    scene.plain(
        cwd,
        env,
        &format!("{hook}; chmod +x {hooks}/pre-commit; cd {hooks}/..; git commit -q --allow-empty -m x"),
    );
    assert!(marker.exists(), "git runs no such hook: {what}");
    let gate = Gate::profile(scene.gate.user, "write").env("HOME", &scene.home).in_directory(cwd);
    let gate = env.iter().fold(gate, |gate, (name, value)| gate.env(name, value));
    let said = gate.run([
        "sh",
        "-c",
        &format!("exec 2>&1; echo x >>{hooks}/pre-commit; echo x >{hooks}/new; echo x >own && echo control"),
    ]);
    let said = said.stdout();
    assert!(said.contains("control\n") && said.matches("Read-only file system").count() == 2, "{what}: {said}");
    let (_, report) = gate.report(["true"]);
    let (status, detail) = layer(&report, "namespaces");
    assert!(status == "enforced" && detail.contains(text(&cwd.join(hooks))), "{what}: {report:#}");
    assert_eq!(layer(&report, "landlock").0, "enforced", "{what}: {report:#}");
}

#[test]
fn hooks_are_protected_wherever_their_directory_is_configured() {
    if !has("git") {
        return;
    }
    for user in users() {
        for (line, env) in SAID {
            let scene = Scene::new(*user);
            scene.plain(&scene.gate.dir, &[], &format!("git init -q .; {line}"));
            attack(&scene, &scene.gate.dir, ".h", env, line);
        }
        for (line, cwd, hooks) in LAYOUTS {
            let scene = Scene::new(*user);
            scene.plain(&scene.gate.dir, &[], line);
            attack(&scene, &scene.gate.dir.join(cwd), hooks, &[], line);
        }
    }
}

#[test]
fn programs_that_the_configuration_names_are_protected() {
    if !has("git") {
        return;
    }
    for user in users() {
        let scene = Scene::new(*user);
        for name in ["tools/monitor", "tools/clean.py", "tools/driver", "attributes", "other"] {
            scene.gate.file(name, "");
        }
        scene.plain(
            &scene.gate.dir,
            &[],
            "git init -q .; git config core.fsmonitor ./tools/monitor; git config filter.x.clean 'python3 tools/clean.py %f'; \
             git config --global merge.y.driver \"'$PWD/tools/driver' %O\"; git config core.attributesFile attributes",
        );
        for name in ["tools/monitor", "tools/clean.py", "tools/driver", "attributes"] {
            assert_eq!(errno(&scene.gate, &["write", name]), libc::EROFS, "{user:?} {name}");
        }
        assert_eq!(errno(&scene.gate, &["write", "other"]), 0, "the control");
    }
}

/// Settings, each of which names the program `t/p.sh` or `p.sh`.
const NAMED: &[(&str, &str)] = &[
    ("filter.z.clean", "python3 p.sh"),
    ("filter.z.clean", "sh p.sh"),
    ("pager.status", "./t/p.sh"),
    ("core.pager", "cat|./t/p.sh"),
    ("core.pager", "./t/p.sh|cat"),
    ("core.editor", "true&&./t/p.sh"),
    ("core.editor", "$(./t/p.sh)"),
    ("core.editor", "$(git rev-parse --show-toplevel)/t/p.sh"),
    ("core.editor", "\"$PWD\"/t/p.sh"),
    ("core.editor", "$UNKNOWN/t/p.sh"),
    ("alias.x", "!./t/p.sh"),
    ("alias.x", "!f() { ./t/p.sh \"$@\"; }; f"),
    ("submodule.m.update", "!./t/p.sh"),
    ("gpg.ssh.defaultKeyCommand", "./t/p.sh"),
    ("difftool.d.path", "./t/p.sh"),
    ("difftool.d.cmd", "./t/p.sh \"$LOCAL\""),
    ("mergetool.d.path", "t/p.sh"),
    ("sendemail.sendmailCmd", "./t/p.sh"),
    ("gpg.program", "./my tools/p.sh"),
    ("core.fsmonitor", "'./my tools/p.sh'"),
];

#[test]
fn programs_that_the_configuration_names_in_any_way_are_protected() {
    if !has("git") {
        return;
    }
    for user in users() {
        let scene = Scene::new(*user);
        let places = ["p.sh", "t/p.sh", "my tools/p.sh"];
        for name in places.iter().chain(&["other", "t/other"]) {
            scene.gate.file(name, "");
        }
        for (key, value) in NAMED {
            scene.plain(
                &scene.gate.dir,
                &[("V", value)],
                &format!("rm -rf .git; git init -q .; git config {key} \"$V\""),
            );
            let errnos: Vec<i32> = places.iter().map(|name| errno(&scene.gate, &["write", name])).collect();
            let of_program = errnos.iter().filter(|errno| **errno == libc::EROFS).count();
            assert!(
                of_program == 1 && errnos.iter().filter(|errno| **errno == 0).count() == 2,
                "{user:?} {key} {value}: {errnos:?}"
            );
            assert_eq!(errno(&scene.gate, &["write", "other"]), 0, "the control");
            let (_, report) = scene.gate.report(["true"]);
            assert_eq!(layer(&report, "landlock").0, "enforced", "{user:?} {key} {value}: {report:#}");
        }
    }
}

#[test]
fn programs_that_are_not_known_are_told() {
    if !has("git") {
        return;
    }
    for user in users() {
        let scene = Scene::new(*user);
        let landlock = |lines: &str| {
            scene.plain(&scene.gate.dir, &[], &format!("rm -rf .git; git init -q .; {lines}"));
            let (_, report) = scene.gate.report(["true"]);
            let (status, detail) = layer(&report, "landlock");
            (status.to_owned(), detail.to_owned())
        };
        let (status, detail) = landlock("git config alias.odd '!$UNKNOWN/t/p.sh'");
        assert!(status == "partial" && detail.contains("name by variables or other commands: alias.odd"), "{detail}");
        // What people have.
        let ordinary = [
            "filter.lfs.clean 'git-lfs clean -- %f'",
            "filter.lfs.process 'git-lfs filter-process'",
            "alias.up '!git fetch && git rebase'",
            "alias.d '!git diff origin/$(git rev-parse --abbrev-ref HEAD)'",
            "alias.root '!cd $(git rev-parse --show-toplevel)/$GIT_PREFIX && make'",
            "alias.pr '!f() { git fetch origin pull/$1/head:pr/$1; }; f'",
            "core.editor vim",
            "core.pager 'less -FRX'",
            "pager.log false",
            "credential.helper store",
            "credential.helper '!gh auth git-credential'",
            "core.sshCommand 'ssh -i $HOME/.ssh/id -o UserKnownHostsFile=$X/known'",
            "difftool.d.cmd 'code --wait --diff \"$LOCAL\" \"$REMOTE\"'",
        ];
        let lines: Vec<String> = ordinary.iter().map(|line| format!("git config {line}")).collect();
        ["log", "store", "clean", "d"].iter().for_each(|name| drop(scene.gate.file(name, "")));
        let (status, detail) = landlock(&lines.join("; "));
        assert_eq!(status, "enforced", "{user:?} {detail}");
        for name in ["log", "store", "clean", "d"] {
            assert_eq!(errno(&scene.gate, &["write", name]), 0, "{user:?} {name}");
        }
    }
}

#[test]
fn what_links_in_protected_directories_lead_to_is_protected() {
    if !has("git") {
        return;
    }
    for user in users() {
        let scene = Scene::new(*user);
        for name in [
            "scripts/pc.sh",
            "scripts/deep.sh",
            "real/tasks.json",
            "skills/s/run.sh",
            "husky/_/h",
            "husky/pre-commit",
            "other/x",
        ] {
            scene.gate.file(name, "");
        }
        let marker = scene.home.join("ran");
        let hook = format!("printf '#!/bin/sh\\ntouch {}\\n' >scripts/pc.sh; chmod +x scripts/pc.sh", marker.display());
        scene.plain(
            &scene.gate.dir,
            &[],
            &format!(
                "git init -q .; {hook}; mkdir -p .vscode .claude; ln -s ../../way .git/hooks/pre-commit; ln -s scripts/pc.sh way; \
                 ln -s ../real/tasks.json .vscode/tasks.json; ln -s .. .vscode/all; ln -s ../skills .claude/skills; \
                 ln -s ../../scripts/deep.sh skills/s/deep.sh; mkdir node_modules; ln -s ../node_modules .claude/node_modules; \
                 git commit -q --allow-empty -m x"
            ),
        );
        assert!(marker.exists(), "git runs no such hook");
        for name in [
            ".git/hooks/pre-commit",
            "scripts/pc.sh",
            ".vscode/tasks.json",
            "real/tasks.json",
            "skills/s/run.sh",
            "scripts/deep.sh",
        ] {
            assert_eq!(errno(&scene.gate, &["write", name]), libc::EROFS, "{user:?} {name}");
        }
        assert_eq!(errno(&scene.gate, &["write", "other/x"]), 0, "the control");
        let (done, report) =
            scene.gate.report(["sh", "-c", "rm way; echo x >scripts/new && echo x >node_modules/new && echo made"]);
        done.exits(0).prints("made\n");
        assert!(scene.gate.dir.join("way").exists(), "{user:?}");
        assert_eq!(layer(&report, "landlock").0, "enforced", "{user:?} {report:#}");
        // Where nothing is yet, the report names what the command can create.
        scene.plain(
            &scene.gate.dir,
            &[],
            "ln -s ../../nowhere/new.sh .git/hooks/pre-push; git config core.hooksPath husky/_",
        );
        let (_, report) = scene.gate.report(["true"]);
        let (status, detail) = layer(&report, "landlock");
        let absent = scene.gate.dir.join("nowhere/new.sh");
        assert!(status == "partial" && detail.contains(text(&absent)), "{user:?} {status}: {detail}");
        // The hooks of husky run those beside them.
        assert_eq!(errno(&scene.gate, &["write", "husky/pre-commit"]), libc::EROFS, "{user:?}");
        scene.plain(
            &scene.gate.dir,
            &[],
            "rm .git/hooks/pre-push; for n in $(seq 300); do ln -s ../scripts/pc.sh .vscode/l$n; done",
        );
        let (_, report) = scene.gate.report(["true"]);
        let (status, detail) = layer(&report, "landlock");
        let named = "not all symbolic links in these protected directories were followed";
        assert!(status == "partial" && detail.contains(named), "{user:?} {status}: {detail}");
        // What fills one directory leaves the links in the others as they are. `.claude` comes first.
        scene.plain(&scene.gate.dir, &[], "cd .claude && mkdir $(seq 600) && ln -s ../.claude/1 l");
        assert_eq!(errno(&scene.gate, &["write", "scripts/pc.sh"]), libc::EROFS, "{user:?}");
    }
}

#[test]
fn configuration_that_is_included_and_absent_is_removed_after_the_run() {
    if !has("git") {
        return;
    }
    for user in users() {
        let scene = Scene::new(*user);
        scene.plain(&scene.gate.dir, &[], "git init -q .; git config include.path ../.shared");
        let (done, report) =
            scene.gate.report(["sh", "-c", "printf '[core]\\n\\thooksPath = .h\\n' >.shared; echo x >.other"]);
        done.exits(0);
        assert!(!scene.gate.dir.join(".shared").exists() && scene.gate.dir.join(".other").exists(), "{user:?}");
        let (status, detail) = layer(&report, "namespaces");
        assert!(status == "partial" && detail.contains("/.shared, which git reads"), "{user:?} {detail}");
    }
}

#[test]
fn what_is_not_known_of_hooks_is_told() {
    if !has("git") {
        return;
    }
    for user in users() {
        for (line, says) in [
            ("git config core.hooksPath .h", "stays writable: DIR/.h"),
            ("printf '[core]\\n\\thooksPath = \"x\\n' >>.git/config", "could not be read: DIR/.git/config"),
            ("git config include.path ../pipe; mkfifo pipe", "could not be read: DIR/.git/../pipe"),
            ("git config include.path ../link; ln -s nowhere link", "could not be read: DIR/.git/../link"),
            (
                "git config include.path ../large; yes '#' | head -c 1000000 >large",
                "could not be read: DIR/.git/../large",
            ),
            ("git config include.path ../again; git config -f again include.path again", ""),
        ] {
            let scene = Scene::new(*user);
            scene.plain(&scene.gate.dir, &[], &format!("git init -q .; {line}"));
            let (_, report) = scene.gate.report(["true"]);
            let (status, detail) = layer(&report, "landlock");
            let expected = if says.is_empty() { "enforced" } else { "partial" };
            let says = says.replace("DIR", text(&scene.gate.dir));
            assert!(status == expected && detail.contains(&says), "{user:?} {line}: {status} {detail}");
        }
    }
}
