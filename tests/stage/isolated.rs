//! A stage inside bubblewrap: mounted around it, so that bubblewrap binds the working directory with the stage over it.

use super::*;

const ISOLATED: [&str; 7] = ["run", "-p", "write", "--isolate", "required", "--stage", "s"];

#[track_caller]
fn isolated(place: &Place, words: &[&str]) -> Done {
    place.run(&ISOLATED.into_iter().chain(words.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn a_stage_works_inside_bubblewrap() {
    if !crate::support::has("bwrap") {
        return;
    }
    for user in users() {
        let place = place(user);
        sh(&place, "mkdir .vscode; echo s > .vscode/settings.json; echo K=1 > .env");
        let before = tree(&place.at("work"));
        let report = place.at("tmp/report");
        let line = "echo four >> text; rm -r dir; mkdir new; echo n > new/f; echo x >> .vscode/settings.json; cat .env; \
                    echo '#!/bin/sh' > run.sh; echo 'echo ran' >> run.sh; chmod 755 run.sh; pwd";
        let done = isolated(&place, &["--report", report.to_str().expect("text"), "-c", line]);
        done.exits(0).prints(&format!("{}\n", place.at("work").display()));
        assert_eq!(tree(&place.at("work")), before, "the real tree is untouched");
        let report: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
        assert_eq!(report["stage"]["means"], "overlay", "{report:#}");
        let status = |layer: &str| {
            let layers = report["layers"].as_array().expect("a list");
            layers.iter().find(|entry| entry["layer"] == layer).map(|entry| entry["status"].clone())
        };
        assert_eq!((status("stage"), status("namespaces")), (Some("enforced".into()), Some("enforced".into())));
        let changed = [
            "deleted dir",
            "deleted dir/deep",
            "deleted dir/deep/h",
            "deleted dir/g",
            "added new",
            "added new/f",
            "added run.sh",
            "modified text",
        ];
        assert_eq!(summary(&place), changed, "also nothing that bubblewrap made");
        // The next run sees it, with and without bubblewrap; its program may be in the stage.
        isolated(&place, &["--", "./run.sh"]).exits(0).prints("ran\n");
        staged(&place, "tail -n 1 text").exits(0).prints("four\n");
        let own = store(&place);
        let reach = format!(
            "ls {0}; echo x > {0}/s/upper/planted; echo x > {1}/outside",
            own.display(),
            place.at("").display()
        );
        // /tmp is private there, so the last one may succeed, and nothing outside shows it.
        isolated(&place, &["-c", &reach]).prints("");
        assert_eq!(summary(&place), changed);
        assert!(!place.at("outside").exists());
        place.run(&["stage", "apply", "s"]).exits(0).prints("8 changes applied\n");
        sh(
            &place,
            "grep -qx four text; test ! -e dir; grep -qx n new/f; grep -qx s .vscode/settings.json; grep -qx K=1 .env",
        );
    }
}

#[test]
fn without_bubblewrap_a_stage_is_left_as_it_was() {
    for user in users() {
        let place = place(user);
        fs::write(place.at("p.toml"), "[bubblewrap]\npath = \"/nonexistent/bwrap\"\n").expect("own directory");
        let policy = place.at("p.toml");
        isolated(&place, &["--config", policy.to_str().expect("text"), "-c", "echo x > new"]).exits(125);
        let left = fs::read_dir(store(&place)).map_or(0, Iterator::count);
        assert_eq!(left, 0, "nothing ran, so no stage is left");
        let words = [
            "run",
            "-p",
            "write",
            "--isolate",
            "preferred",
            "--stage",
            "s",
            "--config",
            policy.to_str().expect("text"),
        ];
        place.run(&words.into_iter().chain(["-c", "echo x > new"]).collect::<Vec<_>>()).exits(0);
        assert_eq!(summary(&place), ["added new"]);
    }
}

#[test]
fn a_killed_isolated_run_leaves_the_stage_whole() {
    if !crate::support::has("bwrap") {
        return;
    }
    for user in users() {
        let place = place(user);
        let words: Vec<&str> = ISOLATED.into_iter().chain(["-c", "echo x > started; sleep 60"]).collect();
        let mut running = place.command(&words).spawn().expect("starts");
        crate::plumbing::eventually("the command has started", || store(&place).join("s/upper/started").exists());
        place.run(&["stage", "apply", "s"]).exits(2);
        running.kill().expect("own child");
        running.wait().expect("ended");
        crate::plumbing::eventually("the stage is free", || place.run(&["stage", "diff", "s"]).code() == Some(1));
        place.run(&["stage", "apply", "s"]).exits(0).prints("1 change applied\n");
    }
}
