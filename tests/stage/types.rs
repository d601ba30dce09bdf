//! Directories that become files or links, and the reverse, in a patch.

use super::*;

const BINARY: &str = "printf 'a\\0b' >";

/// Applies the diff of stage `s` with git to a copy of the tree.
#[track_caller]
fn git_applies(place: &Place) {
    let done = place.run(&["stage", "diff", "s"]);
    fs::write(place.at("tmp/patch"), &done.output.stdout).expect("own directory");
    let text = done.stdout();
    if text.lines().any(|line| !line.starts_with("# ")) {
        sh(place, "rm -rf ../git; cp -a . ../git; cd ../git && git init -q . && git apply ../tmp/patch");
    }
}

#[test]
fn a_change_of_type_that_no_patch_can_say_is_named_with_all_that_is_in_it() {
    let cases: [(&str, &str, &[&str]); 7] = [
        (
            "BIN b",
            "rm b; mkdir b; echo x > b/x; mkdir b/c",
            &[
                "# b: type, directory in the place of a file, 3 bytes, sha256 SUM",
                "# b/c: added, directory",
                "# b/x: added, file, 2 bytes, sha256 ",
            ],
        ),
        (
            "mkdir b; BIN b/x; echo t > b/t",
            "rm -r b; echo x > b",
            &[
                "# b: type, file, 2 bytes, sha256 ",
                "# b/t: deleted, file, 2 bytes, ",
                "# b/x: deleted, file, 3 bytes, sha256 SUM",
            ],
        ),
        (
            "mkdir -p b/c; echo t > b/t",
            "rm -r b; ln -s text b",
            &["# b: type, symbolic link to text in the place of a directory", "# b/c: deleted, directory"],
        ),
        ("mkdir b", "rm -r b; echo x > b", &["# b: type, file, 2 bytes, sha256 "]),
        // These can be said.
        ("mkdir -p b/c; echo t > b/c/t; ln -s t b/l", "rm -r b; echo x > b", &[]),
        ("echo t > b", "rm b; mkdir b; echo x > b/x; BIN b/y", &["# b/y: added, binary file, 3 bytes, sha256 SUM"]),
        ("ln -s text b", "rm b; mkdir b; echo x > b/x", &[]),
    ];
    for user in users() {
        for (before, change, named) in &cases {
            let place = place(user);
            sh(&place, &before.replace("BIN", BINARY));
            let sum = sh(&place, "printf 'a\\0b' | sha256sum").stdout();
            let sum = sum.split(' ').next().expect("a hash");
            staged(&place, &format!("echo four >> text; {}", change.replace("BIN", BINARY))).exits(0);
            let done = place.run(&["stage", "diff", "s"]);
            for line in *named {
                assert!(done.stdout().contains(&line.replace("SUM", sum)), "{line}: {done}");
            }
            assert_eq!(
                done.stdout().contains("b/b"),
                !named.first().is_some_and(|line| line.contains(": type")),
                "{done}"
            );
            git_applies(&place);
            sh(&place, "grep -q four ../git/text");
            place.run(&["stage", "apply", "s"]).exits(0);
        }
    }
}
