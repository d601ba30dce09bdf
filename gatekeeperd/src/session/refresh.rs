//! Refreshing a login: an operator logs in through the live view, and the cookies of chosen domains are stored. Also what
//! else the live view needs.

use super::{Kind, Live, Manager, SessionError};
use crate::browser::{Frame, Input};
use crate::recording::Mode;
use crate::vault::{Caller, Imported, check_domain};
use gatekeeper::Denial;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::broadcast;

impl Manager {
    /// Pictures of the page as it changes. The stream is not recorded: where a recording is evidence of all that an agent
    /// saw, only operators may watch.
    pub async fn frames(&self, caller: &Caller, id: &str) -> Result<broadcast::Receiver<Frame>, SessionError> {
        let live = self.find(caller, id).await?;
        if live.recorder.mode() == Mode::Audit && !caller.operator {
            return Err(SessionError::Forbidden("watching a session of the mode audit needs an operator token"));
        }
        self.audit(caller, Some(id), "view_session", json!({})).await?;
        Ok(live.browser.frames())
    }

    /// Mouse and keyboard of an operator. Only refresh sessions take it: all else goes through audited actions. What is
    /// typed may be a password, so no audit row of it exists.
    pub async fn input(&self, caller: &Caller, id: &str, event: Input) -> Result<(), SessionError> {
        let live = self.refreshing(caller, id).await?;
        live.touch();
        Ok(live.browser.input(event).await?)
    }

    /// Stores the cookies of these domains and closes the session. If one domain has none, nothing is stored, and the
    /// session stays open.
    pub async fn store_login(
        &self,
        caller: &Caller,
        id: &str,
        domains: &[String],
    ) -> Result<Vec<(String, Imported)>, SessionError> {
        let live = self.refreshing(caller, id).await?;
        if domains.is_empty() {
            return Err(SessionError::Invalid("domains: name the hosts whose cookies to store".to_owned()));
        }
        domains.iter().try_for_each(|domain| check_domain(domain))?;
        self.audit(caller, Some(id), "store_credentials", json!({ "domains": domains })).await?;
        let cookies = live.browser.cookies().await?;
        for domain in domains {
            self.0.vault.check_cookies(domain, &cookies)?;
        }
        let mut stored = Vec::new();
        for domain in domains {
            let imported = self.0.vault.store_cookies(&caller.tenant, domain, &cookies).await?;
            stored.push((domain.clone(), imported));
        }
        self.end(id, "closed", "the login was stored").await?;
        Ok(stored)
    }

    /// What the browser of this session was denied.
    pub async fn denials(&self, caller: &Caller, id: &str) -> Result<Vec<Denial>, SessionError> {
        Ok(self.find(caller, id).await?.browser.denials())
    }

    async fn refreshing(&self, caller: &Caller, id: &str) -> Result<Arc<Live>, SessionError> {
        if !caller.operator {
            return Err(SessionError::Forbidden("refreshing a login needs an operator token"));
        }
        let live = self.find(caller, id).await?;
        match live.kind {
            Kind::Refresh => Ok(live),
            _ => Err(SessionError::Forbidden("only a refresh session takes this; tasks never write cookies back")),
        }
    }
}
