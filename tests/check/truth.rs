//! The verdict, the expectation in the corpus, and what happens when the program runs must agree.

use super::corpus::{self, Case, Real};
use super::{codes, gatekeeper, verdicts};
use crate::support::{Done, NOBODY, libsandbox, probe, run};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn as_who(command: &mut Command, case: &Case, directory: &Path) {
    command.current_dir(directory);
    if case.as_nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
}

fn executed(how: &str, case: &Case, directory: &Path) -> Done {
    let mut command = Command::new(probe("check_exec", &[]));
    command.arg(how).arg(libsandbox()).arg(&case.path);
    as_who(&mut command, case, directory);
    run(&mut command)
}

fn real(done: &Done) -> Real {
    match done.stdout().trim_end() {
        "confined" => Real::Confined,
        "unconfined" => Real::Unconfined,
        _ => Real::Dead,
    }
}

#[test]
fn every_verdict_is_what_really_happens() {
    let corpus = corpus::build();
    let mut wrong = Vec::new();
    for case in &corpus.cases {
        let mut command = Command::new(gatekeeper());
        command.args(["check", "--json", "--"]).arg(&case.path);
        as_who(&mut command, case, &corpus.directory);
        let verdict = verdicts(&mut command).remove(0);
        let found = codes(&verdict);
        let as_written = verdict["verdict"] == case.verdict
            && match case.code {
                Some(code) => found.contains(&code),
                None => found.is_empty(),
            };
        if !as_written {
            wrong.push(format!("{}: said {verdict}, truth {} {:?}", case.name, case.verdict, case.code));
        }

        let preloaded = executed("preload", case, &corpus.directory);
        if real(&preloaded) != case.real {
            wrong.push(format!("{}: happens {:?}, truth {:?} {preloaded}", case.name, real(&preloaded), case.real));
        }
        match verdict["verdict"].as_str() {
            Some("preload") if real(&preloaded) != Real::Confined => {
                wrong.push(format!("{}: promised but not confined {preloaded}", case.name));
            }
            // If the verdict is `enforce` and the program starts, a filter installed before exec must confine it.
            Some("enforce") => {
                let filtered = executed("filter", case, &corpus.directory);
                if real(&filtered) == Real::Unconfined {
                    wrong.push(format!("{}: escapes a filter installed before exec {filtered}", case.name));
                }
            }
            _ => {}
        }
    }
    let agree = corpus.cases.len() - wrong.len().min(corpus.cases.len());
    println!("corpus: {} files, {agree} agree", corpus.cases.len());
    assert!(wrong.is_empty(), "{} disagreements of {}:\n{}", wrong.len(), corpus.cases.len(), wrong.join("\n"));
    assert!(corpus.cases.len() >= 60, "only {} files", corpus.cases.len());
}
