//! One line of the trail, before it has a number and a hash.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest text of a field. The command chooses paths and names.
const LONGEST: usize = 4096;
/// The most fields of an entry from elsewhere.
const MOST_FIELDS: usize = 32;
/// The fields that the trail itself writes.
const OWN: [&str; 6] = ["seq", "time", "run", "kind", "decision", "prev"];

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The run itself: it starts, or it has ended.
    Start,
    End,
    Exec,
    Host,
    Http,
    Open,
    /// Any other syscall.
    Call,
    Asked,
    /// The first line after the file was rotated.
    Continued,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::Start => "start",
            Kind::End => "end",
            Kind::Exec => "exec",
            Kind::Host => "host",
            Kind::Http => "http",
            Kind::Open => "open",
            Kind::Call => "call",
            Kind::Asked => "asked",
            Kind::Continued => "continued",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allowed,
    Denied,
    /// Gatekeeper refused nothing, but the call fails for another reason.
    Attempted,
}

impl Decision {
    pub fn word(self) -> &'static str {
        match self {
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
            Decision::Attempted => "attempted",
        }
    }
}

/// One decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub(super) kind: Kind,
    pub(super) decision: Option<Decision>,
    pub(super) fields: Map<String, Value>,
}

impl Entry {
    pub fn allowed(kind: Kind) -> Entry {
        Entry { kind, decision: Some(Decision::Allowed), fields: Map::new() }
    }

    pub fn denied(kind: Kind) -> Entry {
        Entry { kind, decision: Some(Decision::Denied), fields: Map::new() }
    }

    pub fn decided(kind: Kind, allowed: bool) -> Entry {
        if allowed { Entry::allowed(kind) } else { Entry::denied(kind) }
    }

    /// A call that gatekeeper does not refuse, and that fails all the same: a file is missing, or its own permissions forbid
    /// it.
    pub fn attempted(kind: Kind) -> Entry {
        Entry { kind, decision: Some(Decision::Attempted), fields: Map::new() }
    }

    /// A line about the run, not about a decision.
    pub(super) fn event(kind: Kind) -> Entry {
        Entry { kind, decision: None, fields: Map::new() }
    }

    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Entry {
        let value = match value.into() {
            Value::String(text) if text.len() > LONGEST => {
                Value::from(text.chars().take(LONGEST).collect::<String>() + "...")
            }
            Value::Null => return self,
            value => value,
        };
        self.fields.insert(key.to_owned(), value);
        self
    }

    /// An entry that a gatekeeper in a container made, if it is one about a decision. A command may have taken that gatekeeper
    /// over: it chooses neither what the trail writes itself, nor how much.
    pub fn from_elsewhere(bytes: &[u8]) -> Option<Entry> {
        let Entry { kind, decision, fields } = serde_json::from_slice(bytes).ok()?;
        let entry = Entry { kind, decision: Some(decision?), fields: Map::new() };
        if matches!(kind, Kind::Start | Kind::End | Kind::Continued) || fields.len() > MOST_FIELDS {
            return None;
        }
        let plain = |value: &Value| !value.is_array() && !value.is_object();
        let own =
            fields.into_iter().filter(|(name, value)| !OWN.contains(&name.as_str()) && name.len() < 32 && plain(value));
        Some(own.fold(entry, |entry, (name, value)| entry.with(&name, value)))
    }
}
