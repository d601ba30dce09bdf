//! A client decides what runs, but never what is allowed.

use super::Client;
use crate::plumbing::{Place, users};
use serde_json::json;
use std::fs;

#[test]
fn no_argument_allows_more_than_the_operator_did() {
    for user in users() {
        let place = Place::new(user);
        let mut client = Client::start(&place, &["-p", "write"]);
        let home = place.at("home");
        let touch = |file: &str| json!({"command": ["touch", file]});
        assert_eq!(client.exec(touch("new"))["structuredContent"]["exit_code"], 0, "the positive control");

        // Another working directory does not become writable, and the configured one stays writable.
        let elsewhere = json!({"command": ["touch", "new"], "cwd": home});
        let result = client.exec(elsewhere);
        let denial = &result["structuredContent"]["denials"][0];
        assert_eq!(denial["path"], home.join("new").to_str().expect("text"), "{result}");
        assert!(!home.join("new").exists());
        let back = json!({"command": ["touch", place.at("work").join("newer")], "cwd": home});
        assert_eq!(client.exec(back)["structuredContent"]["exit_code"], 0);

        // A client can only shorten the time limit.
        let mut short = Client::start(&place, &["--timeout", "300ms"]);
        for timeout in [json!(3600), json!(1e-12)] {
            let result = short.exec(json!({"command": ["sleep", "3600"], "timeout": timeout}));
            assert_eq!(result["structuredContent"]["outcome"], "timeout", "{result}");
        }

        for name in
            ["profile", "write", "read", "net", "env", "config", "policy", "flags", "isolate", "require_sandbox"]
        {
            let mut arguments = touch("never");
            arguments[name] = json!("unrestricted");
            client.refuses(arguments, name);
        }
        let grant = format!("--write {}", home.display());
        client.refuses(
            json!({"command": ["touch", home.join("new")], "grants": [grant]}),
            "only its operator can add it",
        );
        assert!(!home.join("new").exists() && !place.at("work").join("never").exists());
    }
}

#[test]
fn a_listed_grant_is_given_for_one_call_and_nothing_beside_it() {
    for user in users() {
        let place = Place::new(user);
        let (home, data) = (place.at("home"), place.at("home").join("data"));
        fs::create_dir(&data).expect("own directory");
        std::os::unix::fs::chown(&data, user, user).expect("own, or root's to give");
        let offered = format!("--write {}", data.display());
        let mut client = Client::start(&place, &["--grantable", &offered, "--grantable", "--profile network"]);
        let touch = json!({"command": ["touch", data.join("new")]});
        let result = client.exec(touch.clone());
        assert_eq!(result["structuredContent"]["grantable"], json!([offered]), "{result}");
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("The user may grant"), "{text}");
        assert!(!data.join("new").exists());

        let with = |grants: &[&str]| {
            let mut arguments = touch.clone();
            arguments["grants"] = json!(grants);
            arguments
        };
        for other in [
            format!("--write {}", home.display()),
            format!("{offered} --write {}", home.display()),
            "--profile unrestricted".to_owned(),
            "--profile network+write".to_owned(),
            "--net full".to_owned(),
            "--allow ptrace".to_owned(),
        ] {
            client.refuses(with(&[&offered, &other]), "only its operator can add it");
        }
        client.refuses(with(&[&format!("--write {}/../other", data.display())]), "..");
        for no_grant in
            ["--timeout 1h", "--static allow", "--require-sandbox=false", "--config x", "-- sh", "$HOME", ""]
        {
            client.refuses(with(&[no_grant]), "grant");
        }
        assert!(!data.join("new").exists());
        let result = client.exec(with(&[&offered]));
        assert_eq!(result["structuredContent"]["exit_code"], 0, "{result}");
        assert!(data.join("new").exists());

        // The grant covers neither other paths nor later calls.
        let beside = json!({"command": ["touch", home.join("new")], "grants": [offered]});
        assert_eq!(client.exec(beside)["structuredContent"]["exit_code"], 1);
        let after = client.exec(json!({"command": ["touch", data.join("newer")]}));
        assert_eq!(after["structuredContent"]["exit_code"], 1, "{after}");
        assert!(!home.join("new").exists() && !data.join("newer").exists());
    }
}

#[test]
fn a_link_put_in_the_way_of_a_grant_leads_nowhere() {
    let place = Place::new(None);
    let data = place.at("work");
    std::os::unix::fs::symlink(place.at("home"), data.join("link")).expect("own directory");
    let offered = format!("--write {}", data.display());
    let mut client = Client::start(&place, &["--grantable", &offered]);
    let grant = format!("--write {}", data.join("link").display());
    let result = client.exec(json!({"line": "touch link/new; touch own", "grants": [grant]}));
    assert_eq!(result["structuredContent"]["exit_code"], 0, "{result}");
    assert!(data.join("own").exists(), "the operator's entry was granted");
    assert!(!place.at("home").join("new").exists(), "{result}");
}

#[test]
fn a_policy_file_counts_as_it_was_at_the_start() {
    let place = Place::new(None);
    let file = place.at("policy.toml");
    fs::write(&file, "profile = \"minimal\"\n").expect("own directory");
    let mut client = Client::start(&place, &["--config", file.to_str().expect("text")]);
    let touch = json!({"command": ["touch", "new"]});
    assert_eq!(client.exec(touch.clone())["structuredContent"]["exit_code"], 1);
    fs::write(&file, "profile = \"unrestricted\"\n").expect("own directory");
    assert_eq!(client.exec(touch)["structuredContent"]["exit_code"], 1);
    assert!(!place.at("work").join("new").exists());
}

#[test]
fn a_server_that_could_run_nothing_does_not_start() {
    let place = Place::new(None);
    for (words, why) in [
        (["mcp", "--config", "/nonexistent"], "/nonexistent"),
        (["mcp", "--profile", "wriet"], "wriet"),
        (["mcp", "--cwd", "/nonexistent"], "/nonexistent"),
        (["mcp", "--grantable", "--timeout 1h"], "not a grant"),
        (["mcp", "--grantable", "write everything"], "write everything"),
    ] {
        let done = place.run(&words);
        done.exits(125).prints("");
        assert!(done.stderr().contains(why), "{done}");
    }
    let done = place.run(&["mcp"]);
    done.exits(2).prints("");
}
