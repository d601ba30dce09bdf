//! A host that the proxy refuses: its connection waits on the proxy's own thread.

use super::approved::Subject;
use super::hub::{Draft, Hub, Waiter};
use crate::plan::Plan;
use crate::proxy::gate::{Ask, Guest, No};
use crate::report::{AskedAccess, AskedKind, Decision, Question};
use crate::supervise::denials;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

pub struct Hosts {
    hub: Arc<Hub>,
    plan: Arc<Plan>,
}

impl Hosts {
    pub fn new(hub: Arc<Hub>, plan: Arc<Plan>) -> Hosts {
        Hosts { hub, plan }
    }
}

impl Ask for Hosts {
    fn ask(&self, host: &str, no: &No, guest: &Guest) -> bool {
        // deny_private opens no private address, whatever is answered.
        if self.plan.policy.network.deny_private {
            return false;
        }
        let subjects = vec![Subject::Host(host.to_owned())];
        if self.hub.approves(&subjects, &|_| None) {
            return true;
        }
        let question = Question {
            id: 0,
            kind: AskedKind::Host,
            access: AskedAccess::Connect,
            syscall: "connect".to_owned(),
            path: None,
            named: None,
            host: Some(host.to_owned()),
            comm: guest.comm.clone(),
            pid: guest.pid,
            argv: super::argv(guest.pid),
            allow_with: no.allow_with.clone(),
            rule: format!("network mode hosts: {}", no.why),
            allow_with_policy: no.allow_with.as_deref().map(|flag| denials::policy_line(flag, &self.plan)),
        };
        let (decided, waits) = channel();
        self.hub.ask(Draft { question, subjects }, Box::new(Client { pid: guest.pid, decided }));
        // An error means that the question was withdrawn.
        matches!(waits.recv(), Ok(Decision::Once | Decision::Run))
    }
}

/// A connection of the proxy that waits.
struct Client {
    pid: i32,
    decided: Sender<Decision>,
}

impl Waiter for Client {
    fn gone(&mut self) -> bool {
        self.pid != 0 && !Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    fn decided(self: Box<Self>, decision: Decision) {
        let _ = self.decided.send(decision);
    }
}
