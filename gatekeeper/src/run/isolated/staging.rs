//! The stage of an isolated run.

use crate::enforce;
use crate::isolate::config::SandboxConfig;
use crate::operation::Operation;
use crate::plan::Plan;
use crate::run::{Prepared, staged};
use crate::stage::stage_has;
use crate::sys::child::Launch;
use crate::sys::mounts::Mounts;
use crate::sys::stage::Staging;
use std::io;

/// The mounts of bubblewrap, without those for which it would have to create a file in the stage: that would be a change of the
/// command's. As in every stage, the command can create what does not exist, and `apply` refuses it.
pub fn without_stubs(mut config: SandboxConfig, plan: &Plan) -> SandboxConfig {
    if let Some(stage) = plan.stage.as_ref().filter(|_| plan.mounts_stage()) {
        config.blocked_paths.retain(|path| !path.starts_with(&stage.tree) || stage_has(stage, path));
    }
    config
}

/// Mounts the stage of the run before bubblewrap starts, in a mount namespace around it. bubblewrap then binds the working
/// directory as it finds it: with the stage over it.
pub fn around(launch: Launch, prepared: &Prepared) -> io::Result<Launch> {
    let Some(stage) = enforce::mounts::staging(&prepared.plan, Vec::new())? else { return Ok(launch) };
    let mut operations = launch.operations;
    let after = operations.iter().position(|operation| *operation == Operation::Signals).map_or(0, |at| at + 1);
    operations.splice(after..after, [Operation::Namespaces, Operation::Stage, Operation::Mounts]);
    Ok(Launch {
        operations,
        mounts: Some(Mounts { user: enforce::mounts::user_maps(), network: false, mounts: Vec::new() }),
        // The program is bubblewrap, which lies outside; the inner gatekeeper finds the command in the stage itself.
        stage: Some(Staging { program: None, ..stage }),
        lock: staged::lock(prepared)?,
        // A name that is replaced in the real tree takes no mount on the stage along.
        watched: None,
        ..launch
    })
}
