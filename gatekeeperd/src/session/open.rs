//! Opening a session.

use super::instance::{place, private};
use super::{Kind, Live, Manager, SessionError, Slot};
use crate::browser::{Browser, BrowserError, Options};
use crate::recording::{Mode, Recorder};
use crate::store::{SessionRow, now};
use crate::vault::{Caller, check_domain, uuid};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialMode {
    /// No cookies.
    #[default]
    Clean,
    /// The cookies of the named domains, against a grant.
    Operator,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenRequest {
    pub credential_mode: CredentialMode,
    pub domains: Vec<String>,
    pub record: Mode,
    pub grant_token: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub session_id: String,
    pub credential_mode: CredentialMode,
    pub record: Mode,
    pub started_at: i64,
}

/// Keeps a place in the table until the session is open. Dropped before that, it gives the place back.
struct Reserved {
    manager: Manager,
    id: String,
    kept: bool,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.kept {
            self.manager.table().remove(&self.id);
        }
    }
}

impl Manager {
    /// Opens a session. Runs to its end even if the caller goes away; a session that was opened for a caller who is gone is
    /// closed again.
    pub async fn open(&self, caller: &Caller, request: OpenRequest, kind: Kind) -> Result<Opened, SessionError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let (manager, caller) = (self.clone(), caller.clone());
        tokio::spawn(async move {
            let opened = manager.open_now(&caller, request, kind).await;
            if let Err(Ok(unwanted)) = answer.send(opened) {
                let _ = manager.end(&unwanted.session_id, "closed", "the client was gone before it opened").await;
            }
        });
        answered.await.map_err(|_| SessionError::Stopped)?
    }

    async fn open_now(&self, caller: &Caller, request: OpenRequest, kind: Kind) -> Result<Opened, SessionError> {
        check(caller, &request, kind)?;
        let id = uuid()?;
        let mut reserved = self.reserve(&id, &caller.tenant)?;
        let detail = json!({
            "kind": kind.name(), "credential_mode": request.credential_mode, "domains": request.domains,
            "record": request.record,
        });
        self.audit(caller, Some(&id), "open_session", detail).await?;
        if let Some(grant) = &request.grant_token {
            // The grant first: without one, nobody learns for which hosts cookies are stored.
            self.0.vault.check_grant(grant, &caller.tenant, &request.domains).await?;
            if let Some(domain) = self.0.vault.lacking(&caller.tenant, &request.domains).await? {
                return Err(crate::vault::VaultError::NoCredential { domain: domain.clone() }.into());
            }
        }
        let started_at = now();
        self.0.store.add_session(&self.row(caller, &id, &request, kind, started_at)).await?;
        let opened = self.start_browser(caller, &id, &request, kind, started_at).await;
        let live = match opened {
            Ok(live) => live,
            Err(error) => {
                self.discard(&id).await;
                reserved.kept = true;
                // If it cannot be written now, the watch does it later.
                let _ = self.note_end(&id, "failed", &error.public()).await;
                return Err(error);
            }
        };
        if let Some(slot) = self.table().get_mut(&id) {
            slot.live = Some(Arc::new(live));
        }
        reserved.kept = true;
        // A request to close that came in meanwhile is seen by the watch.
        if let Err(error) = self.0.store.session_opened(&id).await {
            // Its id is in no answer, so no client can close it.
            let _ = self.end(&id, "failed", "the store failed while it opened").await;
            return Err(error.into());
        }
        Ok(Opened { session_id: id, credential_mode: request.credential_mode, record: request.record, started_at })
    }

    /// Takes a place in the table, within the limits.
    fn reserve(&self, id: &str, tenant: &str) -> Result<Reserved, SessionError> {
        let limits = &self.0.settings.limits;
        let mut table = self.table();
        if self.0.stopping.load(Ordering::Relaxed) {
            return Err(SessionError::Stopped);
        }
        // Of those that have ended only the row is not written yet.
        let open = || table.values().filter(|slot| slot.ended.is_none());
        if open().count() >= limits.sessions {
            return Err(SessionError::Limit { what: "in all", limit: limits.sessions });
        }
        if open().filter(|slot| slot.tenant == tenant).count() >= limits.per_tenant {
            return Err(SessionError::Limit { what: "of this tenant", limit: limits.per_tenant });
        }
        table.insert(id.to_owned(), Slot { tenant: tenant.to_owned(), live: None, ended: None });
        Ok(Reserved { manager: self.clone(), id: id.to_owned(), kept: false })
    }

    fn row(&self, caller: &Caller, id: &str, request: &OpenRequest, kind: Kind, started_at: i64) -> SessionRow {
        SessionRow {
            id: id.to_owned(),
            tenant: caller.tenant.clone(),
            kind: kind.name().to_owned(),
            credential_mode: text(&request.credential_mode),
            domains: request.domains.clone(),
            record: text(&request.record),
            state: "opening".to_owned(),
            place: place(&self.0.settings.state),
            instance: self.0.instance.id.clone(),
            started_at,
            ended_at: None,
            end_reason: None,
            close_requested: false,
        }
    }

    async fn start_browser(
        &self,
        caller: &Caller,
        id: &str,
        request: &OpenRequest,
        kind: Kind,
        started_at: i64,
    ) -> Result<Live, SessionError> {
        let settings = &self.0.settings;
        let directory = self.directory(id);
        private(&directory).map_err(|source| SessionError::File { path: directory.clone(), source })?;
        let recorder = Recorder::new(request.record, &settings.recordings, &caller.tenant, id);
        let recorder = recorder.map_err(|source| SessionError::File { path: settings.recordings.clone(), source })?;
        let recorder = recorder.with_quota(settings.quota);
        let browser = Browser::open(Options {
            viewport: settings.viewport,
            local_ports: settings.local_ports.clone(),
            memory: settings.limits.memory,
            files: settings.limits.files,
            deadline: Some(settings.limits.deadline),
            action_timeout: settings.limits.action,
            state_dir: directory,
            chromium: settings.chromium.clone(),
            ..Options::default()
        })
        .await?;
        if let Some(grant) = &request.grant_token
            && let Err(error) = self.inject(caller, id, request, grant, &browser).await
        {
            browser.close().await;
            return Err(error);
        }
        Ok(Live {
            id: id.to_owned(),
            tenant: caller.tenant.clone(),
            kind,
            browser,
            recorder,
            started_at,
            used_at: AtomicI64::new(now()),
            untold: AtomicU64::new(0),
            turn: tokio::sync::Mutex::default(),
            ending: watch::Sender::new(false),
        })
    }

    /// Gives a browser the cookies that the grant is for. All that can fail before comes before the grant is consumed; the
    /// browser gets nothing before that. Of several that were started for one grant, one passes.
    async fn inject(
        &self,
        caller: &Caller,
        id: &str,
        request: &OpenRequest,
        grant: &str,
        browser: &Browser,
    ) -> Result<(), SessionError> {
        let (vault, tenant, domains) = (&self.0.vault, &caller.tenant, &request.domains);
        let cookies = vault.cookies(tenant, domains).await?;
        let grant = vault.use_grant(grant, tenant, domains, id).await?;
        let detail = json!({ "jti": grant.jti, "domains": domains });
        self.audit(caller, Some(id), "inject_cookies", detail).await?;
        vault.note_injection(tenant, domains).await?;
        browser.set_cookies(&cookies).await.map_err(|error| match error {
            // No session has been open.
            BrowserError::Ended(ended) => BrowserError::Start(ended.detail).into(),
            other => other.into(),
        })
    }
}

fn check(caller: &Caller, request: &OpenRequest, kind: Kind) -> Result<(), SessionError> {
    let invalid = |text: &str| Err(SessionError::Invalid(text.to_owned()));
    if request.domains.len() > 100 {
        return invalid("at most 100 domains");
    }
    request.domains.iter().try_for_each(|domain| check_domain(domain))?;
    if kind == Kind::Refresh && !caller.operator {
        return Err(SessionError::Forbidden("refreshing a login needs an operator token"));
    }
    match (request.credential_mode, &request.grant_token) {
        (CredentialMode::Clean, Some(_)) => invalid("grant_token is given, but credential_mode is clean: no cookies"),
        (CredentialMode::Operator, None) => Err(SessionError::GrantNeeded),
        (CredentialMode::Operator, Some(_)) if request.domains.is_empty() => {
            invalid("credential_mode operator needs domains: the hosts whose cookies the session gets")
        }
        _ => Ok(()),
    }
}

/// The JSON name of a word such as `clean` or `audit`.
fn text(word: &impl Serialize) -> String {
    serde_json::to_value(word).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
