//! A command that attacks its stage, and a real tree that attacks `apply`.

use super::*;

#[test]
fn the_command_cannot_reach_the_stages() {
    for user in users() {
        let place = place(user);
        staged(&place, "true").exits(0);
        let own = store(&place);
        for line in [
            format!("cat {}/s/stage.json", own.display()),
            format!("ls {}", own.display()),
            format!("echo x > {}/s/upper/forged", own.display()),
            format!("rm -rf {0}/s; mkdir {0}/other", own.display()),
            format!("mv {0} {0}-2", own.display()),
        ] {
            let done = staged(&place, &line);
            assert_ne!(done.code(), Some(0), "{line}: {done}");
        }
        assert!(summary(&place).is_empty());
        assert!(!own.join("other").exists());
    }
}

#[test]
fn a_store_that_the_command_could_write_is_refused() {
    for user in users() {
        let place = place(user);
        for (state, flag) in [("work/state", "--quiet"), ("tmp/state", "--write")] {
            let mut words = vec!["run", "-p", "write", "--stage", "s", flag];
            let tmp = place.at("tmp").display().to_string();
            if flag == "--write" {
                words.push(&tmp);
            }
            words.extend(["--", "true"]);
            let mut command = place.command(&words);
            let done = run(command.env("XDG_STATE_HOME", place.at(state)));
            done.exits(125);
            assert!(done.stderr().contains("the stages are kept in "), "{done}");
            assert!(!place.at("work/state").exists(), "nothing is made in the real tree");
        }
    }
}

#[test]
fn overlay_marks_cannot_be_forged() {
    for user in users() {
        let place = place(user);
        let forge = "import os\nfor name, value in [('opaque', b'y'), ('redirect', b'/etc'), ('metacopy', b''), ('whiteout', b'y')]:\n    for path in ['dir', 'text']:\n        try:\n            os.setxattr(path, 'user.overlay.' + name, value)\n        except OSError:\n            pass\ntry:\n    os.mknod('dir/g2', 0o20600, 0)\n    print('made')\nexcept OSError:\n    pass\n";
        let done = place.run(&["run", "-p", "write", "--stage", "s", "--", "python3", "-c", forge]);
        done.exits(0).prints("");
        assert!(summary(&place).is_empty(), "{:?}", changes(&place));
        staged(&place, "cat text dir/g").exits(0).prints("one\ntwo\nthree\ng\n");
    }
}

/// A tree around the stages would let a command write what the next `apply` takes over, and where.
#[test]
fn a_command_that_may_write_the_home_cannot_change_a_stage() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo x > text").exits(0);
        let (home, own) = (place.at("home"), store(&place));
        let line = format!(
            "echo ok > {0}/ok; echo x > {1}/s/upper/planted; sed -i s/work/home/ {1}/s/stage.json; mv {0}/.local {0}/l; rm -rf {1}",
            home.display(),
            own.display()
        );
        let other = place.at("tmp");
        let words =
            ["run", "-p", "write", "--cwd", other.to_str().expect("text"), "--write", home.to_str().expect("text")];
        let words: Vec<&str> = words.into_iter().chain(["-c", &line]).collect();
        assert_ne!(place.run(&words).code(), Some(0));
        assert!(home.join("ok").exists(), "the home itself is writable");
        assert_eq!(summary(&place), ["modified text"]);
        place.run(&["stage", "apply", "s"]).exits(0).prints("1 change applied\n");
    }
}

/// A mount needs something to be mounted on.
#[test]
fn a_closed_file_that_an_earlier_run_removed_does_not_stop_the_next() {
    for user in users() {
        let place = place(user);
        sh(&place, "echo K=1 > .env; mkdir .vscode; echo s > .vscode/settings.json");
        let words = ["run", "-p", "write", "--stage", "s", "--write", ".env", "--write", ".vscode"];
        let words: Vec<&str> = words.into_iter().chain(["-c", "rm -r .env .vscode"]).collect();
        place.run(&words).exits(0);
        staged(&place, "ls -A; mkdir .vscode; echo evil > .vscode/settings.json; echo K=2 > .env").exits(0);
        let done = place.run(&["stage", "apply", "s"]);
        assert!(done.exits(2).stderr().contains("protected: .vscode/settings.json\n"), "{done}");
        sh(&place, "grep -qx K=1 .env; grep -qx s .vscode/settings.json");
    }
}

#[test]
fn apply_follows_no_link_out_of_the_tree() {
    for user in users() {
        let place = place(user);
        sh(&place, "mkdir ../outside; echo safe > ../outside/g; mkdir ../outside/deep");
        staged(&place, "echo evil > dir/g; echo evil > dir/new; ln -s ../outside out; rm -r dir/deep").exits(0);
        // Another command has swapped a directory of the real tree for a link.
        sh(&place, "mv dir ../was; ln -s ../outside dir");
        place.run(&["stage", "apply", "s"]).exits(1);
        sh(&place, "grep -q safe ../outside/g; test ! -e ../outside/new; test -d ../outside/deep");
        sh(&place, "rm dir; mv ../was dir");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -q evil dir/g; grep -q safe ../outside/g; test -L out");
    }
}

#[test]
fn links_in_the_stage_are_applied_as_links() {
    for user in users() {
        let place = place(user);
        sh(&place, "echo secret > ../home/secret");
        let secret = place.at("home/secret");
        staged(&place, &format!("ln -sf {} text; ln -s /etc/passwd p", secret.display())).exits(0);
        let diff = place.run(&["stage", "diff", "s"]);
        assert!(!diff.stdout().contains("root:"), "{diff}");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "test -L text; test -L p; grep -q secret ../home/secret");
    }
}

#[test]
fn control_characters_reach_no_message() {
    let place = place(None);
    staged(&place, "printf x > \"$(printf 'a\\033[31m\\nb')\"; echo x > text").exits(0);
    sh(&place, "echo y > text; printf y > \"$(printf 'a\\033[31m\\nb')\"");
    let done = place.run(&["stage", "apply", "s"]);
    done.exits(1);
    assert!(!done.stderr().contains('\x1b') && done.stderr().contains(r#""a\033[31m\nb""#), "{done}");
}

#[test]
fn a_very_deep_tree_is_an_error_and_can_be_discarded() {
    let place = place(users().last().copied().flatten());
    let deep = "import os\nfor _ in range(600):\n    os.mkdir('d')\n    os.chdir('d')\n";
    let done = place.run(&["run", "-p", "write", "--stage", "s", "--", "python3", "-c", deep]);
    done.exits(0);
    let diff = place.run(&["stage", "diff", "s"]);
    diff.exits(2);
    assert!(diff.stderr().contains("directories deep"), "{diff}");
    place.run(&["stage", "discard", "s"]).exits(0);
}

/// A descriptor that the caller opened leads past the stage. A change of another file on the same mount must not vouch for it.
#[test]
fn the_mode_of_a_real_file_stays_although_the_command_has_its_descriptor() {
    if !crate::support::has("python3") {
        return;
    }
    for user in users() {
        let place = place(user);
        let gatekeeper = crate::support::gatekeeper_for_all().display().to_string();
        let script = "import os\nfor i in range(50):\n os.fchmod(1, 0o640)\n try: os.fchmod(2, 0o777); os._exit(7)\n \
                      except PermissionError: pass";
        let line = format!(
            "mkdir ../other; chmod 600 text; {gatekeeper} run -q -p write --stage s --write ../other -- python3 -c '{script}' \
             > ../other/out 2>> text; stat -c %a text ../other/out"
        );
        assert_eq!(sh(&place, &line).stdout(), "600\n640\n");
    }
}

/// Git reads the settings of a repository from wherever they are said to be, and those of a submodule before it is filled.
#[test]
fn what_leads_git_to_other_settings_is_applied_only_on_request() {
    for user in users() {
        for (make, path) in [
            (
                "mkdir evil; echo '[core] fsmonitor = x' > evil/config; echo ../../evil > sub/.git/commondir",
                "sub/.git/commondir",
            ),
            ("echo '[core] fsmonitor = x' > sub/.git/config.worktree", "sub/.git/config.worktree"),
            ("mkdir -p .git/modules/mod/hooks; echo x > .git/modules/mod/config", ".git/modules/mod/config"),
            (
                "mkdir -p .git/modules/a/b/hooks; echo x > .git/modules/a/b/hooks/post-checkout",
                ".git/modules/a/b/hooks/post-checkout",
            ),
            ("mkdir -p .git/modules evil; ln -s ../../evil .git/modules/mod", ".git/modules/mod"),
            ("mkdir -p .git/worktrees/w; echo /evil > .git/worktrees/w/commondir", ".git/worktrees/w/commondir"),
        ] {
            let place = place(user);
            let git = "git -c user.name=n -c user.email=e@e";
            sh(&place, &format!("git init -q .; git init -q sub; cd sub; {git} commit --allow-empty -qm first"));
            let line = format!("(cd sub; echo x > x; git add x; {git} commit -qm second); {make}");
            staged(&place, &line).exits(0);
            let done = place.run(&["stage", "apply", "s"]);
            assert!(done.exits(2).stderr().contains(&format!("protected: {path}\n")), "{make}: {done}");
            place.run(&["stage", "apply", "s", "--protected", "skip"]).exits(0);
            sh(&place, &format!("test ! -e {path} -a ! -L {path}; test $(git -C sub log --oneline | wc -l) = 2"));
        }
    }
}

/// An editor that finds a repository in a subdirectory asks git about it, and git runs what its settings name.
#[test]
fn hooks_and_settings_of_repositories_in_subdirectories_are_applied_only_on_request() {
    for user in users() {
        for (make, path) in [
            ("mkdir -p sub/.git; echo '[core] fsmonitor = /tmp/evil' > sub/.git/config", "sub/.git/config"),
            ("mkdir -p a/b/.git/hooks; echo evil > a/b/.git/hooks/pre-commit", "a/b/.git/hooks/pre-commit"),
            ("mkdir sub evil; echo 'gitdir: ../evil' > sub/.git", "sub/.git"),
            ("mkdir sub evil; ln -s ../evil sub/.git", "sub/.git"),
        ] {
            let place = place(user);
            staged(&place, &format!("{make}; echo x > text")).exits(0);
            let before = tree(&place.at("work"));
            let done = place.run(&["stage", "apply", "s"]);
            assert!(done.exits(2).stderr().contains(&format!("protected: {path}\n")), "{make}: {done}");
            assert_eq!(tree(&place.at("work")), before);
            place.run(&["stage", "apply", "s", "--protected", "skip"]).exits(0);
            sh(&place, &format!("grep -qx x text; test ! -e {path} -a ! -L {path}"));
            place.run(&["stage", "apply", "s", "--protected", "take"]).exits(0);
            sh(&place, &format!("test -e {path}"));
        }
        let place = place(user);
        staged(&place, "mkdir -p sub/.github/hooks; echo x > sub/.github/hooks/x; echo y > sub/.gitignore").exits(0);
        place.run(&["stage", "apply", "s"]).exits(0);
    }
}

#[test]
fn a_file_of_terabytes_without_contents_does_not_stop_the_difference() {
    for user in users() {
        let place = place(user);
        staged(
            &place,
            "truncate -s 15T huge 2>/dev/null || truncate -s 7T huge; truncate -s 1M small; stat -c %s huge",
        )
        .exits(0);
        let began = std::time::Instant::now();
        let diff = place.run(&["stage", "diff", "s"]);
        diff.exits(1);
        assert!(diff.stdout().contains(" bytes, sparse, not hashed\n"), "{diff}");
        let zeros = sh(&place, "head -c 1M /dev/zero | sha256sum").stdout();
        assert!(
            diff.stdout().contains(&format!("# small: added, binary file, 1048576 bytes, sha256 {}", &zeros[..64])),
            "{diff}"
        );
        place.run(&["stage", "diff", "--stat", "s"]).exits(1);
        let list = changes(&place);
        assert!(list[0]["sha256"].is_null() && list[0]["size"].as_u64() > Some(1 << 40), "{list:?}");
        place.run(&["stage", "apply", "s"]).exits(0);
        // Opened for writing and unchanged: both sides are compared, too.
        staged(&place, ": >> huge").exits(0);
        place.run(&["stage", "diff", "s"]).exits(0).prints("");
        assert!(began.elapsed() < std::time::Duration::from_secs(120), "{:?}", began.elapsed());
    }
}

#[test]
fn long_texts_of_few_kinds_of_lines_are_compared_in_bounded_time() {
    let place = place(users().last().copied().flatten());
    let lines = "import random, sys; random.seed(int(sys.argv[1])); sys.stdout.writelines(random.choice(['a\\n', 'b\\n']) for _ in range(200000))";
    fs::write(place.at("tmp/lines.py"), lines).expect("own directory");
    sh(&place, "python3 ../tmp/lines.py 1 > long; python3 ../tmp/lines.py 2 > ../tmp/other; chmod 644 ../tmp/other");
    let other = place.at("tmp/other").display().to_string();
    place.run(&["run", "-p", "write", "--read", &other, "--stage", "s", "-c", &format!("cat {other} > long")]).exits(0);
    let began = std::time::Instant::now();
    let diff = place.run(&["stage", "diff", "s"]);
    diff.exits(1);
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    fs::write(place.at("tmp/patch"), &diff.output.stdout).expect("own directory");
    sh(&place, "cp long ../tmp/copy; cd ../tmp && patch -s copy patch && cmp copy other");
}

#[test]
fn a_difference_that_is_killed_leaves_no_permissions_lifted() {
    for user in users().into_iter().flatten() {
        let place = place(Some(user));
        // Long to hash: holes below the limit.
        staged(&place, "mkdir d; echo x > d/data; truncate -s 250M d/big; chmod 000 d").exits(0);
        let mode = || fs::metadata(store(&place).join("s/upper/d")).expect("there").mode() & 0o777;
        assert_eq!(mode(), 0);
        let mut diff = place.command(&["stage", "diff", "s"]);
        let mut diff = diff.stdout(std::process::Stdio::null()).spawn().expect("starts");
        while mode() == 0 && diff.try_wait().expect("own child").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let early = diff.try_wait().expect("own child").is_none();
        diff.kill().expect("own child");
        diff.wait().expect("ended");
        assert!(!early || mode() == 0o700, "it was killed in between");
        let list = changes(&place);
        assert_eq!((&list[2]["path"], &list[2]["mode"]), (&"d/data".into(), &"0644".into()), "{list:?}");
        assert_eq!((&list[0]["path"], &list[0]["mode"]), (&"d".into(), &"0000".into()), "{list:?}");
        assert_eq!(mode(), 0);
        assert_eq!(
            fs::read_dir(store(&place).join("s"))
                .expect("there")
                .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name() == "lifted.json"))
                .count(),
            0
        );
        place.run(&["stage", "discard", "s"]).exits(0);
    }
}
