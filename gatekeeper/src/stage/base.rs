//! What a stage was started from, recorded entry by entry after each run.
//!
//! The kernel does not say when overlayfs copies a file up. But a file whose status has not changed since before the run
//! (st_ctime, which no program can set) is what the command saw; `seen` has the rest. A file that changed during the run may
//! have been copied before or after, so it is a conflict unless the stage has the same contents.

use super::attributes::Attributes;
use super::changes::{Change, Scan, What};
use super::content::{self, Hash};
use super::copied::Copied;
use super::seen::{Before, Seen};
use super::tree::{Dir, Kind, Node, split};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path in a file of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Text {
    fn from(path: &Path) -> Text {
        path.to_str().map_or_else(|| Text::Bytes(path.as_os_str().as_bytes().to_vec()), |text| Text::Utf8(text.into()))
    }
}

impl From<Text> for PathBuf {
    fn from(text: Text) -> PathBuf {
        match text {
            Text::Utf8(text) => text.into(),
            Text::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// What the real tree had when the command changed an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    Absent,
    /// It changed during the run.
    Unknown,
    /// With the hashes of its contents and of its access lists and attributes, as far as they were recorded.
    There(Node, Option<Hash>, #[serde(default)] Option<Hash>),
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Bases {
    bases: BTreeMap<PathBuf, Base>,
    /// Entries that the command opened for writing and left equal, as they are in the stage.
    equal: BTreeMap<PathBuf, Node>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    bases: Vec<(Text, Base)>,
    equal: Vec<(Text, Node)>,
}

/// How many bytes to hash after one run. Files beyond that count as changed if their times differ.
const MOST_HASHED: u64 = 64 << 20;

impl Bases {
    pub fn of(&self, path: &Path) -> Option<&Base> {
        self.bases.get(path)
    }

    pub fn is_untouched(&self, path: &Path, now: &Node) -> bool {
        self.equal.get(path).is_some_and(|then| then.is_same(now))
    }

    /// Notes that an entry of the stage equals the real one.
    pub fn keep_equal(&mut self, path: &Path, node: Node) {
        self.equal.insert(path.to_owned(), node);
    }

    /// Replaces what is known about an entry.
    pub fn set(&mut self, path: &Path, base: Base) {
        self.bases.insert(path.to_owned(), base);
    }

    /// Forgets an entry that was applied.
    pub fn forget(&mut self, path: &Path) {
        self.bases.remove(path);
        self.equal.remove(path);
    }

    /// Forgets entries that are not among these changes, sorted by path.
    pub fn keep_only(&mut self, changes: &[Change]) {
        let order = |change: &Change, path: &PathBuf| change.path.as_os_str().cmp(path.as_os_str());
        self.bases.retain(|path, _| changes.binary_search_by(|change| order(change, path)).is_ok());
    }

    /// Records every entry of a scan that is new in the stage.
    pub fn record(
        &mut self,
        scan: &Scan,
        (real, staged): (&Dir, &Dir),
        before: Before<'_>,
        copied: Option<&Copied>,
    ) -> io::Result<()> {
        let mut kept = BTreeMap::new();
        let since = before.since;
        let mut seen = Seen::new(real, staged, before, scan);
        let mut hashed = 0;
        for change in &scan.changes {
            let base = match (self.bases.remove(&change.path), copied) {
                (Some(base), _) => base,
                (None, Some(copied)) => of_copy(change, copied, real, &mut hashed)?,
                (None, None) => of_overlay(change, &mut seen, &mut hashed)?,
            };
            kept.insert(change.path.clone(), base);
        }
        self.bases = kept;
        let known = |path: &PathBuf| self.equal.contains_key(path);
        let unchanged = |path: &PathBuf| -> io::Result<bool> {
            let (parent, name) = split(path);
            let now = real.at(parent)?.map(|dir| dir.look(name)).transpose()?.flatten();
            Ok(now.is_some_and(|now| now.ctime <= since))
        };
        let mut equal = BTreeMap::new();
        for (path, node) in &scan.equal {
            if known(path) || unchanged(path)? {
                equal.insert(path.clone(), *node);
            }
        }
        // What was equal before and was skipped by the scan stays known.
        equal.extend(std::mem::take(&mut self.equal));
        self.equal = equal;
        Ok(())
    }

    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let bases = self.bases.iter().map(|(path, base)| (path.as_path().into(), base.clone())).collect();
        let equal = self.equal.iter().map(|(path, node)| (path.as_path().into(), *node)).collect();
        Ok(serde_json::to_vec(&Stored { bases, equal })?)
    }

    pub fn from_bytes(bytes: &[u8]) -> io::Result<Bases> {
        let Stored { bases, equal } = serde_json::from_slice(bytes)?;
        Ok(Bases {
            bases: bases.into_iter().map(|(path, base)| (path.into(), base)).collect(),
            equal: equal.into_iter().map(|(path, node)| (path.into(), node)).collect(),
        })
    }
}

fn of_overlay(change: &Change, seen: &mut Seen<'_>, hashed: &mut u64) -> io::Result<Base> {
    if !seen.saw(change)? {
        return Ok(Base::Unknown);
    }
    match &change.old {
        None => Ok(Base::Absent),
        Some(old) => there(change, old, seen.real, hashed),
    }
}

fn of_copy(change: &Change, copied: &Copied, real: &Dir, hashed: &mut u64) -> io::Result<Base> {
    match copied.origin(&change.path) {
        None => Ok(Base::Absent),
        Some(origin) if change.old.is_some_and(|old| old.is_same(origin)) => there(change, origin, real, hashed),
        Some(origin) => Ok(Base::There(*origin, None, None)),
    }
}

fn there(change: &Change, old: &Node, real: &Dir, hashed: &mut u64) -> io::Result<Base> {
    // A whole tree may have been deleted: what is only removed is identified without reading it.
    let wanted = change.what != What::Deleted && *hashed + old.size <= MOST_HASHED;
    if !wanted || old.kind == Kind::Other {
        return Ok(Base::There(*old, None, None));
    }
    *hashed += old.size;
    let (parent, name) = split(&change.path);
    let dress = real.near(parent)?.map(|dir| Attributes::of(&dir, name, old)).transpose()?;
    Ok(Base::There(*old, content::hash_at(real, &change.path, old)?, dress.map(|dress| dress.hash())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let node = r#"{"kind":"file","mode":420,"uid":0,"gid":0,"dev":1,"ino":2,"size":3,"blocks":8,"mtime":[1,2],"ctime":[3,4]}"#;
        let text = format!(r#"{{"bases":[["a",{{"There":[{node},null]}}],["b","Absent"]],"equal":[]}}"#);
        let bases = Bases::from_bytes(text.as_bytes()).expect("it was valid");
        assert!(matches!(bases.of(Path::new("a")), Some(Base::There(node, None, None)) if node.ino == 2));
        assert_eq!(Bases::from_bytes(&bases.to_bytes().expect("text")).expect("its own"), bases);
    }
}
