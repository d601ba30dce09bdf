//! The property of every remedy: appended to the same command, it removes that denial.
//!
//! Tested with the actions that profiles must stop and with the attacks of the escape tests. Their hundreds of denials
//! have a few dozen distinct pairs of rule and remedy, and each pair is tried twice.

use super::applied;
use crate::escape;
use crate::run::{User, become_user, users};
use crate::support::{Done, fresh, gatekeeper, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The results so far.
#[derive(Default)]
struct Tally {
    denials: usize,
    without: usize,
    tried: usize,
    /// How often each pair of rule and remedy was seen.
    distinct: BTreeMap<(String, String), usize>,
    wrong: Vec<String>,
}

/// How often each pair is tried, because a single success may be luck.
const ENOUGH: usize = 2;

/// The rule, and the remedy without its paths.
fn kind(denial: &Value) -> (String, String) {
    let plain = |text: &str| text.split(' ').filter(|word| !word.contains('/')).collect::<Vec<_>>().join(" ");
    let rule = plain(denial["rule"].as_str().unwrap_or_default());
    (rule, plain(denial["allow_with"].as_str().unwrap_or("null")))
}

fn same(a: &Value, b: &Value) -> bool {
    // Paths of private directories and descriptor numbers differ between runs.
    ["layer", "syscall", "path", "host", "rule"].iter().all(|field| a[field] == b[field]) && a["args"] == b["args"]
}

impl Tally {
    /// Tries the remedies of some denials. `start` runs the command with flags and returns its report.
    fn put(&mut self, what: &str, flags: &[OsString], denials: &[Value], start: &dyn Fn(&[OsString]) -> (Done, Value)) {
        for denial in denials {
            self.denials += 1;
            let kind = kind(denial);
            let met = self.distinct.entry(kind.clone()).or_default();
            *met += 1;
            let Some(remedy) = denial["allow_with"].as_str() else {
                self.without += 1;
                continue;
            };
            if *met > ENOUGH {
                continue;
            }
            self.tried += 1;
            let (done, report) = start(&applied(flags, remedy));
            let after = report["denials"].as_array().cloned().unwrap_or_default();
            if after.iter().any(|other| same(denial, other)) {
                self.wrong.push(format!("{what}: {remedy} does not help against {denial:#}"));
            }
            if matches!(done.code(), Some(2 | 125 | 126)) && report["error"].is_string() || report.is_null() {
                self.wrong.push(format!("{what}: {remedy} cannot be appended{done}"));
            }
            // The remedy grants nothing else: calls that were denied for other reasons are still denied.
            let same =
                |other: &str| remedy.contains(other) || remedy.contains("--profile write") && other == "--profile read";
            let another = |other: &&Value| !other["allow_with"].as_str().is_some_and(same);
            for other in denials.iter().filter(another) {
                let stays = after.iter().any(|left| left["syscall"] == other["syscall"]);
                if !stays && other["syscall"] != denial["syscall"] {
                    self.wrong.push(format!("{what}: {remedy} takes away {other:#}"));
                }
            }
        }
    }

    fn finish(self, what: &str) {
        let pairs = self.distinct.len();
        let _ = writeln!(
            std::io::stderr(),
            "{what}: {} denials, {pairs} distinct pairs of rule and remedy, {} without a remedy, {} remedies appended, {} of them wrong",
            self.denials,
            self.without,
            self.tried,
            self.wrong.len()
        );
        assert!(self.tried > 20, "only {} remedies were tried", self.tried);
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

fn started(mut command: Command, user: User, report: &Path) -> (Done, Value) {
    let _ = fs::remove_file(report);
    become_user(&mut command, user);
    let done = run(&mut command);
    (done, fs::read(report).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default())
}

/// A directory of this user with the files that the probes use.
fn scene(user: User) -> PathBuf {
    let top = fresh("property").canonicalize().expect("just made");
    for name in ["work", "outside", "home"] {
        fs::create_dir_all(top.join(name)).expect("own directory");
    }
    fs::write(top.join("outside/file"), "kept\n").expect("own directory");
    fs::write(top.join("work/file"), "mine\n").expect("own directory");
    std::os::unix::fs::symlink(top.join("outside/file"), top.join("work/way-out")).expect("own directory");
    if user == User::Nobody {
        let all = ["", "work", "outside", "home", "outside/file", "work/file"];
        all.iter()
            .for_each(|name| std::os::unix::fs::chown(top.join(name), Some(65534), Some(65534)).expect("as root"));
    }
    top
}

#[test]
fn every_remedy_of_the_profiles_corpus_helps() {
    let stops = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/profiles/corpus/stops.toml");
    let text = fs::read_to_string(stops).expect("the corpus is there");
    let corpus: toml::Table = text.parse().expect("the corpus is TOML");
    let mut tally = Tally::default();
    for user in users() {
        for stop in corpus["stop"].as_array().expect("a list") {
            let words = |key: &str| -> Vec<String> {
                let list = stop.get(key).and_then(toml::Value::as_array);
                list.into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned).collect()
            };
            let name = stop["name"].as_str().expect("a name");
            let profiles = match words("profiles") {
                given if given.is_empty() => vec!["minimal".to_owned(), "write+network".to_owned()],
                given => given,
            };
            for profile in profiles {
                let top = scene(*user);
                let socket = std::os::unix::net::UnixListener::bind(top.join("outside/socket")).expect("own directory");
                if *user == User::Nobody {
                    std::os::unix::fs::chown(top.join("outside/socket"), Some(65534), Some(65534)).expect("as root");
                }
                let outside = top.join("outside").display().to_string();
                let own = std::process::id().to_string();
                let probe: Vec<String> = words("probe")
                    .iter()
                    .map(|word| word.replace("{outside}", &outside).replace("{harness}", &own))
                    .collect();
                let report = fresh("report").join("report.json");
                let line = stop.get("line").and_then(toml::Value::as_bool).unwrap_or(false);
                let start = |flags: &[OsString]| {
                    let mut command = Command::new(gatekeeper());
                    command.args(["run", "--quiet", "--timeout", "20s", "--report"]).arg(&report).args(flags);
                    command.current_dir(top.join("work")).env("HOME", top.join("home"));
                    match line {
                        true => {
                            let quoted: Vec<String> = probe.iter().map(|word| format!("'{word}'")).collect();
                            command.arg("-c").arg(format!("{} __probe {}", gatekeeper().display(), quoted.join(" ")))
                        }
                        false => command.arg("--").arg(gatekeeper()).arg("__probe").args(&probe),
                    };
                    started(command, *user, &report)
                };
                let flags = ["--profile".into(), OsString::from(&profile)];
                let (_, first) = start(&flags);
                let denials = first["denials"].as_array().cloned().unwrap_or_default();
                tally.put(&format!("{name} under {profile}, {user:?}"), &flags, &denials, &start);
                drop(socket);
            }
        }
    }
    tally.finish("corpus");
}

#[test]
fn every_remedy_of_the_attacks_helps() {
    let mut tally = Tally::default();
    for user in users() {
        // One profile for each user: both profiles for both users would take too long.
        let profiles: &[&str] = if *user == User::Own && users().len() > 1 { &["write"] } else { &["minimal"] };
        for profile in profiles {
            escape::each(*user, |name, start| {
                let flags = ["--profile".into(), OsString::from(profile)];
                let (_, first) = start(&flags);
                let denials = first["denials"].as_array().cloned().unwrap_or_default();
                tally.put(&format!("{name} under {profile}, {user:?}"), &flags, &denials, &|flags| start(flags));
            });
        }
    }
    tally.finish("attacks");
}
