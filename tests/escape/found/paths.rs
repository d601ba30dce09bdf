//! Granted, denied and protected paths that a command replaces with links.

use super::{Hole, Severity, errno, place_of, text};
use crate::mcp::Client;
use crate::plumbing::{Place, users as places};
use crate::run::{Gate, User, act, layer, owned_by, users};
use crate::support::is_root;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::High,
        attack: "one run replaces a directory with a link; the next names it with `--cache`, `--write`, `--read`, `--deny-path`, `--unix` or `--cwd`",
        reached: "files outside were writable and keys readable",
        held_by: &["a_directory_swapped_for_a_link_is_refused"],
    },
    Hole {
        severity: Severity::High,
        attack: "the same in one MCP session, with a directory of `--grantable`, and by a `.git` file",
        reached: "files outside were writable",
        held_by: &["one_mcp_session_cannot_widen_its_own_grants"],
    },
    Hole {
        severity: Severity::High,
        attack: "`.bashrc`, `.git/hooks` or the policy file is a symbolic link, and the command replaces the link",
        reached: "start-up files, hooks and the policy of the next run could be replaced",
        held_by: &["links_to_protected_places_cannot_be_replaced", "a_link_to_a_secret_cannot_be_replaced"],
    },
    Hole {
        severity: Severity::High,
        attack: "an MCP call with a granted `--write` leaves a link where a path of the policy was",
        reached: "later calls without a grant could write to the target of the link",
        held_by: &["what_a_granted_mcp_call_leaves_widens_no_other"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "a denied path in the working directory beside a `.env`",
        reached: "the `.env` was readable",
        held_by: &["a_denied_path_leaves_other_secrets_closed"],
    },
];

#[test]
fn a_directory_swapped_for_a_link_is_refused() {
    for user in users() {
        let goal = place_of(*user);
        for flag in ["--cache", "--write", "--read", "--deny-path", "--unix", "--cwd"] {
            for profile in ["write", "minimal"] {
                let gate = Gate::profile(*user, profile);
                gate.file("named/inside", "x");
                let again = |profile| Gate::profile(*user, profile).in_directory(&gate.dir);
                again(profile).flags([flag, "named"]).run(["true"]).exits(0);
                let swap = format!("rm -r named; ln -s {} named", goal.display());
                again("write").run(["sh", "-c", &swap]).exits(0);
                let refused = again(profile).flags([flag, "named"]).run(["true"]);
                refused.exits(125);
                let named = gate.dir.join("named");
                assert!(
                    refused.stderr().contains(&format!("{} is a symbolic link to {}", named.display(), goal.display())),
                    "{refused}"
                );
                assert!(refused.stderr().contains("name its target instead"), "{refused}");
                assert_eq!(fs::read_dir(&goal).expect("there").count(), 0, "{refused}");
            }
        }
        // The control: a link of the user outside of writable trees is followed.
        let link = place_of(*user).join("link");
        symlink(&goal, &link).expect("own directory");
        let gate = Gate::profile(*user, "write").flags(["--write", text(&link)]);
        assert_eq!(errno(&gate, &["create", text(&goal.join("new"))]), 0);
    }
}

#[test]
fn what_a_granted_mcp_call_leaves_widens_no_other() {
    for user in places() {
        let place = Place::new(user);
        let shared = place.at("shared");
        fs::create_dir_all(shared.join("notes")).expect("own directory");
        for path in [&shared, &shared.join("notes")] {
            std::os::unix::fs::chown(path, user, user).expect("own, or root's to give");
        }
        let secret = place.at("home").join("secret");
        fs::write(&secret, "SECRET\n").expect("own directory");
        let flags = [
            "--profile".to_owned(),
            "read".to_owned(),
            "--grantable".to_owned(),
            format!("--write {}", shared.display()),
            "--read".to_owned(),
            shared.join("notes").display().to_string(),
        ];
        let mut client = Client::start(&place, &flags.iter().map(String::as_str).collect::<Vec<_>>());
        let code = |result: &serde_json::Value| result["structuredContent"]["exit_code"].clone();
        assert_eq!(code(&client.exec(json!({"line": "true"}))), 0, "the control");
        let swap = format!("cd {} && rmdir notes && ln -s {} notes", shared.display(), place.at("home").display());
        let grant = format!("--write {}", shared.display());
        assert_eq!(code(&client.exec(json!({"line": swap, "grants": [grant]}))), 0);
        let result = client.exec(json!({"line": "true"}));
        assert_eq!(code(&result), 125, "{result}");
        assert!(result.to_string().contains("is a symbolic link"), "{result}");
    }
}

#[test]
fn one_mcp_session_cannot_widen_its_own_grants() {
    for user in places() {
        let place = Place::new(user);
        let goal = place.at("home").join("new");
        let flags = ["--profile", "write", "--grantable", "--write out", "--grantable", "--read keys"];
        let mut client = Client::start(&place, &flags);
        let code = |result: &serde_json::Value| result["structuredContent"]["exit_code"].clone();
        assert_eq!(
            code(&client.exec(json!({"line": "mkdir out keys && touch out/new", "grants": ["--write out"]}))),
            0
        );
        let swap = format!("rm -r out keys; ln -s {0} out; ln -s {0} keys", place.at("home").display());
        assert_eq!(code(&client.exec(json!({"line": swap}))), 0);
        let touch = format!("touch {}", goal.display());
        for grant in ["--write out", "--read keys"] {
            let result = client.exec(json!({"line": touch, "grants": [grant]}));
            assert_eq!(code(&result), 125, "{result}");
            assert!(result.to_string().contains("is a symbolic link"), "{result}");
        }
        let plant = "rm out keys; mkdir .g; echo 'gitdir: .g' >.git; echo ../.git >.g/gitdir; echo / >.g/commondir";
        assert_eq!(code(&client.exec(json!({"line": plant}))), 0);
        let result = client.exec(json!({"line": touch}));
        assert_eq!(code(&result), 1, "{result}");
        assert!(!goal.exists());
        assert_eq!(code(&client.exec(json!({"line": "touch fine"}))), 0, "the control");
    }
}

#[test]
fn links_to_protected_places_cannot_be_replaced() {
    for user in users() {
        let elsewhere = place_of(*user);
        let gate = Gate::profile(*user, "write");
        gate.file("dots/bashrc", "kept\n");
        gate.file("dots/hooks/pre-commit", "kept\n");
        gate.file("conf/policy.toml", "on_violation = \"errno\"\n");
        gate.file(".git/HEAD", "ref: refs/heads/main\n");
        gate.file("other", "other\n");
        fs::write(elsewhere.join("zshrc"), "kept\n").expect("own directory");
        let zshrc = elsewhere.join("zshrc");
        let links = [
            ("dots/bashrc", ".bashrc"),
            ("../dots/hooks", ".git/hooks"),
            (text(&zshrc), ".zshrc"),
            ("other", "free"),
            ("nowhere", ".profile"),
        ];
        for (target, link) in links {
            symlink(target, gate.dir.join(link)).expect("own directory");
            owned_by(*user, &gate.dir.join(link));
        }
        let gate_dir = gate.dir.clone();
        let gate = gate.flags(["--config", "conf/policy.toml"]);
        gate.file(".git/other", "other\n");
        for (_, link) in links.iter().filter(|(_, link)| *link != "free") {
            // In the same directory, because a rename across mounts fails anyway.
            let (other, away) = (Path::new(link).with_file_name("other"), Path::new(link).with_file_name("away"));
            let (other, away) = (text(&other), text(&away));
            let ways =
                [&["unlink", link][..], &["rename", link, away], &["rename", other, link], &["exchange", other, link]];
            for words in ways {
                assert_eq!(errno(&gate, words), libc::EROFS, "{user:?} {words:?}");
            }
        }
        for (link, written) in [
            (".bashrc", libc::EROFS),
            ("dots/bashrc", libc::EROFS),
            (".git/hooks/pre-commit", libc::EROFS),
            ("conf/policy.toml", libc::EROFS),
            (".zshrc", libc::EACCES),
        ] {
            assert_eq!(errno(&gate, &["write", link]), written, "{user:?} {link}");
            assert_eq!(errno(&gate, &["read", link]), 0, "it goes on leading there: {link}");
        }
        assert_eq!(errno(&gate, &["unlink", "free"]), 0, "the control");
        let (_, report) = gate.report(["true"]);
        let (status, detail) = layer(&report, "namespaces");
        assert!(status == "enforced" && detail.contains(text(&gate.dir.join(".bashrc"))), "{detail}");
        if !crate::isolate::works() {
            continue;
        }
        // Inside bubblewrap, root has no capability to mount, and the report says so.
        let (done, report) =
            gate.flags(["--isolate", "required"]).report([text(&act()), "unlink", ".bashrc", ",", "write", ".bashrc"]);
        match layer(&report, "landlock") {
            ("enforced", _) => done.exits(0).prints(&format!("unlink {}\nwrite {}\n", libc::EROFS, libc::EROFS)),
            (status, detail) => {
                assert!(status == "partial" && detail.contains(text(&gate_dir.join(".bashrc"))), "{detail}");
                assert_eq!(*user, User::Own, "{detail}");
                assert!(is_root(), "{detail}");
                &done
            }
        };
    }
}

#[test]
fn a_link_to_a_secret_cannot_be_replaced() {
    for user in users() {
        let elsewhere = place_of(*user);
        fs::write(elsewhere.join("shared.env"), "SECRET\n").expect("own directory");
        let gate = Gate::profile(*user, "write");
        symlink(elsewhere.join("shared.env"), gate.dir.join(".env")).expect("own directory");
        gate.file("other", "x");
        for words in [&["unlink", ".env"][..], &["rename", "other", ".env"]] {
            assert_eq!(errno(&gate, words), libc::EROFS, "{user:?} {words:?}");
        }
        assert_eq!(errno(&gate, &["read", text(&elsewhere.join("shared.env"))]), libc::EACCES);
        assert_eq!(errno(&gate.flags(["--read", text(&elsewhere.join("shared.env"))]), &["read", ".env"]), 0);
    }
}

#[test]
fn a_denied_path_leaves_other_secrets_closed() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".env", "SECRET\n");
        gate.file("closed/data", "x");
        gate.file("open/data", "x");
        let gate = gate.flags(["--deny-path", "closed"]);
        assert!(!gate.run(["cat", ".env"]).stdout().contains("SECRET"), "{user:?}");
        assert_eq!(errno(&gate, &["write", "open/data"]), 0, "the control");
    }
}
