//! Stages of trees on other file systems: small, read-only, or with other times.

use super::*;
use crate::support::{is_root, skip};

/// Runs a script as root in a mount namespace with small file systems at `small` and `home`.
fn mounted(script: &str) -> Option<Place> {
    if !is_root() {
        skip("only root mounts file systems of a given size");
        return None;
    }
    let place = place(None);
    let gatekeeper = crate::support::gatekeeper_for_all().display().to_string();
    let line = format!("set -e; G={gatekeeper}; {script}");
    run(&mut place.any("unshare".as_ref(), &["-m", "sh", "-ec", &line])).exits(0);
    Some(place)
}

#[test]
fn a_full_disk_leaves_the_real_tree_whole_and_the_stage_usable() {
    mounted(
        "mkdir small; mount -t tmpfs -o size=300k tmpfs small; cd small; echo old > f; mkdir d
         $G run -p write --stage s -c 'echo new > f; head -c 900000 /dev/urandom > big; echo y > d/y'
         if $G stage apply s 2> ../../tmp/error; then exit 1; else test $? = 2; fi
         grep -q 'No space left' ../../tmp/error; grep -q old f; test \"$(ls)\" = \"d
f\"; test -z \"$(ls -A d)\"
         mount -o remount,size=4m .; $G stage apply s; grep -q new f; test $(stat -c %s big) = 900000",
    );
    mounted(
        "mount -t tmpfs -o size=200k tmpfs ../home
         $G run -p write --stage s -c 'echo new > text; head -c 900000 /dev/zero > big' && exit 1
         mount -o remount,size=4m ../home; $G run -p write --stage s -c 'cat text; rm -f big'; $G stage apply s; grep -q new text",
    );
}

/// The same file system and another mount: nothing can be moved from one to the other.
#[test]
fn a_tree_on_another_mount_of_the_same_file_system_is_applied() {
    mounted(
        "mkdir bound bound/d; echo old > bound/f; mount --bind bound bound; cd bound
         $G run -p write --stage s -c 'echo new > f; echo y > d/y; mkdir e; for i in 1 2 3 4 5 6 7 8 9; do echo $i > e/$i; done'
         $G stage apply s; grep -q new f; grep -q y d/y; test \"$(cat e/* | tr -d '\\n')\" = 123456789
         test -z \"$(find . -name '.gatekeeper*')\"",
    );
}

/// Times in whole seconds do not tell what changed after the command saw it.
#[test]
fn a_file_system_that_keeps_whole_seconds_gets_a_copy() {
    if !std::path::Path::new("/sbin/mke2fs").exists() || !std::path::Path::new("/dev/loop-control").exists() {
        return skip("no mke2fs or no loop devices");
    }
    mounted(
        "PATH=$PATH:/usr/sbin:/sbin; truncate -s 8M image; mke2fs -q -t ext2 -I 128 -F image; mkdir small; mount -o loop image small; cd small; echo old > f
         $G run -p write --stage s --report ../../tmp/r -c 'echo new > f'; grep -q '\"means\":\"copy\"' ../../tmp/r
         grep -q 'whole seconds' ../../tmp/r; grep -q old f; $G stage apply s; grep -q new f; cd ..; umount small",
    );
}

#[test]
fn a_read_only_tree_on_another_file_system_can_be_staged_and_not_applied() {
    mounted(
        "mkdir small; mount -t tmpfs tmpfs small; cd small; echo old > f; mount -o remount,ro .; cd ../small
         $G run -p write --stage s -c 'echo new > f; cat f'
         if $G stage apply s 2> ../../tmp/error; then exit 1; else test $? = 2; fi
         grep -q 'Read-only file system' ../../tmp/error; grep -q old f
         mount -o remount,rw .; $G stage apply s; grep -q new f",
    );
}
