//! Odd trees: each case is made in a stage, compared as the command left it, and applied.

use super::*;

/// Runs the line once in a stage and once in a copy of the tree; after apply both are the same.
#[track_caller]
fn same_as_without_a_stage(before: &str, line: &str) {
    for user in users() {
        let (with, without) = (place(user), place(user));
        for place in [&with, &without] {
            sh(place, before);
        }
        staged(&with, line).exits(0);
        sh(&without, line);
        let done = with.run(&["stage", "apply", "s"]);
        done.exits(0);
        assert_eq!(tree(&with.at("work")), tree(&without.at("work")), "{line}: {done}");
    }
}

#[test]
fn a_directory_that_is_removed_and_made_again_has_only_the_new_entries() {
    same_as_without_a_stage("", "rm -r dir; mkdir dir; echo n > dir/n; mkdir -p dir/deep/er");
}

#[test]
fn a_file_becomes_a_directory_and_the_reverse() {
    same_as_without_a_stage(
        "mkdir full; echo 1 > full/1; mkdir full/2",
        "rm text; mkdir -p text/in; echo t > text/in/t; rm -r full; echo f > full",
    );
    same_as_without_a_stage(
        "",
        "rm link; mkdir link; echo in > link/in; rm -r dir; ln -s text dir; rm text; ln -s nowhere text",
    );
}

#[test]
fn empty_directories_and_empty_files() {
    same_as_without_a_stage("mkdir -p e/f; touch gone", "mkdir -p x/y/z; touch empty; rmdir e/f; rm gone; : > text");
}

#[test]
fn names_that_are_no_text() {
    let odd = "touch \"$(printf 'a\\377b')\"; echo x > \"$(printf 'new\\nline')\"; echo y > ' two  spaces '; mkdir \"$(printf 'd\\001')\"; echo z > -f; echo q > 'q\"uote\\'";
    same_as_without_a_stage("", odd);
    let place = place(None);
    staged(&place, odd).exits(0);
    let list = changes(&place);
    let odd = list.iter().find(|entry| entry["path"] == "a\u{fffd}b").expect("the name without text");
    assert_eq!(odd["path_bytes"], serde_json::json!([97, 255, 98]));
    let text = place.run(&["stage", "diff", "s"]);
    assert!(text.stdout().contains(r#"diff --git "a/new\nline" "b/new\nline""#), "{text}");
}

#[test]
fn modes_of_directories_and_unreadable_entries() {
    same_as_without_a_stage("mkdir m", "chmod 750 dir; chmod 700 m; echo s > shut; chmod 200 shut; chmod 600 text");
    for user in users() {
        let place = place(user);
        staged(&place, "mkdir -p closed/in; echo x > closed/in/x; chmod 000 closed").exits(0);
        assert_eq!(summary(&place), ["added closed", "added closed/in", "added closed/in/x"]);
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "test $(stat -c %a closed) = 0; chmod 700 closed; test -e closed/in/x");
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_applied() {
    same_as_without_a_stage("", "mkdir d; echo x > d/f; echo y > d/g; mkdir -p d/e; echo z > d/e/h; chmod 555 d/e d");
    // As in Go's module cache, which the real tree has already.
    let cache = "mkdir -p c/e g; echo x > c/f; ln -s f c/l; echo y > c/e/y; echo z > g/z; chmod 555 c/e c g";
    let change = "chmod -R u+w c g; echo more >> c/f; rm c/e/y; mkdir c/new; ln -sfn e c/l; rm -r g; chmod 555 c/e c";
    same_as_without_a_stage(cache, change);
    for user in users() {
        let place = place(user);
        sh(&place, "mkdir d; echo x > d/x; echo y > d/y");
        staged(&place, "rm d/x; echo more >> d/y; echo n > d/n; chmod 555 d").exits(0);
        place.run(&["stage", "apply", "s", "d/x"]).exits(0).prints("1 change applied, 3 left in stage s\n");
        sh(&place, "test ! -e d/x; test $(stat -c %a d) != 555");
        assert_eq!(
            summary(&place),
            ["mode d", "added d/n", "modified d/y"],
            "the directory in the stage kept its mode"
        );
        place.run(&["stage", "apply", "s", "d/n"]).exits(0);
        place.run(&["stage", "apply", "s"]).exits(0).prints("2 changes applied\n");
        sh(&place, "test $(cat d/n d/y | tr -d '\\n') = nymore; test $(stat -c %a d) = 555");
    }
}

#[test]
fn the_mode_of_the_working_directory_itself_is_not_part_of_a_stage() {
    for user in users() {
        let place = place(user);
        sh(&place, "chmod 755 .");
        staged(&place, "chmod 700 .; echo x > x").exits(0);
        assert_eq!(summary(&place), ["added x"]);
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "test $(stat -c %a .) = 755; test -e x");
    }
}

#[test]
fn hard_links_renames_and_mapped_files() {
    same_as_without_a_stage("", "ln text hard; mv dir/g dir/deep/g2; mv text renamed; echo more >> hard");
    let map =
        "import mmap; f = open('text', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:3] = b'ONE'; m.flush(); m.close()";
    same_as_without_a_stage("", &format!("python3 -c \"{map}\""));
}

#[test]
fn a_sparse_file_of_five_gigabytes_stays_sparse() {
    let place = place(None);
    staged(&place, "truncate -s 5G big; echo end >> big").exits(0);
    place.run(&["stage", "apply", "s"]).exits(0);
    let meta = fs::metadata(place.at("work/big")).expect("applied");
    assert_eq!(meta.len(), (5 << 30) + 4);
    assert!(meta.blocks() < 1000, "{} blocks", meta.blocks());
}

#[test]
fn many_files() {
    let place = place(users().last().copied().flatten());
    // With 100,000, `STAGE_FILES=100000`, it takes a minute.
    let count: usize = std::env::var("STAGE_FILES").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    sh(&place, &format!("mkdir many; cd many; seq {count} | split -l 1 -a 4 - f"));
    staged(&place, "cd many; for f in fa[a-b]*; do echo x >> $f; done; find . -name '*z' -delete; echo n > new")
        .exits(0);
    let found = summary(&place);
    let of = |what: &str| found.iter().filter(|change| change.starts_with(what)).count();
    // Each letter but z of the last place, for 2 times 26 beginnings.
    assert_eq!((of("modified "), of("deleted "), of("added ")), (2 * 26 * 25, count / 26, 1));
    place.run(&["stage", "apply", "s"]).exits(0);
    sh(&place, "test ! -e many/faaaz; grep -q x many/faaaa; test -e many/new");
}

#[test]
fn special_files_are_left_out_and_named() {
    for user in users() {
        let place = place(user);
        let done = staged(&place, "mkfifo pipe; rm dir/g; mkfifo dir/g; echo x > x");
        done.exits(0);
        assert_eq!(summary(&place), ["deleted dir/g", "added x"]);
        let diff = place.run(&["stage", "diff", "s"]);
        assert!(diff.stderr().contains("pipe is a FIFO, socket or device, which a stage does not keep"), "{diff}");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(&place, "test ! -e pipe; test ! -e dir/g; test -e x");
    }
}

#[test]
fn a_limit_on_file_size_holds_in_a_stage() {
    let place = place(users().last().copied().flatten());
    let done = place.run(&[
        "run",
        "-p",
        "write",
        "--disk",
        "64K",
        "--stage",
        "s",
        "--",
        "dd",
        "if=/dev/zero",
        "of=big",
        "bs=1k",
        "count=100",
    ]);
    assert_ne!(done.code(), Some(0), "{done}");
    assert!(fs::metadata(store(&place).join("s/upper/big")).expect("made").len() <= 65536);
}
