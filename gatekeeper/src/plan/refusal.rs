//! Why a run is refused: the cause, and the next step.

use crate::check::Verdict;
use crate::host::{Missing, floor};
use crate::policy::{Isolate, NetworkMode, Policy, Profile};
use crate::report::{EXIT_SETUP, Outcome, Report};
use crate::request::Inside;
use std::time::Duration;

/// After the error of a network namespace.
pub const NO_OWN_NETWORK: &str =
    "; network mode own needs a network namespace, and gatekeeper doctor prints how to enable namespaces here";

#[derive(Debug)]
pub struct Refusal {
    pub outcome: Outcome,
    pub message: String,
    pub verdict: Option<Box<Verdict>>,
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
        self.verdict = Some(Box::new(verdict));
        self
    }

    /// The host has no seccomp. No other layer replaces the filter, so `require_sandbox = false` does not help.
    pub fn no_filter(missing: &Missing) -> Refusal {
        Refusal::setup(format!(
            "seccomp is required and not available: {}. To fix it, {}; no profile works without it, so it cannot be left out",
            missing.cause, missing.fix
        ))
    }

    /// The host lacks a layer that the policy requires.
    pub fn missing_layer(layer: &str, missing: &Missing) -> Refusal {
        Refusal::setup(format!(
            "{layer} is required and not available: {}. To fix it, {}; to run without it, --require-sandbox=false",
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

    /// The network mode depends on addresses, and without notifications no supervisor can check them.
    pub fn unwatched(mode: &str) -> Refusal {
        Refusal::setup(format!(
            "network mode {mode} needs seccomp notifications, which are not available here: the kernel is older than {}, \
             or an outer sandbox already has the listener. To run without any network instead, --require-sandbox=false",
            floor::NOTIFICATION.kernel
        ))
    }

    /// This host makes no network namespace.
    pub fn no_own_network(why: &str) -> Refusal {
        Refusal::setup(format!("namespaces: {why}{NO_OWN_NETWORK}"))
    }

    /// The working directory holds a home, and profile `write` would make the user's start-up files writable.
    pub fn writable_home(cwd: &std::path::Path) -> Refusal {
        let cwd = cwd.display();
        Refusal::setup(format!(
            "the working directory is {cwd}, and profile write would make all of it writable, including the start-up \
             files of this user's shells and programs. Work in a project directory (--cwd DIR), name the writable \
             directories with another profile (--write DIR), or insist with --write {cwd}"
        ))
    }

    /// The exit code of gatekeeper.
    pub fn exit_code(&self) -> u8 {
        match self.outcome {
            Outcome::NotFound => 127,
            Outcome::Refused => 126,
            _ => EXIT_SETUP,
        }
    }

    /// The report of a refused run.
    pub fn report(self, command: Vec<String>, duration: Duration) -> Report {
        Report {
            exit_code: i32::from(self.exit_code()),
            duration_ms: duration.as_millis() as u64,
            command,
            error: Some(self.message),
            verdict: self.verdict.map(|verdict| *verdict),
            ..Report::of(self.outcome)
        }
    }
}

fn reasons(verdict: &Verdict) -> String {
    let texts: Vec<&str> = verdict.reasons.iter().map(|reason| reason.text.as_str()).collect();
    format!("{}: {}", verdict.path.display(), texts.join("; "))
}

/// Refuses a network mode that the policy names and no layer of this run would enforce. `filtered`: whether the run has a
/// syscall filter; `notifies`: whether the filter notifies a supervisor.
pub fn network(
    policy: &Policy,
    network: &NetworkMode,
    filtered: bool,
    notifies: bool,
    inside: Option<Inside>,
) -> Result<(), Refusal> {
    let open = policy.profiles.iter().any(|profile| matches!(profile, Profile::Unrestricted | Profile::Custom));
    let mode = match network {
        NetworkMode::None if policy.network.mode.is_none() => return Ok(()),
        // A namespace enforces it, and the run does not start without one.
        NetworkMode::Own => return Ok(()),
        NetworkMode::Full if policy.network.ports.is_empty() => return Ok(()),
        NetworkMode::Full => "full with a list of ports",
        mode => mode.word(),
    };
    // An empty network namespace enforces every mode.
    if inside.is_some_and(|inside| inside.own_network) {
        return Ok(());
    }
    let by_address = super::table::sockets::by_address(policy, network);
    if open || !filtered && by_address {
        let profile = policy.profile_name();
        // bubblewrap can enforce these modes, and the gatekeeper inside it asks again.
        return match policy.bubblewrap.isolate {
            Isolate::Required if matches!(network, NetworkMode::None | NetworkMode::Hosts(_)) => Ok(()),
            _ => Err(Refusal::setup(format!(
                "network mode {mode} is enforced by the syscall filter, and profile {profile} with this program has none; \
                 choose another profile, or for none and hosts --isolate required"
            ))),
        };
    }
    if by_address && !notifies && policy.require_sandbox {
        return Err(Refusal::unwatched(mode));
    }
    Ok(())
}
