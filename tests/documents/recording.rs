//! The picture of a terminal in the README is what scripts/record produces from real runs.

use super::root;
use crate::support::{gatekeeper, has, run};
use std::process::Command;

#[test]
fn the_recording_shows_what_happens() {
    if !has("curl") {
        return;
    }
    let done = run(Command::new(root().join("scripts/record")).env("GATEKEEPER", gatekeeper()));
    let kept = std::fs::read_to_string(root().join("docs/demo.svg")).expect("the picture");
    assert!(kept.contains("gatekeeper run -p read") && kept.contains("was denied"), "it shows something");
    assert!(done.exits(0).stdout() == kept, "scripts/record > docs/demo.svg brings it up to date{done}");
}

#[test]
fn the_readme_leads_with_it_and_with_the_way_to_install() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("the README lacks {what}"));
    assert!(at("docs/demo.svg") < at("## Install"));
    assert!(at("## Install") < at("## One minute"));
    assert!(at("make install PREFIX=~/.local") < at("## One minute"));
    assert!(text.lines().count() < 150, "the README is for a first look; the rest belongs in docs/");
}

/// `make run` shows a command that works, and one that is denied although the user has the permission.
#[test]
fn the_demonstration_denies_what_the_user_may_do() {
    let home = crate::support::fresh("demo-home");
    let mut demo = Command::new(root().join("scripts/demo"));
    let done = run(demo.env("GATEKEEPER", gatekeeper()).env("HOME", &home));
    let text = done.exits(0).stdout();
    assert!(text.contains(&format!("touch {}/gatekeeper-demo-", home.display())), "{done}");
    assert!(text.contains("was denied") && text.contains("make install PREFIX=~/.local"), "{done}");
    assert_eq!(std::fs::read_dir(&home).expect("own").count(), 0, "it leaves nothing");
}
