//! A denied call, and what would allow it.

use super::Layer;
use serde::{Deserialize, Serialize};

/// One distinct denial, with a count.
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
    /// The executable, if gatekeeper could read its path.
    pub exe: Option<String>,
    /// The errno that the program got; `0` if the call was let through and only recorded, `SIGSYS` if the program was
    /// killed for it.
    #[serde(default)]
    pub errno: String,
    #[serde(default = "once")]
    pub count: u64,
    #[serde(default)]
    pub rule: String,
    /// The smallest flags that would allow it.
    pub allow_with: Option<String>,
    /// The same, as a line of a policy file.
    pub allow_with_policy: Option<String>,
}

impl Denial {
    /// Marks a call that the policy denies, but `on_violation = log` let through.
    pub(crate) fn let_through(&mut self) {
        self.errno = "0".to_owned();
        self.rule = format!("{LET_THROUGH}: {}", self.rule);
    }

    pub(crate) fn was_let_through(&self) -> bool {
        self.rule.starts_with(LET_THROUGH)
    }

    /// Whether the call would have changed a protected file inside a writable tree.
    pub(crate) fn is_protected(&self) -> bool {
        self.rule.starts_with(PROTECTED)
    }
}

/// The rule of a denial by which the filter stands in for Landlock, before ABI 3.
pub(crate) const TRUNCATION: &str =
    "O_TRUNC without write access is refused: this kernel's Landlock does not restrict it";

/// The rule of a call that was let through begins with this.
pub(crate) const LET_THROUGH: &str = "let through by on_violation = log";
/// The rule of a denied change of a protected file begins with this.
pub(crate) const PROTECTED: &str = "protected";
/// In place of the errno, if the process was killed for the call.
pub(crate) const KILLED: &str = "SIGSYS";

/// A denial without a count happened once.
fn once() -> u64 {
    1
}
