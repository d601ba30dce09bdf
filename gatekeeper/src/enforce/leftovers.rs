//! Removes files that a command must not leave behind, such as a new git configuration that makes the user's next `git`
//! execute a program. A mount could only prevent them by leaving an empty file in the user's tree.

use crate::plan::Plan;
use crate::plan::disk::Disk;
use crate::plan::paths::Tree;
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::trust::{self, Found, Hostile};
use rustix::fs::{AtFlags, Mode, unlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Removes them after the last process has ended, and reports each.
pub fn remove(plan: &Plan, layers: &mut [LayerReport]) {
    let unwanted: Vec<&PathBuf> = plan.landlock.iter().flat_map(|landlock| &landlock.paths.unwanted).collect();
    if unwanted.is_empty() {
        return;
    }
    let mut hostile = Hostile::default();
    plan.writable().iter().for_each(|tree| hostile.add(tree));
    for path in unwanted {
        let result = match remove_one(path, &hostile) {
            Ok(false) => continue,
            Ok(true) => "it was removed".to_owned(),
            Err(error) => format!("it could not be removed: {error}"),
        };
        let note = format!("the command created {}, which git reads as configuration: {result}", path.display());
        if let Some(layer) = layers.iter_mut().find(|layer| layer.layer == Layer::Namespaces) {
            layer.status = LayerStatus::Partial;
            layer.detail = format!("{}; {note}", layer.detail);
        }
    }
}

/// Removes a file; false if there was none. The command may have removed its own permissions on the directories above,
/// which this user, who owns them, restores.
fn remove_one(path: &Path, hostile: &Hostile) -> io::Result<bool> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    while let Some(shut) = Disk.shut(path) {
        open_again(&trust::walk(&shut, hostile)?)?;
    }
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        other => other?,
    };
    let directory = trust::walk(above, hostile)?;
    match unlinkat(&directory, name, AtFlags::empty()) {
        Err(Errno::ACCESS) => {
            open_again(&directory)?;
            unlinkat(&directory, name, AtFlags::empty())?;
        }
        other => other?,
    }
    Ok(true)
}

/// Gives the owner every permission on a directory.
fn open_again(directory: &Found) -> io::Result<()> {
    let mode = Mode::from_raw_mode(directory.stat.st_mode & 0o7777) | Mode::RWXU;
    if mode.as_raw_mode() == directory.stat.st_mode & 0o7777 {
        // Not its mode, but something else denies access.
        return Err(Errno::ACCESS.into());
    }
    Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", directory.file.as_raw_fd()), mode)?)
}
