//! Policy files: takes a path, gives the document merged over the files that it extends. The only part of `policy` that
//! reads the disk.

use super::document::Document;
use super::error::{Place, PolicyError};
use super::field::Field;
use super::node::{MAX_BYTES, Node, Source, Value};
use super::{agent_sandbox, exec_tool, rules, schema};
use crate::trust::{self, Found, Hostile, Untrusted};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest chain of `extends`.
pub const MAX_EXTENDS: usize = 8;

/// Reads a policy file and the files that it extends. Follows no symbolic link in the working directory of this process,
/// where an earlier run may have made one.
pub fn load(path: &Path) -> Result<Document, PolicyError> {
    load_below(path, &Hostile::here())
}

/// The same, but follows no link below the `hostile` trees. The link's target would not be protected from the command.
pub fn load_below(path: &Path, hostile: &Hostile) -> Result<Document, PolicyError> {
    load_files(path, hostile).map(|(document, _)| document)
}

/// Files by the names that led to them, with their bytes: the policy itself first, then what it extends.
pub(crate) type Files = Vec<(PathBuf, Vec<u8>)>;

/// The same, with the files.
pub(crate) fn load_files(path: &Path, hostile: &Hostile) -> Result<(Document, Files), PolicyError> {
    let mut document = Document::default();
    let mut files = Vec::new();
    let mut seen = Vec::new();
    let mut next = Some((path.to_owned(), None));
    while let Some((file, place)) = next {
        let (bytes, found) = read(&file, place.clone(), hostile)?;
        let identity = (found.stat.st_dev, found.stat.st_ino);
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
        base.sources = names(&file, found.real);
        document = document.over(base);
        if document.syscalls.rules.len() > rules::MAX_RULES {
            return Err(PolicyError::TooManyRules { file: path.to_owned(), limit: rules::MAX_RULES });
        }
        files.push((file, bytes));
    }
    Ok((document, files))
}

/// Parses a policy. `name` appears in errors, and its extension selects TOML or JSON.
pub fn parse(bytes: &[u8], name: &Path) -> Result<Document, PolicyError> {
    parse_placed(bytes, name).map(|(document, _)| document)
}

/// The document, and the position of its `extends`.
fn parse_placed(bytes: &[u8], name: &Path) -> Result<(Document, Option<Place>), PolicyError> {
    let source = Source::new(bytes, name)?;
    let root = Field::root(&source)?;
    if let Some(at) = exec_tool::containers(&root) {
        let (place, key) = (Some(source.place(at)), "agents".to_owned());
        return Err(PolicyError::Value { place, key, error: exec_tool::CONTAINERS.into() });
    }
    if exec_tool::is_one(&root) {
        if let Some((key, at)) = exec_tool::of_a_policy(&root) {
            let (place, key) = (Some(source.place(at)), key.to_owned());
            return Err(PolicyError::Value { place, key, error: exec_tool::NOT_READ.into() });
        }
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

/// The bytes of a regular file: at most one more than a policy may have, so that the caller sees that it is too large.
pub(crate) fn read(file: &Path, place: Option<Place>, hostile: &Hostile) -> Result<(Vec<u8>, Found), PolicyError> {
    let wrong = |source| PolicyError::Read { place: place.clone(), file: file.to_owned(), source };
    let (opened, found) = match trust::open_regular(file, hostile) {
        Err(Untrusted::NotAFile { kind, .. }) => {
            return Err(PolicyError::NotAFile { place, file: file.to_owned(), kind });
        }
        other => other.map_err(|error| wrong(error.into()))?,
    };
    let mut bytes = Vec::new();
    opened.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    Ok((bytes, found))
}

/// The file by its given name and by its real path. A process that can change either can change the policy.
fn names(file: &Path, real: PathBuf) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = std::path::absolute(file).into_iter().collect();
    if !names.contains(&real) {
        names.push(real);
    }
    names
}
