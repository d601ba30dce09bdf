//! Which tools a session may use: groups, allow and deny lists. A deny list always wins.

use super::settings::{Access, Settings};
use crate::policy::ValueError;

/// The groups and their tools.
const GROUPS: [(&str, &[&str]); 4] = [
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

/// The entries of one list, each part with the key that wrote it: an extended policy may add to a list.
pub type List = Vec<(Vec<String>, String)>;

/// An allow and a deny list. No part: the list is not written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lists {
    pub allow: List,
    pub deny: List,
}

/// The lists that decide: a tool must be in every allow list that is written, and in no deny list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tools {
    /// `tools` of the file and of the agent: they hold together, and in a box, too.
    pub general: Lists,
    pub of_agent: Lists,
    /// `tools.sandbox.tools` of the file; each of its two lists counts unless the agent has its own.
    pub boxed: Lists,
    pub boxed_of_agent: Lists,
}

impl Tools {
    fn deciding(&self, list: fn(&Lists) -> &List) -> [&List; 3] {
        let own = list(&self.boxed_of_agent);
        let boxed = if own.is_empty() { list(&self.boxed) } else { own };
        [list(&self.general), list(&self.of_agent), boxed]
    }
}

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
        let mut denying = self.tools.deciding(|lists| &lists.deny).into_iter().flatten();
        if let Some((_, key)) = denying.find(|(entries, _)| has(entries, tool)) {
            return ruled(false, key);
        }
        let mut allowed_by = None;
        for list in self.tools.deciding(|lists| &lists.allow) {
            match (list.iter().find(|(entries, _)| has(entries, tool)), list.last()) {
                (Some((_, key)), _) => allowed_by = Some(key),
                (None, Some((_, key))) => return ruled(false, key),
                (None, None) => {}
            }
        }
        if self.access.value == Access::Ro && ["write", "edit", "apply_patch"].contains(&tool) {
            return ruled(false, self.access.decided_by());
        }
        if tool == "browser" && !self.browser.enabled.value {
            return ruled(false, self.browser.enabled.decided_by());
        }
        match allowed_by {
            Some(key) => ruled(true, key),
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
        settings.tools.boxed.allow = vec![list(&["group:runtime", "read", "exec"], "allow")];
        settings.tools.boxed.deny = vec![list(&["process"], "deny")];
        assert!(settings.tool("exec").allowed && settings.tool("read").allowed);
        assert_eq!(settings.tool("process"), Ruling { allowed: false, key: "deny".to_owned() });
        assert_eq!(settings.tool("write"), Ruling { allowed: false, key: "allow".to_owned() });
        settings.tools.general.deny.push(list(&["group:runtime"], "deny2"));
        assert!(!settings.tool("exec").allowed);
        settings.tools.of_agent.deny.push(list(&["*"], "all"));
        assert!(!settings.tool("read").allowed);
    }

    #[test]
    fn an_agents_lists_for_the_box_replace_those_of_the_file_and_general_ones_always_hold() {
        let mut settings = Settings::default();
        settings.tools.boxed = Lists { allow: vec![list(&["read"], "allow")], deny: vec![list(&["exec"], "deny")] };
        settings.tools.boxed_of_agent.allow = vec![list(&["exec", "write"], "own allow")];
        assert_eq!(settings.tool("exec"), Ruling { allowed: false, key: "deny".to_owned() });
        assert_eq!(settings.tool("write"), Ruling { allowed: true, key: "own allow".to_owned() });
        settings.tools.boxed_of_agent.deny = vec![list(&[], "own deny")];
        assert_eq!(settings.tool("exec"), Ruling { allowed: true, key: "own allow".to_owned() });
        assert_eq!(settings.tool("read"), Ruling { allowed: false, key: "own allow".to_owned() });
        settings.tools.general.allow = vec![list(&["read", "exec"], "general")];
        assert_eq!(settings.tool("write"), Ruling { allowed: false, key: "general".to_owned() });
        settings.tools.of_agent.deny = vec![list(&["exec"], "agent's")];
        assert_eq!(settings.tool("exec"), Ruling { allowed: false, key: "agent's".to_owned() });
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
