//! The tools of MCP: names, arguments and answers as over HTTP, from one table.

use super::Problem;
use crate::session::{Action, Kind, Manager, OpenRequest, SessionError, TaskRequest};
use crate::store::iso;
use crate::vault::Caller;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;

const PREFIX: &str = "browser_";

/// Name, description, properties, and the names of those that are required.
fn table() -> [(&'static str, &'static str, Value, &'static [&'static str]); 9] {
    let id = || json!({ "type": "string", "description": "session_id from browser_open_session" });
    let after = || json!({ "type": "boolean", "description": "also return a screenshot taken after the action" });
    let mode = || {
        json!({ "type": "string", "enum": ["clean", "operator"], "default": "clean",
        "description": "clean: no cookies; operator: the cookies of the domains, against a grant_token" })
    };
    let domains = || {
        json!({ "type": "array", "items": { "type": "string" },
        "description": "exact hosts whose cookies the session gets" })
    };
    let record = || {
        json!({ "type": "string", "enum": ["off", "transient", "audit"], "default": "transient",
        "description": "screenshots on disk: none; the last 50 until the session closes; all, for days" })
    };
    let grant =
        || json!({ "type": ["string", "null"], "description": "issued by an operator; for credential_mode operator" });
    let selector = || json!({ "type": "string", "description": "a CSS selector" });
    let number = |about: &str| json!({ "type": "number", "description": about });
    [
        (
            "open_session",
            "Starts a browser with an empty profile. Close it when you are done.",
            json!({ "credential_mode": mode(), "domains": domains(), "record": record(), "grant_token": grant() }),
            &[],
        ),
        (
            "navigate",
            "Loads a URL and waits for the page.",
            json!({ "session_id": id(), "url": { "type": "string" } }),
            &["session_id", "url"],
        ),
        (
            "screenshot",
            "Takes a picture of the viewport, or of the full page.",
            json!({ "session_id": id(), "full_page": { "type": "boolean", "default": false } }),
            &["session_id"],
        ),
        (
            "click",
            "Clicks at x and y, in pixels of the viewport, or on the element that a selector names.",
            json!({ "session_id": id(), "x": number("pixels from the left"), "y": number("pixels from the top"),
                "selector": selector(), "after_screenshot": after() }),
            &["session_id"],
        ),
        (
            "type",
            "Types text into the focused element, or into the element that a selector names.",
            json!({ "session_id": id(), "text": { "type": "string" }, "selector": selector(), "after_screenshot": after() }),
            &["session_id", "text"],
        ),
        (
            "scroll",
            "Scrolls the page, or the element that a selector names.",
            json!({ "session_id": id(), "dx": number("pixels to the right"), "dy": number("pixels down"),
                "selector": selector(), "after_screenshot": after() }),
            &["session_id"],
        ),
        (
            "read_dom",
            "Returns the HTML of the page, cut to max_bytes; truncated_to says so.",
            json!({ "session_id": id(), "max_bytes": { "type": "integer", "minimum": 0 } }),
            &["session_id"],
        ),
        (
            "close_session",
            "Ends the browser and removes what belonged to it.",
            json!({ "session_id": id() }),
            &["session_id"],
        ),
        (
            "run_task",
            "Gives an instruction to a model that looks at the page and acts until it is done.",
            json!({ "instruction": { "type": "string" }, "credential_mode": mode(), "domains": domains(), "record": record(),
                "grant_token": grant(), "max_steps": { "type": "integer", "minimum": 1 },
                "url": { "type": "string", "description": "the page to begin with" } }),
            &["instruction"],
        ),
    ]
}

pub fn all() -> Vec<Tool> {
    let tool = |(name, about, properties, required): (&str, &'static str, Value, &[&str])| {
        let schema = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        let Value::Object(schema) = schema else { return None };
        let hints = ToolAnnotations::new().open_world(true).read_only(matches!(name, "screenshot" | "read_dom"));
        Some(Tool::new(format!("{PREFIX}{name}"), about, Arc::new(schema)).with_annotations(hints))
    };
    table().into_iter().filter_map(tool).collect()
}

/// Calls a tool. `None` if there is none of this name.
pub async fn call(manager: &Manager, caller: &Caller, name: &str, given: Option<JsonObject>) -> Option<CallToolResult> {
    let name = name.strip_prefix(PREFIX)?;
    table().iter().find(|(known, ..)| *known == name)?;
    Some(match answer(manager, caller, name, given.unwrap_or_default()).await {
        Ok(value) => result(value),
        Err(error) => {
            // The same words as over HTTP, which keep internal errors for the operator's log.
            let problem = Problem::from(error);
            let value = json!({ "error": { "code": problem.code, "message": problem.message } });
            let mut failed = CallToolResult::error(vec![ContentBlock::text(problem.message)]);
            failed.structured_content = Some(value);
            failed
        }
    })
}

async fn answer(manager: &Manager, caller: &Caller, name: &str, mut given: JsonObject) -> Result<Value, SessionError> {
    match name {
        "open_session" => {
            let request: OpenRequest = parse(name, given)?;
            Ok(super::sessions::answer(&manager.open(caller, request, Kind::Session).await?))
        }
        "run_task" => {
            let request: TaskRequest = parse(name, given)?;
            manager.run_task(caller, request).await
        }
        _ => {
            let Some(Value::String(id)) = given.remove("session_id") else {
                return Err(SessionError::Invalid(format!("{name}: session_id is missing")));
            };
            if name == "close_session" {
                return Ok(json!({ "closed_at": iso(manager.close(caller, &id).await?) }));
            }
            let action = Action::parse(name, Value::Object(given))?;
            Ok(Value::Object(manager.act(caller, &id, action).await?))
        }
    }
}

fn parse<T: DeserializeOwned>(name: &str, given: JsonObject) -> Result<T, SessionError> {
    serde_json::from_value(Value::Object(given))
        .map_err(|error| SessionError::Invalid(format!("{name}: {}", super::guard::quoteless(&error))))
}

/// The answer as values, and for the model: pictures as images, the rest as text.
fn result(value: Value) -> CallToolResult {
    let mut text = value.clone();
    let mut blocks = Vec::new();
    for place in ["/image_base64", "/after_screenshot/image_base64"] {
        if let Some(Value::String(picture)) = text.pointer_mut(place).map(Value::take) {
            blocks.push(ContentBlock::image(picture, "image/png"));
        }
    }
    if let Some(fields) = text.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    blocks.insert(0, ContentBlock::text(text.to_string()));
    let mut done = CallToolResult::success(blocks);
    done.structured_content = Some(value);
    done
}
