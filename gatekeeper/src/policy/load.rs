//! Policy files: takes a path, gives the document with everything it extends under it. The only part of the stage that
//! touches the disk, and it only reads.

use super::document::Document;
use super::error::{Place, PolicyError};
use super::field::Field;
use super::node::{MAX_BYTES, Node, Source, Value};
use super::{agent_sandbox, exec_tool, rules, schema};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many files may extend each other in a row.
pub const MAX_EXTENDS: usize = 8;

/// Reads a policy file and those that it extends.
pub fn load(path: &Path) -> Result<Document, PolicyError> {
    let mut document = Document::default();
    let mut seen = Vec::new();
    let mut next = Some((path.to_owned(), None));
    while let Some((file, place)) = next {
        let (bytes, metadata) = read(&file, place.clone())?;
        let identity = (metadata.dev(), metadata.ino());
        if let Some(place) = place {
            if seen.contains(&identity) {
                return Err(PolicyError::Circle { place, file });
            }
            if seen.len() > MAX_EXTENDS {
                return Err(PolicyError::TooDeep { place, limit: MAX_EXTENDS });
            }
        }
        seen.push(identity);
        let (mut base, at) = parse_placed(&bytes, &file)?;
        next = base.extends.take().zip(at).map(|(extends, at)| (file.with_file_name("").join(extends), Some(at)));
        base.sources = names(&file);
        document = document.over(base);
        if document.syscalls.rules.len() > rules::MAX_RULES {
            return Err(PolicyError::TooManyRules { file: path.to_owned(), limit: rules::MAX_RULES });
        }
    }
    Ok(document)
}

/// The document that these bytes say; `name` is for the errors, and its extension tells the language.
pub fn parse(bytes: &[u8], name: &Path) -> Result<Document, PolicyError> {
    parse_placed(bytes, name).map(|(document, _)| document)
}

/// And where its `extends` stands.
fn parse_placed(bytes: &[u8], name: &Path) -> Result<(Document, Option<Place>), PolicyError> {
    let source = Source::new(bytes, name)?;
    let root = Field::root(&source)?;
    if let Some(at) = exec_tool::containers(&root) {
        let (place, key) = (Some(source.place(at)), "agents".to_owned());
        return Err(PolicyError::Value { place, key, error: exec_tool::CONTAINERS.into() });
    }
    if exec_tool::is_one(&root) {
        return Ok((exec_tool::read(root)?, None));
    }
    if agent_sandbox::is_one(&root) {
        return Ok((agent_sandbox::read(root)?, None));
    }
    let at = extends_at(&root.node).map(|at| source.place(at));
    Ok((schema::read(root)?, at))
}

fn extends_at(root: &Node) -> Option<usize> {
    let Value::Table(entries) = &root.value else { return None };
    entries.iter().find(|(key, _)| key.name == "extends").map(|(key, _)| key.at)
}

/// The bytes of a regular file that is not too large to be a policy, or one byte more.
pub(crate) fn read(file: &Path, place: Option<Place>) -> Result<(Vec<u8>, Metadata), PolicyError> {
    let wrong = |source: io::Error| PolicyError::Read { place: place.clone(), file: file.to_owned(), source };
    // Non-blocking, because the open of a FIFO waits for a writer that may never come.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file);
    let opened: File = opened.map_err(wrong)?;
    let metadata = opened.metadata().map_err(wrong)?;
    if let Some(kind) = odd_kind(&metadata) {
        return Err(PolicyError::NotAFile { place, file: file.to_owned(), kind });
    }
    let mut bytes = Vec::new();
    opened.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    Ok((bytes, metadata))
}

fn odd_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("directory"),
        () if kind.is_fifo() => Some("FIFO"),
        () if kind.is_socket() => Some("socket"),
        () => Some("device"),
    }
}

/// The file by the name it was given and by its real one: whoever may change either may change the policy.
fn names(file: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for name in [std::path::absolute(file), file.canonicalize()].into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
