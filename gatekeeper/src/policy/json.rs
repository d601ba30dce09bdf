//! JSON with `//` and `/* */` comments, as agents write their configurations: takes text, gives the tree.
//!
//! serde_json parses. Its raw values are slices of the text, which gives their positions.

use super::error::PolicyError;
use super::node::{Key, MAX_DEPTH, Node, Source, Value};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

pub(super) fn read(source: &Source<'_>) -> Result<Node, PolicyError> {
    let text = scanned(source)?;
    let reader = Reader { source, text: &text };
    let root: &RawValue = serde_json::from_str(&text).map_err(|error| reader.syntax(0, &error))?;
    reader.node(root)
}

struct Reader<'a> {
    source: &'a Source<'a>,
    /// Comments are replaced by blanks, so that positions match the file.
    text: &'a str,
}

impl Reader<'_> {
    fn at(&self, raw: &RawValue) -> usize {
        (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// serde_json counts lines and columns from the start of its input.
    fn syntax(&self, from: usize, error: &serde_json::Error) -> PolicyError {
        let given = self.text.get(from..).unwrap_or_default();
        let lines = given.split_inclusive('\n').take(error.line().saturating_sub(1));
        let at = from + lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        let told = error.to_string();
        let message = told.rsplit_once(" at line ").map_or(told.as_str(), |(message, _)| message);
        let before = self.text.get(..at).unwrap_or_default().trim_end();
        let closes = self.text.get(at..).unwrap_or_default().trim_start().starts_with(['}', ']']);
        if closes && before.ends_with(',') {
            // Point at the comma, which has to be removed.
            let comma = before.len().saturating_sub(1);
            return self.source.wrong(comma, "JSON has no comma before a closing bracket; remove this one");
        }
        self.source.wrong(at, message)
    }

    fn node(&self, raw: &RawValue) -> Result<Node, PolicyError> {
        let (text, at) = (raw.get(), self.at(raw));
        let value = match text.as_bytes().first() {
            Some(b'n') => Value::Null,
            Some(b't') => Value::Truth(true),
            Some(b'f') => Value::Truth(false),
            Some(b'"') => Value::Text(self.string(raw)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| self.syntax(at, &error))?;
                Value::List(items.into_iter().map(|item| self.node(item)).collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(text).map_err(|error| self.syntax(at, &error))?;
                Value::Table(self.entries(entries)?)
            }
            _ if text.contains(['.', 'e', 'E']) => Value::Fraction(text.parse().unwrap_or(f64::NAN)),
            _ => Value::Whole(text.parse().map_err(|_| self.source.wrong(at, "the number is too large"))?),
        };
        Ok(Node { value, at })
    }

    fn entries(&self, raw: Vec<(&RawValue, &RawValue)>) -> Result<Vec<(Key, Node)>, PolicyError> {
        let mut seen = std::collections::HashSet::new();
        let mut entries = Vec::with_capacity(raw.len());
        for (name, value) in raw {
            let key = Key { name: self.string(name)?, at: self.at(name) };
            // JSON readers differ in which of two equal keys they use, so reject both.
            if !seen.insert(key.name.clone()) {
                return Err(PolicyError::Twice { place: self.source.place(key.at), key: key.name });
            }
            entries.push((key, self.node(value)?));
        }
        Ok(entries)
    }

    fn string(&self, raw: &RawValue) -> Result<String, PolicyError> {
        serde_json::from_str(raw.get()).map_err(|error| self.syntax(self.at(raw), &error))
    }
}

/// The entries of an object in order, including repeated keys.
struct Entries<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Object).map(Entries)
    }
}

/// The text with blanks in place of comments; line ends stay. Rejects deep nesting before any code recurses.
fn scanned(source: &Source<'_>) -> Result<String, PolicyError> {
    let mut clean = String::with_capacity(source.text.len());
    let mut rest = source.text;
    let mut depth = 0usize;
    while let Some(start) = rest.find(['"', '/', '[', '{', ']', '}']) {
        let (before, from) = rest.split_at(start);
        clean.push_str(before);
        let at = source.text.len() - from.len();
        let comment = if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if let Some(inside) = from.strip_prefix("/*") {
            inside.find("*/").map(|end| end + 4).ok_or_else(|| source.wrong(at, "the comment is not closed"))?
        } else {
            0
        };
        let kept = match from.as_bytes().first() {
            _ if comment > 0 => 0,
            Some(b'"') => string_length(from),
            Some(b'[' | b'{') => {
                depth += 1;
                1
            }
            Some(b']' | b'}') => {
                depth = depth.saturating_sub(1);
                1
            }
            // A lone slash, which serde_json will reject.
            _ => 1,
        };
        // The outermost table does not count.
        if depth > MAX_DEPTH + 1 {
            return Err(source.too_deep(at));
        }
        let (taken, after) = from.split_at(comment.max(kept));
        match comment {
            0 => clean.push_str(taken),
            _ => clean.extend(taken.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
        }
        rest = after;
    }
    clean.push_str(rest);
    Ok(clean)
}

/// The length of the string at the start of this text, with its quotes. An unclosed string extends to the end.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}
