//! What changes in the real tree between a run and `apply`, beside contents: owners, attributes, directories; and hard links.

use super::copies::without_namespaces;
use super::*;
use crate::support::{is_root, skip};

#[test]
fn a_hard_link_to_an_unchanged_file_can_be_applied() {
    for user in users() {
        let place = place(user);
        staged(&place, "ln text other; cp -al dir copy; ln dir/g dir/h && rm dir/h").exits(0);
        assert_eq!(
            summary(&place),
            ["added copy", "added copy/deep", "added copy/deep/h", "added copy/g", "added other"]
        );
        place.run(&["stage", "apply", "s"]).exits(0).prints("5 changes applied\n");
        sh(&place, "cmp text other; cmp dir/deep/h copy/deep/h");
    }
}

#[test]
fn a_new_file_whose_directory_is_gone_is_a_conflict_of_a_copy() {
    for user in users() {
        for change in ["rm -r d/e", "rm -r d/e; echo > d/e", "mv d/e e; ln -s ../e d/e"] {
            let place = place(user);
            sh(&place, "mkdir -p d/e/g");
            let words =
                ["run", "-q", "-p", "write", "--stage", "s", "-c", "echo y > d/e/g/n; chmod 755 text; mkdir -p k/l"];
            without_namespaces(&place, &words).exits(0);
            sh(&place, change);
            let before = tree(&place.at("work"));
            let done = place.run(&["stage", "apply", "s"]);
            let why = "conflict: d/e/g/n: its directory was removed or replaced in the real tree meanwhile\n";
            assert!(done.exits(1).stderr().contains(why), "{done}");
            assert_eq!(tree(&place.at("work")), before, "nothing is changed");
            place.run(&["stage", "apply", "s", "text", "k"]).exits(0).prints("3 changes applied, 1 left in stage s\n");
        }
    }
}

#[test]
fn an_owner_or_attribute_that_changed_meanwhile_is_a_conflict() {
    for user in users() {
        let (mark, unmark) = ("os.setxattr('text', 'user.q', b'x')", "os.removexattr('text', 'user.q')");
        for (first, then) in [(mark, unmark), (mark, "os.setxattr('text', 'user.q', b'y')"), ("0", mark)] {
            let place = place(user);
            let python = |code: &str| sh(&place, &format!("python3 -c \"import os; {code}\""));
            python(first);
            staged(&place, "echo four >> text; chmod 750 dir").exits(0);
            python(then);
            let done = place.run(&["stage", "apply", "s"]);
            let why = "conflict: text: changed in the real tree meanwhile\n";
            assert!(done.exits(1).stderr().contains(why), "{first}, {then}: {done}");
            // Back to what it was.
            python(if first == mark { mark } else { unmark });
            place.run(&["stage", "apply", "s"]).exits(0).prints("2 changes applied\n");
        }
    }
    if !is_root() {
        return skip("only root gives files away");
    }
    let place = place(None);
    staged(&place, "echo four >> text; chmod 750 dir").exits(0);
    sh(&place, "chown 1234:1234 text dir");
    let done = place.run(&["stage", "apply", "s"]).exits(1).stderr();
    assert!(done.contains("conflict: text: ") && done.contains("conflict: dir: "), "{done}");
    sh(&place, "chown 0:0 text dir");
    place.run(&["stage", "apply", "s"]).exits(0);
}
