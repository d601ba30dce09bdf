//! The operator's policy. It is read once at the start, so a file or variable that changes later has no effect.

use super::grants::Grantable;
use crate::plan::refusal::Refusal;
use crate::policy::{Document, Policy};
use crate::report::Outcome;
use crate::request::{Asked, Request};
use crate::run;

/// Bytes to keep of each stream unless the policy says otherwise: a model reads all of them.
const KEPT: u64 = 64 << 10;

/// The terms that hold for every call.
pub struct Terms {
    /// The request of each call, except for its command.
    pub(super) request: Request,
    pub(super) policy: Policy,
    pub(super) grantable: Grantable,
    /// Whether the client may apply and discard the stage.
    pub(super) decides: bool,
    /// The policy as a summary for people and models.
    pub(super) summary: String,
    /// The policy as a policy file.
    pub(super) toml: String,
    /// Whether the client's user decides about refused calls.
    pub(super) asks: bool,
}

impl Terms {
    /// Refuses here, rather than at the first call, if no run is possible.
    pub fn new(request: Request, grantable: &[String], decides: bool, asks: bool) -> Result<Terms, Box<Refusal>> {
        let setup = |error: String| Box::new(Refusal::setup(error));
        let mut policy = run::policy_of(&request)?;
        policy.limits.output.get_or_insert(KEPT);
        let grantable =
            Grantable::new(grantable, &request.cwd).map_err(|error| setup(format!("--grantable {error}")))?;
        let flags = Document::from(policy.clone());
        let toml = flags.to_toml().map_err(|error| setup(format!("policy: {error}")))?;
        // Plan a command that the policy allows, to learn whether runs are possible.
        let asked = match policy.commands.allow.first() {
            Some(name) => Asked::Command(vec![name.into()]),
            None => Asked::Line("true".into()),
        };
        let mut also_written = grantable.written();
        also_written.extend(policy.paths.write.iter().map(|path| request.cwd.join(path)));
        let request = Request { flags, config: None, asked, also_written, ..request };
        let mut summary = match run::prepare(&request, false) {
            Ok(prepared) => prepared.plan.summary(),
            Err(refusal) if refusal.outcome == Outcome::SetupFailed => return Err(refusal),
            Err(_) => format!("sandbox: gatekeeper, profile {}\n", policy.profile_name()),
        };
        for text in grantable.texts() {
            summary.push_str(&format!("can be granted: {text}\n"));
        }
        if let Some(stage) = &request.stage {
            let whose = if decides { "you may apply or discard them" } else { "a person applies or discards them" };
            let name = &stage.name;
            summary.push_str(&format!("stage: changes below the working directory wait in stage {name}; {whose}\n"));
        }
        Ok(Terms { request, policy, grantable, decides, summary, toml, asks })
    }
}
