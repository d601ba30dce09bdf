//! The server uses a plan again only while nothing that it depends on has changed: the next call sees every change.

use super::Client;
use crate::plumbing::{Place, users};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Enough calls for the plan to be kept: the first ones are made a moment after the files.
const WARM: usize = 8;

fn new(place: &Place, path: &Path, text: &str) {
    fs::write(path, text).expect("own");
    std::os::unix::fs::chown(path, place.user, place.user).expect("own, or root's to give");
}

fn cat(client: &mut Client, path: &Path) -> Value {
    client.exec(json!({"command": ["cat", path]}))["structuredContent"].clone()
}

#[track_caller]
fn reads(client: &mut Client, path: &Path, text: &str) {
    let report = cat(client, path);
    assert_eq!((&report["exit_code"], &report["stdout"]), (&json!(0), &json!(text)), "{report}");
}

#[test]
fn what_appears_between_two_calls_is_closed_to_the_second() {
    for user in users() {
        let place = Place::new(user);
        let plain = place.at("work/plain");
        new(&place, &plain, "text");
        let mut client = Client::start(&place, &["--profile", "read"]);
        for name in ["home/.npmrc", "work/.env"] {
            (0..WARM).for_each(|_| reads(&mut client, &plain, "text"));
            let secret = place.at(name);
            new(&place, &secret, "secret");
            let report = cat(&mut client, &secret);
            let stderr = report["stderr"].as_str().unwrap_or_default();
            assert!(report["exit_code"] == 1 && stderr.contains("Permission denied"), "{report}");
            assert_eq!(report["denials"][0]["path"], json!(secret), "{report}");
            reads(&mut client, &plain, "text");
        }
        // Control: by another name it is readable.
        new(&place, &place.at("work/other"), "open");
        reads(&mut client, &place.at("work/other"), "open");
    }
}

#[test]
fn another_program_is_used_by_the_next_call() {
    for user in users() {
        let place = Place::new(user);
        let tool = place.at("work/tool");
        let write = |text: &str| {
            new(&place, &tool, &format!("#!/bin/sh\necho {text}\n"));
            fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("own");
        };
        write("one");
        let mut client = Client::start(&place, &["--profile", "read"]);
        let printed =
            |client: &mut Client| client.exec(json!({"command": ["./tool"]}))["structuredContent"]["stdout"].clone();
        for _ in 0..WARM {
            assert_eq!(printed(&mut client), "one\n");
        }
        write("two");
        assert_eq!(printed(&mut client), "two\n");
        fs::remove_file(&tool).expect("own");
        let answer = client.exec(json!({"command": ["./tool"]}));
        assert_eq!(answer["structuredContent"]["outcome"], "not_found", "{answer}");
    }
}
