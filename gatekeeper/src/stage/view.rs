//! The files as a staged command will see them, to find and check the program before the stage is mounted.

use crate::check::{Disk, Facts, Failure, Files, Opened};
use crate::plan::{StageSource, Staged};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The disk, with a stage over the working directory.
pub struct View<'a> {
    pub disk: &'a Disk,
    pub stage: Option<&'a Staged>,
}

/// The kernel's limit on symbolic links (path_resolution(7)).
const MOST_LINKS: usize = 40;

impl Files for View<'_> {
    fn open(&self, path: &Path) -> Result<Box<dyn Opened>, Failure> {
        let Some(stage) = self.stage.filter(|stage| path.starts_with(&stage.tree)) else { return self.disk.open(path) };
        let layers: Vec<&Path> = match &stage.source {
            StageSource::Overlay { upper, .. } => vec![upper, &stage.tree],
            StageSource::Copy(copy) => vec![copy],
            StageSource::Elsewhere(_) | StageSource::Unmade => return self.disk.open(path),
        };
        match locate(path, &stage.tree, &layers).ok_or(Failure::NotFound)? {
            Located::Outside(path) => self.disk.open(&path),
            Located::Inside { found, shown } => Ok(Box::new(Shown { file: self.disk.open(&found)?, shown })),
        }
    }

    fn owner(&self, path: &Path) -> Option<u32> {
        match self.stage {
            None => self.disk.owner(path),
            Some(_) => self.open(path).ok().map(|file| file.facts().uid),
        }
    }
}

/// Whether the command will find something at this path of the working directory.
pub fn stage_has(stage: &Staged, path: &Path) -> bool {
    let layers: Vec<&Path> = match &stage.source {
        StageSource::Overlay { upper, .. } => vec![upper, &stage.tree],
        StageSource::Copy(copy) | StageSource::Elsewhere(copy) => vec![copy],
        StageSource::Unmade => vec![&stage.tree],
    };
    path.strip_prefix(&stage.tree).is_ok_and(|inside| lookup(inside, &layers).is_some())
}

enum Located {
    /// A link leads out of the working directory.
    Outside(PathBuf),
    /// In a layer of the stage, and under this path for the command.
    Inside { found: PathBuf, shown: PathBuf },
}

/// Resolves a path in the merged tree: the first layer that has a name wins.
fn locate(path: &Path, tree: &Path, layers: &[&Path]) -> Option<Located> {
    let names = |path: &Path| -> Vec<OsString> {
        let name = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
        path.components().filter(|part| name(*part)).map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut ahead: VecDeque<OsString> = names(path.strip_prefix(tree).ok()?).into();
    let (mut at, mut links) = (PathBuf::new(), 0);
    let mut found = tree.to_owned();
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            // Above the working directory: resolve the rest as the kernel does.
            if !at.pop() {
                let rest: PathBuf = ahead.iter().collect();
                return Some(Located::Outside(tree.parent()?.join(rest)));
            }
            continue;
        }
        found = lookup(&at.join(&name), layers)?;
        match std::fs::read_link(&found) {
            Err(_) => at.push(&name),
            Ok(_) if links == MOST_LINKS => return None,
            Ok(target) => {
                links += 1;
                if target.is_absolute() && !target.starts_with(tree) {
                    return Some(Located::Outside(target.join(ahead.iter().collect::<PathBuf>())));
                }
                let inside = target.strip_prefix(tree).map(Path::to_owned);
                if inside.is_ok() {
                    at = PathBuf::new();
                }
                names(&inside.unwrap_or(target)).into_iter().rev().for_each(|name| ahead.push_front(name));
            }
        }
    }
    Some(Located::Inside { found, shown: tree.join(at) })
}

/// The first layer's entry of this name. A whiteout hides those below it, and so does an opaque directory above it.
fn lookup(path: &Path, layers: &[&Path]) -> Option<PathBuf> {
    for layer in layers {
        let found = layer.join(path);
        match std::fs::symlink_metadata(&found) {
            Ok(meta) if meta.file_type().is_char_device() && meta.rdev() == 0 => return None,
            Ok(_) => return Some(found),
            Err(_) => {}
        }
        let mut value = [0u8; 1];
        let is_opaque = |above: &Path| rustix::fs::lgetxattr(above, "user.overlay.opaque", &mut value[..]) == Ok(1);
        let mut above = found.ancestors().skip(1).take_while(|above| above.starts_with(layer) && above != layer);
        if layers.len() > 1
            && above.any({
                let mut check = is_opaque;
                move |path| check(path)
            })
        {
            return None;
        }
    }
    None
}

/// A file of a layer, under the path that the command sees.
struct Shown {
    file: Box<dyn Opened>,
    shown: PathBuf,
}

impl Opened for Shown {
    fn facts(&self) -> &Facts {
        self.file.facts()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn resolved(&self) -> Option<PathBuf> {
        Some(self.shown.clone())
    }

    fn into_file(self: Box<Self>) -> Option<File> {
        self.file.into_file()
    }
}
