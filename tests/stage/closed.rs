//! What a run closes and protects, where the command works in a copy: it holds in the copy and in the real tree.

use super::copies::{command_without_namespaces, without_namespaces};
use super::*;

/// Runs a line in stage `s`, in a copy.
#[track_caller]
fn copied(place: &Place, words: &[&str], line: &str) -> Done {
    let all: Vec<&str> = ["run", "-q", "-p", "write", "--stage", "s"]
        .into_iter()
        .chain(words.iter().copied())
        .chain(["-c", line])
        .collect();
    without_namespaces(place, &all)
}

fn is_denied(done: &Done, times: usize) {
    assert_eq!(done.stderr().matches("Permission denied").count(), times, "{done}");
    assert!(!done.stdout().contains("S3CRET"), "{done}");
}

#[test]
fn a_closed_path_is_closed_in_the_working_directory_and_left_out_of_the_copy() {
    for user in users() {
        let place = place(user);
        sh(
            &place,
            "echo S3CRET > secret; mkdir conf; echo S3CRET > conf/a.key; echo S3CRET > .env; echo S3CRET > conf/.env",
        );
        let work = place.at("work");
        let (absolute, policy) = (work.join("secret").display().to_string(), place.at("home/p.toml"));
        fs::write(&policy, "[paths]\ndeny = ['secret']\n").expect("own directory");
        let rules: [(&[&str], &str); 5] = [
            (&["--deny-path", "secret"], "secret"),
            (&["--deny-path", &absolute], "secret"),
            (&["--config", policy.to_str().expect("text")], "secret"),
            (&["--deny-path", "**/*.key"], "conf/a.key"),
            (&["--deny-path", "conf"], "conf/a.key"),
        ];
        for (rule, name) in rules {
            let line = format!("cat {0}/{name} {0}/.env; ls {name} .env conf/.env; echo n > new", work.display());
            let done = copied(&place, rule, &line);
            is_denied(&done, 2);
            assert_eq!(done.stderr().matches("No such file").count(), 3, "{rule:?}: {done}");
            assert_eq!(summary(&place), ["added new"], "what is left out is not deleted");
            place.run(&["stage", "discard", "s"]).exits(0);
        }
        for around in ["..", "."] {
            let line = format!("cat {}/text; cat text; echo n > new", work.display());
            is_denied(&copied(&place, &["--deny-path", around], &line), 3);
            place.run(&["stage", "discard", "s"]).exits(0);
        }
        // What an earlier run could use is in the copy, and closed there from then on.
        copied(&place, &["--read", ".env"], "cat secret .env; rm conf/a.key").exits(0).prints("S3CRET\nS3CRET\n");
        is_denied(&copied(&place, &[], "cat .env; echo x >> .env; cat $OLDPWD/.env"), 2);
        let beside = place.at("home/beside");
        fs::write(&beside, "").expect("own directory");
        let denied = ["--deny-path", "secret", "--deny-path", beside.to_str().expect("text"), "--deny-path", "text"];
        is_denied(&copied(&place, &denied, "cat secret; cat text; echo x >> secret"), 3);
        is_denied(&copied(&place, &["--deny-path", "secret"], "cat secret; cat .env; cat $OLDPWD/.env"), 2);
        is_denied(&copied(&place, &["--deny-path", &absolute], &format!("cat secret; cat {absolute}")), 2);
    }
}

#[test]
fn what_a_copy_does_not_have_is_neither_shown_nor_removed() {
    for user in users() {
        let place = place(user);
        sh(&place, "echo S3CRET > .env; echo S3CRET > dir/.env; echo S3CRET > dir/deep/mine; chmod 600 dir/deep/mine");
        copied(&place, &["--deny-path", "dir/deep/mine"], "echo other > .env; rm -r dir").exits(0);
        let diff = place.run(&["stage", "diff", "s"]);
        assert!(!diff.exits(1).stdout().contains("S3CRET"), "{diff}");
        place.run(&["stage", "apply", "s"]).exits(2);
        let done = place.run(&["stage", "apply", "s", "--protected", "take"]);
        let why = done.exits(1).stderr();
        for line in
            [".env: created in the real tree meanwhile", "dir: holds what the stage does not have", "dir/deep: holds "]
        {
            assert!(why.contains(line), "{line}: {done}");
        }
        sh(&place, "grep -q S3CRET .env && grep -q S3CRET dir/.env && grep -q S3CRET dir/deep/mine && test -e dir/g");
    }
}

#[test]
fn the_file_of_a_credential_is_not_in_the_copy() {
    for user in users() {
        let place = place(user);
        sh(&place, "echo S3CRET > token; echo S3CRET > kube; chmod 600 token kube");
        let policy = place.at("home/p.toml");
        fs::write(&policy, "[network]\nmode = 'hosts'\nhosts = ['a.org']\n[[network.credential]]\nenv = 'T'\nhost = 'a.org'\nfrom = 'file:token'\n")
            .expect("own directory");
        let line = format!("cat {0}/token {0}/kube; ls token kube", place.at("work").display());
        let words =
            ["run", "-q", "-p", "write", "--stage", "s", "--config", policy.to_str().expect("text"), "-c", &line];
        let mut command = command_without_namespaces(&place, &words);
        let done = run(command.env("KUBECONFIG", place.at("work/kube")));
        is_denied(&done, 2);
        assert_eq!(done.stderr().matches("No such file").count(), 2, "{done}");
    }
}

/// What is beside the copy says where `apply` writes.
#[test]
fn relative_grants_mean_the_working_directory_and_none_reaches_the_stages() {
    for user in users() {
        let place = place(user);
        sh(&place, "mkdir ../shared; echo r > ../shared/r");
        let refused = |words: &[&str], why: &str| {
            let done = copied(&place, words, "true");
            assert!(done.exits(125).stderr().contains(why), "{done}");
        };
        refused(&["--write", ".."], "is writable, and with it the real working directory");
        let done = copied(&place, &["--write", "../shared", "--read", ".."], "cat ../stage.json ../bases.json");
        is_denied(&done, 2);
        let line = format!(
            "cat {0}/r; echo w > {0}/w; echo x > dir/x; echo x > {1}/dir/x",
            place.at("shared").display(),
            place.at("work").display()
        );
        let done = copied(&place, &["--write", "../shared", "--write", "dir"], &line);
        is_denied(&done, 1);
        sh(&place, "test -e ../shared/w; test ! -e dir/x");
        assert_eq!(summary(&place), ["added dir/x"]);
        place.run(&["run", "-p", "write", "--stage", "other", "--", "true"]).exits(0);
        let stage = |name: &str| store(&place).join(name).display().to_string();
        let (own, other) = (stage("s"), stage("other"));
        is_denied(&copied(&place, &["--read", &own], &format!("cat {own}/stage.json {own}/bases.json")), 2);
        for words in [["--write", &own], ["--write", &other], ["--read", &other]] {
            refused(&words, "belongs to the stages");
            let words = ["run", "-p", "write", "--stage", "s2", words[0], words[1], "--", "true"];
            assert!(place.run(&words).exits(125).stderr().contains("belongs to the stages"), "{words:?}");
        }
        place.run(&["stage", "apply", "s"]).exits(0);
    }
}

#[test]
fn the_policy_of_a_run_is_applied_only_on_request() {
    for user in users() {
        for copy in [true, false] {
            let place = place(user);
            sh(&place, "echo \"profile = 'write'\" > pol.toml");
            let words = [
                "run",
                "-q",
                "--stage",
                "s",
                "--config",
                "pol.toml",
                "-c",
                "mv pol.toml x; echo > pol.toml; echo n > n",
            ];
            let done = if copy { without_namespaces(&place, &words) } else { place.run(&words) };
            if !copy {
                assert!(done.stderr().contains("pol.toml"), "read-only in an overlay: {done}");
                continue;
            }
            let done = place.run(&["stage", "apply", "s"]);
            assert!(done.exits(2).stderr().contains("protected: pol.toml\n"), "{done}");
            place.run(&["stage", "apply", "s", "--protected", "skip"]).exits(0);
            sh(&place, "grep -q write pol.toml; test -e n");
        }
    }
}

#[test]
fn no_answer_changes_the_real_tree_of_a_copy() {
    for user in users() {
        let place = place(user);
        let (report, work) = (place.at("tmp/report.json"), place.at("work"));
        let line = format!(
            "echo x >> {0}/text; echo x > {0}/new; echo ok > {1}/ok",
            work.display(),
            place.at("home").display()
        );
        let words = [
            "run",
            "-q",
            "-p",
            "write",
            "--stage",
            "s",
            "--ask-fd",
            "9",
            "--report",
            report.to_str().expect("text"),
            "-c",
            &line,
        ];
        let mut command = command_without_namespaces(&place, &words);
        let ran = crate::ask::drive(&mut command, crate::ask::always("once"), &report);
        assert_eq!(ran.asked(), [format!("write {}/ok", place.at("home").display())], "{}", ran.done);
        sh(&place, "test -e ../home/ok; test ! -e new; test $(wc -l < text) = 3");
    }
}
