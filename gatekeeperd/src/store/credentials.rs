//! Cookies per tenant and domain, as ciphertext.

use super::{Store, StoreError, is_text};
use sqlx::Row;

#[derive(Clone, PartialEq, Eq)]
pub struct CredentialRow {
    pub id: String,
    pub tenant: String,
    pub domain: String,
    pub cookies_encrypted: String,
    /// The key that encrypted them.
    pub key_id: String,
    pub cookie_count: i64,
    pub created_at: i64,
    pub last_refreshed_at: i64,
    pub last_injected_at: Option<i64>,
    /// What a session needs to get them: `operator`, a grant that names the domain.
    pub grant_scope: String,
}

const COLUMNS: &str = "id, tenant, domain, cookies_encrypted, key_id, cookie_count, created_at, last_refreshed_at, \
                       last_injected_at, grant_scope";

impl Store {
    /// Stores the cookies of a domain, in place of those that were there.
    pub async fn put_credential(&self, row: &CredentialRow) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO credentials (id, tenant, domain, cookies_encrypted, key_id, cookie_count, created_at, \
             last_refreshed_at, grant_scope) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (tenant, domain) DO UPDATE SET cookies_encrypted = excluded.cookies_encrypted, \
             key_id = excluded.key_id, cookie_count = excluded.cookie_count, \
             last_refreshed_at = excluded.last_refreshed_at",
        )
        .bind(&row.id)
        .bind(&row.tenant)
        .bind(&row.domain)
        .bind(&row.cookies_encrypted)
        .bind(&row.key_id)
        .bind(row.cookie_count)
        .bind(row.created_at)
        .bind(row.last_refreshed_at)
        .bind(&row.grant_scope)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn credential(&self, tenant: &str, domain: &str) -> Result<Option<CredentialRow>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM credentials WHERE tenant = $1 AND domain = $2"
        )))
        .bind(tenant)
        .bind(domain)
        .fetch_optional(&self.pool)
        .await?;
        row.as_ref().map(read).transpose()
    }

    pub async fn credentials(&self, tenant: Option<&str>) -> Result<Vec<CredentialRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM credentials WHERE $1 = '' OR tenant = $1 ORDER BY tenant, domain"
        )))
        .bind(tenant.unwrap_or_default())
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(read).collect()
    }

    pub async fn injected(&self, tenant: &str, domain: &str, now: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE credentials SET last_injected_at = $1 WHERE tenant = $2 AND domain = $3")
            .bind(now)
            .bind(tenant)
            .bind(domain)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Replaces a ciphertext by one under another key. False if the row has changed since it was read.
    pub async fn reseal(&self, old: &CredentialRow, ciphertext: &str, key_id: &str) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE credentials SET cookies_encrypted = $1, key_id = $2 \
             WHERE tenant = $3 AND domain = $4 AND cookies_encrypted = $5",
        )
        .bind(ciphertext)
        .bind(key_id)
        .bind(&old.tenant)
        .bind(&old.domain)
        .bind(&old.cookies_encrypted)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    pub async fn remove_credential(&self, tenant: &str, domain: &str) -> Result<bool, StoreError> {
        if !is_text(domain) {
            return Ok(false);
        }
        let done = sqlx::query("DELETE FROM credentials WHERE tenant = $1 AND domain = $2")
            .bind(tenant)
            .bind(domain)
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() > 0)
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<CredentialRow, StoreError> {
    Ok(CredentialRow {
        id: row.try_get("id")?,
        tenant: row.try_get("tenant")?,
        domain: row.try_get("domain")?,
        cookies_encrypted: row.try_get("cookies_encrypted")?,
        key_id: row.try_get("key_id")?,
        cookie_count: row.try_get("cookie_count")?,
        created_at: row.try_get("created_at")?,
        last_refreshed_at: row.try_get("last_refreshed_at")?,
        last_injected_at: row.try_get("last_injected_at")?,
        grant_scope: row.try_get("grant_scope")?,
    })
}
