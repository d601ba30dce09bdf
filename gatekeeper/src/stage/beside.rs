//! What a change does beside contents: permissions, owner, access lists and attributes, and where a link leads. A patch can
//! say little of it, so `diff` prints it in lines of its own.

use super::attributes::Attributes;
use super::changes::{Change, What, bits};
use super::patch::quoted;
use super::tree::{Dir, Kind, Node, split};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A value before, if there was something of the same kind, and after.
type Changed<T> = (Option<T>, T);

#[derive(Debug, Default)]
pub struct Beside {
    mode: Option<Changed<u32>>,
    /// User and group.
    owner: Option<Changed<(u32, u32)>>,
    /// The access lists of the stage; empty if they were removed.
    access: Option<String>,
    /// The names of the attributes of the stage.
    attributes: Option<Vec<String>>,
    /// Where a link of the stage leads.
    target: Option<Vec<u8>>,
}

/// The permissions that git's patches know.
const OF_GIT: [u32; 2] = [0o644, 0o755];

impl Beside {
    pub fn of(change: &Change, real: &Dir, staged: &Dir) -> io::Result<Beside> {
        let Some(new) = &change.new else { return Ok(Beside::default()) };
        let (parent, name) = split(&change.path);
        let gone = || io::Error::other("it changed while it was read");
        let dir = staged.near(parent)?.ok_or_else(gone)?;
        if new.kind == Kind::Symlink {
            return Ok(Beside { target: Some(dir.target(name)?), ..Beside::default() });
        }
        let old = change.before().filter(|old| old.kind == new.kind);
        let old = old.as_ref();
        let now = Attributes::of(&dir, name, new)?;
        let before = match (old, real.near(parent)?) {
            (Some(old), Some(real)) => Attributes::of(&real, name, old)?,
            _ => Attributes::default(),
        };
        let owner = |node: &Node| (node.uid, node.gid);
        let given = match old {
            // What a user other than root makes is that user's own, whatever the stage says.
            _ if !rustix::process::geteuid().is_root() => false,
            Some(old) => owner(old) != owner(new),
            None => owner(new) != (0, 0),
        };
        let access = now.access_lists();
        Ok(Beside {
            mode: old.is_none_or(|old| bits(old) != bits(new)).then(|| (old.map(bits), bits(new))),
            owner: given.then(|| (old.map(owner), owner(new))),
            access: (access != before.access_lists()).then(|| access.unwrap_or_default()),
            attributes: (now.users() != before.users()).then(|| now.names()),
            target: None,
        })
    }

    /// The lines that begin with `# `. `said`: whether the patch itself has the executable bit.
    pub fn notes(&self, change: &Change, said: bool) -> String {
        let name = quoted(&change.path);
        let mut lines = String::new();
        let mut line = |text: String| lines.push_str(&format!("# {name}: {text}\n"));
        let of_git = |mode: &u32| said && OF_GIT.contains(mode);
        match self.mode {
            // The line about the directory or the permissions says it.
            Some((Some(_), _)) if change.what == What::Mode && !said => {}
            Some((Some(old), new)) if !of_git(&old) || !of_git(&new) => line(format!("mode {old:04o} to {new:04o}")),
            Some((None, new)) if !of_git(&new) && new != usual(change.kind) => line(format!("mode {new:04o}")),
            _ => {}
        }
        match self.owner {
            Some((Some(old), new)) => line(format!("owner {}:{} to {}:{}", old.0, old.1, new.0, new.1)),
            Some((None, new)) => line(format!("owner {}:{}", new.0, new.1)),
            None => {}
        }
        match self.access.as_deref() {
            Some("") => line("access list removed".to_owned()),
            Some(list) => line(format!("access list {list}")),
            None => {}
        }
        match self.attributes.as_deref() {
            Some([]) => line("attributes removed".to_owned()),
            Some(names) => {
                let names: Vec<String> = names.iter().map(|name| quoted(Path::new(name))).collect();
                line(format!("attributes {}", names.join(", ")));
            }
            None => {}
        }
        lines
    }

    /// Where a link leads, quoted like a name.
    pub fn target(&self) -> Option<String> {
        self.target.as_ref().map(|target| quoted(Path::new(OsStr::from_bytes(target))))
    }

    /// Adds keys to an entry of `--json`.
    pub fn describe(&self, entry: &mut Map<String, Value>) {
        let octal = |mode: u32| json!(format!("{mode:04o}"));
        if let Some((old, new)) = self.mode {
            entry.insert("mode".to_owned(), octal(new));
            old.map(|old| entry.insert("old_mode".to_owned(), octal(old)));
        }
        if let Some((old, new)) = self.owner {
            entry.insert("owner".to_owned(), json!([new.0, new.1]));
            old.map(|old| entry.insert("old_owner".to_owned(), json!([old.0, old.1])));
        }
        if let Some(list) = &self.access {
            entry.insert("access_list".to_owned(), json!(list));
        }
        if let Some(names) = &self.attributes {
            entry.insert("attributes".to_owned(), json!(names));
        }
        if let Some(target) = &self.target {
            entry.insert("target".to_owned(), json!(String::from_utf8_lossy(target)));
        }
    }
}

fn usual(kind: Kind) -> u32 {
    if kind == Kind::Dir { 0o755 } else { 0o644 }
}
