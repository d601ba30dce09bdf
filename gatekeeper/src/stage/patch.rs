//! The changes of a stage as a patch that `git apply` and `patch -p1` take.

use super::StageError;
use super::beside::Beside;
use super::changes::{Change, What, bits};
use super::content;
use super::hunks::hunks;
use super::kept::Stage;
use super::lines::Effort;
use super::quoting::prefixed;
pub use super::quoting::quoted;
use super::tree::{Dir, Kind, Node, split};
use super::unsaid::Unsaid;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longer files are listed by size and hash, like binary ones.
const LONGEST_TEXT: u64 = 32 << 20;

/// The changes of a stage, in all the forms in which they are printed.
#[derive(Debug, Default)]
pub struct Patch {
    /// How many changes there are, whether or not a form has text for them.
    pub changes: usize,
    /// What no patch can say: binary files, directories, permissions, owners, access lists. Each line begins with `# `.
    pub notes: String,
    /// The patch.
    pub text: Vec<u8>,
    /// One entry for each change, sorted by path.
    pub json: Vec<Value>,
    /// The lines of `--stat`.
    pub stat: String,
    /// Left out of the stage: FIFOs, sockets and devices.
    pub special: Vec<std::path::PathBuf>,
}

/// What a patch is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Stat,
    Json,
}

impl Stage {
    /// The changes in one form; the other parts of the [`Patch`] stay empty.
    ///
    /// # Errors
    /// A file of the stage or of the real tree cannot be read.
    pub fn diff(&self, form: Form) -> Result<Patch, StageError> {
        let patch = self.patch(form)?;
        self.note_printed()?;
        Ok(patch)
    }

    /// The same, for a reader that does not decide about them.
    pub(crate) fn patch(&self, form: Form) -> Result<Patch, StageError> {
        let scan = self.scan()?;
        let (real, staged) = (self.real()?, self.staged_dir()?);
        let (patch, unsaid) = (Patch::default(), Unsaid::default());
        let (effort, holes) = (Effort::default(), Cell::new(content::MOST_HOLES));
        let mut printer = Printer { real, staged, patch, unsaid, totals: [0; 3], widest: 0, effort, holes };
        printer.widest = scan.changes.iter().map(|change| quoted(&change.path).len()).max().unwrap_or(0).min(60);
        if form != Form::Json {
            let old = |change: &Change| Ok(printer.side(&printer.real, &change.path, change.before())?.is_opaque());
            printer.unsaid = Unsaid::of(&scan.changes, &old).map_err(|error| StageError::io("stage", error))?;
        }
        for change in &scan.changes {
            printer.add(change, form).map_err(|error| StageError::io(change.path.display().to_string(), error))?;
        }
        printer.patch.changes = scan.changes.len();
        printer.patch.special = scan.special;
        if self.may_be_torn()? && !scan.changes.is_empty() {
            printer.patch.notes.insert_str(0, &format!("# {TORN}\n"));
        }
        Ok(printer.finished(form))
    }
}

/// Said of a stage that a start of the machine may have torn.
pub(crate) const TORN: &str =
    "the machine was restarted since the command ran; what was not on disk by then is lost: files may be empty or cut";

struct Printer {
    real: Dir,
    staged: Dir,
    patch: Patch,
    unsaid: Unsaid,
    /// Files, insertions and deletions.
    totals: [usize; 3],
    widest: usize,
    effort: Effort,
    /// How many bytes of holes may still be hashed.
    holes: Cell<u64>,
}

impl Printer {
    fn add(&mut self, change: &Change, form: Form) -> io::Result<()> {
        if form == Form::Json {
            let entry = self.entry(change)?;
            self.patch.json.push(entry);
            return Ok(());
        }
        self.totals[0] += 1;
        let sides =
            [self.side(&self.real, &change.path, change.before())?, self.side(&self.staged, &change.path, change.new)?];
        let name = quoted(&change.path);
        let beside = Beside::of(change, &self.real, &self.staged)?;
        let counted = match (&sides, change.kind) {
            _ if self.unsaid.has(&change.path) => {
                let whole = self.whole(change, beside.target())?;
                self.note(change, &name, &whole);
                None
            }
            (_, Kind::Dir) if change.what != What::Type => {
                self.note(change, &name, "directory");
                None
            }
            // A patch cannot delete what it cannot show.
            ([Side::Opaque, _], Kind::Symlink) => {
                let target = beside.target().unwrap_or_default();
                self.note(change, &name, &format!("symbolic link to {target} in the place of a binary file"));
                None
            }
            ([Side::Opaque, _] | [_, Side::Opaque], _) => {
                let measured = self.measured(change)?;
                self.note(change, &name, &format!("binary file, {measured}"));
                None
            }
            ([old, new], kind) => {
                let counted = self.print(change, old.bytes(), new.bytes());
                if kind == Kind::Dir {
                    // The patch can only delete what the directory replaces.
                    self.note(change, &name, "directory");
                }
                Some(counted)
            }
        };
        self.patch.notes.push_str(&beside.notes(change, counted.is_some()));
        if form == Form::Stat {
            let shown = match (counted, change.what) {
                (Some((added, removed)), What::Added | What::Modified | What::Deleted | What::Type)
                    if change.kind != Kind::Dir =>
                {
                    format!("{} {}", added + removed, bar(added, removed))
                }
                _ => format!("{} {}", change.what.word(), change.kind.word()),
            };
            self.patch.stat.push_str(&format!(" {name:<width$} | {}\n", shown.trim_end(), width = self.widest));
        }
        if let Some((added, removed)) = counted {
            self.totals[1] += added;
            self.totals[2] += removed;
        }
        Ok(())
    }

    fn note(&mut self, change: &Change, name: &str, what: &str) {
        let modes = match (change.what, change.before(), change.new) {
            (What::Mode, Some(old), Some(new)) if bits(&old) != bits(&new) => {
                format!(" {:04o} to {:04o}", bits(&old), bits(&new))
            }
            _ => String::new(),
        };
        self.patch.notes.push_str(&format!("# {name}: {}{modes}, {what}\n", change.what.word()));
    }

    /// Prints one change; returns the lines added and removed.
    fn print(&mut self, change: &Change, old: &[u8], new: &[u8]) -> (usize, usize) {
        let (was, is) = (change.before().filter(file_or_link), change.new.filter(file_or_link));
        if let (Some(was), Some(is)) = (was, is) {
            if was.kind == Kind::File && is.kind == Kind::File {
                if old == new && git_mode(&was) == git_mode(&is) {
                    return (0, 0);
                }
                return self.file(&change.path, (Some(&was), old), (Some(&is), new));
            }
            // As git does for a change of type. A link's new target is written the same way, because patch(1) cannot edit
            // links.
            let (_, removed) = self.file(&change.path, (Some(&was), old), (None, b""));
            let (added, _) = self.file(&change.path, (None, b""), (Some(&is), new));
            return (added, removed);
        }
        self.file(&change.path, (was.as_ref(), old), (is.as_ref(), new))
    }

    fn file(&mut self, path: &Path, old: (Option<&Node>, &[u8]), new: (Option<&Node>, &[u8])) -> (usize, usize) {
        if old.0.is_none() && new.0.is_none() {
            return (0, 0);
        }
        let name = path.as_os_str().as_bytes();
        let (a, b) = (prefixed(b"a/", name), prefixed(b"b/", name));
        let text = &mut self.patch.text;
        text.extend_from_slice(&[b"diff --git ", a.as_slice(), b" ", &b, b"\n"].concat());
        match (old.0, new.0) {
            (None, Some(new)) => text.extend_from_slice(format!("new file mode {}\n", git_mode(new)).as_bytes()),
            (Some(old), None) => text.extend_from_slice(format!("deleted file mode {}\n", git_mode(old)).as_bytes()),
            (Some(old), Some(new)) if git_mode(old) != git_mode(new) => {
                text.extend_from_slice(format!("old mode {}\nnew mode {}\n", git_mode(old), git_mode(new)).as_bytes());
            }
            _ => {}
        }
        let (old_bytes, new_bytes) = (old.1, new.1);
        if old_bytes == new_bytes {
            // patch(1) makes or removes an empty file only with this line: the hashes of nothing, as git names them.
            let none = "0000000000000000000000000000000000000000";
            let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
            match (old.0, new.0) {
                (None, _) => text.extend_from_slice(format!("index {none}..{empty}\n").as_bytes()),
                (_, None) => text.extend_from_slice(format!("index {empty}..{none}\n").as_bytes()),
                _ => {}
            }
            return (0, 0);
        }
        let none: &[u8] = b"/dev/null\n";
        let line = |mark: &[u8], there: bool, name: &[u8]| {
            if there { [mark, name, b"\n"].concat() } else { [mark, none].concat() }
        };
        text.extend(line(b"--- ", old.0.is_some(), &a));
        text.extend(line(b"+++ ", new.0.is_some(), &b));
        hunks(text, old_bytes, new_bytes, &mut self.effort)
    }

    fn side(&self, root: &Dir, path: &Path, node: Option<Node>) -> io::Result<Side> {
        let Some(node) = node else { return Ok(Side::Text(Vec::new())) };
        let (parent, name) = split(path);
        let gone = || io::Error::other("it changed while it was read");
        match node.kind {
            Kind::File if node.size > LONGEST_TEXT => Ok(Side::Opaque),
            Kind::File => {
                let mut bytes = Vec::new();
                let file = root.near(parent)?.ok_or_else(gone)?.file(name)?;
                file.take(LONGEST_TEXT + 1).read_to_end(&mut bytes)?;
                let binary = bytes.iter().take(8000).any(|byte| *byte == 0) || bytes.len() as u64 > LONGEST_TEXT;
                Ok(if binary { Side::Opaque } else { Side::Text(bytes) })
            }
            Kind::Symlink => Ok(Side::Text(root.near(parent)?.ok_or_else(gone)?.target(name)?)),
            _ => Ok(Side::Text(Vec::new())),
        }
    }

    /// Size and hash: of the new contents or, for a deletion, of the deleted.
    fn measured(&self, change: &Change) -> io::Result<Measured> {
        match (change.new, change.before()) {
            (Some(new), _) => self.measure(&self.staged, change, &new),
            (None, Some(old)) => self.measure(&self.real, change, &old),
            (None, None) => Ok(Measured { size: 0, hash: None }),
        }
    }

    fn measure(&self, root: &Dir, change: &Change, node: &Node) -> io::Result<Measured> {
        let hash = content::hash_within(root, &change.path, node, &self.holes)?;
        Ok(Measured { size: node.size, hash: hash.map(|hash| content::hex(&hash)) })
    }

    /// A change of which the patch says nothing.
    fn whole(&self, change: &Change, target: Option<String>) -> io::Result<String> {
        let shown = match (change.kind, target) {
            (Kind::Symlink, Some(target)) => format!("symbolic link to {target}"),
            (Kind::File, _) => {
                format!("file, {}", self.measured(change)?)
            }
            (kind, _) => kind.word().to_owned(),
        };
        match change.before().filter(|_| change.what == What::Type) {
            Some(old) if old.kind == Kind::File => {
                let old = self.measure(&self.real, change, &old)?;
                Ok(format!("{shown} in the place of a file, {old}"))
            }
            Some(old) => Ok(format!("{shown} in the place of a {}", old.kind.word())),
            None => Ok(shown),
        }
    }

    fn entry(&self, change: &Change) -> io::Result<Value> {
        let (size, sha256) = match (change.kind, change.what) {
            (Kind::Dir | Kind::Whiteout | Kind::Other, _) | (_, What::Deleted) => (Value::Null, Value::Null),
            _ => {
                let Measured { size, hash } = self.measured(change)?;
                (json!(size), json!(hash))
            }
        };
        let kind = match change.kind {
            Kind::Dir => "dir",
            Kind::Symlink => "symlink",
            Kind::File => "file",
            Kind::Whiteout | Kind::Other => "special",
        };
        let path = change.path.to_string_lossy();
        let mut entry =
            json!({"path": path, "change": change.what.word(), "kind": kind, "size": size, "sha256": sha256});
        if let Value::Object(entry) = &mut entry {
            if change.path.to_str().is_none() {
                entry.insert("path_bytes".to_owned(), json!(change.path.as_os_str().as_bytes()));
            }
            Beside::of(change, &self.real, &self.staged)?.describe(entry);
        }
        Ok(entry)
    }

    fn finished(mut self, form: Form) -> Patch {
        if form == Form::Stat && self.totals[0] > 0 {
            let [files, added, removed] = self.totals;
            let s = |count: usize| if count == 1 { "" } else { "s" };
            self.patch.stat.push_str(&format!(
                " {files} change{}, {added} line{} added, {removed} removed\n",
                s(files),
                s(added)
            ));
        }
        self.patch
    }
}

/// One side of a change.
enum Side {
    Text(Vec<u8>),
    /// Binary, or too long.
    Opaque,
}

impl Side {
    fn is_opaque(&self) -> bool {
        matches!(self, Side::Opaque)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Side::Text(bytes) => bytes,
            Side::Opaque => &[],
        }
    }
}

/// What is said of contents that are not printed.
struct Measured {
    size: u64,
    /// `None` if the file has more holes than there is time to hash.
    hash: Option<String>,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hash {
            Some(hash) => write!(f, "{} bytes, sha256 {hash}", self.size),
            None => write!(f, "{} bytes, sparse, not hashed", self.size),
        }
    }
}

fn file_or_link(node: &Node) -> bool {
    matches!(node.kind, Kind::File | Kind::Symlink)
}

/// The modes that git knows.
fn git_mode(node: &Node) -> &'static str {
    match node.kind {
        Kind::Symlink => "120000",
        _ if node.mode & 0o100 != 0 => "100755",
        _ => "100644",
    }
}

fn bar(added: usize, removed: usize) -> String {
    let most = 40;
    let scale = |count: usize| {
        let all = added + removed;
        if all <= most { count } else { (count * most).div_ceil(all) }
    };
    format!("{}{}", "+".repeat(scale(added)), "-".repeat(scale(removed)))
}
