//! Stages: what a command changes waits for `stage apply`, and the real tree stays as it is until then.

mod apply;
mod closed;
mod copies;
mod hostile;
mod isolated;
mod meanwhile;
mod mounts;
mod odd;
mod patch;
mod races;
mod restart;
mod special;
mod terminal;
mod types;

use crate::plumbing::{Place, users};
use crate::support::{Done, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A place whose working directory has some files of its user's.
fn place(user: Option<u32>) -> Place {
    let place = Place::new(user);
    sh(
        &place,
        "printf 'one\\ntwo\\nthree\\n' > text; mkdir -p dir/deep; echo g > dir/g; echo h > dir/deep/h; ln -s text link",
    );
    place
}

/// Runs a line unconfined, in the working directory and as the user of the place.
#[track_caller]
fn sh(place: &Place, line: &str) -> Done {
    let done = run(&mut place.any("/bin/sh".as_ref(), &["-ec", line]));
    done.exits(0);
    done
}

/// Runs a line in stage `s`.
#[track_caller]
fn staged(place: &Place, line: &str) -> Done {
    place.run(&["run", "-p", "write", "--stage", "s", "-c", line])
}

#[track_caller]
fn changes(place: &Place) -> Vec<Value> {
    let done = place.run(&["stage", "diff", "--json", "s"]);
    let list: Vec<Value> = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"));
    done.exits(i32::from(!list.is_empty()));
    list
}

/// `change path` for each change.
#[track_caller]
fn summary(place: &Place) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    changes(place).iter().map(|entry| format!("{} {}", text(&entry["change"]), text(&entry["path"]))).collect()
}

/// Everything below a directory: kind, mode and contents by path.
fn tree(top: &Path) -> BTreeMap<OsString, (String, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![PathBuf::new()];
    while let Some(at) = ahead.pop() {
        for entry in fs::read_dir(top.join(&at)).expect("readable").flatten() {
            let path = at.join(entry.file_name());
            let meta = fs::symlink_metadata(top.join(&path)).expect("there");
            let mode = meta.permissions().mode() & 0o7777;
            let entry = match meta.file_type() {
                kind if kind.is_dir() => {
                    ahead.push(path.clone());
                    ("dir".to_owned(), mode, Vec::new())
                }
                kind if kind.is_symlink() => {
                    let target = fs::read_link(top.join(&path)).expect("a link");
                    ("link".to_owned(), 0, target.as_os_str().as_bytes().to_vec())
                }
                _ => ("file".to_owned(), mode, fs::read(top.join(&path)).unwrap_or_default()),
            };
            found.insert(path.into_os_string(), entry);
        }
    }
    found
}

fn store(place: &Place) -> PathBuf {
    place.at("home/.local/state/gatekeeper/stages")
}

#[test]
fn changes_wait_in_the_stage_until_they_are_applied() {
    for user in users() {
        let place = place(user);
        let before = tree(&place.at("work"));
        let line = "echo four >> text; rm -r dir; mkdir new; echo n > new/file; chmod 755 text; mv link moved; pwd";
        let report = place.at("tmp/report");
        let words = ["run", "-p", "write", "--stage", "s", "--report", report.to_str().expect("text"), "-c", line];
        place.run(&words).exits(0).prints(&format!("{}\n", place.at("work").display()));
        assert_eq!(tree(&place.at("work")), before, "the real tree is untouched");

        let report: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
        assert_eq!(report["stage"], serde_json::json!({"name": "s", "changes": 9, "means": "overlay"}));
        let layer = report["layers"].as_array().expect("a list").iter().find(|layer| layer["layer"] == "stage");
        assert_eq!(layer.expect("the layer")["status"], "enforced");

        let expected = [
            "deleted dir",
            "deleted dir/deep",
            "deleted dir/deep/h",
            "deleted dir/g",
            "deleted link",
            "added moved",
            "added new",
            "added new/file",
            "modified text",
        ];
        assert_eq!(summary(&place), expected);
        let listed: Value =
            serde_json::from_str(&place.run(&["stage", "list", "--json"]).exits(0).stdout()).expect("JSON");
        assert_eq!((&listed[0]["name"], &listed[0]["changes"]), (&"s".into(), &9.into()));
        assert_eq!(listed[0]["cwd"], place.at("work").to_str().expect("text"));

        // The next run sees the changes of the one before.
        staged(&place, "tail -n 1 text; ls").exits(0).prints("four\nmoved\nnew\ntext\n");
        place.run(&["stage", "apply", "s"]).exits(0).prints("9 changes applied\n");
        sh(&place, "test -x text; test ! -e dir; test -L moved; grep -q four text; grep -q n new/file");
        place.run(&["stage", "diff", "s"]).exits(2);
        assert_eq!(fs::read_dir(store(&place)).expect("the store").count(), 0);
    }
}

#[test]
fn a_discarded_stage_leaves_nothing() {
    for user in users() {
        let place = place(user);
        let before = tree(&place.at("work"));
        staged(&place, "echo x > text; mkdir -p a/b/c; chmod 000 a/b").exits(0);
        place.run(&["stage", "discard", "s"]).exits(0);
        assert_eq!(tree(&place.at("work")), before);
        assert_eq!(fs::read_dir(store(&place)).expect("the store").count(), 0);
        place
            .run(&["stage", "discard", "s"])
            .exits(2)
            .complains("gatekeeper: there is no stage s; gatekeeper stage list shows the stages\n");
        staged(&place, "true").exits(0);
        place.run(&["stage", "diff", "s"]).exits(0).prints("");
    }
}

#[test]
fn old_stages_are_pruned_unless_a_run_uses_them() {
    for user in users() {
        let place = place(user);
        for name in ["old", "new", "used"] {
            place.run(&["run", "-p", "write", "--stage", name, "--", "true"]).exits(0);
        }
        for name in ["old", "used"] {
            let file = store(&place).join(name).join("stage.json");
            let mut about: Value = serde_json::from_slice(&fs::read(&file).expect("there")).expect("JSON");
            about["created"] = (about["created"].as_i64().expect("seconds") - 8 * 86_400).into();
            fs::write(&file, about.to_string()).expect("own directory");
        }
        let mut running = place.command(&["run", "-p", "write", "--stage", "used", "-c", "echo x > up; exec sleep 60"]);
        let mut running = running.spawn().expect("starts");
        crate::plumbing::eventually("the run uses its stage", || store(&place).join("used/upper/up").exists());
        place.run(&["stage", "prune", "--older", "9d"]).exits(0).prints("");
        place.run(&["stage", "prune", "--older", "7d"]).exits(0).prints("old discarded\n");
        running.kill().expect("own child");
        running.wait().expect("ended");
        let listed = place.run(&["stage", "list"]);
        let names =
            || listed.stdout().lines().skip(1).filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
        let names: Vec<String> = names();
        assert_eq!(names, ["new", "used"], "{listed}");
        crate::plumbing::eventually("the killed run lets go", || {
            place.run(&["stage", "prune", "--older", "7d"]).stdout() == "used discarded\n"
        });
    }
}

#[test]
fn a_stage_needs_a_profile_that_may_write() {
    for user in users() {
        let place = place(user);
        let refused = [
            (vec!["run", "--stage", "s", "--", "true"], "add --profile write"),
            (vec!["run", "-p", "read", "--stage", "s", "--", "true"], "add --profile write"),
            (vec!["run", "-p", "unrestricted", "--stage", "s", "--", "true"], "use --profile write"),
            (vec!["run", "-p", "write", "--stage", "../s", "--", "true"], "a stage is named by"),
        ];
        for (words, why) in refused {
            let done = place.run(&words);
            done.exits(125);
            assert!(done.stderr().contains(why), "{done}");
        }
        place.run(&["run", "-p", "write", "--stage", "s", "--", "no-such-command"]).exits(127);
        let names: Vec<_> = fs::read_dir(store(&place)).expect("the store").collect();
        assert!(names.is_empty(), "nothing ran, so no stage is left: {names:?}");
        let plan = place.run(&["plan", "-p", "write", "--stage", "s", "--", "true"]);
        plan.exits(0);
        assert!(plan.stdout().contains("s, new, by overlayfs if it works here, else in a copy"), "{plan}");
        assert_eq!(fs::read_dir(store(&place)).expect("the store").count(), 0, "a plan makes nothing");
    }
}

#[test]
fn a_stage_belongs_to_one_directory() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo x > text").exits(0);
        let done = place.run(&["run", "-p", "write", "--stage", "s", "--cwd", "dir", "--", "true"]);
        done.exits(125);
        assert!(done.stderr().contains("stage s belongs to "), "{done}");
        sh(&place, "mv ../work ../old; mkdir ../work");
        staged(&place, "true").exits(125);
        place.run(&["stage", "apply", "s"]).exits(2);
        // A new directory may get the inode of the old one: the first free one on ext4.
        sh(&place, "rmdir ../work; mv ../old ../work");
        place.run(&["stage", "diff", "s"]).exits(1);
        let file = store(&place).join("s/stage.json");
        let mut about: Value = serde_json::from_slice(&fs::read(&file).expect("there")).expect("JSON");
        if let Some(seconds) = about["born"][0].as_i64() {
            about["born"][0] = (seconds - 1).into();
            fs::write(&file, about.to_string()).expect("own directory");
            let done = place.run(&["stage", "diff", "s"]);
            assert!(done.exits(2).stderr().contains("was replaced since the stage was made"), "{done}");
        }
    }
}

#[test]
fn a_stage_is_private_and_used_by_one_run_at_a_time() {
    for user in users() {
        let place = place(user);
        let mut first = place.command(&["run", "-p", "write", "--stage", "s", "-c", "echo x > started; sleep 60"]);
        let mut first = first.spawn().expect("starts");
        let upper = store(&place).join("s/upper/started");
        while !upper.exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        for words in [vec!["run", "-p", "write", "--stage", "s", "--", "true"], vec!["stage", "apply", "s"]] {
            let done = place.run(&words);
            done.exits(if words[0] == "run" { 125 } else { 2 });
            assert!(done.stderr().contains(&format!("stage s is in use by process {} (sh -c", first.id())), "{done}");
        }
        let list = place.run(&["stage", "list"]);
        assert!(list.stdout().contains("(in use)"), "{list}");
        for path in [store(&place), store(&place).join("s")] {
            let meta = fs::metadata(path).expect("there");
            assert_eq!((meta.mode() & 0o777, Some(meta.uid())), (0o700, Some(place.user.unwrap_or(meta.uid()))));
        }
        // SIGKILL to the front: the guardian ends the tree, and the stage is whole.
        first.kill().expect("runs");
        first.wait().expect("ended");
        assert_eq!(summary(&place), ["added started"]);
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "grep -q x started");
    }
}

#[test]
fn programs_and_scripts_of_the_stage_can_be_run() {
    for user in users() {
        let place = place(user);
        staged(&place, "printf '#!/bin/sh\\necho script\\n' > s.sh; chmod 755 s.sh; mkdir bin; cp /bin/echo bin/e")
            .exits(0);
        place.run(&["run", "-p", "write", "--stage", "s", "--", "./s.sh"]).exits(0).prints("script\n");
        place.run(&["run", "-p", "write", "--stage", "s", "--", "bin/e", "hi"]).exits(0).prints("hi\n");
        staged(&place, "rm bin/e").exits(0);
        place.run(&["run", "-p", "write", "--stage", "s", "--", "bin/e", "hi"]).exits(127);
    }
}

#[test]
fn git_and_sqlite_work_in_a_stage() {
    for user in users() {
        let place = place(user);
        sh(&place, "git init -q . && git add -A && git -c user.name=n -c user.email=e@e commit -qm first");
        let before = tree(&place.at("work"));
        let line = "git config --global x.y z 2>/dev/null; echo more >> text && git add text && \
                    git -c user.name=n -c user.email=e@e commit -qm second && git log --oneline | wc -l";
        staged(&place, line).exits(0).prints("2\n");
        let python = "import sqlite3; c = sqlite3.connect('db'); c.execute('create table t(x)'); \
                      c.execute('insert into t values (1)'); c.commit(); print(c.execute('select count(*) from t').fetchone()[0])";
        place.run(&["run", "-p", "write", "--stage", "s", "--", "python3", "-c", python]).exits(0).prints("1\n");
        assert_eq!(tree(&place.at("work")), before);
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(
            &place,
            "test $(git log --oneline | wc -l) = 2; git fsck --strict; test -z \"$(git status --porcelain text)\"",
        );
    }
}

#[test]
fn worktrees_of_git_in_a_stage() {
    for user in users() {
        let place = place(user);
        let git = "git -c user.name=n -c user.email=e@e";
        sh(&place, &format!("git init -q . && git add -A && {git} commit -qm first && git worktree add -q ../linked"));
        // Made in the stage, below the working directory: everything is staged.
        let line = format!("git worktree add -q inner && cd inner && echo more >> text && {git} commit -qam second");
        staged(&place, &line).exits(0);
        sh(&place, "test ! -e inner; test $(git worktree list | wc -l) = 2");
        place.run(&["stage", "apply", "s"]).exits(2);
        place.run(&["stage", "apply", "s", "--protected", "take"]).exits(0);
        sh(
            &place,
            "test $(git -C inner log --oneline | wc -l) = 2; git fsck --strict; test $(git worktree list | wc -l) = 3",
        );
        // A linked one has its repository outside: files can be changed, and nothing can be committed.
        let line =
            format!("git log --oneline | wc -l; echo more >> text; git status --short; {git} commit -qam second");
        let words = ["run", "-p", "write", "--stage", "l", "--cwd", "../linked", "-c", &line];
        let done = place.run(&words);
        assert!(done.exits(128).stderr().contains("index.lock': Permission denied"), "{done}");
        done.prints("1\n M text\n");
        place.run(&["stage", "apply", "l"]).exits(0).prints("1 change applied\n");
        sh(&place, "grep -q more ../linked/text; test $(git -C ../linked log --oneline | wc -l) = 1");
    }
}

#[test]
fn locks_and_watches_of_new_files_work_in_a_stage() {
    if !crate::support::has("python3") {
        return;
    }
    let script = "import ctypes,os,fcntl\nlibc=ctypes.CDLL(None)\nn=libc.inotify_init()\nassert libc.inotify_add_watch(n,b'.',0x100)>=0\n\
                  f=open('fresh','w')\nprint(os.read(n,4096)[16:21].decode(),flush=True)\nfcntl.flock(f,fcntl.LOCK_EX)\n\
                  t=open('text','r+'); fcntl.lockf(t,fcntl.LOCK_EX)\n\
                  if os.fork()==0:\n\
                  \x20for lock,name in [(fcntl.flock,'fresh'),(fcntl.lockf,'text')]:\n\
                  \x20 try: lock(open(name,'r+'),fcntl.LOCK_EX|fcntl.LOCK_NB); print('free',flush=True)\n\
                  \x20 except OSError: print('locked',flush=True)\n\
                  \x20os._exit(0)\n\
                  os.wait()";
    for user in users() {
        let place = place(user);
        let words = ["run", "-p", "write", "--stage", "s", "--", "python3", "-c", script];
        place.run(&words).exits(0).prints("fresh\nlocked\nlocked\n");
    }
}

#[test]
fn the_example_agent_applies_only_with_a_yes() {
    let Some(agent) = crate::embed::rust::example("staged_agent") else { return };
    for user in users() {
        let place = place(user);
        let said = run(&mut place.any(&agent, &["echo x > new"]));
        said.exits(0);
        assert!(said.stdout().ends_with("+x\ndiscarded\n"), "{said}");
        assert!(!place.at("work/new").exists());
        let said = run(&mut place.any(&agent, &["--yes", "echo x > new"]));
        said.exits(0);
        assert!(said.stdout().ends_with("+x\n1 changes applied\n"), "{said}");
        assert!(place.at("work/new").exists());
    }
}
