//! One line of a client.

use crate::report::Decision;
use sandbox_contract::nearest::nearest_of;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A run to carry out.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// A string or a number of the client's choice.
    pub id: Value,
    pub asked: Asked,
    /// Flags of `run`.
    pub flags: Vec<String>,
    pub cwd: Option<PathBuf>,
    /// Variables to set, as by `--env NAME=VALUE`.
    pub env: Vec<(String, String)>,
    pub stdin: String,
    /// Whether to send the output while the command runs.
    pub stream: bool,
    /// Whether to ask the client about refused calls.
    pub ask: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Argv(Vec<String>),
    Line(String),
}

#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Run(Box<Order>),
    Cancel(Value),
    /// The answer to a question of a run.
    Answer {
        id: Value,
        question: u64,
        decision: Decision,
    },
}

/// Why a line is no order, and its id: null if that cannot be read.
#[derive(Debug, PartialEq)]
pub(super) struct Wrong {
    pub id: Value,
    pub error: String,
}

const KEYS: [&str; 11] = ["id", "argv", "line", "flags", "cwd", "env", "stdin", "stream", "ask", "answer", "cancel"];

/// From here on not every whole number has a floating-point number of its own. Nor has -0.
const EXACT: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// The value of `answer`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    id: u64,
    decision: Decision,
}

/// Parses a line that is not empty.
pub(super) fn parse(line: &[u8]) -> Result<Line, Wrong> {
    let unreadable = |error: String| Wrong { id: Value::Null, error };
    let value: Value = serde_json::from_slice(line).map_err(|error| unreadable(format!("not JSON: {error}")))?;
    let Value::Object(mut object) = value else { return Err(unreadable("not an object".to_owned())) };
    let id = object.remove("id").filter(|id| id.is_string() || id.is_number()).unwrap_or(Value::Null);
    let wrong = |error: String| Wrong { id: id.clone(), error };
    if id.is_null() {
        return Err(wrong("id: a string or a number is needed".to_owned()));
    }
    if id.is_f64()
        && id.as_f64().is_some_and(|number| number.abs() >= EXACT || (number == 0.0 && number.is_sign_negative()))
    {
        return Err(unreadable("id: this number cannot be answered as it was written; use a string".to_owned()));
    }
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(wrong(unknown(key)));
    }
    if let Some(cancel) = object.remove("cancel") {
        return match (cancel, object.keys().next()) {
            (Value::Bool(true), None) => Ok(Line::Cancel(id)),
            (Value::Bool(true), Some(key)) => Err(wrong(format!("{key}: not together with cancel"))),
            _ => Err(wrong("cancel: true is the only value".to_owned())),
        };
    }
    if let Some(answer) = object.remove("answer") {
        if let Some(key) = object.keys().next() {
            return Err(wrong(format!("{key}: not together with answer")));
        }
        if !answer.is_object() {
            return Err(wrong("answer: an object with id and decision is needed".to_owned()));
        }
        let answer: Answer = serde_json::from_value(answer).map_err(|error| wrong(format!("answer: {error}")))?;
        return Ok(Line::Answer { id: id.clone(), question: answer.id, decision: answer.decision });
    }
    order(id.clone(), object).map(|order| Line::Run(Box::new(order))).map_err(wrong)
}

fn unknown(key: &str) -> String {
    let nearest = nearest_of(key.as_bytes(), KEYS);
    let hint = nearest.map(|word| format!("; did you mean {}?", String::from_utf8_lossy(word.as_bytes())));
    let hint = hint.unwrap_or_default();
    format!("unknown key {key:?}{hint}")
}

fn order(id: Value, mut object: Map<String, Value>) -> Result<Order, String> {
    let mut take = |key: &str| object.remove(key).filter(|value| !value.is_null());
    let asked = match (take("argv"), take("line")) {
        (Some(argv), None) => Asked::Argv(strings("argv", argv)?),
        (None, Some(line)) => Asked::Line(string("line", line)?),
        _ => return Err("give either argv or line".to_owned()),
    };
    if matches!(&asked, Asked::Argv(words) if words.is_empty()) {
        return Err("argv: it is empty".to_owned());
    }
    let env = match take("env") {
        Some(Value::Object(env)) => env.into_iter().map(variable).collect::<Result<_, _>>()?,
        Some(_) => return Err("env: an object of strings is needed".to_owned()),
        None => Vec::new(),
    };
    Ok(Order {
        id,
        asked,
        flags: take("flags").map_or(Ok(Vec::new()), |flags| strings("flags", flags))?,
        cwd: take("cwd").map(|cwd| string("cwd", cwd)).transpose()?.map(PathBuf::from),
        env,
        stdin: take("stdin").map_or(Ok(String::new()), |stdin| string("stdin", stdin))?,
        stream: take("stream").map_or(Ok(false), |stream| boolean("stream", stream))?,
        ask: take("ask").map_or(Ok(false), |ask| boolean("ask", ask))?,
    })
}

fn boolean(key: &str, value: Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{key}: true or false is needed"))
}

fn variable((name, value): (String, Value)) -> Result<(String, String), String> {
    let valid = !name.is_empty() && !name.contains(['=', '\0']);
    match value {
        Value::String(value) if valid && !value.contains('\0') => Ok((name, value)),
        Value::String(_) => Err(format!("env: {name:?} is no name of a variable, or its value has a NUL")),
        _ => Err(format!("env: {name}: a string is needed")),
    }
}

fn string(key: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(format!("{key}: a string is needed")),
    }
}

fn strings(key: &str, value: Value) -> Result<Vec<String>, String> {
    let Value::Array(items) = value else { return Err(format!("{key}: a list of strings is needed")) };
    items.into_iter().map(|item| string(key, item).map_err(|_| format!("{key}: a list of strings is needed"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_an_order_or_says_why_not() {
        let Ok(Line::Run(order)) = parse(
            br#"{"id":1,"argv":["ls"],"flags":["-p","read"],"cwd":"/w","env":{"A":"b"},"stdin":"x","stream":true}"#,
        ) else {
            panic!("an order");
        };
        assert_eq!((order.id, order.asked, order.stream), (json!(1), Asked::Argv(vec!["ls".to_owned()]), true));
        assert_eq!((order.env, order.stdin.as_str()), (vec![("A".to_owned(), "b".to_owned())], "x"));
        assert_eq!(parse(br#"{"id":"a","cancel":true}"#), Ok(Line::Cancel(json!("a"))));
        assert_eq!(
            parse(br#"{"id":1,"answer":{"id":7,"decision":"once"}}"#),
            Ok(Line::Answer { id: json!(1), question: 7, decision: Decision::Once })
        );
        for (line, id, words) in [
            (r#"{"id":1,"answer":{"id":7,"decision":"yes"}}"#, json!(1), "answer: once, run or deny is needed"),
            (r#"{"id":1,"answer":{"id":7,"decision":{"once":null}}}"#, json!(1), "answer: invalid type: map"),
            (r#"{"id":1,"answer":[7,"once"]}"#, json!(1), "answer: an object with id and decision is needed"),
            (r#"{"id":1,"answer":{"id":7}}"#, json!(1), "answer: missing field `decision`"),
            (r#"{"id":1,"answer":{"id":7,"decision":"run"},"line":"a"}"#, json!(1), "line: not together with answer"),
            (r#"{"id":1,"line":"a","ask":"yes"}"#, json!(1), "ask: true or false"),
            ("{", json!(null), "not JSON"),
            ("[]", json!(null), "not an object"),
            (r#"{"argv":["ls"]}"#, json!(null), "id: a string or a number"),
            (r#"{"id":{},"argv":["ls"]}"#, json!(null), "id: a string or a number"),
            (r#"{"id":18446744073709551616,"argv":["ls"]}"#, json!(null), "cannot be answered"),
            (r#"{"id":-0,"argv":["ls"]}"#, json!(null), "cannot be answered"),
            (r#"{"id":18446744073709551615}"#, json!(u64::MAX), "either argv or line"),
            (r#"{"id":-9223372036854775808}"#, json!(i64::MIN), "either argv or line"),
            (r#"{"id":0}"#, json!(0), "either argv or line"),
            (r#"{"id":1.5}"#, json!(1.5), "either argv or line"),
            (r#"{"id":1}"#, json!(1), "either argv or line"),
            (r#"{"id":1,"argv":[]}"#, json!(1), "it is empty"),
            (r#"{"id":1,"argv":["a"],"line":"b"}"#, json!(1), "either argv or line"),
            (r#"{"id":1,"argv":"ls"}"#, json!(1), "argv: a list of strings"),
            (r#"{"id":1,"arvg":["ls"]}"#, json!(1), "did you mean argv?"),
            (r#"{"id":1,"line":"a","env":{"A=B":"c"}}"#, json!(1), "no name of a variable"),
            (r#"{"id":1,"line":"a","env":{"A":1}}"#, json!(1), "env: A: a string"),
            (r#"{"id":1,"line":"a","stream":1}"#, json!(1), "stream: true or false"),
            (r#"{"id":1,"cancel":false}"#, json!(1), "true is the only value"),
            (r#"{"id":1,"cancel":true,"line":"a"}"#, json!(1), "line: not together"),
        ] {
            let Err(wrong) = parse(line.as_bytes()) else { panic!("{line} was accepted") };
            assert_eq!(wrong.id, id, "{line}");
            assert!(wrong.error.contains(words), "{line}: {}", wrong.error);
        }
    }
}
