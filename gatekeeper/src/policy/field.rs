//! One key of a policy file with its value. All schemas read values through it, so that each error names the file, the
//! line and the full key.

use super::error::{PolicyError, ValueError, nearest};
use super::node::{Node, Source, Value};

pub(crate) struct Field<'s> {
    source: &'s Source<'s>,
    /// The full name, as in `syscalls.allow`; empty for the file itself.
    pub key: String,
    /// The last part of the name.
    pub name: String,
    /// The position of the key, for errors about the key itself.
    key_at: usize,
    pub node: Node,
}

type Read<T> = Result<T, PolicyError>;

impl<'s> Field<'s> {
    pub fn root(source: &'s Source<'s>) -> Read<Field<'s>> {
        let node = source.read()?;
        Ok(Field { source, key: String::new(), name: String::new(), key_at: node.at, node })
    }

    /// The same for a file that may be JSON5.
    pub fn root_json5(source: &'s Source<'s>) -> Read<Field<'s>> {
        let node = source.read_json5()?;
        Ok(Field { source, key: String::new(), name: String::new(), key_at: node.at, node })
    }

    /// The field without its value, for errors after the value was consumed.
    pub fn again(&self) -> Field<'s> {
        let node = Node { value: Value::Null, at: self.node.at };
        Field { source: self.source, key: self.key.clone(), name: self.name.clone(), key_at: self.key_at, node }
    }

    /// The full key, for messages about what decided a setting: after the name of the file, if another file extends that.
    pub fn decider(&self) -> String {
        match self.source.extended {
            true => format!("{}: {}", self.source.file.display(), self.key),
            false => self.key.clone(),
        }
    }

    pub fn place(&self) -> super::error::Place {
        self.source.place(self.key_at)
    }

    pub fn must_be(&self, expected: &'static str) -> PolicyError {
        let key = if self.key.is_empty() { "the policy".to_owned() } else { self.key.clone() };
        PolicyError::Type { place: self.source.place(self.node.at), key, expected, found: self.node.value.kind() }
    }

    pub fn wrong(&self, error: ValueError) -> PolicyError {
        PolicyError::Value { place: Some(self.source.place(self.node.at)), key: self.key.clone(), error: error.into() }
    }

    pub fn needs(&self, missing: &'static str) -> PolicyError {
        PolicyError::Missing { place: self.source.place(self.node.at), key: self.key.clone(), missing }
    }

    /// The error for a key that is not in `known`. `elsewhere`: the full key that the author may have meant.
    pub fn unknown(&self, known: &'static [&'static str], elsewhere: Option<String>) -> PolicyError {
        let table = self.key.strip_suffix(self.name.as_str()).unwrap_or_default();
        let near = nearest(&self.name, known);
        let is_plural = near.as_ref().is_some_and(|near| near.strip_suffix('s') == Some(self.name.as_str()));
        let near = near.map(|near| format!("{table}{near}"));
        let nearest = if is_plural { near.or(elsewhere) } else { elsewhere.or(near) };
        PolicyError::UnknownKey { place: self.place(), key: self.key.clone(), nearest, known }
    }

    /// The entries of a table with any names.
    pub fn entries(self) -> Read<Vec<Field<'s>>> {
        let Value::Table(entries) = self.node.value else { return Err(self.must_be("a table")) };
        let whole = |name: &str| if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
        let field = |(key, node): (super::node::Key, Node)| Field {
            source: self.source,
            key: whole(&key.name),
            name: key.name,
            key_at: key.at,
            node,
        };
        Ok(entries.into_iter().map(field).collect())
    }

    /// The entries of a table with known keys. An entry that is null counts as absent.
    pub fn known_entries(
        self,
        known: &'static [&'static str],
        elsewhere: impl Fn(&str) -> Option<String>,
    ) -> Read<Vec<Field<'s>>> {
        let mut entries = self.entries()?;
        if let Some(field) = entries.iter().find(|field| !known.contains(&field.name.as_str())) {
            return Err(field.unknown(known, elsewhere(&field.name)));
        }
        entries.retain(|field| field.node.value != Value::Null);
        Ok(entries)
    }

    pub fn list(self, expected: &'static str) -> Read<Vec<Field<'s>>> {
        let Value::List(items) = self.node.value else { return Err(self.must_be(expected)) };
        let item = |node: Node| Field {
            source: self.source,
            key: self.key.clone(),
            name: self.name.clone(),
            key_at: node.at,
            node,
        };
        Ok(items.into_iter().map(item).collect())
    }

    pub fn text(&self, expected: &'static str) -> Read<&str> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.must_be(expected)),
        }
    }

    pub fn truth(&self) -> Read<bool> {
        match self.node.value {
            Value::Truth(truth) => Ok(truth),
            _ => Err(self.must_be("true or false")),
        }
    }

    pub fn whole(&self, least: u64, most: u64, expected: &'static str) -> Read<u64> {
        let Value::Whole(value) = self.node.value else { return Err(self.must_be(expected)) };
        let fits = u64::try_from(value).ok().filter(|value| (least..=most).contains(value));
        fits.ok_or_else(|| self.wrong(ValueError::OutOfRange { value, least, most }))
    }

    /// A string, parsed.
    pub fn parsed<T>(&self, expected: &'static str, parse: impl Fn(&str) -> Result<T, ValueError>) -> Read<T> {
        parse(self.text(expected)?).map_err(|error| self.wrong(error))
    }

    /// A list of strings, each parsed.
    pub fn each<T>(self, expected: &'static str, parse: impl Fn(&str) -> Result<T, ValueError>) -> Read<Vec<T>> {
        self.list(expected)?.into_iter().map(|item| item.parsed("a string", &parse)).collect()
    }

    /// A string or a list of strings, each of which may give several values.
    pub fn spread<T>(self, expected: &'static str, parse: impl Fn(&str) -> Result<Vec<T>, ValueError>) -> Read<Vec<T>> {
        if let Value::Text(_) = self.node.value {
            return self.parsed(expected, parse);
        }
        let lists = self.each(expected, parse)?;
        Ok(lists.into_iter().flatten().collect())
    }
}
