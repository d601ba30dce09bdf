//! One denied call and what would allow it.

use super::Layer;
use serde::{Deserialize, Serialize};

/// One thing that was denied, however often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Denial {
    pub layer: Layer,
    pub syscall: String,
    #[serde(default)]
    pub args: Vec<String>,
    pub path: Option<String>,
    pub host: Option<String>,
    #[serde(default)]
    pub pid: i32,
    #[serde(default)]
    pub tid: i32,
    #[serde(default)]
    pub comm: String,
    /// The program, where this process may know.
    pub exe: Option<String>,
    /// What the program got, or is about to get; `0` where it was let through and only recorded, `SIGSYS` where it was killed
    /// for it.
    #[serde(default)]
    pub errno: String,
    #[serde(default = "once")]
    pub count: u64,
    #[serde(default)]
    pub rule: String,
    /// The smallest flags that would let it through.
    pub allow_with: Option<String>,
    /// The same as a line of a policy file.
    pub allow_with_policy: Option<String>,
}

impl Denial {
    /// The policy denies it and `on_violation = log` let it through: the program got what it asked for.
    pub(crate) fn let_through(&mut self) {
        self.errno = "0".to_owned();
        self.rule = format!("{LET_THROUGH}: {}", self.rule);
    }

    pub(crate) fn was_let_through(&self) -> bool {
        self.rule.starts_with(LET_THROUGH)
    }
}

/// What the rule of such a denial begins with.
pub(crate) const LET_THROUGH: &str = "let through by on_violation = log";
/// In place of an errno, of a call that got none: its process was killed.
pub(crate) const KILLED: &str = "SIGSYS";

/// A denial without a count happened once.
fn once() -> u64 {
    1
}
