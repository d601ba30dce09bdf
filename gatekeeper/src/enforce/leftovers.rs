//! What a command must not leave behind: files that were not there, that no mount could keep from being made without
//! litter in the user's tree, and that would make the user's next command execute a program of the command's choice.

use crate::plan::Plan;
use crate::supervise::report::{Layer, LayerReport, LayerStatus};
use crate::trust::{self, Hostile};
use rustix::fs::{AtFlags, unlinkat};
use std::path::Path;

/// Removes them once the whole tree of processes has ended, and says so.
pub fn remove(plan: &Plan, layers: &mut [LayerReport]) {
    let paths = plan.landlock.iter().flat_map(|landlock| &landlock.paths.unwanted);
    let made: Vec<&Path> = paths.map(AsRef::as_ref).filter(|path: &&Path| path.symlink_metadata().is_ok()).collect();
    if made.is_empty() {
        return;
    }
    let mut hostile = Hostile::default();
    plan.writable().iter().for_each(|tree| hostile.add(tree));
    for path in made {
        let became = match remove_one(path, &hostile) {
            Ok(()) => "it was removed".to_owned(),
            Err(error) => format!("it could not be removed: {error}"),
        };
        let told = format!("the command made {}, from which git takes its configuration: {became}", path.display());
        if let Some(layer) = layers.iter_mut().find(|layer| layer.layer == Layer::Namespaces) {
            layer.status = LayerStatus::Partial;
            layer.detail = format!("{}; {told}", layer.detail);
        }
    }
}

fn remove_one(path: &Path, hostile: &Hostile) -> std::io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let directory = trust::walk(above, hostile)?;
    Ok(unlinkat(&directory, name, AtFlags::empty())?)
}
