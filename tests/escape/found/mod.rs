//! Holes that attackers found in earlier versions, with the tests that keep each one closed. Most attacks take two
//! runs: the first plants something in a tree that it may write, and the second must not trust it.
//!
//! The table of holes in docs/security-tests.md is generated from the constants in these files.

mod clock;
mod descriptors;
mod git;
mod homes;
mod hooks;
mod links;
mod mounts;
mod outputs;
mod paths;
mod patterns;
mod preload;
mod races;
mod replaced;
mod shut;
mod sockets;
mod supervisor;
mod temporary;

use crate::run::{Gate, User, act, become_user, errnos, finish, outside, owned_by};
use crate::support::{Done, probe};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Critical,
    High,
    Medium,
    Low,
}

/// A way out that once worked.
pub struct Hole {
    pub severity: Severity,
    /// What the attacker does.
    pub attack: &'static str,
    /// What the attack reached while it worked.
    pub reached: &'static str,
    /// The tests in the same file that keep it closed.
    pub held_by: &'static [&'static str],
}

const AREAS: [(&str, &[Hole], &str); 17] = [
    ("clock", clock::HOLES, include_str!("clock.rs")),
    ("descriptors", descriptors::HOLES, include_str!("descriptors.rs")),
    ("git", git::HOLES, include_str!("git.rs")),
    ("homes", homes::HOLES, include_str!("homes.rs")),
    ("links", links::HOLES, include_str!("links.rs")),
    ("hooks", hooks::HOLES, include_str!("hooks.rs")),
    ("mounts", mounts::HOLES, include_str!("mounts.rs")),
    ("outputs", outputs::HOLES, include_str!("outputs.rs")),
    ("paths", paths::HOLES, include_str!("paths.rs")),
    ("patterns", patterns::HOLES, include_str!("patterns.rs")),
    ("preload", preload::HOLES, include_str!("preload.rs")),
    ("races", races::HOLES, include_str!("races.rs")),
    ("replaced", replaced::HOLES, include_str!("replaced.rs")),
    ("shut", shut::HOLES, include_str!("shut.rs")),
    ("sockets", sockets::HOLES, include_str!("sockets.rs")),
    ("supervisor", supervisor::HOLES, include_str!("supervisor.rs")),
    ("temporary", temporary::HOLES, include_str!("temporary.rs")),
];

const FROM: &str = "<!-- found holes: written by the tests, UPDATE_DOCS=1 -->\n";
const TO: &str = "<!-- end of found holes -->\n";

#[test]
fn every_hole_names_a_test_that_exists() {
    for (area, holes, source) in AREAS {
        for hole in holes {
            assert!(!hole.held_by.is_empty(), "{area}: nothing holds {:?}", hole.attack);
            for test in hole.held_by {
                assert!(source.contains(&format!("#[test]\nfn {test}()")), "{area}: there is no test {test}");
            }
        }
    }
}

#[test]
fn the_document_lists_every_hole_by_severity() {
    let mut holes: Vec<(&str, &Hole)> =
        AREAS.iter().flat_map(|(area, holes, _)| holes.iter().map(move |hole| (*area, hole))).collect();
    holes.sort_by_key(|(area, hole)| (hole.severity, *area));
    let count = |severity| holes.iter().filter(|(_, hole)| hole.severity == severity).count();
    let mut text = format!(
        "\n{} holes were found by attacking earlier versions from outside: {} critical, {} high, {} medium, {} low.\n\n",
        holes.len(),
        count(Severity::Critical),
        count(Severity::High),
        count(Severity::Medium),
        count(Severity::Low)
    );
    text.push_str("| severity | attack | reached | test in `tests/escape/found` |\n|---|---|---|---|\n");
    for (area, hole) in holes {
        let severity = format!("{:?}", hole.severity).to_lowercase();
        let tests: Vec<String> = hole.held_by.iter().map(|test| format!("`{area}::{test}`")).collect();
        let _ = writeln!(text, "| {severity} | {} | {} | {} |", hole.attack, hole.reached, tests.join(", "));
    }
    text.push('\n');
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security-tests.md");
    let document = fs::read_to_string(&path).expect("the document");
    let (before, rest) = document.split_once(FROM).expect("the first mark");
    let (written, after) = rest.split_once(TO).expect("the last mark");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{FROM}{text}{TO}{after}")).expect("the document can be written");
    } else {
        assert_eq!(written, text, "UPDATE_DOCS=1 writes the list again");
    }
}

/// The errno of one operation of the probe `act`, confined.
#[track_caller]
fn errno(gate: &Gate, words: &[&str]) -> i32 {
    *errnos(&gate.run([&[text(&act())], words].concat())).last().expect("an operation")
}

/// Runs a shell line as this user, unconfined, with git usable.
#[track_caller]
fn plain(user: User, directory: &Path, line: &str) -> Done {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(directory).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", directory).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_COUNT", "2");
    for (at, (key, value)) in [("user.name", "n"), ("user.email", "a@b.c")].iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    become_user(&mut command, user);
    finish(command, None)
}

/// A directory of this user that no run is granted.
fn place_of(user: User) -> PathBuf {
    let place = outside();
    owned_by(user, &place);
    place
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// A run in a new working directory, with a home elsewhere.
fn gate(user: User, profile: &str) -> Gate {
    Gate::profile(user, profile).env("HOME", place_of(user))
}

/// Runs a shell line under `write` in the directory of another run, to attack that run.
#[track_caller]
fn plant(scene: &Gate, line: &str) {
    gate(scene.user, "write").in_directory(&scene.dir).run(["sh", "-ec", line]).exits(0);
}

/// A file of the user, outside of every tree that a run may write.
fn precious(user: User) -> PathBuf {
    let file = place_of(user).join("precious");
    fs::write(&file, "precious\n").expect("own");
    owned_by(user, &file);
    file
}

#[track_caller]
fn is_untouched(file: &Path) {
    assert_eq!(fs::read_to_string(file).expect("still there"), "precious\n");
}

/// The probe that attacks the supervisor.
fn supervised() -> PathBuf {
    probe("supervised", &["-lpthread"])
}

fn words<'a>(program: &'a Path, rest: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(text(program)).chain(rest.iter().copied()).collect()
}

/// The control: the output of the probe `supervised` as the same user, unconfined.
#[track_caller]
fn unconfined(user: User, dir: &Path, rest: &[&str]) -> String {
    let mut command = Command::new(supervised());
    command.args(rest).current_dir(dir);
    become_user(&mut command, user);
    finish(command, None).exits(0).stdout()
}
