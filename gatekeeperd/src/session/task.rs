//! Tasks: a session of their own, driven by a model until it is done.

use super::act::check_url;
use super::audit::harmless_url;
use super::{CredentialMode, Kind, Live, Manager, OpenRequest, SessionError};
use crate::recording::Mode;
use crate::task::{self, Model};
use crate::vault::Caller;
use serde::Deserialize;
use serde_json::{Value, json};

/// The most steps of a task, and the number if the request names none.
const MOST_STEPS: u32 = 200;
const USUAL_STEPS: u32 = 25;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRequest {
    pub instruction: String,
    #[serde(default)]
    pub credential_mode: CredentialMode,
    #[serde(default)]
    pub domains: Vec<String>,
    #[serde(default)]
    pub record: Mode,
    pub max_steps: Option<u32>,
    pub grant_token: Option<String>,
    /// The page to begin with.
    pub url: Option<String>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Ends the task's session if the caller goes away.
struct Abandoned {
    manager: Manager,
    id: String,
    done: bool,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if !self.done {
            let (manager, id) = (self.manager.clone(), std::mem::take(&mut self.id));
            tokio::spawn(async move { manager.end(&id, "closed", "the caller of the task went away").await });
        }
    }
}

/// Writes the rows of a task's actions. The model is the actor, on behalf of the caller.
struct Trail<'a> {
    manager: &'a Manager,
    caller: &'a Caller,
    live: &'a Live,
}

impl task::Audit for Trail<'_> {
    async fn before(&self, action: &str, detail: Value) -> Result<(), String> {
        self.live.touch();
        let (action, detail) = match (action, detail["url"].as_str()) {
            // The caller chose the first page, not the model.
            ("navigate", Some(url)) => ("navigate".to_owned(), json!({ "url": harmless_url(url) })),
            _ => (format!("task_{action}"), detail),
        };
        let written = self.manager.audit(self.caller, Some(&self.live.id), &action, detail).await;
        written.map_err(|error| error.public())
    }
}

impl Manager {
    /// Opens a session, lets the model work in it, and closes it.
    pub async fn run_task(&self, caller: &Caller, request: TaskRequest) -> Result<Value, SessionError> {
        let model = self.0.settings.model.clone().ok_or(SessionError::NoModel)?;
        let max_steps = request.max_steps.unwrap_or(USUAL_STEPS);
        if !(1..=MOST_STEPS).contains(&max_steps) {
            return Err(SessionError::Invalid(format!("max_steps: expected 1 to {MOST_STEPS}")));
        }
        if request.instruction.trim().is_empty() {
            return Err(SessionError::Invalid("instruction: it is empty".to_owned()));
        }
        request.url.as_deref().map_or(Ok(()), check_url)?;
        let open = OpenRequest {
            credential_mode: request.credential_mode,
            domains: request.domains.clone(),
            record: request.record,
            grant_token: request.grant_token.clone(),
        };
        let id = self.open(caller, open, Kind::Task).await?.session_id;
        let mut abandoned = Abandoned { manager: self.clone(), id: id.clone(), done: false };
        let live = self.find(caller, &id).await?;
        let done = self.work(caller, &live, &model, &request, max_steps).await;
        abandoned.done = true;
        let reason = done
            .as_ref()
            .map_or_else(SessionError::public, |done| format!("the task ended: {}", text(&done["status"])));
        self.end(&id, "closed", &reason).await?;
        done
    }

    async fn work(
        &self,
        caller: &Caller,
        live: &Live,
        model: &Model,
        request: &TaskRequest,
        max_steps: u32,
    ) -> Result<Value, SessionError> {
        let _turn = live.turn.lock().await;
        let asked = task::Request {
            instruction: request.instruction.clone(),
            url: request.url.clone(),
            max_steps,
            trace_id: live.id.clone(),
        };
        let trail = Trail { manager: self, caller, live };
        let ending = live.ending.subscribe();
        let done = task::run(&live.browser, &live.recorder, model, &asked, &trail, ending).await;
        let detail = json!({ "status": done.status, "step_count": done.step_count });
        self.audit(caller, Some(&live.id), "end_task", detail).await?;
        Ok(json!(done))
    }

    /// Stops a task at its next step. Its caller gets the status `aborted`.
    pub async fn abort_task(&self, caller: &Caller, id: &str) -> Result<(), SessionError> {
        let live = self.find(caller, id).await?;
        if live.kind != Kind::Task {
            return Err(SessionError::NotFound);
        }
        self.audit(caller, Some(id), "abort_task", json!({})).await?;
        live.ending.send_replace(true);
        Ok(())
    }
}
