//! What the operator laid down: read once, so that nothing which changes later, a file or a variable, changes it.

use super::grants::Grantable;
use crate::plan::refusal::Refusal;
use crate::policy::{Document, Policy};
use crate::report::Outcome;
use crate::request::{Asked, Request};
use crate::run;

/// Of each stream, where the policy says nothing: a model reads all of it.
const KEPT: u64 = 64 << 10;

/// What holds for every call.
pub struct Terms {
    /// Each call's request, but for its command.
    pub(super) request: Request,
    pub(super) policy: Policy,
    pub(super) grantable: Grantable,
    /// The policy in words, and as a file would have it.
    pub(super) summary: String,
    pub(super) toml: String,
}

impl Terms {
    /// Refused where no run could take place: better now than at the first call.
    pub fn new(request: Request, grantable: &[String]) -> Result<Terms, Box<Refusal>> {
        let setup = |error: String| Box::new(Refusal::setup(error));
        let mut policy = run::policy_of(&request)?;
        policy.limits.output.get_or_insert(KEPT);
        let grantable =
            Grantable::new(grantable, &request.cwd).map_err(|error| setup(format!("--grantable {error}")))?;
        let flags = Document::from(policy.clone());
        let toml = flags.to_toml().map_err(|error| setup(format!("policy: {error}")))?;
        // A command that the policy lets run, to see what a run would be.
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
        Ok(Terms { request, policy, grantable, summary, toml })
    }
}
