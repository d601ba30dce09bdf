//! Refused calls are put to the user by the client's elicitation, where it has that.

use super::arguments::object;
use crate::explain::harmless;
use crate::report::{Because, Decision, Question};
use crate::supervise::ask::hub::{Answerer, Reply};
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, ServerRequest,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub struct Elicit {
    peer: Peer<RoleServer>,
    runtime: Handle,
    open: Mutex<HashMap<u64, JoinHandle<()>>>,
}

impl Elicit {
    /// `None` if the client cannot show a form.
    pub fn new(peer: &Peer<RoleServer>) -> Option<Elicit> {
        let client = peer.peer_info();
        let able = client.as_ref().and_then(|client| client.capabilities.elicitation.as_ref());
        // A client that names no mode has forms.
        let forms = able.is_some_and(|able| able.form.is_some() || able.url.is_none());
        forms.then(|| Elicit { peer: peer.clone(), runtime: Handle::current(), open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, JoinHandle<()>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Answerer for Elicit {
    fn ask(&self, question: &Question, reply: Reply) {
        let schema = object(json!({
            "type": "object",
            "properties": {"decision": {
                "type": "string",
                "enum": ["once", "run", "deny"],
                "description": "once: this call; run: the same path and what is below it, or the same host, until the command ends",
            }},
            "required": ["decision"],
        }));
        let Ok(requested_schema) = ElicitationSchema::from_json_schema(schema) else {
            return reply.deny(Because::Invalid);
        };
        let message = harmless(&format!("{}; {}", question.sentence(), question.rule));
        let peer = self.peer.clone();
        let task = self.runtime.spawn(async move {
            let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
            match peer.send_request(ServerRequest::ElicitRequest(ElicitRequest::new(params))).await {
                Ok(ClientResult::ElicitResult(answer)) if answer.action == ElicitationAction::Accept => {
                    let decision = answer.content.and_then(|content| content.get("decision").cloned());
                    match decision.and_then(|word| serde_json::from_value::<Decision>(word).ok()) {
                        Some(decision) => reply.decide(decision),
                        None => reply.deny(Because::Invalid),
                    }
                }
                Ok(_) => reply.decide(Decision::Deny),
                Err(_) => reply.deny(Because::Closed),
            }
        });
        let mut open = self.open();
        open.retain(|_, task| !task.is_finished());
        open.insert(question.id, task);
    }

    fn withdrawn(&self, id: u64) {
        if let Some(task) = self.open().remove(&id) {
            task.abort();
        }
    }
}
