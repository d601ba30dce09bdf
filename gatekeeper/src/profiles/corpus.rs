//! The corpus: commands that a profile must let work unchanged, and actions that it must stop. Data in, values out.
//!
//! It is embedded, so that an installed gatekeeper can prove its profiles on the machine where it is; a file of the same
//! form, given by the user, is tried in the same way.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The files of the corpus that is built in, by name for messages.
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

/// A command that must do, confined, exactly what it does unconfined.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// The smallest profile that it must work in.
    #[serde(default = "minimal")]
    pub profile: String,
    /// The words of a plain command.
    #[serde(default)]
    pub run: Vec<String>,
    /// A line for `-c`, in place of `run`.
    pub line: Option<String>,
    #[serde(default)]
    pub stdin: String,
    /// Programs beside the first word without which it cannot be tried.
    #[serde(default)]
    pub needs: Vec<String>,
    pub fixture: Option<String>,
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    pub setup: Option<String>,
    /// Serve the directory `served` beside the working one by HTTP; `{port}` stands for the port.
    #[serde(default)]
    pub serve: bool,
    /// Paths whose contents differ from run to run: only that they are there is compared.
    #[serde(default)]
    pub loose: Vec<String>,
    /// The status that it ends with; a workload that fails everywhere would prove nothing.
    #[serde(default)]
    pub status: i32,
}

/// An action that must be stopped.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    pub name: String,
    /// Where it must be stopped.
    #[serde(default = "everywhere")]
    pub profiles: Vec<String>,
    /// Words for `gatekeeper __probe`.
    pub probe: Vec<String>,
    /// Started by `-c`, which grants new processes.
    #[serde(default)]
    pub line: bool,
    /// The errno that it gets.
    #[serde(default = "eperm")]
    pub errno: String,
    /// The call that the report names. Without one it is refused without a word, as on a machine that does not have it.
    pub record: Option<String>,
    /// The end of the path that the record names.
    pub path: Option<String>,
    /// `done`: unconfined it succeeds. Else unconfined it gets another errno, by which the kernel shows that it looked.
    #[serde(default)]
    pub control: Control,
    /// Only root gets that far; for others the record is the proof.
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

/// The profiles that are tried, from the smallest on.
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

    /// Adds what a text holds; `origin` is for messages.
    pub fn add(&mut self, origin: &str, text: &str) -> Result<(), CorpusError> {
        let read: Corpus = toml::from_str(text).map_err(|error| CorpusError::Syntax(origin.to_owned(), error))?;
        self.fixture.extend(read.fixture);
        let fault = |name: &str, what| Err(CorpusError::Meaning(origin.to_owned(), name.to_owned(), what));
        for workload in &read.workload {
            if workload.run.is_empty() == workload.line.is_none() {
                return fault(&workload.name, "either `run` or `line`");
            }
            if !TRIED.contains(&workload.profile.as_str()) {
                return fault(&workload.name, "`profile` is none of minimal, read, network, write, write+network");
            }
            if workload.fixture.as_ref().is_some_and(|name| !self.fixture.contains_key(name)) {
                return fault(&workload.name, "no such `fixture`");
            }
        }
        for stop in &read.stop {
            if stop.probe.is_empty() || stop.profiles.iter().any(|name| !TRIED.contains(&name.as_str())) {
                return fault(&stop.name, "an empty `probe`, or an unknown name in `profiles`");
            }
        }
        let known = self.workload.iter().map(|known| &known.name).chain(self.stop.iter().map(|known| &known.name));
        let known: std::collections::BTreeSet<_> = known.collect();
        let names = || read.workload.iter().map(|new| &new.name).chain(read.stop.iter().map(|new| &new.name));
        let mut seen = std::collections::BTreeSet::new();
        if let Some(twice) = names().find(|name| known.contains(name) || !seen.insert(*name)) {
            return fault(twice, "a name that stands twice");
        }
        self.workload.extend(read.workload);
        self.stop.extend(read.stop);
        Ok(())
    }
}

/// Whether a profile grants all that another does: each grants what `minimal` does, and `write` what `read` does.
pub fn contains(profile: &str, other: &str) -> bool {
    let grants = |own: &str, part: &str| own == part || (own == "write" && part == "read");
    other.split('+').all(|part| part == "minimal" || profile.split('+').any(|own| grants(own, part)))
}

impl Workload {
    /// The programs that must be there.
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
        assert!(fault("[[workload]]\nname = 'a'\n").contains("either `run` or `line`"));
        assert!(fault("[[workload]]\nname = 'a'\nrun = ['true']\nprofile = 'all'\n").contains("`profile`"));
        assert!(fault("[[workload]]\nname = 'a'\nrun = ['true']\nfixture = 'none'\n").contains("fixture"));
        let twice = "[[workload]]\nname = 'a'\nrun = ['true']\n".repeat(2);
        assert!(fault(&twice).contains("twice"));
        assert!(fault("[[workload]]\nname = 'a'\nran = ['true']\n").contains("ran"));
    }
}
