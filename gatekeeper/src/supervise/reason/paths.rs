//! Why a path layer refuses a call, and the grant that would allow it.

use super::Explained;
use crate::plan::paths::{TERMINALS, credentials};
use crate::plan::{Plan, Staged, caches};
use crate::policy::Profile;
use crate::report::{Layer, PROTECTED};
use crate::supervise::refused::{Refused, What};
use crate::supervise::remedy::Remedy;
use crate::supervise::target::shown;
use std::path::{Path, PathBuf};

/// The grant to write in `places`, if granting them would help. `whole` are the files that the call names.
pub(super) fn grant(plan: &Plan, mut places: Vec<PathBuf>, whole: &[PathBuf]) -> Remedy {
    places.dedup();
    let closed = |place: &PathBuf| hidden(plan, place).is_some_and(|_| place.is_dir());
    let refused =
        |place: &PathBuf| !place.is_absolute() || of_process(place) || denied(plan, place).is_some() || closed(place);
    if places.iter().any(refused) || places.iter().any(|place| fixed(plan, place).is_some()) {
        return Remedy::Nothing;
    }
    if places.iter().any(|place| is_terminal(place)) {
        return Remedy::Profile(Profile::Write);
    }
    // Granting /dev/shm would share it with all processes of the machine. Profiles read and write have a private one.
    let memory = |place: &PathBuf| place.starts_with("/dev/shm");
    let shared = !plan.policy.profiles.iter().any(|profile| matches!(profile, Profile::Read | Profile::Write));
    if shared && !plan.policy.profiles.contains(&Profile::Custom) && !places.is_empty() && places.iter().all(memory) {
        return Remedy::Profile(Profile::Read);
    }
    let home = plan.places.home.as_deref().and_then(|home| std::fs::canonicalize(home).ok());
    let set = &plan.policy.env.set;
    let moved = |path: &PathBuf| home.as_deref().is_some_and(|home| caches::moves(home, path, set));
    match home.as_deref() {
        Some(home) if !whole.is_empty() && whole.iter().all(moved) => {
            Remedy::Cache(caches::private(home, &plan.places.cwd))
        }
        _ => Remedy::Write(places),
    }
}

/// Programs on a terminal control it, which only a profile grants.
fn is_terminal(path: &Path) -> bool {
    TERMINALS.iter().any(|terminal| path.starts_with(terminal))
}

/// A denied path in this directory, if that is why nothing can be created here: nothing could be mounted.
fn fixed(plan: &Plan, place: &Path) -> Option<PathBuf> {
    let paths = plan.landlock.as_ref().filter(|_| plan.is_unmounted()).map(|landlock| &landlock.paths)?;
    let is_fixed = paths.fixed_without_mounts().iter().any(|fixed| fixed == place);
    paths.denied.iter().find(|denied| is_fixed && denied.starts_with(place)).cloned()
}

/// Whether a path is below /proc/PID: a grant would not help, because the PID changes with each run.
pub(super) fn of_process(path: &Path) -> bool {
    let number = path.strip_prefix("/proc").ok().and_then(|rest| rest.iter().next());
    number.is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
}

pub(super) fn denied(plan: &Plan, path: &Path) -> Option<PathBuf> {
    let denied = plan.policy.paths.deny.iter().map(|path| plan.places.absolute(path));
    let by_pattern = plan.landlock.iter().flat_map(|landlock| landlock.paths.denied.iter().cloned());
    let mut denied = denied.filter_map(|path| std::fs::canonicalize(path).ok()).chain(by_pattern);
    denied.find(|denied| path.starts_with(denied))
}

fn hidden<'a>(plan: &'a Plan, path: &Path) -> Option<&'a PathBuf> {
    let mut hidden = plan.landlock.iter().flat_map(|landlock| &landlock.paths.hidden);
    hidden.find(|hidden| path.starts_with(hidden))
}

pub(super) fn write_rule(plan: &Plan) -> String {
    let writable = plan.written();
    if writable.is_empty() {
        return format!("profile {} writes nothing", plan.policy.profile_name());
    }
    let tmp = plan.places.tmp.as_deref();
    let named = writable.iter().take(4).map(|path| match tmp == Some(path) {
        true => "the private TMPDIR".to_owned(),
        false => shown(path),
    });
    let more = if writable.len() > 4 { ", ..." } else { "" };
    format!("may write only below {}{more}", named.collect::<Vec<_>>().join(", "))
}

/// The rule by which a path layer will refuse a call, and the grant that would allow it.
pub fn of_path(plan: &Plan, refused: &Refused) -> Explained {
    if let Some(denied) = denied(plan, &refused.path) {
        return (format!("denied path {}", shown(&denied)), Remedy::Nothing);
    }
    let staged =
        |stage: &Staged| refused.path.starts_with(&stage.store) && !refused.path.starts_with(plan.places.work());
    if plan.stage.as_ref().is_some_and(staged) {
        return ("the stages: a command may not reach the stage that holds its changes".to_owned(), Remedy::Nothing);
    }
    let whole = std::slice::from_ref(&refused.path);
    match (refused.what, refused.layer, hidden(plan, &refused.path)) {
        // A grant to read it would not let it be changed.
        (What::Write, Layer::Namespaces, Some(hidden)) => {
            (format!("credentials: {}", shown(hidden)), Remedy::Write(vec![hidden.clone()]))
        }
        (What::Write, Layer::Namespaces, None) => {
            let place = refused.grant.first().map(|place| shown(place)).unwrap_or_default();
            let holds = refused.grant.first().is_some_and(|place| !refused.path.starts_with(place));
            let rule = match holds {
                true => format!("{PROTECTED}: contains {place}, which must stay where it is"),
                false => format!("{PROTECTED}: {place} is read-only in a writable tree"),
            };
            (rule, Remedy::Write(refused.grant.clone()))
        }
        (What::Write, ..) => {
            let fixed = refused.grant.iter().find_map(|place| Some((place, fixed(plan, place)?)));
            let rule = fixed.map(|(place, denied)| {
                let (place, denied) = (shown(place), shown(&denied));
                format!(
                    "{place} holds the denied path {denied}, so nothing can be created in it without a mount namespace"
                )
            });
            (rule.unwrap_or_else(|| write_rule(plan)), grant(plan, refused.grant.clone(), whole))
        }
        (What::Execute, ..) => {
            ("not among the programs that may be executed".to_owned(), Remedy::Execute(refused.path.clone()))
        }
        // A grant of a parent directory does not open credentials: suggest the file by the path that was tried. Where a mount covers
        // its directory, only that.
        (What::Read, _, Some(hidden))
            if !plan.policy.limits_programs()
                || credentials(&plan.places, &crate::plan::disk::Disk).contains(hidden) =>
        {
            let mut covered = plan.landlock.iter().flat_map(|landlock| &landlock.paths.covered);
            let whole = covered.any(|covered| refused.path.starts_with(covered));
            let named = if whole { hidden } else { &refused.path };
            (format!("credentials: {}", shown(hidden)), Remedy::Read(named.clone()))
        }
        (What::Read, _, Some(hidden)) => {
            let rule = format!("{} is closed, because only some commands are allowed", shown(hidden));
            (rule, Remedy::Execute(refused.path.clone()))
        }
        (What::Read, ..) if of_process(&refused.path) => {
            ("not among the paths that may be read".to_owned(), Remedy::Nothing)
        }
        (What::Read, ..) if is_terminal(&refused.path) => {
            ("not among the devices of the profile".to_owned(), Remedy::Profile(Profile::Write))
        }
        (What::Read, ..) => ("not among the paths that may be read".to_owned(), Remedy::Read(refused.path.clone())),
    }
}
