//! The audit trail of actions, and the events that the operator's page shows.

use super::{Manager, SessionError};
use crate::store::{AuditRow, Store, iso, now};
use crate::vault::{Caller, sortable_id};
use serde_json::{Value, json};
use std::sync::Arc;
use url::Url;

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
///
/// It is read by the parser that the browser's address comes from. Blanks, tabs and backslashes, which that parser drops or
/// turns, must not hide the host from the trail. Of what does not parse, and so is never loaded, only the scheme is kept.
pub fn harmless_url(url: &str) -> String {
    let Ok(url) = Url::parse(url) else {
        let scheme = url.trim().split_once(':').map_or("", |(scheme, _)| scheme);
        return format!("{scheme}:");
    };
    match (url.scheme(), url.host_str()) {
        (scheme @ ("http" | "https"), Some(host)) => {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{scheme}://{host}{port}{}", url.path())
        }
        (scheme, _) => format!("{scheme}:"),
    }
}

#[cfg(test)]
mod tests {
    use super::harmless_url;

    #[test]
    fn an_audited_url_has_no_secrets() {
        for (url, shown) in [
            ("https://user:word@a.org/path?token=1#part", "https://a.org/path"),
            ("http://a.org:81", "http://a.org:81/"),
            ("https:\\\\u@a.org\\x", "https://a.org/x"),
            ("data:text/html,secret", "data:"),
            ("about:blank", "about:"),
            ("secret", ":"),
            ("http://me:se cret@/", "http:"),
        ] {
            assert_eq!(harmless_url(url), shown);
        }
    }

    #[test]
    fn no_spelling_hides_the_host_from_the_trail() {
        let far = format!("http:{}//a.org/x", "\t".repeat(1100));
        for url in [" https://a.org/x", "ht\ttps://a.org/x", "\u{1}HTTPS:/\n/A.org/x", "https:a.org/x", &far] {
            let shown = harmless_url(url);
            assert!(shown == "https://a.org/x" || url == far && shown == "http://a.org/x", "{url:?}: {shown}");
        }
        // A path that is too long is cut behind the host.
        let mut row = serde_json::json!(harmless_url(&format!("https://a.org/{}", "x".repeat(5000))));
        super::clip(&mut row);
        assert!(row.as_str().is_some_and(|text| text.starts_with("https://a.org/xx") && text.chars().count() == 1001));
    }
}
