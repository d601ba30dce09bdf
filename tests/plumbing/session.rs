//! Sessions of an agent: private temporary files, moved caches, a summary of the limits, and no leftovers.

use super::{Place, users};
use crate::support::has;
use std::fs;
use std::path::Path;

#[test]
fn temporary_files_are_private_and_go_away() {
    for user in users() {
        let place = Place::new(user);
        let line = "test -w $TMPDIR && stat -c %a $TMPDIR && mktemp >/dev/null && echo $TMPPREFIX && \
                    mkdir -p $TMPDIR/a/b && chmod 0 $TMPDIR/a && ln -s /etc $TMPDIR/link && echo $TMPDIR";
        let report = place.report(&["-p", "write", "-c", line]);
        let text = report["stdout"].as_str().expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let [mode, prefix, tmp] = lines.as_slice() else { panic!("{report:#}") };
        assert_eq!(*mode, "700");
        assert!(Path::new(tmp).starts_with(place.at("tmp")), "{tmp}");
        assert!(Path::new(prefix).starts_with(tmp), "{prefix}");
        assert_eq!(
            fs::read_dir(place.at("tmp")).expect("readable").count(),
            0,
            "removed, whatever the command did to it"
        );
    }
}

#[test]
fn they_are_kept_when_asked_for() {
    for user in users() {
        let place = Place::new(user);
        let done = place.run(&["run", "-p", "write", "--keep-tmp", "-c", "echo hello > $TMPDIR/file"]);
        done.exits(0);
        let kept = done.stderr().trim().strip_prefix("gatekeeper: kept ").expect("told where").to_owned();
        assert_eq!(fs::read_to_string(Path::new(&kept).join("tmp/file")).expect("kept"), "hello\n");
        assert!(Path::new(&kept).starts_with(place.at("tmp")));
        fs::remove_dir_all(&kept).expect("the test's to remove");
    }
}

#[test]
fn nothing_is_left_in_the_working_directory_or_at_home() {
    for user in users() {
        let place = Place::new(user);
        fs::write(place.at("work").join("file"), "x").expect("own directory");
        let before = place.tree();
        for words in [
            &["run", "--", "cat", "file"][..],
            &["run", "-p", "write", "-c", "cat file >/dev/null; mktemp -d"],
            &["run", "-p", "write", "--memory", "100M", "--processes", "50", "-c", "sleep 0.1"],
            &["run", "-p", "network", "--", "true"],
            &["run", "-p", "write", "--timeout", "200ms", "--", "sleep", "60"],
            &["run", "--", "no-such-program"],
            &["run", "--json", "-c", "echo x"],
            &["plan", "-p", "write", "--", "true"],
            &["doctor"],
        ] {
            place.run(words);
            assert_eq!(place.tree(), before, "{words:?}");
        }
    }
}

#[test]
fn caches_go_below_one_directory() {
    for user in users() {
        let place = Place::new(user);
        let cache = place.at("home").join("cache");
        let line = "echo $npm_config_cache; echo $PIP_CACHE_DIR; echo $CARGO_HOME; echo $GOCACHE; echo $GOMODCACHE; echo $XDG_CACHE_HOME; \
                    mkdir $GOCACHE && echo > $GOCACHE/x && echo fine";
        let report = place.report(&["-p", "write", "--cache", cache.to_str().expect("text"), "-c", line]);
        let text = report["stdout"].as_str().expect("text");
        let expected =
            ["npm", "pip", "cargo", "go-build", "go-mod", "xdg"].map(|name| format!("{}/{name}\n", cache.display()));
        assert_eq!(text, format!("{}fine\n", expected.concat()), "{report:#}");
        // A variable that the caller sets by name takes precedence.
        let report = place.report(&[
            "-p",
            "write",
            "--cache",
            cache.to_str().expect("text"),
            "--env",
            "GOCACHE=/x",
            "-c",
            "echo $GOCACHE",
        ]);
        assert_eq!(report["stdout"], "/x\n");
    }
}

/// A real build that would otherwise write below $HOME.
#[test]
fn a_build_leaves_home_alone() {
    if !has("go") {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        fs::write(place.at("work").join("main.go"), "package main\nfunc main() { println(1) }\n")
            .expect("own directory");
        let words =
            ["-p", "write", "--cache", "cache", "--timeout", "120s", "--", "go", "build", "-o", "hello", "main.go"];
        let report = place.report(&words);
        assert_eq!(report["exit_code"], 0, "{report:#}");
        assert!(place.at("work").join("hello").exists());
        assert!(place.at("work").join("cache/go-build").exists());
        assert_eq!(fs::read_dir(place.at("home")).expect("readable").count(), 0);
    }
}

#[test]
fn the_command_can_read_its_limits() {
    for user in users() {
        let place = Place::new(user);
        let words = [
            "-p",
            "write",
            "--memory",
            "300M",
            "--timeout",
            "20s",
            "-c",
            "echo $GATEKEEPER_SANDBOX; cat $GATEKEEPER_SUMMARY",
        ];
        let report = place.report(&words);
        let text = report["stdout"].as_str().expect("text");
        let work = place.at("work").display().to_string();
        for part in [
            "write\nsandbox: gatekeeper, profile write\n",
            &work,
            "network: none",
            "memory 314572800",
            "time 20s",
            "--write PATH",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        // Also if only listed paths may be read.
        let policy = place.at("work").join("policy.toml");
        fs::write(&policy, "profile = \"write\"\n[paths]\nread = [\".\"]\n").expect("own directory");
        let report = place.report(&["--config", policy.to_str().expect("text"), "-c", "cat $GATEKEEPER_SUMMARY"]);
        assert!(report["stdout"].as_str().expect("text").starts_with("sandbox: gatekeeper"), "{report:#}");
        // The command cannot change it.
        let report = place.report(&[
            "-p",
            "write",
            "-c",
            "echo x > $GATEKEEPER_SUMMARY; rm -f $GATEKEEPER_SUMMARY; head -c 7 $GATEKEEPER_SUMMARY",
        ]);
        assert_eq!(report["stdout"], "sandbox", "{report:#}");
        // The variable is set under every profile.
        assert_eq!(place.report(&["-c", "echo $GATEKEEPER_SANDBOX"])["stdout"], "minimal\n");
    }
}
