//! Configurations from agents' specifications: each works unchanged, or fails with an error that says what to write
//! instead. None is read in part.

use super::Place;

/// The settings of a managed browser, with a bubblewrap path that does not exist.
const BROWSER: &str = r#"{
  "browser": {
    "sandbox": {
      "enabled": true,
      "bwrapPath": "/no/such/bwrap",
      "extraRoBind": [],
      "extraBind": [],
      "gpu": true
    }
  }
}"#;

const REQUIRE: &str = r#"{
  "tools": {
    "exec": {
      "sandbox": {
        "enabled": true,
        "requireSandbox": false  // If true, fail instead of running unsandboxed
      }
    }
  }
}"#;

const CONTAINERS: &str = r#"{
  "agents": {
    "defaults": {
      "sandbox": {
        "docker": {
          "env": {
            "OPENAI_API_KEY": "sk-xxx"  // for the container
          }
        }
      }
    }
  },
  "tools": {"sandbox": {"tools": {"allow": ["exec"], "deny": ["browser"]}}}
}"#;

#[test]
fn a_wrong_path_of_bubblewrap_is_a_warning_and_the_usual_places_are_searched() {
    let right = BROWSER.replace("/no/such/bwrap", "");
    let place = Place::with(&[("wrong.json", BROWSER), ("right.json", &right)]);
    let load = |name: &str| gatekeeper::browser::config::load(&place.0.join(name), None).expect("as it stands");
    let (wrong, right) = (load("wrong.json"), load("right.json"));
    assert_eq!(wrong.bwrap, None);
    assert_eq!(wrong.warnings, ["bwrapPath /no/such/bwrap: does not exist; using the bwrap of the system"]);
    assert!(right.warnings.is_empty() && right.bwrap.is_none());
}

#[test]
fn what_the_exec_tool_may_leave_out_it_may_leave_out() {
    let place = Place::with(&[("agent.json", REQUIRE)]);
    place.run("agent.json", &["cat", "agent.json"]).exits(0).prints(REQUIRE).complains("");
    let done = place.run("agent.json", &["touch", "marker"]);
    done.exits(159);
    assert!(!place.has("marker"), "{done}");
}

/// Per-user profiles, which the specification only plans. Ignoring them could give all users a wider profile.
#[test]
fn overrides_for_users_are_an_error() {
    for key in ["users", "userProfiles", "overrides"] {
        let text = format!(r#"{{"tools": {{"exec": {{"sandbox": {{"{key}": {{"bob": "minimal"}}}}}}}}}}"#);
        let place = Place::with(&[("agent.json", &text)]);
        let done = place.run("agent.json", &["true"]);
        done.exits(125);
        assert!(done.stderr().contains(&format!("unknown key 'tools.exec.sandbox.{key}'")), "{done}");
    }
}

#[test]
fn a_configuration_of_containers_is_told_from_a_policy() {
    let place = Place::with(&[("openclaw.json", CONTAINERS)]);
    let done = place.run("openclaw.json", &["true"]);
    let told = "openclaw.json:2: agents: this configures containers: use `gatekeeper box exec --config`";
    done.exits(125);
    assert!(done.stderr().contains(told), "{done}");
}
