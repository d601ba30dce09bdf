//! What a confined command leaves in the working directory decides neither whether the next run is isolated nor whether it
//! runs.

use super::works;
use crate::plumbing::{Place, users};
use crate::support::{Done, run};

#[track_caller]
fn sh(place: &Place, line: &str) {
    run(&mut place.any("/bin/sh".as_ref(), &["-ec", line])).exits(0);
}

#[track_caller]
fn isolated(place: &Place, mode: &str, line: &str) -> Done {
    place.run(&["run", "-p", "write", "--isolate", mode, "-c", line])
}

#[test]
fn links_of_a_repository_leave_the_next_run_isolated() {
    if !works() {
        return;
    }
    let elsewhere = "mv .git ../elsewhere; ln -s $(realpath ../elsewhere) .git";
    let links = [
        ("rm -rf .git/hooks; ln -s /usr/share .git/hooks", None),
        ("rm -rf .git/hooks; ln -s /nowhere .git/hooks", None),
        ("rm -rf .git/hooks; mkdir shared; ln -s $PWD/shared .git/hooks", Some("shared")),
        ("rm -rf .git/hooks; mkdir shared; ln -s ../shared .git/hooks", Some("shared")),
        (elsewhere, None),
        ("mv .git real; ln -s $PWD/real .git", Some("real/hooks")),
    ];
    for user in users() {
        for (made, kept) in links {
            let place = Place::new(user);
            sh(&place, &format!("git init -q .; mkdir -p .git/hooks; {made}"));
            for mode in ["required", "preferred"] {
                let done = isolated(&place, mode, "test ! -e /root && echo x > written && echo isolated");
                done.exits(0).prints("isolated\n");
                assert!(!done.stderr().contains("not isolated"), "{made}: {done}");
            }
            if let Some(kept) = kept {
                let done = isolated(&place, "required", &format!("echo x > written; echo x > {kept}/pre-commit"));
                assert!(done.stderr().contains("Read-only file system"), "{made}: {done}");
                assert!(!place.at("work").join(kept).join("pre-commit").exists(), "{made}: {done}");
            }
        }
    }
}

/// Makes closed files below so many directories with long names.
#[track_caller]
fn plant(place: &Place, directories: usize, files: &[&str]) {
    let part = "x".repeat(200);
    let line = format!(
        "import os\nfor at in range({directories}):\n d = f'{{at}}-{part}/{part}/{part}'\n os.makedirs(d)\n \
         for name in {files:?}: open(d + '/' + name, 'w').write('S3CRET')"
    );
    run(&mut place.any("/usr/bin/python3".as_ref(), &["-c", &line])).exits(0);
}

#[test]
fn closed_files_with_long_names_are_closed() {
    if !works() {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        // Longer than the least that the kernel takes as a command line, which is 128 KiB.
        plant(&place, 60, &[".env"]);
        let done = isolated(&place, "required", "test ! -e /root && cat 59-*/*/*/.env; echo isolated");
        done.exits(0).prints("isolated\n");
        assert!(done.stderr().contains("59-xxx") && done.stderr().contains("Permission denied"), "{done}");
    }
}

#[test]
fn more_closed_files_than_bubblewrap_can_mount_never_run_without_it() {
    if !works() {
        return;
    }
    let place = Place::new(users().last().copied().flatten());
    plant(&place, 500, &[".env", ".envrc", ".env.local", ".env.production"]);
    for mode in ["required", "preferred"] {
        let done = isolated(&place, mode, "echo ran");
        done.exits(125).prints("");
        let why = "bubblewrap cannot mount so many closed and protected files: ";
        assert!(done.stderr().contains(why) && done.stderr().contains("/.env"), "{done}");
    }
}
