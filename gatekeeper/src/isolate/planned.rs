//! What is known about an isolation before it is tried: which bubblewrap runs and what it will do. Starts no bubblewrap.

use super::config::SandboxConfig;
use super::mounts;
use crate::check::{Context, Disk as Files, Preload, Target, check};
use crate::enforce::mounts::no_namespaces;
use crate::plan::Plan;
use crate::plan::steps::Step;
use crate::policy::Isolate;
use crate::request::Request;
use crate::trust::Hostile;
use crate::trust::program::{self, NoProgram};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The plan's isolation step, if any. `Err` if the run would be refused because bubblewrap is not usable.
pub fn step(request: &Request, plan: &Plan) -> Result<Option<Step>, String> {
    let mode = plan.policy.bubblewrap.isolate;
    if mode == Isolate::Disabled {
        return Ok(None);
    }
    let works = |bwrap: Target| match no_namespaces(false).filter(|_| !is_setuid(&bwrap)) {
        Some(why) => Err(format!("no namespace can be created here: {why}")),
        None => Ok(bwrap),
    };
    let detail = match bwrap(request, plan).and_then(works) {
        Ok(bwrap) => format!("{mode}, by {}: {}", bwrap.path.display(), described(&mounts::of(plan))),
        Err(why) if mode == Isolate::Required => return Err(refused(&why)),
        Err(why) => format!("{mode}, none: bubblewrap does not work here: {why}; the other layers hold"),
    };
    Ok(Some(Step { step: "isolation", detail }))
}

/// Such a bubblewrap needs no user namespace.
fn is_setuid(program: &Target) -> bool {
    program.file.metadata().is_ok_and(|found| found.mode() & 0o4000 != 0)
}

/// The error of a run that requires isolation.
pub fn refused(why: &str) -> String {
    format!("isolation is required and bubblewrap does not work here: {why}")
}

/// Finds bubblewrap and checks it like every program that gatekeeper executes.
pub fn bwrap(request: &Request, plan: &Plan) -> Result<Target, String> {
    if plan.places.cwd == Path::new("/") || plan.writable().contains(&PathBuf::from("/")) {
        return Err("the policy grants all of /, so there is nothing to isolate".to_owned());
    }
    let mut hostile = writable(plan);
    hostile.add_working_directory(&request.cwd);
    let found = match &plan.policy.bubblewrap.bwrap {
        Some(path) => program::named(&plan.places.absolute(path), &hostile),
        None => program::find(OsStr::new("bwrap"), request.variable("PATH").map(|path| path.as_os_str()), &hostile),
    };
    let file = found.map_err(|error| match error {
        NoProgram::NotFound => "it is not installed (package bubblewrap)".to_owned(),
        other => other.to_string(),
    })?;
    let mut context = Context::of_this_process(Preload::embedded());
    context.detail = false;
    let checked = check(file.as_os_str(), &context, &Files::new());
    checked.target.ok_or_else(|| {
        let verdict = checked.verdict;
        let texts: Vec<&str> = verdict.reasons.iter().map(|reason| reason.text.as_str()).collect();
        format!("{}: {}", verdict.path.display(), texts.join("; "))
    })
}

/// The trees that this run may write, as trees whose contents are not trusted.
fn writable(plan: &Plan) -> Hostile {
    let mut hostile = Hostile::default();
    plan.writable().iter().for_each(|tree| hostile.add(tree));
    hostile
}

/// The gatekeeper program to run inside: this one, or the one that an embedding program names. It applies the other
/// layers, so it must not be writable for the commands that it confines.
pub fn own_program(request: &Request, plan: &Plan) -> Result<PathBuf, String> {
    let missing = || {
        "isolation runs the gatekeeper program inside bubblewrap, and Builder::gatekeeper did not name one".to_owned()
    };
    let helper = request.helper.as_ref().ok_or_else(missing)?;
    program::own(helper, &writable(plan)).map_err(|error| error.to_string())
}

/// What bubblewrap does, for plan and report.
pub fn described(config: &SandboxConfig) -> String {
    // bubblewrap makes no user namespace for root unless asked to.
    let user = if rustix::process::geteuid().is_root() && config.identity.is_none() { "" } else { "user, " };
    let mut parts = vec![format!("bubblewrap: {user}mount, pid, ipc, uts")];
    if config.isolate_network {
        parts[0].push_str(", network");
    }
    let list = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    let writes = if config.rw_paths.is_empty() { "nothing".to_owned() } else { list(&config.rw_paths) };
    parts.push(format!("writable {writes}"));
    if !config.protected_paths.is_empty() {
        parts.push(format!("read-only {}", list(&config.protected_paths)));
    }
    let stubs = config.stubs();
    if !stubs.is_empty() {
        parts.push(format!("cannot be created {}", list(&stubs)));
    }
    parts.join("; ")
}
