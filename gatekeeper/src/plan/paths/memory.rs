//! /dev/shm: private to the command if a mount can replace it.

use super::{Access, Grant, PathPlan, Tree};
use std::path::{Path, PathBuf};

/// The directory of POSIX shared memory and semaphores.
const SHARED_MEMORY: &str = "/dev/shm";

impl PathPlan {
    /// Grants a private /dev/shm. If the run uses a path in the real one (`used`), or the caller grants one by name
    /// (`named`), grants the real one instead.
    pub(super) fn grant_memory(
        &mut self,
        writable: &mut Vec<PathBuf>,
        used: &[&Path],
        named: &[PathBuf],
        tree: &dyn Tree,
    ) {
        let Some(place) = tree.resolve(Path::new(SHARED_MEMORY)) else { return };
        if named.iter().any(|path| place.starts_with(path)) {
            // The caller asked for it, so the report need not mention it.
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

    /// Keeps the real directory instead of a private one if the run uses one of these paths in it.
    pub fn keep_reachable<'a>(&mut self, used: impl Iterator<Item = &'a Path>) {
        let used: Vec<&Path> = used.collect();
        let is_used = |place: &PathBuf| used.iter().any(|path| path.starts_with(place));
        let (kept, private) = std::mem::take(&mut self.private).into_iter().partition(is_used);
        self.private = private;
        self.shared.extend::<Vec<PathBuf>>(kept);
    }
}
