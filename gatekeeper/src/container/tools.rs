//! Which tools a session may use: groups, allow and deny lists. A deny list always wins.

use super::settings::{Access, Settings};
use crate::policy::ValueError;

/// The groups and their tools.
pub const GROUPS: [(&str, &[&str]); 4] = [
    ("group:runtime", &["exec", "bash", "process"]),
    ("group:fs", &["read", "write", "edit", "apply_patch"]),
    ("group:sessions", &["sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "session_status"]),
    ("group:ui", &["browser", "canvas"]),
];

/// The tools that `gatekeeper mcp` has.
pub const OURS: [&str; 9] =
    ["exec", "process", "read", "write", "edit", "apply_patch", "sessions_list", "session_status", "browser"];

/// Allowed if no allow list is written.
const DEFAULT: [&str; 3] = ["group:runtime", "group:fs", "group:sessions"];

/// Whether a tool may be used, and the key that decides it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub allowed: bool,
    pub key: String,
}

/// The name of a tool or group in a list.
pub fn entry(text: &str) -> Result<String, ValueError> {
    let groups = || GROUPS.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    if text.starts_with("group:") && !groups().contains(&text) {
        return Err(ValueError::unknown("tool group", text, groups()));
    }
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-:.*".contains(letter);
    match !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::unusable("tool", text, "not the name of a tool or a group")),
    }
}

fn has(list: &[impl AsRef<str>], tool: &str) -> bool {
    let covers = |entry: &str| {
        entry == tool || entry == "*" || GROUPS.iter().any(|(name, tools)| *name == entry && tools.contains(&tool))
    };
    list.iter().any(|entry| covers(entry.as_ref()))
}

impl Settings {
    /// Rules on one tool.
    pub fn tool(&self, tool: &str) -> Ruling {
        let ruled = |allowed, key: &str| Ruling { allowed, key: key.to_owned() };
        if let Some((_, key)) = self.tools.deny.iter().find(|(list, _)| has(list, tool)) {
            return ruled(false, key);
        }
        if let Some((_, key)) = self.tools.allow.iter().find(|(list, _)| !has(list, tool)) {
            return ruled(false, key);
        }
        if self.access.value == Access::Ro && ["write", "edit", "apply_patch"].contains(&tool) {
            return ruled(false, self.access.decided_by());
        }
        if tool == "browser" && !self.browser.enabled.value {
            return ruled(false, self.browser.enabled.decided_by());
        }
        match self.tools.allow.last() {
            Some((_, key)) => ruled(true, key),
            None => ruled(has(&DEFAULT, tool), "default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str], key: &str) -> (Vec<String>, String) {
        (words.iter().map(|word| (*word).to_owned()).collect(), key.to_owned())
    }

    #[test]
    fn deny_wins_over_allow_and_a_group_stands_for_its_tools() {
        let mut settings = Settings::default();
        settings.tools.allow = vec![list(&["group:runtime", "read", "exec"], "allow")];
        settings.tools.deny = vec![list(&["process"], "deny")];
        assert!(settings.tool("exec").allowed && settings.tool("read").allowed);
        assert_eq!(settings.tool("process"), Ruling { allowed: false, key: "deny".to_owned() });
        assert_eq!(settings.tool("write"), Ruling { allowed: false, key: "allow".to_owned() });
        settings.tools.deny.push(list(&["group:runtime"], "deny2"));
        assert!(!settings.tool("exec").allowed);
        settings.tools.deny.push(list(&["*"], "all"));
        assert!(!settings.tool("read").allowed);
    }

    #[test]
    fn a_read_only_workspace_switches_the_writing_tools_off() {
        let mut settings = Settings::default();
        assert!(settings.tool("write").allowed, "the control");
        settings.access.put(Access::Ro, "agents.defaults.sandbox.workspaceAccess");
        for tool in ["write", "edit", "apply_patch"] {
            assert!(!settings.tool(tool).allowed, "{tool}");
        }
        assert!(settings.tool("read").allowed && settings.tool("exec").allowed);
    }

    #[test]
    fn an_unknown_group_is_an_error_that_names_the_nearest() {
        let error = entry("group:runtme").expect_err("misspelt").to_string();
        assert_eq!(error, "unknown tool group 'group:runtme'; did you mean 'group:runtime'?");
        assert!(entry("telegram").is_ok(), "a tool of the agent's other parts");
        assert!(entry("a b").is_err());
    }
}
