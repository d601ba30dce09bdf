//! Sessions. The row is written before anything of the session exists, so that a reaper finds everything by its row.

use super::{Store, StoreError, is_text, list, names};
use sqlx::Row;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: String,
    pub tenant: String,
    /// `session`, `task` or `refresh`.
    pub kind: String,
    /// `clean` or `operator`.
    pub credential_mode: String,
    pub domains: Vec<String>,
    /// `off`, `transient` or `audit`.
    pub record: String,
    /// `opening`, `open`, `closed`, `failed` or `reaped`.
    pub state: String,
    /// The machine and state directory with the session's files.
    pub place: String,
    /// The running daemon that owns the session.
    pub instance: String,
    pub started_at: i64,
    pub ended_at: Option<i64>,
    pub end_reason: Option<String>,
    pub close_requested: bool,
}

impl SessionRow {
    pub fn alive(&self) -> bool {
        self.state == "opening" || self.state == "open"
    }
}

const COLUMNS: &str = "id, tenant, kind, credential_mode, domains, record, state, place, instance, started_at, ended_at, \
                       end_reason, close_requested";

impl Store {
    pub async fn add_session(&self, row: &SessionRow) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO sessions (id, tenant, kind, credential_mode, domains, record, state, place, instance, \
             started_at, close_requested) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)",
        )
        .bind(&row.id)
        .bind(&row.tenant)
        .bind(&row.kind)
        .bind(&row.credential_mode)
        .bind(list(&row.domains))
        .bind(&row.record)
        .bind(&row.state)
        .bind(&row.place)
        .bind(&row.instance)
        .bind(row.started_at)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The browser of the session runs. False if the session has ended meanwhile.
    pub async fn session_opened(&self, id: &str) -> Result<bool, StoreError> {
        let done = sqlx::query("UPDATE sessions SET state = 'open' WHERE id = $1 AND state = 'opening'")
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Notes the end of a session. Only the first end counts; false if the session had ended before.
    pub async fn end_session(&self, id: &str, state: &str, reason: &str, now: i64) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE sessions SET state = $1, end_reason = $2, ended_at = $3 \
             WHERE id = $4 AND state IN ('opening', 'open')",
        )
        .bind(state)
        .bind(reason)
        .bind(now)
        .bind(id)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Asks the daemon that owns the session to close it. False if no such session is open.
    pub async fn request_close(&self, id: &str) -> Result<bool, StoreError> {
        let done =
            sqlx::query("UPDATE sessions SET close_requested = 1 WHERE id = $1 AND state IN ('opening', 'open')")
                .bind(id)
                .execute(&self.pool)
                .await?;
        Ok(done.rows_affected() == 1)
    }

    pub async fn session(&self, id: &str) -> Result<Option<SessionRow>, StoreError> {
        if !is_text(id) {
            return Ok(None);
        }
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM sessions WHERE id = $1")))
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// The sessions of a tenant, or of all tenants; the newest first, at most 1,000.
    pub async fn sessions(&self, tenant: Option<&str>) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM sessions WHERE $1 = '' OR tenant = $1 ORDER BY started_at DESC, id LIMIT 1000"
        )))
        .bind(tenant.unwrap_or_default())
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(read).collect()
    }

    /// The sessions of a place that have not ended.
    pub async fn alive_sessions(&self, place: &str) -> Result<Vec<SessionRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM sessions WHERE state IN ('opening', 'open') AND place = $1 ORDER BY started_at"
        )))
        .bind(place)
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<SessionRow, StoreError> {
    Ok(SessionRow {
        id: row.try_get("id")?,
        tenant: row.try_get("tenant")?,
        kind: row.try_get("kind")?,
        credential_mode: row.try_get("credential_mode")?,
        domains: names("a list of domains", &row.try_get::<String, _>("domains")?)?,
        record: row.try_get("record")?,
        state: row.try_get("state")?,
        place: row.try_get("place")?,
        instance: row.try_get("instance")?,
        started_at: row.try_get("started_at")?,
        ended_at: row.try_get("ended_at")?,
        end_reason: row.try_get("end_reason")?,
        close_requested: row.try_get::<i64, _>("close_requested")? != 0,
    })
}
