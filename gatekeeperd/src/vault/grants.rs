//! Grants: an operator lets one task have the cookies of named hosts, for a short time.

use super::{Vault, VaultError, check_domain, check_tenant, random};
use crate::store::{GrantRow, now};
use std::time::Duration;
use zeroize::Zeroizing;

pub use crate::store::GrantRow as Grant;

/// What an operator grants.
#[derive(Debug, Clone)]
pub struct Issue {
    pub tenant: String,
    pub domains: Vec<String>,
    pub ttl: Duration,
    pub single_use: bool,
    /// The id of the operator's token, or `cli`.
    pub operator_id: String,
    pub origin_session_id: Option<String>,
}

impl Issue {
    pub const TTL: Duration = Duration::from_secs(15 * 60);
    const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
}

pub struct Issued {
    pub grant_token: Zeroizing<String>,
    pub grant: Grant,
}

impl Vault {
    pub async fn issue_grant(&self, issue: Issue) -> Result<Issued, VaultError> {
        check_tenant(&issue.tenant)?;
        if issue.domains.is_empty() || issue.domains.len() > 100 {
            let why = "a grant names 1 to 100 hosts";
            return Err(VaultError::Value { what: "domains", value: format!("{:?}", issue.domains), why });
        }
        issue.domains.iter().try_for_each(|domain| check_domain(domain))?;
        if issue.ttl < Duration::from_secs(1) || issue.ttl > Issue::LONGEST {
            let why = "a grant lasts between 1 second and 7 days";
            return Err(VaultError::Value { what: "ttl", value: format!("{:?}", issue.ttl), why });
        }
        if let Some(id) =
            issue.origin_session_id.as_ref().filter(|id| id.len() > 128 || id.chars().any(char::is_control))
        {
            let why = "the id of a session has at most 128 characters, and none of control";
            return Err(VaultError::Value { what: "origin_session_id", value: id.chars().take(128).collect(), why });
        }
        let grant_token = random::token("gkg_")?;
        let issued_at = now();
        let mut allowed_domains = issue.domains;
        allowed_domains.sort_unstable();
        allowed_domains.dedup();
        let grant = GrantRow {
            jti: random::uuid()?,
            tenant: issue.tenant,
            operator_id: issue.operator_id,
            origin_session_id: issue.origin_session_id,
            allowed_domains,
            issued_at,
            expires_at: issued_at.saturating_add(i64::try_from(issue.ttl.as_millis()).unwrap_or(i64::MAX)),
            single_use: issue.single_use,
            consumed_at: None,
            consumed_by: None,
        };
        self.store().add_grant(&grant, &random::hash(&grant_token)).await?;
        Ok(Issued { grant_token, grant })
    }

    /// Checks a grant for these hosts, without consuming it.
    pub async fn check_grant(&self, grant_token: &str, tenant: &str, domains: &[String]) -> Result<Grant, VaultError> {
        let grant = self.store().grant(&random::hash(grant_token)).await?.ok_or(VaultError::Grant)?;
        let is_used = grant.single_use && grant.consumed_at.is_some();
        if grant.tenant != tenant || grant.expires_at <= now() || is_used {
            return Err(VaultError::Grant);
        }
        match domains.iter().find(|domain| !grant.allowed_domains.contains(domain)) {
            Some(domain) => Err(VaultError::GrantDomain { domain: domain.clone() }),
            None => Ok(grant),
        }
    }

    /// Checks a grant for these hosts and consumes it for a session. A grant for other hosts is not consumed. The hosts of
    /// a grant never change, so only the consuming statement, which checks all the rest again, has to be atomic.
    pub async fn use_grant(
        &self,
        grant_token: &str,
        tenant: &str,
        domains: &[String],
        session: &str,
    ) -> Result<Grant, VaultError> {
        let grant = self.check_grant(grant_token, tenant, domains).await?;
        match self.store().consume_grant(&random::hash(grant_token), tenant, session, now()).await? {
            true => Ok(grant),
            false => Err(VaultError::Grant),
        }
    }
}
