//! The tools of an agent in its container: names, descriptions, and the arguments of all of them.

use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Arguments {
    pub command: Option<Vec<String>>,
    pub line: Option<String>,
    pub cwd: Option<PathBuf>,
    /// In seconds.
    pub timeout: Option<f64>,
    pub stdin: Option<String>,
    pub background: bool,
    pub action: Option<String>,
    pub id: Option<u64>,
    pub data: Option<String>,
    pub end: bool,
    pub path: Option<String>,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
    pub content: Option<String>,
    pub old: Option<String>,
    pub new: Option<String>,
    pub all: bool,
    pub patch: Option<String>,
    pub target: Option<String>,
    pub url: Option<String>,
    pub tab: Option<String>,
}

/// A tool: name, description, properties of its arguments, and those that it needs.
pub type Described = (&'static str, &'static str, Value, &'static [&'static str]);

pub fn described() -> Vec<Described> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let flag = |about: &str| json!({"type": "boolean", "description": about});
    let number = |about: &str| json!({"type": "number", "description": about});
    let path = text("Path in the container; relative paths start at /workspace");
    vec![
        (
            "exec",
            "Runs a command in the agent's container, confined, and reports what was denied and which grant would allow it",
            json!({
                "command": {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "The program and its arguments, without a shell. Give either this or line."},
                "line": text("A command line for sh -c. Give either this or command."),
                "cwd": text("Working directory in the container"),
                "timeout": number("Seconds after which the command and all its processes are killed"),
                "stdin": text("Standard input"),
                "background": flag("Return at once with an id for the tool process; the command ends with this session"),
            }),
            &[],
        ),
        (
            "process",
            "Lists background commands, polls one for new output, writes to its standard input, or kills it",
            json!({
                "action": {"enum": ["list", "poll", "write", "kill"]},
                "id": number("The id that exec returned"),
                "data": text("For write: the bytes for standard input"),
                "end": flag("For write: close standard input afterwards"),
            }),
            &["action"],
        ),
        (
            "read",
            "Reads a text file",
            json!({"path": path, "offset": number("First line, from 1"), "limit": number("Number of lines")}),
            &["path"],
        ),
        (
            "write",
            "Writes a text file, and makes its directories",
            json!({"path": path, "content": text("The whole text")}),
            &["path", "content"],
        ),
        (
            "edit",
            "Replaces text in a file; the text must occur exactly once, unless all is true",
            json!({"path": path, "old": text("The text to replace"), "new": text("Its replacement"), "all": flag("Replace every occurrence")}),
            &["path", "old", "new"],
        ),
        (
            "apply_patch",
            "Applies a patch (*** Begin Patch ... *** End Patch) to several files, or changes nothing",
            json!({"patch": text("The patch")}),
            &["patch"],
        ),
        (
            "browser",
            "A browser in a container of its own: status, start, stop, tabs, open (a URL in a new tab), close (a tab)",
            json!({
                "action": {"enum": ["status", "start", "stop", "tabs", "open", "close"]},
                "target": {"enum": ["sandbox", "host"], "description": "sandbox (default): the browser's container; host: `gatekeeper browser` on this machine, for this session"},
                "url": text("For open: http, https or about"),
                "tab": text("For close: the id of a tab"),
            }),
            &["action"],
        ),
        ("sessions_list", "Lists the containers of this agent", json!({}), &[]),
        ("session_status", "The effective settings of this session, and its background commands", json!({}), &[]),
    ]
}
