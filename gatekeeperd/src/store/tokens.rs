//! Bearer tokens, by their hashes.

use super::{Store, StoreError};
use sqlx::Row;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub tenant: String,
    pub operator: bool,
    pub created_at: i64,
}

impl Store {
    pub async fn add_token(&self, row: &TokenRow, hash: &str) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO tokens (id, tenant, operator, hash, created_at) VALUES ($1, $2, $3, $4, $5)")
            .bind(&row.id)
            .bind(&row.tenant)
            .bind(i64::from(row.operator))
            .bind(hash)
            .bind(row.created_at)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    pub async fn token(&self, hash: &str) -> Result<Option<TokenRow>, StoreError> {
        let row = sqlx::query("SELECT id, tenant, operator, created_at FROM tokens WHERE hash = $1")
            .bind(hash)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(read).transpose()
    }

    pub async fn tokens(&self, tenant: Option<&str>) -> Result<Vec<TokenRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, tenant, operator, created_at FROM tokens WHERE $1 = '' OR tenant = $1 ORDER BY created_at, id",
        )
        .bind(tenant.unwrap_or_default())
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(read).collect()
    }

    /// Deletes a token. False if there is none with this id.
    pub async fn remove_token(&self, id: &str) -> Result<bool, StoreError> {
        let done = sqlx::query("DELETE FROM tokens WHERE id = $1").bind(id).execute(&self.pool).await?;
        Ok(done.rows_affected() > 0)
    }
}

fn read(row: &sqlx::any::AnyRow) -> Result<TokenRow, StoreError> {
    Ok(TokenRow {
        id: row.try_get("id")?,
        tenant: row.try_get("tenant")?,
        operator: row.try_get::<i64, _>("operator")? != 0,
        created_at: row.try_get("created_at")?,
    })
}
