//! The tools on the operator's stage. Showing it is always possible; applying and discarding it only if the operator said
//! so at the start: an agent must not approve its own changes.

use super::answer;
use super::arguments::object;
use super::terms::Terms;
use crate::stage::patch::{Form, quoted};
use crate::stage::{Applied, Protected, Stage, StageError, Store};
use crate::trust::Hostile;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::path::PathBuf;

const DIFF: &str = "stage_diff";
const APPLY: &str = "stage_apply";
const DISCARD: &str = "stage_discard";

pub fn tools(terms: &Terms) -> Vec<Tool> {
    if terms.request.stage.is_none() {
        return Vec::new();
    }
    let none = || object(json!({"type": "object", "properties": {}, "additionalProperties": false}));
    let mut tools = vec![
        Tool::new(DIFF, "Shows the changes that wait in the stage, as a patch.", none())
            .with_annotations(ToolAnnotations::new().read_only(true)),
    ];
    if terms.decides {
        let paths = json!({"type": "object", "additionalProperties": false, "properties": {
            "paths": {"type": "array", "items": {"type": "string"}, "description": "Apply only the changes at and below these paths."}}});
        let apply =
            "Takes the changes of the stage over into the working directory. Protected files stay in the stage.";
        tools.push(Tool::new(APPLY, apply, object(paths)).with_annotations(ToolAnnotations::new().destructive(true)));
        let discard = "Throws the changes of the stage away.";
        tools.push(Tool::new(DISCARD, discard, none()).with_annotations(ToolAnnotations::new().destructive(true)));
    }
    tools
}

/// Calls one of the tools that [`tools`] lists.
pub fn call(terms: &Terms, name: &str, given: Option<JsonObject>) -> CallToolResult {
    let paths = match paths(name, given.unwrap_or_default()) {
        Ok(paths) => paths,
        Err(error) => return answer::wrong(error),
    };
    match open(terms).and_then(|stage| act(name, stage, &paths, terms.decides)) {
        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        Err(error) => answer::wrong(error.to_string()),
    }
}

fn paths(name: &str, mut given: JsonObject) -> Result<Vec<PathBuf>, String> {
    let paths = if name == APPLY { given.remove("paths") } else { None };
    if let Some(unknown) = given.keys().next() {
        return Err(format!("unknown field `{unknown}`"));
    }
    let paths: Vec<String> = serde_json::from_value(paths.unwrap_or(Value::Array(Vec::new())))
        .map_err(|_| "paths: expected a list of strings".to_owned())?;
    Ok(paths.into_iter().map(PathBuf::from).collect())
}

fn open(terms: &Terms) -> Result<Stage, StageError> {
    let request = &terms.request;
    let name = request.stage.as_ref().map(|stage| stage.name.clone()).unwrap_or_default();
    let state = request.variable("XDG_STATE_HOME").map(|state| state.as_os_str());
    let mut hostile = Hostile::here();
    hostile.add_working_directory(&request.cwd);
    Store::open(state, request.home.as_deref(), &hostile)?.stage(&name)
}

fn act(name: &str, stage: Stage, paths: &[PathBuf], decides: bool) -> Result<String, StageError> {
    match name {
        DIFF => {
            let patch = if decides { stage.diff(Form::Text) } else { stage.patch(Form::Text) }?;
            let text = format!("{}{}", patch.notes, String::from_utf8_lossy(&patch.text));
            Ok(if patch.changes == 0 { "no changes".to_owned() } else { text })
        }
        DISCARD => stage.discard().map(|()| "discarded".to_owned()),
        _ => match stage.apply(paths, Protected::Skip)? {
            Applied::Done { taken, left } => Ok(format!("{taken} changes applied, {left} left in the stage")),
            Applied::Conflicts(conflicts) => {
                let all: Vec<String> =
                    conflicts.iter().map(|conflict| format!("{}: {}", quoted(&conflict.path), conflict.why)).collect();
                Err(StageError::Unusable(format!("nothing was applied, because of conflicts: {}", all.join("; "))))
            }
            Applied::Protected(_) => Err(StageError::Unusable("nothing was applied".to_owned())),
        },
    }
}
