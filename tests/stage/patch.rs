//! The patch of a stage is what git and patch(1) take: both make the tree that `stage apply` makes.

use super::*;
use crate::support::random::Random;

/// Applies the patch of the stage with both tools, each to a copy of the tree.
#[track_caller]
fn both_tools_agree(place: &Place) {
    sh(place, "rm -rf ../git ../patched; cp -a . ../git; cp -a . ../patched");
    let done = place.run(&["stage", "diff", "s"]);
    done.exits(1);
    fs::write(place.at("tmp/patch"), &done.output.stdout).expect("own directory");
    sh(
        place,
        "chmod a+r ../tmp/patch 2>/dev/null || true; cd ../git && git init -q . && git apply ../tmp/patch && rm -rf .git",
    );
    sh(place, "cd ../patched && patch -s -p1 < ../tmp/patch && find . -name '*.orig' -delete");
    place.run(&["stage", "apply", "s"]).exits(0);
    // Neither tool knows empty directories, nor permissions beyond the executable bit.
    let files = |name: &str| -> BTreeMap<OsString, (String, bool, Vec<u8>)> {
        let all = tree(&place.at(name)).into_iter().filter(|(_, (kind, ..))| kind != "dir");
        all.map(|(path, (kind, mode, bytes))| (path, (kind, mode & 0o100 != 0, bytes))).collect()
    };
    assert_eq!(files("git"), files("work"), "git apply:\n{done}");
    assert_eq!(files("patched"), files("work"), "patch -p1:\n{done}");
}

#[test]
fn every_kind_of_change() {
    for user in users() {
        let place = place(user);
        sh(
            &place,
            "touch empty; printf 'no end' > cut; seq 100 > numbers; ln -s text other; echo '#!/bin/sh' > run; echo r > remove",
        );
        let line = "rm empty; touch new-empty; printf 'still no end' > cut; printf 'three\\nno end' > text; \
                    sed -i 's/^5$/five/; s/^50$/fifty/; 95d' numbers; ln -sfn numbers other; rm link; echo file > link; \
                    chmod 755 run; rm remove; ln -s run remove; mkdir sub; echo 'a b' > 'sub/with space'; \
                    printf 'crlf\\r\\nline\\r\\n' > crlf; echo x > \"$(printf 'tab\\there')\"; rm dir/g; printf '\\n\\n\\n' > blank; \
                    printf -- '--- a\\n+++ b\\n@@ -1 +1 @@\\ndiff --git a/x b/x\\n' > 'looks like a patch'";
        staged(&place, line).exits(0);
        both_tools_agree(&place);
    }
}

/// A change without lines has its name in the first line only, where patch(1) reads it to the first space.
#[test]
fn names_with_spaces() {
    for user in users() {
        let place = place(user);
        sh(&place, "echo r > 'to run'; touch 'old empty'; echo e > 'end '; echo d > ' begin'; echo q > 'a \"b\"'");
        let line = "chmod 755 'to run'; rm 'old empty'; touch 'new empty'; echo more >> 'end '; rm ' begin'; mkdir 'in '; \
                    echo i > 'in / i '; ln -s ' to ' 'a link'; chmod 755 'a \"b\"'";
        staged(&place, line).exits(0);
        both_tools_agree(&place);
    }
}

#[test]
fn binary_files_are_named_with_size_and_hash() {
    let place = place(None);
    staged(&place, "printf 'a\\0b' > bin; echo x > text; mkdir d").exits(0);
    let done = place.run(&["stage", "diff", "s"]);
    let sum = sh(&place, "printf 'a\\0b' | sha256sum").stdout();
    let sum = sum.split(' ').next().expect("a hash");
    assert!(done.stdout().contains(&format!("# bin: added, binary file, 3 bytes, sha256 {sum}\n")), "{done}");
    sh(&place, "rm -rf ../git; cp -a . ../git");
    fs::write(place.at("tmp/patch"), &done.output.stdout).expect("own directory");
    sh(&place, "cd ../git && git init -q . && git apply ../tmp/patch && grep -q x text");
}

#[test]
fn what_a_patch_cannot_say_is_named() {
    for user in users() {
        let place = place(user);
        sh(&place, "printf 'a\\0b' > bin; echo s > secret; chmod 600 secret; echo t > tagged; chmod 664 dir/g");
        let line = "umask 077; echo p > private; chmod 640 secret; chmod 700 text; rm bin; ln -s /usr/bin/env bin; chmod 640 dir/g; \
                    echo g >> dir/g; printf 'x\\0' > tool; chmod 755 tool; mkdir shut; \
                    python3 -c \"import os; os.setxattr('tagged', 'user.note', b'v')\"";
        staged(&place, line).exits(0);
        let done = place.run(&["stage", "diff", "s"]);
        done.exits(1);
        for line in [
            "# bin: type, symbolic link to /usr/bin/env in the place of a binary file\n",
            "# dir/g: mode 0664 to 0640\n",
            "# private: mode 0600\n",
            "# secret: mode 0600 to 0640\n",
            "# shut: mode 0700\n",
            "# tagged: attributes user.note\n",
            "# text: mode 0644 to 0700\n",
            "# tool: mode 0755\n",
        ] {
            assert!(done.stdout().contains(line), "{line}{done}");
        }
        let list = changes(&place);
        let entry = |path: &str| list.iter().find(|entry| entry["path"] == path).expect("the change");
        assert_eq!((&entry("secret")["mode"], &entry("secret")["old_mode"]), (&"0640".into(), &"0600".into()));
        assert_eq!(entry("bin")["target"], "/usr/bin/env");
        assert_eq!(entry("tagged")["attributes"], serde_json::json!(["user.note"]));
        assert_eq!(entry("tagged")["change"], "mode");
        place.run(&["stage", "apply", "s"]).exits(0);
        sh(
            &place,
            "test $(stat -c %a private secret text dir/g shut tool | tr '\\n' ' ' | tr -d ' ') = 600640700640700755; \
             python3 -c \"import os; assert os.getxattr('tagged', 'user.note') == b'v'\"",
        );
    }
}

/// A patch has no owners and no access lists, and neither may be lost or taken over unseen.
#[test]
fn owners_and_access_lists_are_named_and_applied() {
    if !crate::support::is_root() {
        return crate::support::skip("only root gives files away");
    }
    let place = place(None);
    // user::rw-,user:1234:r--,group::r--,mask::r--,other::r--
    let list = "import os, struct; entry = lambda *e: struct.pack('<HHI', *e); none = 0xffffffff; \
                os.setxattr('text', 'system.posix_acl_access', struct.pack('<I', 2) + entry(1, 6, none) + entry(2, 4, 1234) + \
                entry(4, 4, none) + entry(16, 4, none) + entry(32, 4, none))";
    let line = format!("python3 -c \"{list}\" && chown 1234:1235 dir/g");
    let done = staged(&place, &line);
    if done.code() != Some(0) {
        // Where the command may not do this, there is nothing to lose.
        return assert!(done.stderr().contains("ermitted") || done.stderr().contains("denied"), "{done}");
    }
    let diff = place.run(&["stage", "diff", "s"]);
    for line in [
        "# dir/g: owner 0:0 to 1234:1235\n",
        "# text: access list user::rw-,user:1234:r--,group::r--,mask::r--,other::r--\n",
    ] {
        assert!(diff.stdout().contains(line), "{line}{diff}");
    }
    place.run(&["stage", "apply", "s"]).exits(0);
    sh(
        &place,
        "test $(stat -c %u:%g dir/g) = 1234:1235; python3 -c \"import os; os.getxattr('text', 'system.posix_acl_access')\"",
    );
}

#[test]
fn random_trees() {
    let place_user = users().last().copied().flatten();
    let mut random = Random::new(18);
    for _ in 0..12 {
        let place = place(place_user);
        let mut below = |limit: u64| random.below(limit);
        let mut line = String::new();
        for _ in 0..40 {
            let name = ["a", "b", "c/d", "c/e", "text", "dir/g", "sp ace", "é"][below(8) as usize];
            let parent = if name.starts_with("c/") { "mkdir -p c; " } else { "" };
            line.push_str(&match below(7) {
                0 => format!("{parent}rm -rf '{name}'; seq {} > '{name}'\n", below(30)),
                1 => format!("test -f '{name}' && printf x >> '{name}' || true\n"),
                2 => format!("rm -rf '{name}'\n"),
                3 => format!("{parent}rm -rf '{name}'; ln -s target{} '{name}'\n", below(3)),
                4 => format!("test -f '{name}' -a ! -L '{name}' && chmod 755 '{name}' || true\n"),
                5 => format!("test -f '{name}' -a ! -L '{name}' && sed -i '{}d' '{name}' || true\n", below(9) + 1),
                _ => format!("{parent}rm -rf '{name}'; printf 'line\\nlast' > '{name}'\n"),
            });
        }
        // What is there before, by the same rules.
        let (before, after) = line.split_at(line[..line.len() / 2].rfind('\n').map_or(0, |at| at + 1));
        sh(&place, before);
        staged(&place, &format!("set -e\n{after}")).exits(0);
        if !summary(&place).is_empty() {
            both_tools_agree(&place);
        }
    }
}
