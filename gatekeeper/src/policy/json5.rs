//! JSON5, as some agents write their configurations: comments, keys without quotes, single quotes, trailing commas. Takes
//! text, gives the tree.

use super::error::PolicyError;
use super::node::{Key, MAX_DEPTH, Node, Source, Value};
use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use std::collections::HashSet;

pub(super) fn read(source: &Source<'_>) -> Result<Node, PolicyError> {
    // The crate would accept a missing comma, which JSON5 does not.
    let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
    let parsed = parse_to_ast(source.text, &CollectOptions::default(), &options)
        .map_err(|error| source.wrong(error.range().start, error.kind().to_string()))?;
    let root = parsed.value.ok_or_else(|| source.wrong(0, "the file is empty"))?;
    node(source, root, 0)
}

/// The crate rejects more than 512 levels before it recurses; policies allow fewer.
fn node(source: &Source<'_>, value: ast::Value<'_>, depth: usize) -> Result<Node, PolicyError> {
    let at = value.range().start;
    if depth > MAX_DEPTH {
        return Err(source.too_deep(at));
    }
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(truth) => Value::Truth(truth.value),
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::NumberLit(number) => self::number(source, number.value, at)?,
        ast::Value::Array(list) => {
            let items = list.elements.into_iter().map(|item| node(source, item, depth + 1));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        ast::Value::Object(object) => {
            let mut seen = HashSet::new();
            let mut entries = Vec::with_capacity(object.properties.len());
            for entry in object.properties {
                let key = Key { at: entry.range.start, name: entry.name.into_string() };
                // Readers differ in which of two equal keys they use, so reject both.
                if !seen.insert(key.name.clone()) {
                    return Err(PolicyError::Twice { place: source.place(key.at), key: key.name });
                }
                entries.push((key, node(source, entry.value, depth + 1)?));
            }
            Value::Table(entries)
        }
    };
    Ok(Node { value, at })
}

fn number(source: &Source<'_>, text: &str, at: usize) -> Result<Value, PolicyError> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let whole = hexadecimal.map_or_else(|| digits.parse::<i128>().ok(), |digits| i128::from_str_radix(digits, 16).ok());
    if let Some(whole) = whole {
        return Ok(Value::Whole(sign * whole));
    }
    let fraction: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
    fraction.map(Value::Fraction).ok_or_else(|| source.wrong(at, "not a number that a configuration can use"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parsed(text: &str) -> Result<Node, String> {
        read(&Source::new(text.as_bytes(), Path::new("a.json")).expect("UTF-8")).map_err(|error| error.to_string())
    }

    #[test]
    fn json5_is_read_with_its_comments_bare_keys_and_trailing_commas() {
        let plain = parsed(r#"{"a": {"b": [1, 0.5, "x", true, null]}}"#).expect("JSON");
        let loose = parsed("{ // why\n  a: { /* x */ b: [+1, .5, 'x', true, null,], }, }").expect("JSON5");
        let values = |node: &Node| format!("{:?}", node.value).replace(|letter: char| letter.is_ascii_digit(), "");
        assert_eq!(values(&plain), values(&loose));
        assert_eq!(parsed("{a: 0x10}").map(|node| format!("{:?}", node.value).contains("Whole(16)")), Ok(true));
    }

    #[test]
    fn what_is_not_json5_is_an_error_with_its_place() {
        for (text, told) in [
            ("{a: 1\n b: 2}", "a.json:"),
            ("{a: 1, a: 2}", "'a' is given twice"),
            ("", "the file is empty"),
            ("{a: NaN}", "not a number"),
            ("{a: 'x}", "a.json:1"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(parsed(&deep).is_err());
        assert!(parsed(&format!("{}{}", "[".repeat(200), "]".repeat(200))).expect_err("deep").contains("more than 64"));
    }
}
