//! Questions about refused calls, and their answers.

use serde::{Deserialize, Serialize};

/// A refused call that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Question {
    /// Counts from 1; never used twice in a run.
    pub id: u64,
    pub kind: AskedKind,
    pub access: AskedAccess,
    pub syscall: String,
    /// The real path, where every symbolic link has been followed. A decision holds for this path.
    pub path: Option<String>,
    /// The path as the program wrote it, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// `host:port`.
    pub host: Option<String>,
    /// The method of a refused HTTP request; its path is in `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    pub comm: String,
    pub pid: i32,
    pub argv: Vec<String>,
    /// The flags that would allow it in another run.
    pub allow_with: Option<String>,
    /// Why it is refused.
    #[serde(default)]
    pub rule: String,
    /// The line of a policy file that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_with_policy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AskedKind {
    Path,
    Host,
    /// A UNIX socket.
    Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AskedAccess {
    Read,
    Write,
    Connect,
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
#[non_exhaustive]
pub enum Decision {
    /// Allows this call.
    Once,
    /// Allows the same path and what is below it, the same host and port, or the same HTTP request, until the run ends.
    Run,
    Deny,
}

/// Only a word, and nothing else that would be read as an enum.
impl TryFrom<String> for Decision {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Decision, &'static str> {
        match word.as_str() {
            "once" => Ok(Decision::Once),
            "run" => Ok(Decision::Run),
            "deny" => Ok(Decision::Deny),
            _ => Err("once, run or deny is needed"),
        }
    }
}

/// A question and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Asked {
    #[serde(flatten)]
    pub question: Question,
    pub decision: Decision,
    pub because: Because,
}

/// Where a decision comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Because {
    /// It was answered.
    Answer,
    /// There was no answer in time.
    Timeout,
    /// The answer could not be read.
    Invalid,
    /// The answering side is gone, or does not read.
    Closed,
    /// The call was interrupted or its process ended, so the question was withdrawn.
    Withdrawn,
}

impl AskedKind {
    /// The value in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            AskedKind::Path => "path",
            AskedKind::Host => "host",
            AskedKind::Socket => "socket",
        }
    }
}

impl AskedAccess {
    /// The value in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            AskedAccess::Read => "read",
            AskedAccess::Write => "write",
            AskedAccess::Connect => "connect",
        }
    }
}

/// How much of a text that the program chose a question shows. A longer one could fill the screen with another question.
const LONGEST_WORDS: usize = 120;
const LONGEST_NAME: usize = 300;

/// Both ends of a text, which may be much longer.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let (first, last) = (text.chars().take(most / 2), text.chars().skip(count - most / 2));
    format!("{}[... {} characters ...]{}", first.collect::<String>(), count - most, last.collect::<String>())
}

impl Question {
    /// What is asked, in one line: `git (pid 12: git push) wants to write /x`. Names come from the confined program: escape
    /// the text before it is printed.
    pub fn sentence(&self) -> String {
        let Question { comm, pid, .. } = self;
        let words = shortened(&crate::policy::grants::quoted(&self.argv), LONGEST_WORDS);
        if let (Some(method), Some(host), Some(path)) = (&self.method, &self.host, &self.path) {
            let path = shortened(path, LONGEST_NAME);
            return format!("{comm} (pid {pid}: {words}) wants to send {method} {host}{path}");
        }
        let object = shortened(self.path.as_deref().or(self.host.as_deref()).unwrap_or("?"), LONGEST_NAME);
        let verb = match (self.access, self.syscall.as_str()) {
            (_, "listen") => "listen on",
            (AskedAccess::Read, _) => "read",
            (AskedAccess::Write, _) => "write",
            (AskedAccess::Connect, _) => "connect to",
        };
        let named = self.named.as_ref().map(|named| shortened(named, LONGEST_NAME));
        let by = named.map(|named| format!(" (named {named})")).unwrap_or_default();
        format!("{comm} (pid {pid}: {words}) wants to {verb} {object}{by}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shown_by_its_ends() {
        assert_eq!(shortened("short", 5), "short");
        let long = format!("/etc/{}/shadow", "é".repeat(4000));
        let shown = shortened(&long, 20);
        assert_eq!(shown, "/etc/ééééé[... 3992 characters ...]ééé/shadow");
    }
}
