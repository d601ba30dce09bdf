//! A report as the answer to a call: text for the model, values for the client program.

use super::arguments::object;
use super::terms::Terms;
use crate::explain::{harmless, paragraph};
use crate::report::{Outcome, Report};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde_json::{Value, json};

pub fn answer(terms: &Terms, report: &Report) -> CallToolResult {
    let remedies = report.denials.iter().filter_map(|denial| denial.allow_with.as_deref());
    let mut grantable: Vec<&str> =
        remedies.filter(|remedy| terms.grantable.grant(remedy, &terms.policy).is_ok()).collect();
    grantable.sort_unstable();
    grantable.dedup();
    of(report, &grantable)
}

/// The answer with the grants that the client may ask for.
pub fn of(report: &Report, grantable: &[&str]) -> CallToolResult {
    let mut value = serde_json::to_value(report).unwrap_or(Value::Null);
    if let Some(value) = value.as_object_mut() {
        value.insert("grantable".to_owned(), json!(grantable));
    }
    let mut result = CallToolResult::structured(value);
    // gatekeeper's statement comes first, in a separate block: the command's output cannot imitate it.
    result.content =
        std::iter::once(statement(report, grantable)).chain(output(report)).map(ContentBlock::text).collect();
    // A command that fails by itself is a normal answer; one that was refused, killed or cut off is an error.
    result.is_error = Some(report.outcome != Outcome::Exited);
    result
}

pub fn wrong(error: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(harmless(&error))])
}

/// How the command ended, what was denied, and what the client may grant.
fn statement(report: &Report, grantable: &[&str]) -> String {
    let code = report.exit_code;
    let mut parts = vec![match report.outcome {
        Outcome::Exited => format!("[exit code {code}]"),
        outcome => format!("[{}, exit code {code}]", outcome.word()),
    }];
    parts.extend(paragraph(report).map(|words| format!("gatekeeper: {}", harmless(&words))));
    if !grantable.is_empty() {
        parts.push(format!("The user may grant, with the argument grants: {}", json!(grantable)));
    }
    parts.join("\n")
}

/// One block for each stream that is not empty.
fn output(report: &Report) -> Vec<String> {
    let Some(captured) = &report.captured else { return Vec::new() };
    let streams = [
        ("stdout", &captured.stdout, captured.stdout_truncated),
        ("stderr", &captured.stderr, captured.stderr_truncated),
    ];
    let block = |(name, text, missing): (&str, &String, u64)| {
        let note = if missing == 0 { String::new() } else { format!(", {missing} bytes left out in the middle") };
        format!("[{name}{note}]\n{}", text.trim_end_matches('\n'))
    };
    streams.into_iter().filter(|(_, text, _)| !text.is_empty()).map(block).collect()
}

/// The schema of the values: the part of a report that a client can rely on.
pub fn schema() -> JsonObject {
    let text = json!({"type": "string"});
    let or_null = json!({"type": ["string", "null"]});
    object(json!({
        "type": "object",
        "properties": {
            "schema": {"const": 1},
            "outcome": {"enum": ["exited", "signaled", "timeout", "limit", "refused", "setup_failed", "not_found"]},
            "exit_code": {"type": "integer"},
            "signal": {"type": ["integer", "null"]},
            "duration_ms": {"type": "integer"},
            "command": {"type": "array", "items": text},
            "error": text,
            "layers": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "layer": text,
                    "status": {"enum": ["enforced", "partial", "unavailable", "off"]},
                    "detail": text,
                },
                "required": ["layer", "status", "detail"],
            }},
            "denials": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "layer": text, "syscall": text, "args": {"type": "array", "items": text}, "path": or_null,
                    "host": or_null, "count": {"type": "integer"}, "rule": text, "allow_with": or_null,
                },
                "required": ["layer", "syscall", "args", "path", "host", "count", "rule", "allow_with"],
            }},
            "grantable": {"type": "array", "items": text,
                          "description": "Each allow_with of the denials that the argument grants accepts"},
            "stdout": text,
            "stderr": text,
            "stdout_truncated": {"type": "integer"},
            "stderr_truncated": {"type": "integer"},
        },
        "required": ["schema", "outcome", "exit_code", "signal", "duration_ms", "command", "layers", "denials", "grantable"],
    }))
}
