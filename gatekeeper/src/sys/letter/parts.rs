//! The larger parts of a launch in a letter: mounts, watched names, and the run directory.

use super::{Letter, Reader, wrong};
use crate::sys::guardian::Backstop;
use crate::sys::keeper::{Directory, Name, Watched};
use crate::sys::mounts::{Kept, Mount, Mounts, UserMaps};
use crate::sys::place::{Make, Place};
use crate::sys::stage::{Source, Staging};
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

impl<'a> Letter<'a> {
    pub(super) fn mounts(&mut self, mounts: &Mounts) {
        self.option(mounts.user.as_ref(), |letter, maps| {
            letter.string(&maps.uid);
            letter.string(&maps.gid);
        });
        self.number(mounts.network.into());
        self.list(&mounts.mounts, |letter, mount| {
            let (kind, other, number) = match mount {
                Mount::Pinned(_) => (0, None, 0),
                Mount::ReadOnly { kept, .. } => (1, None, *kept),
                Mount::Link(_) => (2, None, 0),
                Mount::Covered { by, .. } => (3, Some(by), 0),
                Mount::Private { options, rights, .. } => (4, Some(options), *rights),
            };
            letter.number(kind);
            letter.string(mount.path());
            letter.string(other.map_or(c"", CString::as_c_str));
            letter.number(number);
            let kept = match mount {
                Mount::Private { kept, .. } => kept.as_ref(),
                _ => None,
            };
            letter.option(kept, |letter, kept| {
                letter.string(&kept.path);
                letter.string(&kept.writable);
                letter.number(kept.flags);
            });
        });
    }

    pub(super) fn stage(&mut self, stage: &Staging) {
        self.string(&stage.tree);
        let (kind, one, other) = match &stage.source {
            Source::Overlay { upper, work } => (0, upper.as_c_str(), work.as_c_str()),
            Source::Copy(from) => (1, from.as_c_str(), c""),
        };
        self.number(kind);
        self.string(one);
        self.string(other);
        self.number(stage.flags);
        self.list(&stage.rules, |letter, (path, rights)| {
            letter.string(path);
            letter.number(*rights);
        });
        self.option(stage.program.as_ref(), |letter, program| letter.string(program));
    }

    pub(super) fn watched(&mut self, watched: &Watched) {
        self.list(&watched.directories, |letter, directory| {
            let (path, named) = directory.parts();
            letter.string(path);
            letter.number(named.into());
        });
        self.list(&watched.names, |letter, name| {
            let (directory, name, at) = name.parts();
            letter.number(directory as u64);
            letter.string(name);
            letter.number(at as u64);
        });
    }

    pub(super) fn place(&mut self, place: &'a Place) {
        self.right(place.base.as_fd());
        self.string(&place.name);
        self.list(&place.inside, |letter, make| {
            let (name, mode, contents) = match make {
                Make::Directory { name, mode } => (name, mode, None),
                Make::File { name, mode, contents } => (name, mode, Some(contents)),
            };
            letter.string(name);
            letter.number((*mode).into());
            letter.option(contents, |letter, contents| letter.bytes(contents));
        });
        self.list(&place.grants, |letter, (name, rights)| {
            letter.string(name);
            letter.number(*rights);
        });
        self.number(place.keep.into());
    }

    pub(super) fn backstop(&mut self, backstop: Backstop) {
        self.option(backstop.timeout, |letter, time| letter.number(time.as_nanos() as u64));
        self.number(backstop.continues.into());
    }
}

impl Reader<'_> {
    pub(super) fn mounts(&mut self) -> io::Result<Mounts> {
        let user = self.option(|letter| Ok(UserMaps { uid: letter.string()?, gid: letter.string()? }))?;
        let network = self.number()? != 0;
        let mounts = self.list(|letter| {
            let kind = letter.number()?;
            let (path, other, number) = (letter.string()?, letter.string()?, letter.number()?);
            let kept = letter.option(|letter| {
                Ok(Kept { path: letter.string()?, writable: letter.string()?, flags: letter.number()? })
            })?;
            Ok(match kind {
                0 => Mount::Pinned(path),
                1 => Mount::ReadOnly { path, kept: number },
                2 => Mount::Link(path),
                3 => Mount::Covered { by: other, path },
                4 => Mount::Private { path, options: other, rights: number, kept },
                _ => return Err(wrong()),
            })
        })?;
        Ok(Mounts { user, network, mounts })
    }

    pub(super) fn stage(&mut self) -> io::Result<Staging> {
        let (tree, kind, one, other) = (self.string()?, self.number()?, self.string()?, self.string()?);
        let source = match kind {
            0 => Source::Overlay { upper: one, work: other },
            1 => Source::Copy(one),
            _ => return Err(wrong()),
        };
        Ok(Staging {
            tree,
            source,
            flags: self.number()?,
            rules: self.list(|letter| Ok((letter.string()?, letter.number()?)))?,
            program: self.option(Reader::string)?,
        })
    }

    pub(super) fn watched(&mut self) -> io::Result<Watched> {
        let directories = self.list(|letter| Ok(Directory::new(letter.string()?, letter.number()? != 0)))?;
        let names = self.list(|letter| {
            let directory = letter.number()? as usize;
            Ok(Name::new(directory, letter.string()?, letter.number()? as usize))
        })?;
        Ok(Watched { directories, names })
    }

    pub(super) fn place(&mut self) -> io::Result<Place> {
        let (base, name) = (Arc::new(self.right()?), self.string()?);
        let inside = self.list(|letter| {
            let (name, mode) = (letter.string()?, letter.number()? as u32);
            Ok(match letter.option(|letter| Ok(letter.bytes()?.to_vec()))? {
                Some(contents) => Make::File { name, mode, contents },
                None => Make::Directory { name, mode },
            })
        })?;
        let grants = self.list(|letter| Ok((letter.string()?, letter.number()?)))?;
        Ok(Place { base, name, inside, grants, keep: self.number()? != 0 })
    }

    pub(super) fn backstop(&mut self) -> io::Result<Backstop> {
        let timeout = self.option(|letter| letter.number().map(Duration::from_nanos))?;
        Ok(Backstop { timeout, continues: self.number()? != 0 })
    }
}
