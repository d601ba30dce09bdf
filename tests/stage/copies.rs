//! Stages where no overlay can be mounted: a copy instead.

use super::*;
use crate::support::{is_root, probe, skip};

/// `gatekeeper` under an outer filter that refuses new namespaces.
#[track_caller]
pub(super) fn without_namespaces(place: &Place, words: &[&str]) -> Done {
    run(&mut command_without_namespaces(place, words))
}

pub(super) fn command_without_namespaces(place: &Place, words: &[&str]) -> std::process::Command {
    let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text").to_owned();
    let rule = format!("{}=1", libc::SYS_unshare);
    let all: Vec<&str> = [rule.as_str(), "--", &gatekeeper].into_iter().chain(words.iter().copied()).collect();
    place.any(&probe("outer", &[]), &all)
}

#[test]
fn without_namespaces_the_command_works_in_a_copy() {
    for user in users() {
        let place = place(user);
        let before = tree(&place.at("work"));
        let work = place.at("work");
        let line = format!("echo four >> text; rm -r dir; echo n > n; pwd; echo x >> {}/text", work.display());
        let report = place.at("tmp/report");
        let words = ["run", "-p", "write", "--stage", "s", "--report", report.to_str().expect("text"), "-c", &line];
        let done = without_namespaces(&place, &words);
        assert_eq!(done.stdout(), format!("{}\n", store(&place).join("s/tree").display()), "{done}");
        assert_eq!(tree(&work), before, "also by its own path: {done}");
        let report: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
        assert_eq!(report["stage"], serde_json::json!({"name": "s", "changes": 6, "means": "copy"}));
        let changed =
            ["deleted dir", "deleted dir/deep", "deleted dir/deep/h", "deleted dir/g", "added n", "modified text"];
        assert_eq!(summary(&place), changed);
        sh(&place, "echo mine > new; echo mine > dir/g");
        place.run(&["stage", "apply", "s"]).exits(1);
        place.run(&["stage", "apply", "s", "text", "n"]).exits(0).prints("2 changes applied, 4 left in stage s\n");
        assert_eq!(summary(&place).len(), 4);
        sh(&place, "grep -q four text; test -e n; test -e dir; test -e new");
        without_namespaces(&place, &["run", "-p", "write", "--stage", "s", "-c", "cat text"])
            .exits(0)
            .prints("one\ntwo\nthree\nfour\n");
    }
}

#[test]
fn attributes_of_a_directory_in_a_copy_are_shown_and_applied() {
    for user in users() {
        let place = place(user);
        sh(&place, "mkdir e same; echo x > f");
        let set = "import os\nfor name in 'ef': os.setxattr(name, b'user.note', b'v')\nopen('same/new', 'w')";
        let words = ["run", "-p", "write", "--stage", "s", "--", "python3", "-c", set];
        without_namespaces(&place, &words).exits(0);
        assert_eq!(summary(&place), ["mode e", "mode f", "added same/new"]);
        // What only the user changes is no change of the command's.
        sh(&place, "python3 -c \"import os; os.setxattr('same', b'user.note', b'mine')\"; chmod 700 dir");
        assert_eq!(summary(&place), ["mode e", "mode f", "added same/new"]);
        let diff = place.run(&["stage", "diff", "s"]);
        assert!(diff.stdout().contains("# e: attributes user.note\n"), "{diff}");
        place.run(&["stage", "apply", "s", "e"]).exits(0).prints("1 change applied, 2 left in stage s\n");
        assert_eq!(summary(&place), ["mode f", "added same/new"]);
        place.run(&["stage", "apply", "s"]).exits(0);
        let get = "import os\nassert os.getxattr('e', b'user.note') == os.getxattr('f', b'user.note') == b'v'\n\
                   assert os.getxattr('same', b'user.note') == b'mine'";
        run(&mut place.any("/usr/bin/python3".as_ref(), &["-c", get])).exits(0);
    }
}

#[test]
fn doctor_says_whether_a_stage_can_be_an_overlay_and_the_fix() {
    for user in users() {
        let place = place(user);
        let line = |done: &Done| -> Value {
            let all: Value = serde_json::from_str(&done.stdout()).unwrap_or_else(|error| panic!("{error}: {done}"));
            let layers = all["layers"].as_array().or(all.as_array()).expect("a list").clone();
            layers.into_iter().find(|layer| layer["layer"] == "stage").expect("the line")
        };
        assert_eq!(line(&place.run(&["doctor", "--json"]))["status"], "available");
        let lacking = line(&without_namespaces(&place, &["doctor", "--json"]));
        assert_eq!((&lacking["status"], &lacking["detail"]), (&"partial".into(), &"copies only".into()));
        let said = |key: &str| lacking[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(said("cause") && said("fix") && said("lost"), "{lacking}");
    }
}

#[test]
fn a_tree_above_the_limit_is_refused() {
    for user in users() {
        let place = place(user);
        sh(&place, "head -c 200000 /dev/zero > big");
        let words = ["run", "-p", "write", "--stage", "s", "--stage-limit", "100K", "--", "true"];
        let done = without_namespaces(&place, &words);
        done.exits(125);
        assert!(done.stderr().contains("raise the limit with --stage-limit"), "{done}");
        assert_eq!(fs::read_dir(store(&place)).map(Iterator::count).unwrap_or(0), 0);
    }
}

#[test]
fn a_store_on_overlayfs_takes_a_copy_at_the_same_path() {
    if !is_root() {
        return skip("only root mounts an overlay outside of a run");
    }
    let place = place(None);
    let gatekeeper = crate::support::gatekeeper_for_all().display().to_string();
    let line = format!(
        "set -e; mkdir ../l ../u ../k; mount -t overlay -o lowerdir=../l,upperdir=../u,workdir=../k o ../home; G={gatekeeper}
         $G run -p write --stage s --report ../tmp/r -c 'echo four >> text; rm -r dir; pwd; echo \"#!/bin/sh\" > x; chmod 755 x'
         grep -q '\"means\":\"copy\"' ../tmp/r; $G run -p write --stage s -- ./x; ! grep -q four text; test -e dir
         $G stage apply s; grep -q four text; test ! -e dir; test -x x"
    );
    let done = run(&mut place.any("unshare".as_ref(), &["-m", "sh", "-ec", &line]));
    done.exits(0);
    assert_eq!(done.stdout().lines().next(), place.at("work").to_str(), "{done}");
}
