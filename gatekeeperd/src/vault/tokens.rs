//! Bearer tokens: each belongs to one tenant; an operator's token may also issue grants and refresh credentials.

use super::{Vault, VaultError, check_tenant, random};
use crate::store::{TokenRow, now};
use zeroize::Zeroizing;

/// The holder of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's id, or the name of a local program: `cli`, `mcp`.
    pub id: String,
    pub tenant: String,
    pub operator: bool,
}

impl Vault {
    /// Makes a token. Its text is nowhere else: it cannot be shown again.
    pub async fn create_token(&self, tenant: &str, operator: bool) -> Result<(Zeroizing<String>, Caller), VaultError> {
        check_tenant(tenant)?;
        let token = random::token("gkt_")?;
        let row = TokenRow { id: random::uuid()?, tenant: tenant.to_owned(), operator, created_at: now() };
        self.store().add_token(&row, &random::hash(&token)).await?;
        Ok((token, caller(row)))
    }

    /// The holder of this token, if there is one. The lookup goes by hash, so its time tells nothing about stored tokens.
    pub async fn caller(&self, token: &str) -> Result<Option<Caller>, VaultError> {
        self.caller_by_fingerprint(&random::hash(token)).await
    }

    /// The same, by what [`super::fingerprint`] makes of the token.
    pub async fn caller_by_fingerprint(&self, hash: &str) -> Result<Option<Caller>, VaultError> {
        Ok(self.store().token(hash).await?.map(caller))
    }
}

fn caller(row: TokenRow) -> Caller {
    Caller { id: row.id, tenant: row.tenant, operator: row.operator }
}
