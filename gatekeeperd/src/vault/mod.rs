//! Secrets: bearer tokens, grants, and the cookies that a grant lets a session have.
//!
//! Tokens and grants are random and stored as hashes; their text exists only in the answer that issues them. Cookies are
//! encrypted at rest. No error of this room contains a secret, and no type that holds one prints it.

mod credentials;
mod grants;
mod keys;
mod random;
mod tokens;

pub use credentials::{Credential, Imported};
pub use grants::{Grant, Issue, Issued};
pub use keys::KeyFile;
pub use random::{hash as fingerprint, sortable_id, token as secret, uuid};
pub use tokens::Caller;

use crate::store::{Store, StoreError};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no random numbers: {0}")]
    Random(#[source] std::io::Error),
    #[error("{what} {value:?} is not valid: {why}")]
    Value { what: &'static str, value: String, why: &'static str },
    #[error("{}: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("the cookies of {domain} were encrypted with key {key_id}, which is not in {}", path.display())]
    KeyMissing { domain: String, key_id: String, path: PathBuf },
    #[error(
        "the stored cookies of {domain} do not decrypt: the row was changed or belongs to another tenant or domain"
    )]
    Tampered { domain: String },
    #[error("{0}")]
    Cookies(String),
    #[error("no cookies are stored for {domain}; an operator can import them or refresh the login")]
    NoCredential { domain: String },
    #[error(
        "the grant is not valid: it does not exist, has expired, was revoked, was used, or belongs to another tenant"
    )]
    Grant,
    #[error("the grant does not cover {domain}")]
    GrantDomain { domain: String },
}

/// The vault of one store. Clones share it.
#[derive(Clone)]
pub struct Vault {
    store: Store,
    keys: KeyFile,
}

impl Vault {
    pub fn new(store: Store, keys: KeyFile) -> Vault {
        Vault { store, keys }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// A tenant's name is also a directory of recordings, so it has no slash and does not begin with a dot.
pub fn check_tenant(tenant: &str) -> Result<(), VaultError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if tenant.is_empty() || tenant.len() > 64 || tenant.starts_with('.') || !tenant.bytes().all(allowed) {
        let why = "1 to 64 letters, digits, - _ and ., not beginning with a dot";
        return Err(VaultError::Value { what: "tenant", value: tenant.to_owned(), why });
    }
    Ok(())
}

/// An exact host in lower case: no wildcard, port, scheme or trailing dot.
pub fn check_domain(domain: &str) -> Result<(), VaultError> {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if domain.is_empty() || domain.len() > 253 || !domain.split('.').all(label) {
        let why = "write one exact host in lower case, such as github.com: no wildcard, port or scheme";
        return Err(VaultError::Value { what: "domain", value: domain.to_owned(), why });
    }
    Ok(())
}
