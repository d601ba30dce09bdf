//! What can go wrong with a session, each with a stable code.

use crate::browser::BrowserError;
use crate::store::StoreError;
use crate::vault::VaultError;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{0}")]
    Invalid(String),
    #[error("there is no such session")]
    NotFound,
    #[error("there is no such action; they are navigate, screenshot, click, type, scroll and read_dom")]
    NoAction,
    #[error("the session has ended: {0}")]
    Ended(String),
    #[error("the session is starting or ending; try again")]
    Busy,
    #[error("another gatekeeperd owns this session")]
    Elsewhere,
    #[error("{what}: {limit} sessions are open, which is the limit; try again when one has ended")]
    Limit { what: &'static str, limit: usize },
    #[error("credential_mode operator needs a grant_token; an operator issues one")]
    GrantNeeded,
    #[error("{0}")]
    Forbidden(&'static str),
    #[error("no model is configured; start gatekeeperd with --model URL")]
    NoModel,
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Browser(#[from] BrowserError),
    /// No action of a session that has to be recorded shows what is not.
    #[error("{0}")]
    Quota(String),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the task that served the request was stopped")]
    Stopped,
}

impl SessionError {
    /// The message for a tenant. What failed inside of the daemon is for the operator's log.
    pub fn public(&self) -> String {
        match self.code() {
            "internal" => {
                // A log that cannot be written, such as one on a full disk, must not end the daemon.
                let _ = writeln!(std::io::stderr(), "gatekeeperd: {self}");
                "the daemon failed; its log has the reason".to_owned()
            }
            _ => self.to_string(),
        }
    }

    /// For programs. Documented in the OpenAPI document.
    pub fn code(&self) -> &'static str {
        match self {
            SessionError::Invalid(_) => "invalid_request",
            SessionError::NotFound | SessionError::NoAction => "not_found",
            SessionError::Ended(_) | SessionError::Browser(BrowserError::Ended(_)) => "session_ended",
            SessionError::Busy => "session_busy",
            SessionError::Elsewhere => "session_elsewhere",
            SessionError::Limit { .. } => "too_many_sessions",
            SessionError::GrantNeeded => "grant_required",
            SessionError::Forbidden(_) => "forbidden",
            SessionError::NoModel => "no_model",
            SessionError::Vault(error) => match error {
                VaultError::Value { .. } | VaultError::Cookies(_) => "invalid_request",
                VaultError::Grant | VaultError::GrantDomain { .. } => "grant_invalid",
                VaultError::NoCredential { .. } => "no_credential",
                VaultError::Key { .. } | VaultError::KeyMissing { .. } | VaultError::Tampered { .. } => "vault_failed",
                VaultError::Store(_) | VaultError::Random(_) => "internal",
            },
            SessionError::Browser(_) => "browser_failed",
            SessionError::Quota(_) => "quota_exhausted",
            SessionError::Store(_) | SessionError::File { .. } | SessionError::Stopped => "internal",
        }
    }
}
