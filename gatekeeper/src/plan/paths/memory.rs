//! /dev/shm: private to the command if a mount can replace it.

use super::granting::below;
use super::{Access, Grant, PathPlan, Tree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The directory of POSIX shared memory and semaphores.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// What becomes of it.
pub(super) enum Memory {
    /// The machine's, as a writable tree: the caller grants it by name.
    Asked(PathBuf),
    /// The same, because the run uses something in it.
    Used(PathBuf),
    /// A new one, where mounts can be made.
    Private(PathBuf),
}

impl Memory {
    /// `used`: what the run uses; `named`: what the caller grants.
    pub fn of(used: &[&Path], named: &[PathBuf], tree: &dyn Tree) -> Option<Memory> {
        let place = tree.resolve(Path::new(SHARED_MEMORY))?;
        let inside = |path: &Path| path.starts_with(&place);
        Some(match () {
            () if named.iter().any(|path| place.starts_with(path)) => Memory::Asked(place),
            () if used.iter().any(|path| inside(path)) || named.iter().any(|path| inside(path)) => Memory::Used(place),
            () => Memory::Private(place),
        })
    }
}

impl PathPlan {
    /// Grants a private /dev/shm in place of the machine's. Without mounts it is the machine's: then what is hidden in it is left
    /// out, and nothing can be created beside that.
    pub(super) fn grant_memory(
        &mut self,
        place: &Path,
        mounts: bool,
        hidden: &BTreeSet<PathBuf>,
        denied: &[PathBuf],
        tree: &dyn Tree,
    ) {
        if denied.iter().any(|denied| place.starts_with(denied)) {
            return;
        }
        if mounts {
            self.grants.push(Grant { path: place.to_owned(), access: Access::Write });
            return self.private.push(place.to_owned());
        }
        let left_out = below(place, hidden).cloned().collect();
        self.grant_around(place, Access::Write, &left_out, tree);
    }

    /// What is hidden in the private directories. Without mounts the machine's are granted around it.
    pub(super) fn hidden_in_private(&self) -> impl Iterator<Item = &PathBuf> {
        self.hidden.iter().filter(|path| self.private.iter().any(|place| path.starts_with(place)))
    }
}
