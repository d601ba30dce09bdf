//! Changes that no patch can say: those of special files, and those between a directory and something else that a patch cannot
//! delete.

use super::changes::{Change, What};
use super::tree::Kind;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The topmost paths of such changes. None of what is at and below them belongs in a patch.
#[derive(Debug, Default)]
pub struct Unsaid(BTreeSet<PathBuf>);

impl Unsaid {
    /// `is_opaque`: whether the old contents cannot be printed.
    pub fn of(changes: &[Change], is_opaque: &dyn Fn(&Change) -> io::Result<bool>) -> io::Result<Unsaid> {
        let mut unsaid = Unsaid::default();
        let (mut replaced, mut holding) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            // No patch knows FIFOs, sockets and devices.
            if change.before().is_some_and(|old| is_special(old.kind)) {
                unsaid.0.insert(change.path.clone());
            }
        }
        for change in changes.iter().filter(|change| change.what == What::Type) {
            match change.before().map(|old| old.kind) {
                Some(Kind::Dir) => drop(replaced.insert(change.path.as_path())),
                Some(_) if change.kind == Kind::Dir && is_opaque(change)? => drop(unsaid.0.insert(change.path.clone())),
                _ => {}
            }
        }
        let of = |path: &Path| path.ancestors().find(|above| replaced.contains(above)).map(Path::to_owned);
        let deleted: Vec<(&Change, PathBuf)> = changes
            .iter()
            .filter(|change| change.what == What::Deleted)
            .filter_map(|change| Some((change, of(&change.path)?)))
            .collect();
        // A patch deletes files, and git a directory with its last file.
        for (change, top) in deleted.iter().filter(|(change, _)| change.kind != Kind::Dir) {
            if is_special(change.kind) || is_opaque(change)? {
                unsaid.0.insert(top.clone());
            }
            holding.extend(change.path.ancestors().skip(1).take_while(|above| above.starts_with(top)));
        }
        let directories = deleted.iter().filter(|(change, _)| change.kind == Kind::Dir);
        let directories = directories.map(|(change, top)| (change.path.as_path(), top.as_path()));
        let empty = directories.chain(replaced.iter().map(|top| (*top, *top)));
        unsaid.0.extend(empty.filter(|(path, _)| !holding.contains(path)).map(|(_, top)| top.to_owned()));
        Ok(unsaid)
    }

    pub fn has(&self, path: &Path) -> bool {
        !self.0.is_empty() && path.ancestors().any(|above| self.0.contains(above))
    }
}

fn is_special(kind: Kind) -> bool {
    matches!(kind, Kind::Other | Kind::Whiteout)
}
