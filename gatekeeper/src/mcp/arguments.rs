//! The arguments of one call, and the request made from them. No argument can allow more than the operator's terms: the
//! policy stays anchored at the operator's directory, the timeout only gets shorter, and only listed grants are accepted.

use super::terms::Terms;
use crate::policy::{Document, values};
use crate::request::{Asked, Request};
use rmcp::model::JsonObject;
use serde::Deserialize;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: Option<Vec<String>>,
    line: Option<String>,
    cwd: Option<PathBuf>,
    /// In seconds.
    timeout: Option<f64>,
    stdin: Option<String>,
    #[serde(default)]
    grants: Vec<String>,
}

/// The schema of the arguments.
pub fn schema(terms: &Terms) -> JsonObject {
    let mut properties = json!({
        "command": {"type": "array", "items": {"type": "string"}, "minItems": 1,
                    "description": "The program and its arguments, without a shell. Give either this or line."},
        "line": {"type": "string", "description": "A command line for sh -c. Give either this or command."},
        "cwd": {"type": "string", "description": "Working directory, relative to the server's. Grants no access."},
        "timeout": {"type": "number", "exclusiveMinimum": 0,
                    "description": "Seconds after which the command and all its processes are killed; at most the server's own limit."},
        "stdin": {"type": "string", "description": "The command's standard input. Default: empty."},
    });
    if let (Some(properties), false) = (properties.as_object_mut(), terms.grantable.is_empty()) {
        let texts = terms.grantable.texts().collect::<Vec<_>>().join(", ");
        let description = format!(
            "Grants for this call, as written in a denial's allow_with; each gives the listed entry that covers it. Ask \
             the user first. Can be granted: {texts}"
        );
        let grants = json!({"type": "array", "items": {"type": "string"}, "description": description});
        properties.insert("grants".to_owned(), grants);
    }
    object(json!({"type": "object", "properties": properties, "additionalProperties": false}))
}

pub fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

/// The request of a call, and the command's standard input.
pub fn request(terms: &Terms, given: Option<JsonObject>) -> Result<(Request, Vec<u8>), String> {
    let given = Value::Object(given.unwrap_or_default());
    let arguments: Arguments = serde_json::from_value(given.clone()).map_err(|error| plain(&given, &error))?;
    let asked = asked(arguments.command, arguments.line)?;
    let starts_in = match arguments.cwd {
        Some(cwd) => Some(directory(terms, cwd)?),
        None => None,
    };
    let mut flags = terms.request.flags.clone();
    for asked in &arguments.grants {
        let mut grant = terms.grantable.grant(asked, &terms.policy)?;
        // Several profiles form the union, as with a repeated --profile.
        grant.profile = values::union(flags.profile.clone(), grant.profile.take());
        flags = grant.over(flags);
    }
    if let Some(seconds) = arguments.timeout {
        let time = Duration::try_from_secs_f64(seconds).map_err(|error| format!("timeout {seconds}: {error}"))?;
        // Zero would mean no timeout.
        let time = time.max(Duration::from_millis(1));
        flags = Document { timeout: Some(terms.policy.timeout.map_or(time, |most| most.min(time))), ..flags };
    }
    let request = Request { asked, starts_in, flags, ..terms.request.clone() };
    Ok((request, arguments.stdin.unwrap_or_default().into_bytes()))
}

/// What to run.
pub fn asked(command: Option<Vec<String>>, line: Option<String>) -> Result<Asked, String> {
    match (command, line) {
        (Some(words), None) if !words.is_empty() => Ok(Asked::Command(words.into_iter().map(OsString::from).collect())),
        (None, Some(line)) => Ok(Asked::Line(line.into())),
        _ => Err("give either command (a list that is not empty) or line".to_owned()),
    }
}

/// serde's message, with the argument's name and with JSON's types in place of Rust's.
fn plain(given: &Value, error: &serde_json::Error) -> String {
    let alone = |(name, value): (&String, &Value)| {
        let one = serde_json::from_value::<Arguments>(json!({ name: value }));
        one.is_err().then(|| format!("{name}: {error}"))
    };
    let unknown = error.to_string().starts_with("unknown field");
    let named = given.as_object().filter(|_| !unknown).and_then(|given| given.iter().find_map(alone));
    let text = named.unwrap_or_else(|| error.to_string());
    let types =
        [("expected f64", "expected a number (seconds)"), ("expected a sequence", "expected a list of strings")];
    types.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
}

fn directory(terms: &Terms, cwd: PathBuf) -> Result<PathBuf, String> {
    let path = terms.request.cwd.join(&cwd);
    let found = std::fs::canonicalize(&path).map_err(|error| format!("cwd {}: {error}", cwd.display()))?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(format!("cwd {}: not a directory", cwd.display())),
    }
}
