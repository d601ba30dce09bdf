//! Which tools a session may use: groups, allow and deny lists. A deny list always wins.

use super::settings::{Access, Settings};
use crate::policy::ValueError;
use sandbox_contract::nearest::distance;

/// The groups and their tools. Most tools of the later groups are the agent system's alone, as are the names in `THEIRS`.
const GROUPS: [(&str, &[&str]); 9] = [
    ("group:runtime", &["exec", "bash", "process"]),
    ("group:fs", &["read", "write", "edit", "apply_patch"]),
    ("group:sessions", &["sessions_list", "sessions_history", "sessions_send", "sessions_spawn", "session_status"]),
    ("group:ui", &["browser", "canvas"]),
    ("group:memory", &["memory_search", "memory_get"]),
    ("group:web", &["web_search", "web_fetch"]),
    ("group:automation", &["cron", "gateway"]),
    ("group:messaging", &["message"]),
    ("group:nodes", &["nodes"]),
];
/// All tools that are not of a plugin.
const ALL: &str = "group:openclaw";

const THEIRS: [&str; 13] = [
    "agents_list",
    "discord",
    "googlechat",
    "image",
    "imessage",
    "lobster",
    "signal",
    "slack",
    "subagents",
    "telegram",
    "tts",
    "whatsapp",
    "x_search",
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

/// An entry of a list: a tool, a group, or a pattern with `*`, in any case. A name that is only nearly one of a tool or group
/// is a mistake: in a deny list it would deny nothing. Others may be tools of the agent system's plugins.
pub fn entry(text: &str) -> Result<String, ValueError> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-:.*".contains(letter);
    if text.is_empty() || text.len() > 64 || !text.chars().all(fits) {
        return Err(ValueError::unusable("tool", text, "not the name of a tool or a group"));
    }
    let name = text.to_ascii_lowercase();
    let groups = || GROUPS.iter().map(|(name, _)| *name).chain([ALL]);
    if name.starts_with("group:") {
        return match groups().any(|group| matches(&name, group)) {
            true => Ok(name),
            false => Err(ValueError::unknown("tool group", text, groups().collect())),
        };
    }
    let tools: Vec<&'static str> = GROUPS.iter().flat_map(|(_, tools)| *tools).chain(&THEIRS).copied().collect();
    if tools.iter().any(|tool| matches(&name, tool)) {
        return Ok(name);
    }
    // `slack_*` is for the tools of a plugin.
    let stem = name.trim_matches('*');
    if stem.len() < name.len() && tools.contains(&stem.trim_matches(['_', '-', '.'])) {
        return Ok(name);
    }
    let of_group = || groups().find(|group| group.strip_prefix("group:") == Some(stem));
    match near(stem, name.ends_with('*'), &tools).or_else(of_group).map(str::to_owned) {
        None => Ok(name),
        nearest => Err(ValueError::Unknown { what: "tool", word: text.to_owned(), nearest, known: tools }),
    }
}

/// The known name that the author may have meant: with up to a quarter of its letters wrong, or begun by these letters. Of a
/// name that goes on after these letters (`open`), only its beginning is compared.
fn near(name: &str, open: bool, known: &[&'static str]) -> Option<&'static str> {
    let slips = |known: &str| {
        let part = known.get(..name.len()).filter(|_| open && name.len() > 3).unwrap_or(known);
        distance(name.as_bytes(), part.as_bytes()).min(distance(name.as_bytes(), known.as_bytes()))
    };
    let is_near =
        |known: &&&'static str| (name.len() > 2 && known.starts_with(name)) || slips(known) * 4 <= name.len().max(4);
    known.iter().filter(is_near).min_by_key(|known| slips(known)).copied()
}

/// Whether a pattern covers a whole name. `*` stands for any letters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    (0..=name.len()).filter_map(|at| name.get(at..)).any(|name| matches(rest, name))
}

fn has(list: &[impl AsRef<str>], tool: &str) -> bool {
    let covers = |entry: &str| match entry.starts_with("group:") {
        true => matches(entry, ALL) || GROUPS.iter().any(|(name, tools)| matches(entry, name) && tools.contains(&tool)),
        false => matches(entry, tool),
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

    #[test]
    fn an_entry_may_be_a_pattern_and_its_case_does_not_matter() {
        for (text, covered, not) in [
            ("sessions_*", "sessions_list", "session_status"),
            ("session*", "session_status", "exec"),
            ("*exec*", "exec", "read"),
            ("Exec", "exec", "read"),
            ("EXEC", "exec", "read"),
            ("Group:runtime", "exec", "read"),
            ("group:*", "exec", ""),
            ("group:openclaw", "browser", ""),
            ("*_*t*", "apply_patch", "exec"),
            ("w*e", "write", "edit"),
        ] {
            let entries = [entry(text).expect(text)];
            assert!(has(&entries, covered) && (not.is_empty() || !has(&entries, not)), "{text}");
        }
        assert!(!has(&["g*"], "exec"), "a pattern for tools covers no group");
    }

    #[test]
    fn a_misspelt_tool_is_an_error_and_a_tool_of_a_plugin_is_not() {
        for (text, near) in [
            ("exce", "exec"),
            ("Exce", "exec"),
            ("sesions_*", "sessions_list"),
            ("proces", "process"),
            ("aply_patch", "apply_patch"),
            ("whatsap", "whatsapp"),
            ("runtime", "group:runtime"),
            ("session", "sessions_list"),
        ] {
            let error = entry(text).expect_err(text).to_string();
            assert!(error.ends_with(&format!("did you mean '{near}'?")), "{text}: {error}");
        }
        for text in ["whatsapp_login", "slack_*", "mcp__files__search", "task", "todo_write", "grep", "firecrawl_*"] {
            assert_eq!(entry(text).expect(text), text);
        }
    }
}
