//! Why a run does not take place: what, why, and the next step.

use crate::check::Verdict;
use crate::host::Missing;
use crate::policy::NetworkMode;
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

    pub fn unsupported_network(mode: &NetworkMode) -> Refusal {
        let mode = match mode {
            NetworkMode::Loopback => "loopback",
            _ => "hosts",
        };
        Refusal::setup(format!("network mode {mode} is not available in this version; use --net none or --net full"))
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
