//! What one run hides from the plan of the next: directories that it closes by their mode and opens again later, git
//! directories without their marker files, and more directories than the search looks into.

use super::{Hole, Severity};
use crate::run::{Gate, User, become_user, finish, layer, users};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "one run removes its own right to enter `.git`, or the target directory of a protected link; the next restores it",
        reached: ".git/config and hooks were writable while the layer said `enforced`",
        held_by: &["what_is_protected_in_a_shut_directory_stays_so"],
    },
    Hole {
        severity: Severity::High,
        attack: "the same with the directory of a `--deny-path`, of a `.env`, or of a key in a writable home",
        reached: "the denied file was readable; the report said that it did not exist",
        held_by: &["what_is_closed_in_a_shut_directory_stays_so"],
    },
    Hole {
        severity: Severity::High,
        attack: "the same with the directory before the wildcard of a `--deny-path`, of a key that a variable names, or of a program that git's configuration names",
        reached: "the key was readable and the program was writable while the layer said `enforced`",
        held_by: &["what_a_pattern_a_variable_or_git_names_in_a_shut_directory_stays_so"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "one run removes `HEAD` from the git directory of a submodule or bare repository, puts one above it, or creates very many directories beside it",
        reached: "its configuration was writable, from which the user's next `git status` takes a program to execute",
        held_by: &["a_git_directory_without_its_head_is_still_one"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "the configuration names hooks (`core.hooksPath`) or more configuration (`include.path`) in the tree",
        reached: "the programs that the user's next git command executes were writable",
        held_by: &["hooks_that_the_configuration_names_are_protected"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "one run replaces a directory with a link; the next starts with `--cwd` below it and names the directory",
        reached: "files outside were writable",
        held_by: &["a_link_beside_the_directory_of_the_command_is_refused"],
    },
    Hole {
        severity: Severity::High,
        attack: "the command writes `.git/commondir`, then removes the right to write or enter `.git` so that the file cannot be removed",
        reached: "the user's next `git status` executed a program that the command had written",
        held_by: &["what_a_command_leaves_for_git_is_removed_from_a_shut_directory"],
    },
    Hole {
        severity: Severity::High,
        attack: "with `--report out/report.json` in the tree, the command moves `out` away and creates another with a forged report",
        reached: "the caller read the forged report, with gatekeeper's exit status unchanged",
        held_by: &["a_report_in_a_directory_that_was_swapped_is_no_report"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "one run creates a hard link to a file that the next denies",
        reached: "the file was readable by both names while the layer said `enforced`",
        held_by: &["a_closed_file_with_another_name_is_told"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "read a file in a closed directory, such as a key in `~/.ssh`, that has a hard link beside that directory",
        reached: "the file was readable by its closed name too, and a hook with another name was writable, while the layer said `enforced`",
        held_by: &["a_file_with_another_name_in_a_closed_or_protected_directory_is_told"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "one run creates more directories than the search for `.env` looks into",
        reached: "a `.env` one directory down was readable while the layer said `enforced`",
        held_by: &["a_search_that_ended_early_is_told"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "profile `write` with ~/.config or ~/.local as the working directory",
        reached: "start-up files of shells and desktops were writable while the layer said `enforced`",
        held_by: &["startup_files_are_kept_in_a_part_of_a_home"],
    },
];

/// What a confined shell line prints on both streams.
fn says(gate: &Gate, line: &str) -> String {
    let done = gate.run(["sh", "-c", &format!("exec 2>&1; {line}")]);
    done.stdout().to_owned()
}

fn git(user: User, directory: &Path, line: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(directory).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", directory).env("GIT_CONFIG_NOSYSTEM", "1");
    become_user(&mut command, user);
    finish(command, None).exits(0);
}

fn again(user: User, gate: &Gate) -> Gate {
    Gate::profile(user, "write").in_directory(&gate.dir)
}

fn open(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("own directory");
}

#[test]
fn what_is_protected_in_a_shut_directory_stays_so() {
    for user in users() {
        for mode in ["000", "600", "300"] {
            let gate = Gate::profile(*user, "write");
            gate.file(".git/config", "[core]\n");
            gate.file(".git/hooks/sample", "");
            gate.file("settings/rc", "");
            git(*user, &gate.dir, "ln -s settings/rc .ripgreprc");
            // The control.
            gate.file("other/file", "");
            says(&again(*user, &gate), &format!("chmod {mode} .git settings"));
            let attack = "chmod 755 .git settings; echo x >>other/file && echo changed; \
                          echo x >>.git/config && echo config; echo x >.git/hooks/new && echo hook; echo x >>settings/rc && echo rc";
            let said = says(&again(*user, &gate), attack);
            let changed: Vec<&str> = said.lines().filter(|line| !line.contains(' ')).collect();
            assert_eq!(changed, ["changed"], "{user:?} {mode}: {said}");
            [".git", "settings"].iter().for_each(|name| open(&gate.dir.join(name)));
            assert_eq!(fs::read_to_string(gate.dir.join(".git/config")).expect("there"), "[core]\n");
        }
    }
}

#[test]
fn what_is_closed_in_a_shut_directory_stays_so() {
    for user in users() {
        for mode in ["000", "600", "300"] {
            let gate = Gate::profile(*user, "write");
            gate.file("named/key", "SECRET\n");
            gate.file("service/.env", "SECRET\n");
            gate.file("other/file", "open\n");
            says(&again(*user, &gate), &format!("chmod {mode} named service"));
            let next = again(*user, &gate).flags(["--deny-path", "named/key"]);
            let said = says(&next, "chmod 755 named service; cat other/file named/key service/.env");
            assert!(said.contains("open\n") && !said.contains("SECRET"), "{user:?} {mode}: {said}");
            let (done, report) = again(*user, &gate).flags(["--deny-path", "named/key"]).report(["true"]);
            assert!(!layer(&report, "landlock").1.contains("key is not there"), "{user:?} {mode}");
            assert!(!done.stderr().contains("nothing is denied"), "{user:?} {mode} {done}");
            ["named", "service"].iter().for_each(|name| open(&gate.dir.join(name)));
        }
    }
}

#[test]
fn what_a_pattern_a_variable_or_git_names_in_a_shut_directory_stays_so() {
    for user in users() {
        for mode in ["000", "600", "300"] {
            let gate = Gate::profile(*user, "write");
            // No search for `.env` looks into `build`.
            for name in ["vault/secrets/a.json", "keys/key.json", "real/env", "runtime/config/gh/hosts.yml"] {
                gate.file(&format!("build/{name}"), "SECRET\n");
            }
            gate.file("build/tools/a.sh", "");
            gate.file("other/file", "open\n");
            git(
                *user,
                &gate.dir,
                "git init -q .; git config core.fsmonitor build/tools/a.sh; ln -s build/real/env .env",
            );
            let again = || {
                let gate = again(*user, &gate).env("GOOGLE_APPLICATION_CREDENTIALS", "build/keys/key.json");
                let moved = gate.dir.join("build/runtime/config");
                gate.env("XDG_CONFIG_HOME", moved).flags(["--deny-path", "build/vault/secrets/*.json"])
            };
            let read = "cat build/vault/secrets/a.json build/keys/key.json build/runtime/config/gh/hosts.yml build/real/env .env";
            let shut = "build/vault build/keys build/tools build/real build/runtime";
            let said = says(&again(), &format!("cat other/file {read}; chmod {mode} {shut}"));
            assert!(said.contains("open\n") && !said.contains("SECRET"), "{user:?}: {said}");
            let attack = format!(
                "chmod 700 {shut}; echo x >>other/file && echo changed; echo x >>build/tools/a.sh && echo program; {read}"
            );
            let said = says(&again(), &attack);
            assert!(said.contains("changed\n"), "the control: {user:?} {mode}: {said}");
            assert!(!said.contains("SECRET") && !said.contains("program\n"), "{user:?} {mode}: {said}");
            shut.split(' ').for_each(|name| open(&gate.dir.join(name)));
            assert_eq!(fs::read_to_string(gate.dir.join("build/tools/a.sh")).expect("there"), "");
        }
    }
}

#[test]
fn a_git_directory_without_its_head_is_still_one() {
    let make = "git init -q .; git init -q --bare .git/modules/a/b; git init -q --bare bare";
    for user in users() {
        for attack in [
            "mv .git/modules/a/b/HEAD .git/modules/a/b/H; mv bare/HEAD bare/H",
            "touch .git/modules/a/HEAD",
            "cd .git/modules; mkdir $(seq 1 2000)",
            "chmod 300 .git/modules",
            "chmod 600 .git/modules/a/b",
        ] {
            let gate = Gate::profile(*user, "write");
            git(*user, &gate.dir, make);
            says(&again(*user, &gate).flags(["--write", "bare"]), attack);
            let next = again(*user, &gate).flags(["--write", "bare"]);
            let said = says(
                &next,
                "chmod 755 .git/modules .git/modules/a/b; echo x >>bare/config && echo changed; echo x >>.git/modules/a/b/config && echo changed; \
                 echo x >bare/description && echo control",
            );
            assert!(said.contains("control\n") && !said.contains("changed"), "{user:?} {attack}: {said}");
        }
    }
}

#[test]
fn a_search_that_ended_early_is_told() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file("service/.env", "SECRET\n");
        let (_, report) = again(*user, &gate).report(["true"]);
        assert_eq!(layer(&report, "landlock").0, "enforced", "the control");
        says(&again(*user, &gate), "mkdir $(seq 1 2500)");
        let (_, report) = again(*user, &gate).report(["true"]);
        let (status, detail) = layer(&report, "landlock");
        assert!(status == "partial" && detail.contains("stopped there"), "{user:?} {detail}");
    }
}

#[test]
fn startup_files_are_kept_in_a_part_of_a_home() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".config/fish/config.fish", "");
        gate.file(".config/other/settings", "");
        let next = Gate::profile(*user, "write").in_directory(&gate.dir.join(".config")).env("HOME", &gate.dir);
        let line = "exec 2>&1; echo x >>other/settings && echo control; echo x >>fish/config.fish && echo changed";
        let (done, report) = next.report(["sh", "-c", line]);
        assert!(done.stdout().contains("control\n") && !done.stdout().contains("changed"), "{user:?} {done}");
        let (status, detail) = layer(&report, "landlock");
        assert!(status == "partial" && detail.contains(".config/autostart"), "{user:?} {detail}");
    }
}

#[test]
fn hooks_that_the_configuration_names_are_protected() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".githooks/sample", "");
        gate.file("more", "");
        gate.file("other/file", "");
        git(*user, &gate.dir, "git init -q .; git config core.hooksPath .githooks; git config include.path ../more");
        let said = says(
            &gate,
            "echo x >other/new && echo control; echo x >.githooks/pre-commit && echo changed; echo x >>more && echo changed",
        );
        assert!(said.contains("control\n") && !said.contains("changed"), "{user:?} {said}");
    }
}

#[test]
fn a_link_beside_the_directory_of_the_command_is_refused() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        let goal = crate::run::outside();
        gate.file("sub/file", "");
        gate.file("out/file", "");
        let flags = |flag| again(*user, &gate).flags(["--cwd", "sub", flag, "../out"]);
        for flag in ["--write", "--read", "--deny-path", "--unix"] {
            flags(flag).run(["true"]).exits(0);
        }
        says(&gate, &format!("rm -r out; ln -s {} out", goal.display()));
        for flag in ["--write", "--read", "--deny-path", "--unix"] {
            let done = flags(flag).run(["true"]);
            done.exits(125);
            assert!(done.stderr().contains("out is a symbolic link to"), "{user:?} {flag}: {done}");
        }
    }
}

#[test]
fn what_a_command_leaves_for_git_is_removed_from_a_shut_directory() {
    for user in users() {
        for mode in ["500", "000", "600", "755"] {
            let gate = Gate::profile(*user, "write");
            git(*user, &gate.dir, "git init -q .");
            let line = format!("echo ../evil >.git/commondir && chmod {mode} .git");
            let (done, report) = gate.report(["sh", "-c", &line]);
            done.exits(0);
            open(&gate.dir.join(".git"));
            assert!(!gate.dir.join(".git/commondir").exists(), "{user:?} {mode}");
            let (status, detail) = layer(&report, "namespaces");
            assert!(status == "partial" && detail.contains("it was removed"), "{user:?} {mode} {detail}");
        }
    }
}

#[test]
fn a_report_in_a_directory_that_was_swapped_is_no_report() {
    for user in users() {
        for swap in ["mkdir out; echo forged >out/report.json", "ln -s moved out; true"] {
            let gate = Gate::profile(*user, "write").flags(["--report", "out/report.json"]);
            gate.file("out/other", "");
            gate.run(["true"]).exits(0);
            let done = gate.run(["sh", "-c", &format!("mv out moved; {swap}")]);
            done.exits(125);
            assert!(done.stderr().contains("out was replaced during the run"), "{user:?}: {done}");
        }
    }
}

#[test]
fn a_closed_file_with_another_name_is_told() {
    for user in users() {
        for (name, flags) in [("secret", &["--deny-path", "secret"][..]), (".env", &[]), (".envrc", &[])] {
            let gate = Gate::profile(*user, "write");
            gate.file(name, "x");
            let again = || again(*user, &gate).flags(flags);
            let (_, report) = again().report(["true"]);
            assert_eq!(layer(&report, "landlock").0, "enforced", "the control");
            git(*user, &gate.dir, &format!("ln {name} other"));
            let (_, report) = again().report(["true"]);
            let (status, detail) = layer(&report, "landlock");
            assert!(status == "partial" && detail.contains("have other names"), "{user:?} {name} {detail}");
        }
    }
}

#[test]
fn a_file_with_another_name_in_a_closed_or_protected_directory_is_told() {
    for user in users() {
        for (name, shared) in
            [(".ssh/id_rsa", false), ("denied/deep/down/er/key", false), ("tree/.git/hooks/pre-commit", true)]
        {
            let home = super::place_of(*user);
            let gate = Gate::profile(*user, "write").env("HOME", &home).in_directory(&home.join("tree"));
            git(*user, &home, &format!("mkdir -p tree $(dirname {name}); echo SECRET >{name}"));
            let gate = gate.flags(["--deny-path", "../denied"]);
            git(*user, &home, "mkdir -p denied");
            let enforced = |gate: &Gate| layer(&gate.report(["true"]).1, "landlock").0 == "enforced";
            assert!(enforced(&gate), "the control: {user:?} {name}");
            // A program that locks its files links them within their directory.
            git(*user, &home, &format!("ln {name} $(dirname {name})/lock"));
            assert!(enforced(&gate), "{user:?} {name}");
            git(*user, &home, &format!("ln {name} {}", if shared { "tree/other" } else { "other" }));
            let (_, report) = gate.report(["true"]);
            let (status, detail) = layer(&report, "landlock");
            let says = format!("{}", home.join(name).display());
            let told = detail.contains("have other names (hard links)") && detail.contains(&says);
            assert!(status == "partial" && told, "{user:?} {name} {status}: {detail}");
        }
    }
}
