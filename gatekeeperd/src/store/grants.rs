//! Grants, by the hashes of their tokens.

use super::{Store, StoreError, is_text, list, names};
use sqlx::Row;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    pub jti: String,
    pub tenant: String,
    /// The id of the operator's token, or `cli`.
    pub operator_id: String,
    pub origin_session_id: Option<String>,
    pub allowed_domains: Vec<String>,
    pub issued_at: i64,
    pub expires_at: i64,
    pub single_use: bool,
    pub consumed_at: Option<i64>,
    /// The session that consumed it last.
    pub consumed_by: Option<String>,
}

const COLUMNS: &str = "jti, tenant, operator_id, origin_session_id, allowed_domains, issued_at, expires_at, single_use, \
                       consumed_at, consumed_by";

impl Store {
    pub async fn add_grant(&self, row: &GrantRow, hash: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO grants (jti, hash, tenant, operator_id, origin_session_id, allowed_domains, issued_at, \
             expires_at, single_use) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&row.jti)
        .bind(hash)
        .bind(&row.tenant)
        .bind(&row.operator_id)
        .bind(&row.origin_session_id)
        .bind(list(&row.allowed_domains))
        .bind(row.issued_at)
        .bind(row.expires_at)
        .bind(i64::from(row.single_use))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn grant(&self, hash: &str) -> Result<Option<GrantRow>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {COLUMNS} FROM grants WHERE hash = $1")))
            .bind(hash)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// Consumes a grant in one statement: of many callers at once, exactly one gets a grant for single use. False if the
    /// grant is revoked, expired, of another tenant, or consumed.
    pub async fn consume_grant(&self, hash: &str, tenant: &str, session: &str, now: i64) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE grants SET consumed_at = $1, consumed_by = $2 WHERE hash = $3 AND tenant = $4 AND expires_at > $1 \
             AND (single_use = 0 OR consumed_at IS NULL)",
        )
        .bind(now)
        .bind(session)
        .bind(hash)
        .bind(tenant)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Revokes a grant: its row is deleted. False if there is none with this id.
    pub async fn remove_grant(&self, jti: &str, tenant: Option<&str>) -> Result<bool, StoreError> {
        if !is_text(jti) {
            return Ok(false);
        }
        let done = sqlx::query("DELETE FROM grants WHERE jti = $1 AND ($2 = '' OR tenant = $2)")
            .bind(jti)
            .bind(tenant.unwrap_or_default())
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    pub async fn grants(&self, tenant: Option<&str>) -> Result<Vec<GrantRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM grants WHERE $1 = '' OR tenant = $1 ORDER BY issued_at DESC, jti"
        )))
        .bind(tenant.unwrap_or_default())
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(read).collect()
    }

    /// Deletes the grants that expired before this time.
    pub async fn forget_grants(&self, before: i64) -> Result<u64, StoreError> {
        let done = sqlx::query("DELETE FROM grants WHERE expires_at < $1").bind(before).execute(&self.pool).await?;
        Ok(done.rows_affected())
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<GrantRow, StoreError> {
    Ok(GrantRow {
        jti: row.try_get("jti")?,
        tenant: row.try_get("tenant")?,
        operator_id: row.try_get("operator_id")?,
        origin_session_id: row.try_get("origin_session_id")?,
        allowed_domains: names("a list of domains", &row.try_get::<String, _>("allowed_domains")?)?,
        issued_at: row.try_get("issued_at")?,
        expires_at: row.try_get("expires_at")?,
        single_use: row.try_get::<i64, _>("single_use")? != 0,
        consumed_at: row.try_get("consumed_at")?,
        consumed_by: row.try_get("consumed_by")?,
    })
}
