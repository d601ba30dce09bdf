//! Shared memory in files: private to the command where a mount can make it so.

use super::{Access, Grant, PathPlan, Tree};
use std::path::{Path, PathBuf};

/// Where POSIX shared memory and semaphores are files.
const SHARED_MEMORY: &str = "/dev/shm";

impl PathPlan {
    /// Grants shared memory, as a place of the command's own. Where the run uses something in the real one, or the caller
    /// grants it by name, the real one is granted: `used` are those paths, `named` those that were granted by name.
    pub(super) fn grant_memory(
        &mut self,
        writable: &mut Vec<PathBuf>,
        used: &[&Path],
        named: &[PathBuf],
        tree: &dyn Tree,
    ) {
        let Some(place) = tree.resolve(Path::new(SHARED_MEMORY)) else { return };
        if named.iter().any(|path| place.starts_with(path)) {
            // Asked for: no more is said about it.
            return writable.push(place);
        }
        let inside = |path: &Path| path.starts_with(&place);
        if used.iter().any(|path| inside(path)) || named.iter().any(|path| inside(path)) {
            self.shared.push(place.clone());
            return writable.push(place);
        }
        self.grants.push(Grant { path: place.clone(), access: Access::Write });
        self.private.push(place);
    }

    /// Leaves a private place as it is outside where the run uses one of these in it.
    pub fn keep_reachable<'a>(&mut self, used: impl Iterator<Item = &'a Path>) {
        let used: Vec<&Path> = used.collect();
        let is_used = |place: &PathBuf| used.iter().any(|path| path.starts_with(place));
        let (kept, private) = std::mem::take(&mut self.private).into_iter().partition(is_used);
        self.private = private;
        self.shared.extend::<Vec<PathBuf>>(kept);
    }
}
