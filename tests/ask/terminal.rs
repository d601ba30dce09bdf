//! `--ask`: the user at the terminal answers, also while the command uses it.

use crate::plumbing::{Place, users};
use crate::support::{Done, has, probe};
use std::fs;

/// Runs gatekeeper on a new terminal, and performs the steps of tests/probes/pty.c.
#[track_caller]
fn on_a_terminal(place: &Place, steps: &[&str], words: &[&str]) -> Done {
    let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text");
    let all: Vec<&str> =
        steps.iter().copied().chain(["--", gatekeeper, "run", "--ask"]).chain(words.iter().copied()).collect();
    let mut command = place.any(&probe("pty", &[]), &all);
    command.env("TERM", "xterm");
    crate::support::run(&mut command)
}

#[test]
fn each_key_does_what_it_says() {
    for user in users() {
        let place = Place::new(user);
        let home = place.at("home");
        let line = format!("for i in 1 2 3; do echo x > {}/$i; done; ls {}", home.display(), home.display());
        let made = |steps: &[&str]| {
            for name in ["1", "2", "3"] {
                let _ = fs::remove_file(home.join(name));
            }
            on_a_terminal(&place, steps, &["--profile", "write", "-c", &line]).exits(0);
            let there = |name: &&str| home.join(name).exists();
            ["1", "2", "3"].into_iter().filter(there).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            made(&[
                "</1;",
                "<more: ",
                ">y",
                "</2;",
                "<more: ",
                ">n",
                "</3;",
                "<more: ",
                ">x?",
                "<flag for next time: --write",
                "<more: ",
                ">a"
            ]),
            "1 3"
        );
        assert_eq!(made(&["</1;", "<more: ", ">y", "</2;", "<more: ", ">d"]), "1");
    }
}

#[test]
fn a_grant_goes_into_the_policy_file() {
    let place = Place::new(None);
    let (home, policy) = (place.at("home"), place.at("p.toml"));
    fs::write(&policy, "# mine\nprofile = \"write\"\n").expect("own directory");
    let line = format!("echo x > {}/x", home.display());
    let words = ["--config", policy.to_str().expect("text"), "-c", &line];
    on_a_terminal(&place, &["<more: ", ">p"], &words).exits(0);
    let text = fs::read_to_string(&policy).expect("still there");
    assert!(text.starts_with("# mine\nprofile = \"write\"\n") && text.contains(home.to_str().expect("text")), "{text}");
    let plain: Vec<&str> = ["run"].into_iter().chain(words).collect();
    place.run(&plain).exits(0);
}

#[test]
fn names_cannot_draw_on_the_terminal() {
    let place = Place::new(None);
    let name = format!("{}/a\u{1b}[2J\n\u{202e}b", place.at("home").display());
    let done = on_a_terminal(
        &place,
        &["<a\\u{1b}[2J\\n\\u{202e}b;", "<more: ", ">n"],
        &["--profile", "write", "--", "touch", &name],
    );
    done.exits(1);
}

#[test]
fn control_c_ends_the_question_and_the_command() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x; echo never", place.at("home").display());
    let done = on_a_terminal(&place, &["<more: ", ">\\x03"], &["--profile", "write", "-c", &line]);
    done.exits(130);
    assert!(!place.at("home/x").exists());
}

#[test]
fn the_terminal_is_as_it_was_and_job_control_goes_on() {
    if !has("bash") {
        return;
    }
    let place = Place::new(None);
    let line = format!(
        "stty -icanon -echo; echo x > {0}/1; stty -a | grep -o -e '-icanon' -e '-echo '; stty icanon echo; \
         set -m; (echo y > {0}/2); jobs; echo after-\"all\"; read word; echo got-$word",
        place.at("home").display()
    );
    let steps = ["</1;", "<more: ", ">y", "<-icanon", "</2;", "<more: ", ">y", "<after-all", ">hello\\r", "<got-hello"];
    on_a_terminal(&place, &steps, &["--profile", "write", "--", "bash", "--norc", "-c", &line]).exits(0);
    assert!(place.at("home/1").exists() && place.at("home/2").exists());
}
