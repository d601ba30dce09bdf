//! A host or a request that the proxy refuses: it waits on a thread of the proxy.

use super::approved::Subject;
use super::hub::{Draft, Hub, Waiter};
use crate::plan::Plan;
use crate::proxy::gate::{Ask, Guest, No, Refusal, Requested};
use crate::report::{AskedAccess, AskedKind, Decision, Question};
use crate::supervise::denials;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

impl Hosts {
    /// Asks, unless this was approved for the run, and waits for the decision.
    fn decided(&self, subject: Subject, question: Question, left: Option<Arc<AtomicBool>>) -> bool {
        let subjects = vec![subject];
        if self.hub.approves(&subjects, &|_| None) {
            return true;
        }
        let (decided, waits) = channel();
        let pid = question.pid;
        self.hub.ask(Draft { question, subjects }, Box::new(Client { pid, left, decided }));
        // An error means that the question was withdrawn.
        matches!(waits.recv(), Ok(Decision::Once | Decision::Run))
    }
}

impl Ask for Hosts {
    fn ask(&self, host: &str, no: &No, guest: &Guest) -> bool {
        // deny_private opens no private address, whatever is answered.
        if self.plan.policy.network.deny_private {
            return false;
        }
        let question = Question {
            id: 0,
            kind: AskedKind::Host,
            access: AskedAccess::Connect,
            syscall: "connect".to_owned(),
            path: None,
            named: None,
            host: Some(host.to_owned()),
            method: None,
            comm: guest.comm.clone(),
            pid: guest.pid,
            argv: super::argv(guest.pid),
            allow_with: no.allow_with.clone(),
            rule: format!("network mode hosts: {}", no.why),
            allow_with_policy: no.allow_with.as_deref().map(|flag| denials::policy_line(flag, &self.plan)),
        };
        self.decided(Subject::Host(host.to_owned()), question, None)
    }

    fn ask_request(&self, request: &Requested, guest: &Guest) -> bool {
        let Requested { host, method, path, .. } = request;
        // The same words as in the report of a request that is refused.
        let denial = denials::of_proxy(
            Refusal {
                host: host.clone(),
                why: request.why.clone(),
                allow_with: request.allow_with.clone(),
                guest: guest.clone(),
                count: 1,
                request: Some((method.clone(), path.clone())),
            },
            &self.plan,
        );
        let question = Question {
            id: 0,
            kind: AskedKind::Host,
            access: AskedAccess::Connect,
            syscall: denial.syscall,
            path: denial.path,
            named: None,
            host: denial.host,
            method: Some(method.clone()),
            comm: denial.comm,
            pid: denial.pid,
            argv: super::argv(guest.pid),
            allow_with: denial.allow_with,
            rule: denial.rule,
            allow_with_policy: denial.allow_with_policy,
        };
        self.decided(Subject::Request(format!("{method} {host}{path}")), question, Some(request.left.clone()))
    }
}

/// A connection or a request of the proxy that waits.
struct Client {
    pid: i32,
    /// Set once the client of a request has closed its connection.
    left: Option<Arc<AtomicBool>>,
    decided: Sender<Decision>,
}

impl Waiter for Client {
    fn gone(&mut self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::SeqCst))
            || self.pid != 0 && !Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    fn decided(self: Box<Self>, decision: Decision) {
        let _ = self.decided.send(decision);
    }
}
