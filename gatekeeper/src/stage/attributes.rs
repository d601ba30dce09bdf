//! Owner, access lists and extended attributes of entries.

use super::changes::bits;
use super::content::{Hash, hash_bytes};
use super::tree::{Dir, Kind, Node};
use crate::trust::by_descriptor;
use rustix::fs::{XattrFlags, getxattr, lgetxattr, listxattr, llistxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// The kernel's XATTR_SIZE_MAX and XATTR_LIST_MAX.
const LONGEST: usize = 64 << 10;

/// What a command can set on an entry beside its mode: the user's own attributes and access lists. Not the marks of
/// overlayfs, and no capabilities.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Attributes(BTreeMap<OsString, Vec<u8>>);

/// The names of overlayfs's own marks.
pub const OVERLAY: &[u8] = b"user.overlay.";

fn is_kept(name: &[u8]) -> bool {
    let users = name.starts_with(b"user.") && !name.starts_with(OVERLAY);
    users || name == ACCESS.as_bytes() || name == DEFAULT.as_bytes()
}

impl Attributes {
    /// Those of a file or directory. Links have none.
    pub fn of(dir: &Dir, file_name: &OsStr, node: &Node) -> io::Result<Attributes> {
        if !matches!(node.kind, Kind::File | Kind::Dir) {
            return Ok(Attributes::default());
        }
        let path = by_descriptor(dir.descriptor()).join(file_name);
        let names = listed(|room| llistxattr(&path, room))?;
        if names.is_empty() {
            return Ok(Attributes::default());
        }
        let mut room = vec![0u8; LONGEST];
        let mut found = BTreeMap::new();
        for name in names {
            match lgetxattr(&path, &name, &mut room[..]) {
                Ok(length) => drop(found.insert(name, room.get(..length).unwrap_or_default().to_vec())),
                Err(Errno::ACCESS) => return dir.readable(file_name, Attributes::of_readable),
                Err(Errno::NODATA) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Attributes(found))
    }

    fn of_readable(path: &Path) -> io::Result<Attributes> {
        let mut room = vec![0u8; LONGEST];
        let mut found = BTreeMap::new();
        for name in listed(|room| listxattr(path, room))? {
            let length = getxattr(path, &name, &mut room[..])?;
            found.insert(name, room.get(..length).unwrap_or_default().to_vec());
        }
        Ok(Attributes(found))
    }

    /// Gives an open file or directory these attributes, and no others of these kinds. `place` may be open for its path only.
    pub fn give(&self, place: BorrowedFd<'_>) -> io::Result<()> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
        let before = listed(|room| listxattr(&path, room))?;
        if self.0.is_empty() && before.is_empty() {
            return Ok(());
        }
        let mut room = vec![0u8; LONGEST];
        for name in before.iter().filter(|name| !self.0.contains_key(*name)) {
            match removexattr(&path, name) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for (name, value) in &self.0 {
            // Setting an attribute needs the permission to write, so what is there already stays.
            if getxattr(&path, name, &mut room[..]).is_ok_and(|length| room.get(..length) == Some(value)) {
                continue;
            }
            match setxattr(&path, name, value, XattrFlags::empty()) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub fn hash(&self) -> Hash {
        let mut bytes = Vec::new();
        for part in self.0.iter().flat_map(|(name, value)| [name.as_bytes(), value]) {
            bytes.extend_from_slice(&part.len().to_le_bytes());
            bytes.extend_from_slice(part);
        }
        hash_bytes(&bytes)
    }

    /// The access lists as text, as setfacl(1) takes them.
    pub fn access_lists(&self) -> Option<String> {
        let list = |name: &str, prefix: &str| Some(acl_text(self.0.get(OsStr::new(name))?, prefix));
        let lists: Vec<String> = [list(ACCESS, ""), list(DEFAULT, "default:")].into_iter().flatten().collect();
        (!lists.is_empty()).then(|| lists.join(","))
    }

    /// The attributes other than access lists.
    pub fn users(&self) -> Vec<(&OsString, &Vec<u8>)> {
        self.0.iter().filter(|(name, _)| name.as_bytes().starts_with(b"user.")).collect()
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.users().into_iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    }
}

/// The names that `list` gives. Most files have none, so a small buffer comes first.
fn listed(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> io::Result<Vec<OsString>> {
    let mut few = [0u8; 512];
    match list(&mut few) {
        Ok(length) => Ok(names(few.get(..length).unwrap_or_default())),
        // The file system has none.
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(Errno::RANGE) => {
            let mut many = vec![0u8; LONGEST];
            let length = list(&mut many)?;
            Ok(names(many.get(..length).unwrap_or_default()))
        }
        Err(error) => Err(error.into()),
    }
}

fn names(list: &[u8]) -> Vec<OsString> {
    list.split(|byte| *byte == 0).filter(|name| is_kept(name)).map(|name| OsString::from_vec(name.to_vec())).collect()
}

/// The kernel's form of an access list: a version, then tag, permissions and id of each entry (linux/posix_acl_xattr.h).
fn acl_text(value: &[u8], prefix: &str) -> String {
    let entry = |entry: &[u8]| {
        let [tag_low, tag_high, perm, _, a, b, c, d] = entry.try_into().unwrap_or([0u8; 8]);
        let id = u32::from_le_bytes([a, b, c, d]);
        let who = match u16::from_le_bytes([tag_low, tag_high]) {
            0x01 => "user:".to_owned(),
            0x02 => format!("user:{id}"),
            0x04 => "group:".to_owned(),
            0x08 => format!("group:{id}"),
            0x10 => "mask:".to_owned(),
            0x20 => "other:".to_owned(),
            other => format!("{other}:"),
        };
        let bit = |bit: u8, letter: char| if perm & bit != 0 { letter } else { '-' };
        format!("{prefix}{who}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
    };
    value.get(4..).unwrap_or_default().chunks_exact(8).map(entry).collect::<Vec<_>>().join(",")
}

/// Whether two entries of the same kind have the same permissions, owner and attributes. Only root can give files away; for
/// other users the owner in the stage is always their own.
pub fn is_alike(one: (&Dir, &OsStr, &Node), other: (&Dir, &OsStr, &Node)) -> io::Result<bool> {
    if one.2.kind == Kind::Symlink {
        return Ok(true);
    }
    let owners = |node: &Node| (node.uid, node.gid);
    if bits(one.2) != bits(other.2) || rustix::process::geteuid().is_root() && owners(one.2) != owners(other.2) {
        return Ok(false);
    }
    Ok(Attributes::of(one.0, one.1, one.2)? == Attributes::of(other.0, other.1, other.2)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists_read_like_those_of_setfacl() {
        let mut list = vec![2, 0, 0, 0];
        for (tag, perm, id) in
            [(1u16, 6u16, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
        {
            list.extend(tag.to_le_bytes());
            list.extend(perm.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let found = Attributes(BTreeMap::from([(ACCESS.into(), list), ("user.note".into(), b"x".to_vec())]));
        let text = "user::rw-,user:1000:r--,group::r--,mask::r--,other::---";
        assert_eq!(found.access_lists().as_deref(), Some(text));
        assert_eq!(found.names(), ["user.note"]);
    }
}
