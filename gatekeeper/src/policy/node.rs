//! The syntax tree of a TOML or JSON file, with the position of each value. Knows nothing about policies. No input makes
//! it panic or recurse deeply.

use super::error::{Place, PolicyError};
use std::path::Path;
use toml::de::{DeTable, DeValue};
use toml_parser::lexer::TokenKind;

/// The largest file to read.
pub const MAX_BYTES: usize = 1 << 20;
/// How deep lists and tables may nest.
pub(super) const MAX_DEPTH: usize = 64;

/// How many parts a key may have, as `a.b.c` has three.
const MAX_PARTS: usize = 8;

/// A value and its position in bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// JSON only; counts as absent.
    Null,
    Truth(bool),
    Whole(i128),
    Fraction(f64),
    Text(String),
    Date,
    List(Vec<Node>),
    /// In file order.
    Table(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub name: String,
    pub at: usize,
}

impl Value {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Truth(_) => "true or false",
            Value::Whole(_) => "a whole number",
            Value::Fraction(_) => "a number with a fraction",
            Value::Text(_) => "a string",
            Value::Date => "a date",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// A file's text and name, from which errors get file and line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub file: &'a Path,
    pub text: &'a str,
    /// Whether this is not the file that was asked for, but one that it extends.
    pub extended: bool,
}

impl<'a> Source<'a> {
    pub fn new(bytes: &'a [u8], file: &'a Path) -> Result<Source<'a>, PolicyError> {
        if bytes.len() > MAX_BYTES {
            return Err(PolicyError::TooLarge { file: file.into(), limit: MAX_BYTES });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = bytes.get(..error.valid_up_to()).and_then(|good| std::str::from_utf8(good).ok()).unwrap_or("");
            Source { file, text: good, extended: false }.wrong(good.len(), "not UTF-8")
        })?;
        // Some Windows editors write a byte order mark.
        Ok(Source { file, text: text.strip_prefix('\u{feff}').unwrap_or(text), extended: false })
    }

    pub fn place(&self, at: usize) -> Place {
        let at = (0..=at).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Place {
            file: self.file.into(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }

    pub fn wrong(&self, at: usize, message: impl Into<String>) -> PolicyError {
        PolicyError::Syntax { place: self.place(at), message: message.into() }
    }

    pub fn too_deep(&self, at: usize) -> PolicyError {
        self.wrong(at, format!("more than {MAX_DEPTH} lists and tables inside each other"))
    }

    /// Parses the file as JSON or TOML, according to its extension, or else its first character.
    pub fn read(&self) -> Result<Node, PolicyError> {
        let json = match self.file.extension().and_then(|extension| extension.to_str()) {
            Some("json" | "jsonc") => true,
            Some("toml") => false,
            _ => self.text.trim_start().starts_with(['{', '/']),
        };
        if json { super::json::read(self) } else { self.read_toml() }
    }

    /// The same, but JSON may be JSON5: keys without quotes, single quotes, trailing commas.
    pub fn read_json5(&self) -> Result<Node, PolicyError> {
        match self.file.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => self.read_toml(),
            Some("json" | "jsonc" | "json5") => super::json5::read(self),
            _ if self.text.trim_start().starts_with(['{', '/']) => super::json5::read(self),
            _ => self.read_toml(),
        }
    }

    fn read_toml(&self) -> Result<Node, PolicyError> {
        self.keys_are_short()?;
        let table = DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(self.text.len(), |span| span.start);
            self.wrong(at, error.message().lines().collect::<Vec<_>>().join("; "))
        })?;
        let at = table.span().start;
        self.toml_table(table.into_inner(), at, 0)
    }

    /// The toml crate limits both nested brackets and the parts of a key to 80, so a small file can nest 6,400 tables.
    /// Dropping these recursively overflows a thread's stack.
    fn keys_are_short(&self) -> Result<(), PolicyError> {
        let mut parts = 1;
        for token in toml_parser::Source::new(self.text).lex() {
            parts = match token.kind() {
                TokenKind::Dot => parts + 1,
                TokenKind::Equals | TokenKind::Comma | TokenKind::Newline => 1,
                TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => 1,
                _ => parts,
            };
            if parts > MAX_PARTS {
                return Err(self.wrong(token.span().start(), format!("a key of more than {MAX_PARTS} parts")));
            }
        }
        Ok(())
    }

    fn toml_table(&self, table: DeTable<'_>, at: usize, depth: usize) -> Result<Node, PolicyError> {
        if depth > MAX_DEPTH {
            return Err(self.too_deep(at));
        }
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let key = Key { at: key.span().start, name: key.into_inner().into_owned() };
            entries.push((key, self.toml_value(value, depth)?));
        }
        // The crate sorts entries by name. Restore file order, to report the first mistake in the file.
        entries.sort_by_key(|(key, _)| key.at);
        Ok(Node { value: Value::Table(entries), at })
    }

    fn toml_value(&self, value: toml::Spanned<DeValue<'_>>, depth: usize) -> Result<Node, PolicyError> {
        let at = value.span().start;
        let value = match value.into_inner() {
            DeValue::Boolean(truth) => Value::Truth(truth),
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Value::Whole(number),
                Err(_) => return Err(self.wrong(at, "the number is too large")),
            },
            DeValue::Float(number) => Value::Fraction(number.as_str().replace('_', "").parse().unwrap_or(f64::NAN)),
            DeValue::Datetime(_) => Value::Date,
            DeValue::Table(table) => return self.toml_table(table, at, depth + 1),
            DeValue::Array(_) if depth >= MAX_DEPTH => return Err(self.too_deep(at)),
            DeValue::Array(items) => {
                let items = items.into_iter().map(|item| self.toml_value(item, depth + 1));
                Value::List(items.collect::<Result<_, _>>()?)
            }
        };
        Ok(Node { value, at })
    }
}
