//! Why a run does not take place: what, why, and the next step.

use crate::check::Verdict;
use crate::host::Missing;
use crate::policy::{Isolate, NetworkMode, Policy};
use crate::supervise::report::Outcome;

#[derive(Debug)]
pub struct Refusal {
    pub outcome: Outcome,
    pub message: String,
    pub verdict: Option<Verdict>,
}

impl Refusal {
    fn new(outcome: Outcome, message: impl Into<String>) -> Refusal {
        Refusal { outcome, message: message.into(), verdict: None }
    }

    pub fn refused(message: impl Into<String>) -> Refusal {
        Refusal::new(Outcome::Refused, message)
    }

    pub fn setup(message: impl Into<String>) -> Refusal {
        Refusal::new(Outcome::SetupFailed, message)
    }

    pub fn with_verdict(mut self, verdict: Verdict) -> Refusal {
        self.verdict = Some(verdict);
        self
    }

    /// A layer that the policy requires and this host lacks.
    pub fn missing_layer(layer: &str, missing: &Missing) -> Refusal {
        Refusal::setup(format!(
            "{layer} is required and not available: {}. To mend it, {}; to run without it, --require-sandbox=false",
            missing.cause, missing.fix
        ))
    }

    pub fn not_found(verdict: &Verdict) -> Refusal {
        Refusal::new(Outcome::NotFound, reasons(verdict))
    }

    pub fn verdict(verdict: &Verdict) -> Refusal {
        Refusal::refused(reasons(verdict))
    }

    pub fn static_blocked(verdict: &Verdict) -> Refusal {
        Refusal::refused(format!(
            "{}; the policy blocks such programs (--static enforce confines them)",
            reasons(verdict)
        ))
    }

    /// What gatekeeper exits with.
    pub fn exit_code(&self) -> u8 {
        match self.outcome {
            Outcome::NotFound => 127,
            Outcome::Refused => 126,
            _ => 125,
        }
    }
}

fn reasons(verdict: &Verdict) -> String {
    let texts: Vec<&str> = verdict.reasons.iter().map(|reason| reason.text.as_str()).collect();
    format!("{}: {}", verdict.path.display(), texts.join("; "))
}

/// What a policy may ask for and this version cannot do: refused, because it would otherwise be left out in silence.
pub fn unsupported(policy: &Policy, network: &NetworkMode) -> Result<(), Refusal> {
    let missing = match network {
        NetworkMode::Loopback => Some("network mode loopback"),
        NetworkMode::Hosts(_) => Some("network mode hosts"),
        _ if !policy.network.ports.is_empty() => Some("a list of network ports"),
        _ if policy.bubblewrap.isolate == Isolate::Required => Some("isolation by bubblewrap"),
        _ => None,
    };
    match missing {
        Some(what) => Err(Refusal::setup(format!("{what} is not available in this version"))),
        None => Ok(()),
    }
}
