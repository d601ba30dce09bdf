//! Applying a stage: conflicts, parts of it, protected files, interruptions and full disks.

use super::*;

#[test]
fn a_file_that_changed_meanwhile_is_a_conflict_and_nothing_is_changed() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo four >> text; echo new > new; rm dir/g; echo i >> dir/deep/h; rm link").exits(0);
        sh(&place, "echo mine >> text; echo mine > new; echo mine > dir/g; ln -sf other link");
        let before = tree(&place.at("work"));
        let done = place.run(&["stage", "apply", "s"]);
        done.exits(1);
        for path in ["text", "new", "dir/g", "link"] {
            assert!(done.stderr().contains(&format!("conflict: {path}: ")), "{done}");
        }
        assert!(!done.stderr().contains("dir/deep/h"), "{done}");
        assert_eq!(tree(&place.at("work")), before);
        // The rest can be taken.
        place.run(&["stage", "apply", "s", "dir/deep"]).exits(0).prints("1 change applied, 4 left in stage s\n");
        sh(&place, "grep -q i dir/deep/h; grep -q mine text");
    }
}

#[test]
fn a_change_back_to_the_same_contents_is_no_conflict() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo four >> text; echo same > new").exits(0);
        sh(&place, "cp text t; sleep 0.02; cat t > text; rm t; echo same > new");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -q four text; grep -q same new");
    }
}

#[test]
fn a_file_that_changes_during_the_run_is_a_conflict() {
    for user in users() {
        let place = place(user);
        let mut running =
            place.command(&["run", "-p", "write", "--stage", "s", "-c", "echo x >> text; touch ready; sleep 3"]);
        let mut running = running.spawn().expect("starts");
        while !store(&place).join("s/upper/ready").exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        sh(&place, "echo mine >> text");
        running.wait().expect("ends");
        place.run(&["stage", "apply", "s"]).exits(1);
        sh(&place, "grep -q mine text");
    }
}

/// Runs `inside` in the stage; when it has made the file `ready`, runs `outside` in the real tree.
#[track_caller]
fn during_the_run(place: &Place, inside: &str, outside: &str) {
    let line = format!("{inside}; touch ready; while test ! -e ../tmp/go; do sleep 0.05; done");
    let mut running = place.command(&["run", "-p", "write", "--stage", "s", "-c", &line]);
    let mut running = running.spawn().expect("starts");
    crate::plumbing::eventually("the command has made its changes", || store(place).join("s/upper/ready").exists());
    sh(place, outside);
    sh(place, "touch ../tmp/go");
    assert!(running.wait().expect("ends").success());
    sh(place, "rm ../tmp/go");
}

#[test]
fn what_the_user_removes_or_moves_during_the_run_is_a_conflict() {
    // The command's change, the user's, and the path of the conflict.
    for (inside, outside, path) in [
        ("echo x >> text", "rm text", "text"),
        ("echo x >> text", "mv text elsewhere", "text"),
        ("echo x >> dir/g", "mv dir moved", "dir"),
        ("echo x >> dir/g", "rm -r dir", "dir"),
        // Another directory, with older files, has the name now.
        ("echo x >> dir/g", "mv dir moved; mv spare dir", "dir/g"),
        ("rm dir/g", "mv dir moved; mv spare dir", "dir/g"),
        ("rm -r dir", "mv dir moved; mv spare dir", "dir"),
        ("rm -r dir; mkdir dir; echo n > dir/n", "mv dir moved; mv spare dir", "dir/g"),
        ("echo x > dir/deep/new", "mv dir moved; mv spare dir", "dir/deep/new"),
        ("mv text renamed", "rm text", "renamed"),
        // Replaced as a whole: in the stage it is a new file.
        ("sed -i s/one/two/ text", "rm text", "text"),
        ("echo x > dir/new; mv dir/new dir/g", "rm dir/g", "dir/g"),
        ("rm link; ln -s dir link", "rm link", "link"),
        ("rm text; mkdir text", "rm text", "text"),
    ] {
        for user in users() {
            let place = place(user);
            sh(&place, "mkdir -p spare/deep; echo mine > spare/g; echo mine > spare/deep/h; sleep 0.02");
            during_the_run(&place, inside, outside);
            let before = tree(&place.at("work"));
            let done = place.run(&["stage", "apply", "s"]);
            let named = format!("conflict: {path}: changed in the real tree during a run\n");
            assert!(done.exits(1).stderr().contains(&named), "{inside} / {outside}: {done}");
            assert_eq!(tree(&place.at("work")), before, "{inside} / {outside}");
        }
    }
}

#[test]
fn what_the_user_does_elsewhere_during_the_run_is_no_conflict() {
    for (inside, outside) in [
        ("mv text renamed", "echo mine > new"),
        ("ln text hard; echo x >> hard; echo n > dir/n; rm dir/g", "echo mine > dir/other; mkdir dir/more"),
        ("echo x >> dir/deep/h; mv dir/g dir/deep/text; mkdir made", "touch dir/deep/mine; rm dir/deep/mine"),
    ] {
        for user in users() {
            let place = place(user);
            during_the_run(&place, inside, outside);
            place.run(&["stage", "apply", "s"]).exits(0);
            sh(&place, "test -e new -o -e dir/other -o -e made; test -e ready");
        }
    }
}

/// The check comes before the first change; what the user does after it must survive too.
#[test]
fn a_file_that_is_edited_while_the_stage_is_applied_is_neither_deleted_nor_replaced() {
    for name in ["zgone", "zlast"] {
        assert!((0..5).any(|_| edit_while_it_is_applied(name)), "apply was never stopped before it came to {name}");
    }
}

/// `false`: apply was too quick for this test.
fn edit_while_it_is_applied(name: &str) -> bool {
    use rustix::process::{Pid, Signal, kill_process};
    let place = place(users().last().copied().flatten());
    sh(&place, "mkdir many; echo old > zgone; echo old > zlast");
    let line = "i=0; while [ $i -lt 2000 ]; do echo $i > many/n$i; i=$((i+1)); done; rm zgone; echo new > zlast";
    staged(&place, line).exits(0);
    let mut applying = place.command(&["stage", "apply", "s"]).spawn().expect("starts");
    // New files are written beside their places first: the comparison is over when the first one is there.
    let writes = || fs::read_dir(place.at("work/many")).expect("there").next().is_some();
    while !writes() && applying.try_wait().expect("own child").is_none() {
        std::thread::yield_now();
    }
    let pid = Pid::from_child(&applying);
    kill_process(pid, Signal::STOP).expect("own child");
    let early = fs::read_to_string(place.at("work").join(name)).is_ok_and(|text| text == "old\n");
    sh(&place, &format!("echo edited > {name}"));
    kill_process(pid, Signal::CONT).expect("own child");
    let status = applying.wait().expect("ends");
    if early {
        assert_eq!(status.code(), Some(2), "{name}");
        sh(&place, &format!("grep -qx edited {name}"));
        let done = place.run(&["stage", "apply", "s"]);
        assert!(done.exits(1).stderr().contains(&format!("conflict: {name}: ")), "{done}");
    }
    early
}

#[test]
fn an_untouched_copy_in_the_stage_does_not_undo_the_users_change() {
    for user in users() {
        let place = place(user);
        // Opened for writing, so that overlayfs copies it, and left as it was.
        staged(&place, "true <> text; echo n > n").exits(0);
        sh(&place, "echo mine >> text");
        assert_eq!(summary(&place), ["added n"]);
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -q mine text");
    }
}

/// git would take its settings and hooks from where the link leads, and core.fsmonitor runs a program.
#[test]
fn a_link_or_file_in_the_place_of_git_is_applied_only_on_request() {
    for user in users() {
        for make in ["ln -s evil .git", "echo 'gitdir: evil' > .git"] {
            let place = place(user);
            staged(&place, &format!("mkdir evil; {make}")).exits(0);
            let done = place.run(&["stage", "apply", "s"]);
            assert!(done.exits(2).stderr().contains("protected: .git\n"), "{done}");
            sh(&place, "test ! -e evil && test ! -L .git");
        }
    }
}

#[test]
fn protected_files_are_applied_only_on_request() {
    for user in users() {
        let place = place(user);
        sh(
            &place,
            "mkdir -p .git/objects .git/refs; echo 'ref: refs/heads/main' > .git/HEAD; mkdir .git/hooks; touch .git/config",
        );
        let done = staged(
            &place,
            "echo evil > .git/hooks/post-checkout; mkdir .vscode; echo evil > .vscode/tasks.json; echo x > text",
        );
        assert!(done.stderr().contains(".git/hooks"), "{done}");
        let before = tree(&place.at("work"));
        let done = place.run(&["stage", "apply", "s"]);
        done.exits(2);
        assert!(done.stderr().contains("protected: .vscode/tasks.json\n"), "{done}");
        assert_eq!(tree(&place.at("work")), before);
        place
            .run(&["stage", "apply", "s", "--protected", "skip"])
            .exits(0)
            .prints("1 change applied, 2 left in stage s\n");
        sh(&place, "grep -q x text; test ! -e .vscode; test ! -e .git/hooks/post-checkout");
        place.run(&["stage", "apply", "s", "--protected", "take"]).exits(0);
        sh(&place, "test -e .vscode/tasks.json");
    }
}

#[test]
fn paths_are_named_from_the_current_directory() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo 1 > dir/one; echo 2 > dir/deep/two; mkdir -p a/b; echo 3 > a/b/c").exits(0);
        let mut inside = place.command(&["stage", "apply", "s", "one"]);
        run(inside.current_dir(place.at("work/dir"))).exits(0);
        sh(&place, "test -e dir/one; test ! -e dir/deep/two");
        place.run(&["stage", "apply", "s", "nothing"]).exits(2);
        place.run(&["stage", "apply", "s", "../home"]).exits(2);
        place.run(&["stage", "apply", "s", "a/b/c"]).exits(0).prints("3 changes applied, 1 left in stage s\n");
        sh(&place, "test -e a/b/c");
    }
}

#[test]
fn a_part_of_a_replaced_directory_can_be_applied() {
    for user in users() {
        let place = place(user);
        staged(&place, "rm -r dir; mkdir dir; echo 1 > dir/one; echo 2 > dir/two").exits(0);
        place.run(&["stage", "apply", "s", "dir/one"]).exits(0);
        assert_eq!(summary(&place), ["deleted dir/deep", "deleted dir/deep/h", "deleted dir/g", "added dir/two"]);
        staged(&place, "ls dir").exits(0).prints("one\ntwo\n");
        sh(&place, "echo mine > dir/one");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -q mine dir/one; test \"$(ls dir | tr '\\n' ' ')\" = 'one two '");
    }
}

#[test]
fn modes_and_times_are_kept_and_set_user_id_is_not() {
    for user in users() {
        let place = place(user);
        staged(&place, "umask 0; echo s > secret; chmod 600 secret; touch -d @1000000 secret; mkdir -m 700 private; chmod 4755 text; chmod 640 dir/g").code();
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(
            &place,
            "test $(stat -c %a:%Y secret) = 600:1000000; test $(stat -c %a private) = 700; test $(stat -c %a dir/g) = 640; test ! -u text",
        );
    }
}

#[test]
fn an_apply_that_is_killed_half_way_is_finished_by_the_next() {
    let place = place(users().last().copied().flatten());
    let line = "for i in $(seq 3000); do echo $i > n$i; done; echo x >> text; rm -r dir; mkdir -p new/in; echo f > new/in/f; \
                rm link; mkdir link; echo l > link/l; chmod 750 new/in";
    staged(&place, line).exits(0);
    let mut kills = 0;
    for wait in [15, 30, 45, 60, 90, 120] {
        let mut child = place.command(&["stage", "apply", "s"]).spawn().expect("starts");
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let _ = child.kill();
        if child.wait().expect("ended").success() {
            break;
        }
        kills += 1;
        let text = fs::read_to_string(place.at("work/text")).expect("never half a file");
        assert!(["one\ntwo\nthree\n", "one\ntwo\nthree\nx\n"].contains(&text.as_str()), "{text}");
    }
    let left = place.run(&["stage", "diff", "--stat", "s"]).code();
    if left != Some(2) {
        place.run(&["stage", "apply", "s"]).exits(0);
    }
    assert!(kills > 0 || left == Some(2));
    let names: Vec<_> = tree(&place.at("work")).into_keys().collect();
    assert_eq!(names.len(), 3006, "3000 files, text, new and link, and nothing beside them");
    sh(&place, "test $(stat -c %a new new/in link | tr '\\n' -) = 755-750-755-; grep -q f new/in/f; grep -q l link/l");
}

#[test]
fn a_stage_that_is_discarded_after_a_killed_apply_leaves_no_files_beside_the_real_ones() {
    let beside = |place: &Place| {
        let names = fs::read_dir(place.at("work/many")).expect("there").flatten().map(|entry| entry.file_name());
        names.filter(|name| name.as_bytes().starts_with(b".gatekeeper-")).count()
    };
    let killed = || {
        let place = place(users().last().copied().flatten());
        sh(&place, "mkdir many other");
        // A file with two names is not moved out of the stage but copied.
        let linked = "import os\nfor i in range(2000):\n open(f'many/n{i}', 'w').write('x'); os.link(f'many/n{i}', f'other/n{i}')";
        place.run(&["run", "-p", "write", "--stage", "s", "--", "python3", "-c", linked]).exits(0);
        let mut applying = place.command(&["stage", "apply", "s"]).spawn().expect("starts");
        while beside(&place) == 0 && applying.try_wait().expect("own child").is_none() {
            std::thread::yield_now();
        }
        let _ = applying.kill();
        applying.wait().expect("ended");
        let left = beside(&place);
        if left > 0 {
            place.run(&["stage", "discard", "s"]).exits(0);
            assert_eq!(beside(&place), 0);
        }
        left > 0
    };
    assert!((0..5).any(|_| killed()), "apply was never killed half way");
}

#[test]
fn a_name_that_is_no_text_can_be_applied_alone() {
    use std::os::unix::ffi::OsStrExt;
    for user in users() {
        let place = place(user);
        staged(&place, "echo x > \"$(printf 'a\\377')\"; echo x > text").exits(0);
        let mut apply = place.command(&["stage", "apply", "s"]);
        run(apply.arg(std::ffi::OsStr::from_bytes(b"a\xff"))).exits(0).prints("1 change applied, 1 left in stage s\n");
        assert!(place.at("work").join(std::ffi::OsStr::from_bytes(b"a\xff")).exists());
        assert_eq!(summary(&place), ["modified text"]);
    }
}

/// Replacing or removing one name of a file changes the st_ctime that the others have too.
#[test]
fn names_of_one_file_are_changed_one_by_one() {
    for user in users() {
        for parts in [&[][..], &["one"], &["two"], &["three", "one"]] {
            let place = place(user);
            sh(&place, "echo f > one; for name in two three four five; do ln one $name; done");
            staged(&place, "echo new > one; chmod 755 two; rm three; echo more >> four").exits(0);
            for part in parts {
                place.run(&["stage", "apply", "s", part]).exits(0);
            }
            place.run(&["stage", "apply", "s"]).exits(0);
            let line = "cat one two four five; test ! -e three; stat -c %a one two four five | tr '\\n' ' '";
            assert_eq!(sh(&place, line).stdout(), "new\nf\nf\nmore\nf\n644 755 644 644 ", "{parts:?}");
        }
        let place = place(user);
        sh(&place, "echo f > one; ln one two");
        staged(&place, "rm one two").exits(0);
        sh(&place, "echo by the user >> one");
        let done = place.run(&["stage", "apply", "s"]);
        assert!(done.exits(1).stderr().contains("conflict: two: changed in the real tree meanwhile\n"), "{done}");
    }
}
