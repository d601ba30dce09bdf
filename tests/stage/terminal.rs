//! `stage diff` and a copy on a terminal: colours, a pager and a progress bar, and nothing that a file could draw.

use super::*;
use crate::support::probe;

/// Runs gatekeeper on a new terminal, and performs the steps of tests/probes/pty.c.
#[track_caller]
fn on_a_terminal(place: &Place, steps: &[&str], before: &[&str], words: &[&str]) -> Done {
    let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text");
    let all: Vec<&str> = steps.iter().chain(&["--"]).chain(before).chain(&[gatekeeper]).chain(words).copied().collect();
    let mut command = place.any(&probe("pty", &[]), &all);
    run(command.env("TERM", "xterm"))
}

#[test]
fn a_difference_has_colours_and_a_pager_on_a_terminal_only() {
    let place = place(users().last().copied().flatten());
    staged(&place, "echo four >> text; printf 'evil \\033[2J\\n' > evil; printf 'cr\\r\\n' > cr; seq 500 > long")
        .exits(0);
    let plain = place.run(&["stage", "diff", "s"]);
    assert!(plain.stdout().contains("\n+four\n") && !plain.stdout().contains("\x1b[32m"), "{plain}");
    // Shorter than the screen: less prints it and ends. What a file holds draws nothing.
    let short = ["<\x1b[32m+cr\\r\x1b[0m", "<\x1b[32m+evil \\u{1b}[2J\x1b[0m"];
    staged(&place, "rm long").exits(0);
    on_a_terminal(&place, &short, &[], &["stage", "diff", "s"]).exits(1);
    staged(&place, "seq 500 > long").exits(0);
    if crate::support::has("less") {
        let long = ["#24x80", "<diff --git", "?less", ">q"];
        on_a_terminal(&place, &long, &[], &["stage", "diff", "s"]).exits(1);
    }
}

#[test]
fn a_copy_shows_its_progress_on_a_terminal() {
    let place = place(users().last().copied().flatten());
    sh(&place, "mkdir many; cd many; seq 2000 | split -l 1 -a 4 - f");
    let outer = probe("outer", &[]);
    let rule = format!("{}=1", libc::SYS_unshare);
    let before = [outer.to_str().expect("text"), &rule, "--"];
    let words = ["run", "-p", "write", "--stage", "s", "-c", "echo copied"];
    // 2,000 files, the directory `many`, and those of every place.
    on_a_terminal(&place, &["</2007", "<copied"], &before, &words).exits(0);
}
