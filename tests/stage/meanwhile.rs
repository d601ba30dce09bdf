//! What changes in the real tree between a run and `apply`, beside contents: hard links.

use super::*;

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
