//! The test data of the profiles: commands that must work unchanged, and actions that must be denied.
//!
//! It is embedded, so that an installed gatekeeper can test its profiles on any machine. Users can add files of the same
//! format.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The built-in files; the names are for messages.
const BUILT_IN: &[(&str, &str)] = &[
    ("fixtures", include_str!("corpus/fixtures.toml")),
    ("reading", include_str!("corpus/reading.toml")),
    ("shells", include_str!("corpus/shells.toml")),
    ("starting", include_str!("corpus/starting.toml")),
    ("languages", include_str!("corpus/languages.toml")),
    ("writing", include_str!("corpus/writing.toml")),
    ("building", include_str!("corpus/building.toml")),
    ("git", include_str!("corpus/git.toml")),
    ("network", include_str!("corpus/network.toml")),
    ("stops", include_str!("corpus/stops.toml")),
];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    #[serde(default)]
    pub fixture: BTreeMap<String, Fixture>,
    #[serde(default)]
    pub workload: Vec<Workload>,
    #[serde(default)]
    pub stop: Vec<Stop>,
}

/// Files that several workloads start from.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// A line for sh, run unconfined in the fresh directory.
    pub setup: Option<String>,
    /// As in a workload.
    #[serde(default)]
    pub loose: Vec<String>,
}

/// A command that must behave the same confined and unconfined.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// The smallest profile that it must work in.
    #[serde(default = "minimal")]
    pub profile: String,
    /// The program and its arguments.
    #[serde(default)]
    pub run: Vec<String>,
    /// A line for `-c`, instead of `run`.
    pub line: Option<String>,
    #[serde(default)]
    pub stdin: String,
    /// Other programs that must be installed; without them the workload is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    pub fixture: Option<String>,
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    pub setup: Option<String>,
    /// Serve the directory `served`, beside the working directory, over HTTP; `{port}` stands for the port.
    #[serde(default)]
    pub serve: bool,
    /// Paths whose contents differ from run to run; only their existence is compared.
    #[serde(default)]
    pub loose: Vec<String>,
    /// The expected exit status.
    #[serde(default)]
    pub status: i32,
}

/// An action that must be denied.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub name: String,
    /// The profiles that must deny it.
    #[serde(default = "everywhere")]
    pub profiles: Vec<String>,
    /// Arguments for `gatekeeper __probe`.
    pub probe: Vec<String>,
    /// Start it through `-c`, which allows new processes.
    #[serde(default)]
    pub line: bool,
    /// The expected errno.
    #[serde(default = "eperm")]
    pub errno: String,
    /// The syscall of the recorded denial. `None`: the call fails without a record, as on a kernel that lacks it.
    pub record: Option<String>,
    /// The end of the path in the recorded denial.
    pub path: Option<String>,
    /// What the action does unconfined. `done`: it succeeds. `other`: it fails with another errno, which proves that the
    /// kernel executed the call.
    #[serde(default)]
    pub control: Control,
    /// Unconfined, only root gets past the permission check. For other users the record is the proof.
    #[serde(default)]
    pub control_needs_root: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    Done,
    #[default]
    Other,
}

fn minimal() -> String {
    "minimal".to_owned()
}

fn eperm() -> String {
    "EPERM".to_owned()
}

/// The profiles that are tested, the smallest first.
pub const TRIED: [&str; 5] = ["minimal", "read", "network", "write", "write+network"];

fn everywhere() -> Vec<String> {
    TRIED.iter().map(|&name| name.to_owned()).collect()
}

#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    #[error("{0}: {1}")]
    Syntax(String, toml::de::Error),
    #[error("{0}: {1}: {2}")]
    Meaning(String, String, &'static str),
}

impl Corpus {
    pub fn built_in() -> Result<Corpus, CorpusError> {
        let mut all = Corpus::default();
        for (name, text) in BUILT_IN {
            all.add(name, text)?;
        }
        Ok(all)
    }

    /// Adds the tests of a TOML text; `origin` is its name for messages.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<(), CorpusError> {
        let read: Corpus = toml::from_str(text).map_err(|error| CorpusError::Syntax(origin.to_owned(), error))?;
        self.fixture.extend(read.fixture);
        let fault = |name: &str, what| Err(CorpusError::Meaning(origin.to_owned(), name.to_owned(), what));
        for workload in &read.workload {
            if workload.run.is_empty() == workload.line.is_none() {
                return fault(&workload.name, "exactly one of `run` and `line` is required");
            }
            if !TRIED.contains(&workload.profile.as_str()) {
                return fault(&workload.name, "`profile` must be minimal, read, network, write or write+network");
            }
            if workload.fixture.as_ref().is_some_and(|name| !self.fixture.contains_key(name)) {
                return fault(&workload.name, "no such `fixture`");
            }
        }
        for stop in &read.stop {
            if stop.probe.is_empty() || stop.profiles.iter().any(|name| !TRIED.contains(&name.as_str())) {
                return fault(&stop.name, "`probe` is empty, or `profiles` contains an unknown name");
            }
        }
        let known = self.workload.iter().map(|known| &known.name).chain(self.stop.iter().map(|known| &known.name));
        let known: std::collections::BTreeSet<_> = known.collect();
        let names = || read.workload.iter().map(|new| &new.name).chain(read.stop.iter().map(|new| &new.name));
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = names().find(|name| known.contains(name) || !seen.insert(*name)) {
            return fault(twice, "the name is used twice");
        }
        self.workload.extend(read.workload);
        self.stop.extend(read.stop);
        Ok(())
    }
}

/// Whether a profile grants everything that another does: each includes `minimal`, and `write` includes `read`.
pub fn contains(profile: &str, other: &str) -> bool {
    let grants = |own: &str, part: &str| own == part || (own == "write" && part == "read");
    other.split('+').all(|part| part == "minimal" || profile.split('+').any(|own| grants(own, part)))
}

impl Workload {
    /// The programs that must be installed.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.run.first().into_iter().chain(&self.needs).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_can_be_read_and_is_large_enough() {
        let corpus = Corpus::built_in().expect("the embedded corpus");
        assert!(corpus.workload.len() >= 150, "{} workloads", corpus.workload.len());
        for profile in TRIED {
            assert!(corpus.workload.iter().any(|workload| workload.profile == profile), "no workload of {profile}");
            assert!(corpus.stop.iter().any(|stop| stop.profiles.iter().any(|name| name == profile)), "{profile}");
        }
        let starting = corpus.workload.iter().filter(|workload| workload.profile == "read").count();
        assert!(starting >= 60, "{starting} commands of read");
    }

    #[test]
    fn a_union_contains_its_parts_and_everything_contains_minimal() {
        assert!(contains("write+network", "network"));
        assert!(contains("write+network", "write+network"));
        assert!(contains("network", "minimal"));
        assert!(contains("write", "read") && !contains("read", "write") && !contains("network", "read"));
        assert!(!contains("network", "write"));
        assert!(!contains("write", "write+network"));
    }

    #[test]
    fn faults_of_a_corpus_are_named() {
        let fault = |text: &str| Corpus::default().add("mine", text).expect_err("faulty").to_string();
        assert!(fault("[[workload]]\nname = 'a'\n").contains("exactly one of `run` and `line`"));
        assert!(fault("[[workload]]\nname = 'a'\nrun = ['true']\nprofile = 'all'\n").contains("`profile`"));
        assert!(fault("[[workload]]\nname = 'a'\nrun = ['true']\nfixture = 'none'\n").contains("fixture"));
        let twice = "[[workload]]\nname = 'a'\nrun = ['true']\n".repeat(2);
        assert!(fault(&twice).contains("twice"));
        assert!(fault("[[workload]]\nname = 'a'\nran = ['true']\n").contains("ran"));
    }
}
