//! The audit trail: rows are added, and none is changed or deleted.

use super::{Store, StoreError, is_text};
use serde_json::Value;
use sqlx::Row;

#[derive(Debug, Clone, PartialEq)]
pub struct AuditRow {
    /// Ids sort by time.
    pub id: String,
    pub at: i64,
    pub tenant: String,
    pub session_id: Option<String>,
    /// The id of the caller's token, or `cli`, `mcp`, `model` or `daemon`.
    pub actor: String,
    pub action: String,
    /// The arguments, without secrets and without typed text.
    pub detail: Value,
}

#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub tenant: Option<String>,
    pub session: Option<String>,
    pub action: Option<String>,
    /// Only rows before this id, for the next page.
    pub before: Option<String>,
    /// At most this many, the newest.
    pub limit: i64,
}

impl Store {
    pub async fn add_audit(&self, row: &AuditRow) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO audit (id, at, tenant, session_id, actor, action, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(&row.id)
        .bind(row.at)
        .bind(&row.tenant)
        .bind(&row.session_id)
        .bind(&row.actor)
        .bind(&row.action)
        .bind(row.detail.to_string())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The rows that match, the newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        if ![&filter.session, &filter.action, &filter.before].into_iter().flatten().all(|text| is_text(text)) {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(
            "SELECT id, at, tenant, session_id, actor, action, detail FROM audit \
             WHERE ($1 = '' OR tenant = $1) AND ($2 = '' OR session_id = $2) AND ($3 = '' OR action = $3) \
             AND ($4 = '' OR id < $4) ORDER BY id DESC LIMIT $5",
        )
        .bind(text(&filter.tenant))
        .bind(text(&filter.session))
        .bind(text(&filter.action))
        .bind(text(&filter.before))
        .bind(filter.limit)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<AuditRow, StoreError> {
    let detail: String = row.try_get("detail")?;
    Ok(AuditRow {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        tenant: row.try_get("tenant")?,
        session_id: row.try_get("session_id")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        detail: serde_json::from_str(&detail)
            .map_err(|_| StoreError::Value { what: "audit", value: detail.clone() })?,
    })
}
