//! Request: what was asked, before anything is decided about it.

use crate::policy::Document;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Request {
    pub asked: Asked,
    pub cwd: PathBuf,
    /// The caller's environment, of which the command gets what the policy passes on.
    pub environment: Vec<(OsString, OsString)>,
    pub home: Option<PathBuf>,
    /// The flags, as a policy laid over the file's.
    pub flags: Document,
    pub config: Option<PathBuf>,
    /// Whether refused reads are recorded as well.
    pub explain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A program and its arguments.
    Command(Vec<OsString>),
    /// A line for the shell.
    Line(OsString),
}

impl Request {
    /// The words that are executed.
    pub fn words(&self) -> Vec<OsString> {
        match &self.asked {
            Asked::Command(words) => words.clone(),
            Asked::Line(line) => vec![OsString::from("sh"), OsString::from("-c"), line.clone()],
        }
    }

    pub fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
