//! Cookies per tenant and domain, encrypted at rest.

use super::{Vault, VaultError, check_domain, check_tenant, random};
use crate::browser::Cookie;
use crate::store::{CredentialRow, now};
use serde_json::Value;
use zeroize::Zeroizing;

/// What may be shown of stored cookies: never their names or values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub tenant: String,
    pub domain: String,
    pub cookie_count: i64,
    pub key_id: String,
    pub created_at: i64,
    pub last_refreshed_at: i64,
    pub last_injected_at: Option<i64>,
}

/// The result of storing cookies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    pub stored: usize,
    /// Cookies of other domains, which were not stored.
    pub left_out: usize,
}

impl Vault {
    /// Reads a list of cookies in CDP's shape: an array, or an object with the array in `cookies`.
    pub fn parse_cookies(text: &[u8]) -> Result<Vec<Cookie>, VaultError> {
        // serde's own message may quote a value.
        let wrong = |error: &serde_json::Error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            VaultError::Cookies(format!("no list of cookies as CDP's Network.getCookies returns it ({place})"))
        };
        let value: Value = serde_json::from_slice(text).map_err(|error| wrong(&error))?;
        let list = match value {
            Value::Object(mut object) => object.remove("cookies").unwrap_or(Value::Null),
            other => other,
        };
        let Value::Array(list) = list else {
            return Err(VaultError::Cookies("no list of cookies: expected a JSON array".to_owned()));
        };
        let each = list.into_iter().enumerate().map(|(at, cookie)| {
            let cookie: Cookie = serde_json::from_value(cookie).map_err(|_| {
                VaultError::Cookies(format!(
                    "cookie {at} lacks name, value or domain, or one of its fields has a wrong type"
                ))
            })?;
            match cookie.fault() {
                Some(why) => Err(VaultError::Cookies(format!("cookie {at} would be refused by the browser: {why}"))),
                None => Ok(cookie),
            }
        });
        each.collect()
    }

    /// Stores the cookies of this domain in place of those that were there.
    pub async fn store_cookies(&self, tenant: &str, domain: &str, cookies: &[Cookie]) -> Result<Imported, VaultError> {
        check_tenant(tenant)?;
        let kept = self.check_cookies(domain, cookies)?;
        let plain = Zeroizing::new(
            serde_json::to_vec(&kept).map_err(|_| VaultError::Cookies("the cookies are no JSON".to_owned()))?,
        );
        let _lock = self.keys.lock(false).await?;
        let (cookies_encrypted, key_id) = self.keys.seal(&plain, &bound(tenant, domain))?;
        let now = now();
        let row = CredentialRow {
            id: random::uuid()?,
            tenant: tenant.to_owned(),
            domain: domain.to_owned(),
            cookies_encrypted,
            key_id,
            cookie_count: i64::try_from(kept.len()).unwrap_or(i64::MAX),
            created_at: now,
            last_refreshed_at: now,
            last_injected_at: None,
            grant_scope: "operator".to_owned(),
        };
        self.store().put_credential(&row).await?;
        Ok(Imported { stored: kept.len(), left_out: cookies.len() - kept.len() })
    }

    /// The cookies of this domain among others. An error if there is none.
    pub fn check_cookies<'a>(&self, domain: &str, cookies: &'a [Cookie]) -> Result<Vec<&'a Cookie>, VaultError> {
        check_domain(domain)?;
        let kept: Vec<&Cookie> = cookies.iter().filter(|cookie| belongs(cookie, domain)).collect();
        match kept.is_empty() {
            true => Err(VaultError::Cookies(format!("none of the {} cookies belongs to {domain}", cookies.len()))),
            false => Ok(kept),
        }
    }

    /// The cookies of these domains. They must not reach a browser before a grant for them is consumed.
    pub async fn cookies(&self, tenant: &str, domains: &[String]) -> Result<Vec<Cookie>, VaultError> {
        let mut cookies = Vec::new();
        for domain in domains {
            let row = self.store().credential(tenant, domain).await?;
            let row = row.ok_or_else(|| VaultError::NoCredential { domain: domain.clone() })?;
            let plain = self.unseal(&row)?;
            let stored: Vec<Cookie> =
                serde_json::from_slice(&plain).map_err(|_| VaultError::Tampered { domain: domain.clone() })?;
            cookies.extend(stored.into_iter().filter(|cookie| belongs(cookie, domain)));
        }
        Ok(cookies)
    }

    /// Notes that a browser is about to get the cookies of these domains.
    pub async fn note_injection(&self, tenant: &str, domains: &[String]) -> Result<(), VaultError> {
        for domain in domains {
            self.store().injected(tenant, domain, now()).await?;
        }
        Ok(())
    }

    /// The first of these domains without stored cookies.
    pub async fn lacking<'a>(&self, tenant: &str, domains: &'a [String]) -> Result<Option<&'a String>, VaultError> {
        for domain in domains {
            if self.store().credential(tenant, domain).await?.is_none() {
                return Ok(Some(domain));
            }
        }
        Ok(None)
    }

    pub async fn credentials(&self, tenant: Option<&str>) -> Result<Vec<Credential>, VaultError> {
        let rows = self.store().credentials(tenant).await?;
        Ok(rows.into_iter().map(shown).collect())
    }

    /// Encrypts everything with a new key, or, if the key file is not ours to write, with the first key of that file.
    /// Returns how many rows it encrypted. Interrupted at any point, every row still decrypts, and a second call finishes.
    pub async fn rotate(&self) -> Result<usize, VaultError> {
        let _lock = self.keys.lock(true).await?;
        if self.keys.is_own() {
            self.keys.add()?;
        }
        let current = self.keys.current()?;
        let mut count = 0;
        // The next round sees a row that changed in this one.
        loop {
            let rows = self.store().credentials(None).await?;
            let old: Vec<CredentialRow> = rows.into_iter().filter(|row| row.key_id != current).collect();
            if old.is_empty() {
                break;
            }
            for row in old {
                let plain = self.unseal(&row)?;
                let (sealed, key_id) = self.keys.seal(&plain, &bound(&row.tenant, &row.domain))?;
                count += usize::from(self.store().reseal(&row, &sealed, &key_id).await?);
            }
        }
        if self.keys.is_own() {
            self.keys.drop_old()?;
        }
        Ok(count)
    }

    fn unseal(&self, row: &CredentialRow) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let bound = bound(&row.tenant, &row.domain);
        let plain = self.keys.open(&row.cookies_encrypted, &row.key_id, &bound, &row.domain)?;
        plain.ok_or_else(|| VaultError::Tampered { domain: row.domain.clone() })
    }
}

/// Binds a ciphertext to its row: moved to another tenant or domain, it does not decrypt.
fn bound(tenant: &str, domain: &str) -> Vec<u8> {
    format!("gatekeeperd cookies\0{tenant}\0{domain}").into_bytes()
}

/// Exact match. A leading dot, with which CDP marks a cookie that subdomains get too, does not count.
fn belongs(cookie: &Cookie, domain: &str) -> bool {
    let own = cookie.domain.strip_prefix('.').unwrap_or(&cookie.domain);
    own.eq_ignore_ascii_case(domain)
}

fn shown(row: CredentialRow) -> Credential {
    Credential {
        tenant: row.tenant,
        domain: row.domain,
        cookie_count: row.cookie_count,
        key_id: row.key_id,
        created_at: row.created_at,
        last_refreshed_at: row.last_refreshed_at,
        last_injected_at: row.last_injected_at,
    }
}
