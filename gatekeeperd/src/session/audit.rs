//! The audit trail of actions, and the events that the operator's page shows.

use super::{Manager, SessionError};
use crate::store::{AuditRow, Store, iso, now};
use crate::vault::{Caller, sortable_id};
use serde_json::{Value, json};
use std::sync::Arc;

/// Something that a page may show as it happens.
#[derive(Debug, Clone)]
pub struct Event {
    pub tenant: String,
    pub value: Value,
}

impl Manager {
    /// Writes the row of an action. The action must not happen if this fails.
    pub async fn audit(
        &self,
        caller: &Caller,
        session: Option<&str>,
        action: &str,
        detail: Value,
    ) -> Result<(), SessionError> {
        let row = write(&self.0.store, caller, session, action, detail).await?;
        let value = shown(&row);
        // Sending fails if no page is open.
        let _ = self.0.events.send(Arc::new(Event { tenant: row.tenant, value }));
        Ok(())
    }
}

/// The same for a program that manages no sessions, such as the command line.
pub async fn write(
    store: &Store,
    caller: &Caller,
    session: Option<&str>,
    action: &str,
    detail: Value,
) -> Result<AuditRow, SessionError> {
    let at = now();
    let mut detail = detail;
    clip(&mut detail);
    let row = AuditRow {
        id: sortable_id(at)?,
        at,
        tenant: caller.tenant.clone(),
        session_id: session.map(str::to_owned),
        actor: caller.id.clone(),
        action: action.to_owned(),
        detail,
    };
    store.add_audit(&row).await?;
    Ok(row)
}

/// The longest text and list in a row. Callers choose selectors and addresses; a row must not grow with them.
const LONGEST: usize = 1000;
const MOST: usize = 100;

fn clip(detail: &mut Value) {
    match detail {
        Value::String(text) if text.chars().nth(LONGEST).is_some() => {
            *text = text.chars().take(LONGEST).chain(['…']).collect();
        }
        Value::Array(list) => {
            list.truncate(MOST);
            list.iter_mut().for_each(clip);
        }
        Value::Object(fields) => fields.values_mut().for_each(clip),
        _ => {}
    }
}

/// A row as JSON.
pub fn shown(row: &AuditRow) -> Value {
    json!({
        "id": row.id,
        "at": iso(row.at),
        "tenant": row.tenant,
        "session_id": row.session_id,
        "actor": row.actor,
        "action": row.action,
        "detail": row.detail,
    })
}

/// Actions of the daemon itself.
pub fn daemon(tenant: &str) -> Caller {
    Caller { id: "daemon".to_owned(), tenant: tenant.to_owned(), operator: false }
}

/// A URL without what may be secret: user, password, query and fragment. The host and the path are what an audit asks for.
pub fn harmless_url(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
        return format!("{scheme}:");
    }
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let rest = rest.trim_start_matches(['/', '\\']);
    let (host, path) = rest.find(['/', '\\']).map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::harmless_url;

    #[test]
    fn an_audited_url_has_no_secrets() {
        for (url, shown) in [
            ("https://user:word@a.org/path?token=1#part", "https://a.org/path"),
            ("http://a.org:81", "http://a.org:81"),
            ("https:\\\\u@a.org\\x", "https://a.org\\x"),
            ("data:text/html,secret", "data:"),
            ("about:blank", "about:"),
            ("secret", ":"),
        ] {
            assert_eq!(harmless_url(url), shown);
        }
    }
}
