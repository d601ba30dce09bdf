//! The supervisor remembers working directories. Whoever changes one, and however, the record stays exact.

use crate::run::{Gate, User, denials, outside, owned_by, users};
use crate::support::probe;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const ROUNDS: u64 = 20;

fn moves() -> PathBuf {
    probe("moves", &["-pthread"])
}

/// A file of the user in a directory that the command may not change.
fn file_outside(user: User) -> PathBuf {
    let dir = outside();
    let file = dir.join("file");
    fs::write(&file, "").expect("own directory");
    owned_by(user, &dir);
    owned_by(user, &file);
    file
}

/// How often a call was denied, if that always was for this file.
fn count(report: &Value, syscall: &str, file: &Path) -> Option<u64> {
    let all = denials(report, syscall);
    let counts = all.iter().map(|denial| denial["count"].as_u64().filter(|_| denial["path"] == json!(file)));
    counts.sum()
}

#[test]
fn a_call_from_another_working_directory_is_recorded_there() {
    for user in users() {
        for (way, each) in [("self", 1), ("descriptor", 1), ("thread", 1), ("clone", 1), ("waiting", 2)] {
            let gate = Gate::profile(*user, "write");
            let file = file_outside(*user);
            let place = file.parent().expect("a directory").to_owned();
            let words = [moves(), way.into(), gate.dir.clone(), place, ROUNDS.to_string().into()];
            let (done, report) = gate.report(words);
            done.exits(0).prints(&format!("{}\n", ROUNDS * each));
            for call in ["openat", "chmod"] {
                assert_eq!(count(&report, call, &file), Some(ROUNDS * each), "{way}, {call}: {report:#}");
            }
        }
    }
}

#[test]
fn a_change_never_reaches_a_file_outside_while_the_directory_or_the_descriptor_is_exchanged() {
    for user in users() {
        for way in ["race", "swap"] {
            let gate = Gate::profile(*user, "write");
            let (ours, file) = (gate.file("file", ""), file_outside(*user));
            let place = file.parent().expect("a directory").to_owned();
            let before = fs::metadata(&file).expect("there").mode();
            let words = [moves(), way.into(), gate.dir.clone(), place, "3000".into()];
            let (done, _) = gate.report(words);
            done.exits(0).prints("done\n");
            assert_eq!(fs::metadata(&file).expect("there").mode(), before, "{way}");
            assert!(matches!(fs::metadata(&ours).expect("there").mode() & 0o777, 0o644 | 0o604), "{way}");
        }
    }
}
