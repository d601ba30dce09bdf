//! The stage of a run: opens it before the run is planned, and records afterwards what the command changed.

use super::Prepared;
use crate::plan::disk::Disk;
use crate::plan::paths::{Access, Found, PathPlan, Places};
use crate::plan::refusal::Refusal;
use crate::plan::{Plan, StageSource, Staged};
use crate::policy::{Policy, Profile};
use crate::report::{Layer, LayerReport, LayerStatus, Outcome, Report, StageReport};
use crate::request::{Purpose, Request};
use crate::stage::{Copying, Held, LeftOut, StageError, Store, check_name, stage_has};
use crate::trust::Hostile;
use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

/// A request, and the stage that it names.
pub struct Opened<'a> {
    request: Cow<'a, Request>,
    pub stage: Option<Staged>,
    held: Option<Held>,
}

impl Opened<'_> {
    /// The request to plan: one whose stage is a copy elsewhere starts there.
    pub fn request(&self) -> &Request {
        &self.request
    }

    pub fn take(&mut self) -> Option<Held> {
        self.held.take()
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // Only a run that was refused leaves it here.
        if let Some(held) = self.held.take() {
            let _ = held.finish(false, &[]);
        }
    }
}

/// Opens the stage, or makes it. Without `for_real`, only says what it would be.
pub fn prepare<'a>(request: &'a Request, policy: &Policy, for_real: bool) -> Result<Opened<'a>, Box<Refusal>> {
    let unheld = |stage| Opened { request: Cow::Borrowed(request), stage, held: None };
    let Some(asked) = &request.stage else { return Ok(unheld(None)) };
    let refuse = |error: StageError| Box::new(Refusal::setup(format!("stage: {error}")));
    check_name(&asked.name).map_err(refuse)?;
    suits(request, policy).map_err(|why| Box::new(Refusal::setup(format!("stage: {why}"))))?;
    if !for_real {
        let (tree, name) = (request.cwd.clone(), asked.name.clone());
        let stage = Staged { name, tree, source: StageSource::Unmade, store: PathBuf::from("/") };
        return Ok(unheld(Some(stage)));
    }
    let state = request.variable("XDG_STATE_HOME").map(|state| state.as_os_str());
    let mut hostile = Hostile::here();
    hostile.add_working_directory(&request.cwd);
    let store = Store::open_beside(&request.cwd, state, request.home.as_deref(), &hostile).map_err(refuse)?;
    let command: Vec<String> = super::lossy(&request.words());
    let bar = asked.progress.then(|| indicatif::ProgressBar::new(0));
    let progress = |done: usize, all: usize| {
        if let Some(bar) = &bar {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        }
    };
    let left_out = || closed(request, policy).map_err(|refusal| StageError::Unusable(refusal.message));
    let copying = Copying { left_out: &left_out, progress: &progress };
    let held = store.hold(asked, &request.cwd, &command.join(" "), &copying).map_err(refuse)?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let stage = held.staged();
    let mut request = Cow::Borrowed(request);
    if let StageSource::Elsewhere(copy) = &stage.source {
        // What the caller names stays relative to the working directory.
        let start = request.directory().strip_prefix(&stage.tree).map(|rest| copy.join(rest));
        if let Ok(start) = start {
            request.to_mut().starts_in = Some(start);
        }
    }
    Ok(Opened { request, stage: Some(stage), held: Some(held) })
}

/// What the command must not read in the working directory, by relative path.
fn closed(request: &Request, policy: &Policy) -> Result<LeftOut, Refusal> {
    let (home, cwd) = (request.home.clone(), request.cwd.clone());
    let places = Places { home, cwd, tmp: None, also_written: request.also_written.clone(), staged: true, copy: None };
    let variable = |name: &str| request.variable(name).cloned();
    let found = Found::new(policy, &places, &variable, rustix::process::geteuid().as_raw(), &Disk)?;
    let paths = PathPlan::new(policy, &places, &[], &[], &found, &Disk)?;
    let inside = paths.hidden.iter().filter_map(|path| path.strip_prefix(&places.cwd).ok());
    Ok(inside.map(Path::to_owned).collect())
}

/// Whether a stage makes sense for this request.
fn suits(request: &Request, policy: &Policy) -> Result<(), String> {
    if request.purpose == Purpose::Learn || request.browser.is_some() {
        return Err("only gatekeeper run takes a stage".to_owned());
    }
    let cwd = &request.cwd;
    let around = |path: &PathBuf| cwd.join(path).starts_with(cwd) || cwd.starts_with(path);
    let writes = policy.profiles.contains(&Profile::Write) || policy.paths.write.iter().any(around);
    if policy.profiles.contains(&Profile::Unrestricted) {
        return Err(
            "profile unrestricted does not keep the command out of the stage itself; use --profile write".to_owned()
        );
    }
    match writes {
        true => Ok(()),
        false => Err(format!(
            "profile {} may not write in the working directory, so there is nothing to stage; add --profile write",
            policy.profile_name()
        )),
    }
}

/// Leaves out the mounts on files of the real tree that an earlier run has removed in the stage: there is nothing to mount on.
/// What the command creates there stays in the stage, and `apply` knows the names as protected.
pub fn leave_out_removed(plan: &mut Plan) {
    let Some(stage) = plan.stage.clone().filter(|_| plan.mounts_stage()) else { return };
    let Some(landlock) = &mut plan.landlock else { return };
    let paths = &mut landlock.paths;
    for list in [&mut paths.protected, &mut paths.links, &mut paths.covered] {
        list.retain(|path| !path.starts_with(&stage.tree) || stage_has(&stage, path));
    }
}

/// Refuses a plan that does not keep the command out of the store of stages.
pub fn permit(plan: &Plan) -> Result<(), Box<Refusal>> {
    let Some(stage) = plan.stage.as_ref().filter(|stage| stage.source != StageSource::Unmade) else { return Ok(()) };
    let refuse =
        |why: String| Err(Box::new(Refusal::setup(format!("stage: {why}")).with_verdict(plan.verdict.clone())));
    if plan.landlock.is_none() {
        return refuse("it needs Landlock, which keeps the command out of the stage itself".to_owned());
    }
    // Through another mount or path of such a tree, the command could reach the real working directory.
    let around = |tree: &PathBuf| match &stage.source {
        StageSource::Elsewhere(_) => tree.starts_with(&stage.tree) || stage.tree.starts_with(tree),
        _ => tree != &stage.tree && stage.tree.starts_with(tree),
    };
    if let Some(tree) = plan.writable().iter().find(|tree| around(tree)) {
        return refuse(format!("{} is writable, and with it the real working directory; leave it out", tree.display()));
    }
    // Below the store, only the copy in which the command works is its own.
    let copy = stage.copy();
    let is_own = |path: &PathBuf| !path.starts_with(&stage.store) || copy.iter().any(|copy| path.starts_with(copy));
    let paths = plan.landlock.iter().map(|landlock| &landlock.paths);
    let grants = paths.flat_map(|paths| [paths.grants(true), paths.grants(false)]);
    let named = grants.flat_map(|grants| grants.into_owned()).filter(|grant| grant.access != Access::List);
    if let Some(grant) = named.into_iter().find(|grant| !is_own(&grant.path)) {
        return refuse(format!(
            "{} belongs to the stages, which a command can neither read nor write; leave it out",
            grant.path.display()
        ));
    }
    match plan.writable().into_iter().find(|tree| stage.store.starts_with(tree)) {
        Some(tree) => refuse(format!(
            "the stages are kept in {}, which the command may write, because {} is writable; set XDG_STATE_HOME to a \
             directory elsewhere",
            stage.store.display(),
            tree.display()
        )),
        None => Ok(()),
    }
}

/// The lock of the stage, for the guardian. Also waits until the clock can tell later changes of the real tree apart.
pub fn lock(prepared: &Prepared) -> io::Result<Option<OwnedFd>> {
    let held = prepared.stage.lock().unwrap_or_else(PoisonError::into_inner);
    held.as_ref()
        .map(|held| {
            held.wait_for_clock();
            held.lock()
        })
        .transpose()
}

/// Lets go of the stage of a run that did not start. One that was made for it is removed.
pub fn abandon(prepared: &Prepared) {
    if let Some(held) = prepared.stage.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = held.finish(false, &[]);
    }
}

/// Records what the command changed, and reports it.
pub fn finish(prepared: &Prepared, report: &mut Report) {
    let Some(held) = prepared.stage.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let plan = &prepared.plan;
    let ran = !matches!(report.outcome, Outcome::SetupFailed | Outcome::Refused | Outcome::NotFound);
    let why = held.why_not_overlay().map(|why| format!(", because {why}")).unwrap_or_default();
    let (status, stage, detail) = match held.finish(ran, &protected(plan)) {
        Ok(None) => return,
        Ok(Some(stage)) => {
            let detail = described(plan, &stage, &why);
            (LayerStatus::Enforced, stage, detail)
        }
        Err((stage, error)) => {
            let detail =
                format!("{}; at least: they could not all be recorded: {error}", described(plan, &stage, &why));
            (LayerStatus::Partial, stage, detail)
        }
    };
    report.layers.push(LayerReport { layer: Layer::Stage, status, detail });
    report.stage = Some(stage);
}

/// What this run protected in the working directory, by the paths of the real tree.
fn protected(plan: &Plan) -> Vec<PathBuf> {
    let Some(stage) = &plan.stage else { return Vec::new() };
    let paths = plan.landlock.iter().map(|landlock| &landlock.paths);
    let lists = paths.flat_map(|paths| {
        [&paths.protected, &paths.links, &paths.covered, &paths.unwanted, &paths.hidden].into_iter().flatten()
    });
    let all = lists.chain(&plan.policy.sources);
    let real = |path: &PathBuf| match &stage.source {
        StageSource::Elsewhere(copy) => {
            path.strip_prefix(copy).map_or_else(|_| path.clone(), |rest| stage.tree.join(rest))
        }
        _ => path.clone(),
    };
    all.map(real).collect()
}

fn described(plan: &Plan, stage: &StageReport, why: &str) -> String {
    let (name, changes, means) = (&stage.name, stage.changes, stage.means.word());
    let s = if changes == 1 { "" } else { "s" };
    let mut text = format!("{name} holds {changes} change{s}, by {means}{why}");
    let Some(staged) = &plan.stage else { return text };
    if let StageSource::Elsewhere(copy) = &staged.source {
        text.push_str(&format!(
            "; the command ran in {}, and {} was not writable",
            copy.display(),
            staged.tree.display()
        ));
    }
    let inside = |path: &PathBuf| match &staged.source {
        StageSource::Elsewhere(copy) => path.starts_with(copy),
        _ => path.starts_with(&staged.tree),
    };
    let private = |path: &PathBuf| plan.places.tmp.as_ref() == Some(path) || path.starts_with("/dev");
    let direct: Vec<PathBuf> = plan.writable().into_iter().filter(|path| !inside(path) && !private(path)).collect();
    if !direct.is_empty() {
        text.push_str(&format!("; not staged, written directly: {}", crate::plan::paths::shown(&direct, 20)));
    }
    text
}
