//! Which changes the real tree does not allow any more.

use super::StageError;
use super::apply::Conflict;
use super::attributes::Attributes;
use super::base::Base;
use super::changes::{Change, What};
use super::content::{self, Hash};
use super::kept::Stage;
use super::tree::{Dir, Kind, Node, split};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

impl Stage {
    pub(super) fn conflicts(&self, changes: &[&Change], real: &Dir) -> Result<Vec<Conflict>, StageError> {
        let makes = |change: &&&Change| change.kind == Kind::Dir && matches!(change.what, What::Added | What::Type);
        let made: BTreeSet<&Path> = changes.iter().filter(makes).map(|change| change.path.as_path()).collect();
        let mut conflicts = Vec::new();
        for change in changes {
            let why = self.conflict(change, real, &made);
            let why = why.map_err(|error| StageError::io(change.path.display().to_string(), error))?;
            conflicts.extend(why.map(|why| Conflict { path: change.path.clone(), why }));
        }
        Ok(conflicts)
    }

    /// Why a change cannot be made any more. `change.old` is what the real tree has now; `made`: the directories that `apply` makes.
    fn conflict(&self, change: &Change, real: &Dir, made: &BTreeSet<&Path>) -> io::Result<Option<&'static str>> {
        if self.keeps_more(change, real)? {
            return Ok(Some("holds what the stage does not have"));
        }
        Ok(match (self.bases.of(&change.path), &change.old) {
            (Some(Base::Absent), None) => {
                let (parent, _) = split(&change.path);
                let has_place = made.contains(parent) || real.near(parent)?.is_some();
                (!has_place).then_some("its directory was removed or replaced in the real tree meanwhile")
            }
            (Some(Base::Absent), Some(_)) => Some("created in the real tree meanwhile"),
            (Some(Base::Unknown), _) => Some("changed in the real tree during a run"),
            (Some(Base::There(..)), None) => Some("deleted in the real tree meanwhile"),
            (Some(Base::There(base, hash, dress)), Some(now)) => {
                let untouched = now.kind != Kind::Dir && now.is_same(base);
                let is_same = || -> io::Result<bool> {
                    let alike = (now.kind, now.mode) == (base.kind, base.mode);
                    let equal = now.is_same_but_for_names(base)
                        || hash.is_some() && alike && content::hash_at(real, &change.path, now)? == *hash;
                    Ok(equal && is_dressed((base, dress.as_ref()), change, now, real)?)
                };
                (!untouched && !is_same()?).then_some("changed in the real tree meanwhile")
            }
            (None, _) => Some("created or changed in the real tree meanwhile"),
        })
    }

    /// Whether a change removes a directory of the real tree in which there is more than the copy was made from.
    fn keeps_more(&self, change: &Change, real: &Dir) -> io::Result<bool> {
        let removes = matches!(change.what, What::Deleted | What::Type);
        let was = change.old.filter(|old| removes && old.kind == Kind::Dir);
        let (Some(copied), Some(_)) = (&self.copied, was) else { return Ok(false) };
        let names = real.at(&change.path)?.map(|dir| dir.names()).transpose()?.unwrap_or_default();
        Ok(names.iter().any(|name| !copied.has(&change.path.join(name))))
    }
}

/// Whether an entry of the real tree has the owner, the access lists and the attributes that it had, or has the new owner: an
/// `apply` that was killed may have given it that.
fn is_dressed(before: (&Node, Option<&Hash>), change: &Change, now: &Node, real: &Dir) -> io::Result<bool> {
    let (base, dress) = before;
    let owner = |node: &Node| (node.uid, node.gid);
    if owner(now) != owner(base) && change.new.is_none_or(|new| owner(now) != owner(&new)) {
        return Ok(false);
    }
    // Stages of earlier versions have no record of the rest.
    let Some(dress) = dress else { return Ok(true) };
    let (parent, name) = split(&change.path);
    match real.near(parent)? {
        Some(dir) => Ok(Attributes::of(&dir, name, now)?.hash() == *dress),
        None => Ok(false),
    }
}
