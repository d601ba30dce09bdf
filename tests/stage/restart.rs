//! What a start of the machine, a clock that was set back, and a damaged stage lead to.

use super::*;

/// Rewrites a file of the stage.
fn edit(place: &Place, name: &str, change: impl Fn(&str) -> String) {
    let path = store(place).join("s").join(name);
    let text = fs::read_to_string(&path).expect("there");
    fs::write(&path, change(&text)).expect("own directory");
}

/// As if the machine had been started again: the id of the boot is another one.
fn restart(place: &Place) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("procfs");
    let before = "00000000-0000-0000-0000-000000000000";
    edit(place, "stage.json", |text| text.replace(boot.trim(), before));
    assert!(fs::read_to_string(store(place).join("s/stage.json")).expect("there").contains(before));
}

#[test]
fn after_a_restart_the_changes_are_read_again_before_they_are_applied() {
    for user in users() {
        for run_between in [false, true] {
            let place = place(user);
            staged(&place, "echo four >> text").exits(0);
            restart(&place);
            if run_between {
                staged(&place, "echo n > n").exits(0);
            }
            let before = tree(&place.at("work"));
            let done = place.run(&["stage", "apply", "s"]);
            let why = "stage s: the machine was restarted since the command ran; what was not on disk by then is lost: files \
                       may be empty or cut; read gatekeeper stage diff s, then apply it\n";
            assert!(done.exits(2).stderr().contains(why), "{done}");
            assert_eq!(tree(&place.at("work")), before);
            let diff = place.run(&["stage", "diff", "--stat", "s"]);
            assert!(diff.exits(1).stderr().contains("warning: stage s: the machine was restarted"), "{diff}");
            place.run(&["stage", "diff", "s"]).exits(1).complains("");
            place.run(&["stage", "apply", "s"]).exits(0);
            sh(&place, "grep -q four text");
        }
    }
}

#[test]
fn a_clock_that_was_set_back_makes_conflicts_and_no_silent_overwrite() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo four >> text; echo n > n").exits(0);
        // A run that was killed, and whose beginning now lies in the future. What the stage recorded before is gone.
        fs::remove_file(store(&place).join("s/bases.json")).expect("own directory");
        edit(&place, "lock", |_| "1 true\n99999999999 0\n".to_owned());
        let done = place.run(&["stage", "apply", "s"]);
        let named = "conflict: text: changed in the real tree during a run\n";
        assert!(done.exits(1).stderr().contains(named), "{done}");
        sh(&place, "! grep -q four text");
    }
}

#[test]
fn a_damaged_stage_hides_no_other_and_can_be_discarded() {
    for user in users() {
        for (name, text) in [("stage.json", ""), ("stage.json", "{"), ("bases.json", "[1]"), ("bases.json", "")] {
            let place = place(user);
            place.run(&["run", "-p", "write", "--stage", "other", "-c", "echo x > x"]).exits(0);
            staged(&place, "echo four >> text").exits(0);
            edit(&place, name, |_| text.to_owned());
            for words in [vec!["stage", "diff", "s"], vec!["stage", "apply", "s"]] {
                let done = place.run(&words);
                let why = "stage s is damaged, and gatekeeper stage discard s removes it: ";
                assert!(done.exits(2).stderr().contains(why), "{name}: {done}");
            }
            staged(&place, "true").exits(125);
            let list = place.run(&["stage", "list"]);
            let told = |what| list.stderr().matches(what).count();
            assert!(list.exits(0).stdout().contains("other"), "{list}");
            assert_eq!((told("stage s is damaged"), told("stage discard s")), (1, 1), "{list}");
            place.run(&["stage", "discard", "s"]).exits(0);
            assert!(!store(&place).join("s").exists());
            place.run(&["stage", "apply", "other"]).exits(0);
        }
    }
}

#[test]
fn a_store_or_stage_that_others_may_enter_is_refused() {
    for user in users() {
        let place = place(user);
        staged(&place, "echo four >> text").exits(0);
        for path in [store(&place), store(&place).join("s")] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("own directory");
            let why = format!("{}: must belong to you, with mode 0700", path.display());
            assert!(staged(&place, "true").exits(125).stderr().contains(&why), "{}", path.display());
            for word in ["diff", "apply", "discard"] {
                assert!(place.run(&["stage", word, "s"]).exits(2).stderr().contains(&why), "{word}");
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("own directory");
        }
        if user.is_some() && rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(store(&place).join("s"), Some(0), Some(0)).expect("root's");
            assert_eq!(staged(&place, "true").code(), Some(125));
            assert_eq!(place.run(&["stage", "apply", "s"]).code(), Some(2));
        }
        sh(&place, "! grep -q four text");
    }
}

#[test]
fn links_in_the_place_of_a_stage_or_its_parts_are_not_followed() {
    for user in users() {
        let place = place(user);
        let own = store(&place);
        for part in ["s", "s/upper", "s/stage.json", "s/bases.json", "s/lock"] {
            staged(&place, "echo four >> text").exits(0);
            let (path, was) = (own.join(part), place.at("tmp/was"));
            fs::rename(&path, &was).expect("the same file system");
            std::os::unix::fs::symlink(&was, &path).expect("own directory");
            let before = tree(&place.at("work"));
            assert_eq!(staged(&place, "echo five >> text").code(), Some(125), "{part}");
            assert_eq!(place.run(&["stage", "apply", "s"]).code(), Some(2), "{part}");
            assert_eq!(tree(&place.at("work")), before, "{part}");
            fs::remove_file(&path).expect("a link");
            fs::rename(&was, &path).expect("the same file system");
            assert_eq!(summary(&place), ["modified text"], "{part}");
            place.run(&["stage", "discard", "s"]).exits(0);
        }
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_by_every_command() {
    let place = place(users().last().copied().flatten());
    staged(&place, "true").exits(0);
    let long = "n".repeat(300);
    for name in ["", ".", "..", "../s", "s/", "a/b", "/tmp", "-s", ".s", "s\n", "s\x1b[2J", "\u{202e}s", "s ", &long] {
        let flag = format!("--stage={name}");
        let run = place.run(&["run", "-p", "write", &flag, "--", "true"]);
        assert_ne!(run.code(), Some(0), "{name:?}");
        let mut all = vec![run];
        for word in ["diff", "apply", "discard"] {
            all.push(place.run(&["stage", word, "--", name]));
            all.last().expect("pushed").exits(2);
        }
        for done in all {
            assert!(!done.stderr().contains('\x1b') && !done.stderr().contains('\u{202e}'), "{done}");
        }
    }
    let names: Vec<_> =
        fs::read_dir(store(&place)).expect("the store").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["s"]);
}
