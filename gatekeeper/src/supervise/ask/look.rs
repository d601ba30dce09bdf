//! Which files a call names, what the layers say to them, and whether it can be carried out after a yes.

use super::Asker;
use super::act::Action;
use super::approved::Subject;
use super::place::{Located, Place};
use super::view::{Eyes, View};
use crate::report::Layer;
use crate::supervise::clerk::Desk;
use crate::supervise::decode::address::{self, Peer};
use crate::supervise::files::{Does, Named, shapes};
use crate::supervise::foresee::permitted;
use crate::supervise::refused::{Refused, What, merge};
use crate::supervise::target::Target;
use crate::sys::notify::{self, Call};
use rustix::fs::{Access, FileType, Mode, OFlags, ResolveFlags};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What a call that names files needs.
pub(super) enum Look {
    /// No layer refuses it, or it fails anyway.
    Passes,
    Refused(Refused),
    /// Refused, and it can be carried out if each part is approved. Without parts, all of it is approved.
    Asks {
        parts: Vec<Part>,
        action: Action,
    },
}

/// A file of a call that is refused, and what an approval of it covers.
pub(super) struct Part {
    pub refused: Refused,
    pub subject: Subject,
    /// The path as the program wrote it, if it leads elsewhere.
    pub named: Option<PathBuf>,
}

impl Desk {
    /// What the layers say to a call that names files. Reads each path once.
    pub(super) fn look(&self, call: &Call, asking: &Asker) -> io::Result<Look> {
        let target = Target { tid: call.tid };
        let eyes = Eyes { view: asking.view, target: &target };
        if !self.judge.foresight.on {
            return Ok(Look::Passes);
        }
        let mut located = Vec::new();
        for named in named(call, &target)? {
            located.push(Located::find(named, &eyes)?);
        }
        // What was read and opened so far was the program's own if its call still waits.
        if !notify::still_waits(self.listener.as_fd(), call.id) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let mut parts = Vec::new();
        let approved =
            matches!(located.as_slice(), [file] if self.opens_approved(file, asking)) && self.keeps_rights(call.tid);
        if approved && let Some(action) = Action::of_files(call, &target, std::mem::take(&mut located))? {
            return Ok(Look::Asks { parts, action });
        }
        let mut copies = asking.view == View::Outside && located.iter().any(|file| asking.never.is_in_tree(&file.at));
        for file in &mut located {
            let refused = match self.refusal_of(file)? {
                Some(refused) => refused,
                None if asking.view == View::Outside && reads_existing(file) => {
                    self.judge.foresight.refused(What::Read, Layer::Landlock, file.at.clone(), file.at.clone())
                }
                None => continue,
            };
            let subject = match (refused.what, refused.layer) {
                (What::Execute, _) => return Ok(Look::Refused(refused)),
                (What::Read, Layer::Namespaces) => match self.uncover(file) {
                    true => {
                        copies = true;
                        Subject::Read(file.at.clone())
                    }
                    false => return Ok(Look::Refused(refused)),
                },
                (What::Write, Layer::Namespaces) => return Ok(Look::Refused(refused)),
                (What::Read, _) => Subject::Read(file.at.clone()),
                (What::Write, _) => Subject::Write(file.at.clone()),
            };
            parts.push(Part { refused, subject, named: file.named_otherwise() });
        }
        let Some(refused) = merge(parts.iter().map(|part| part.refused.clone()).collect()) else {
            return Ok(Look::Passes);
        };
        // What is not asked about is left to the kernel.
        let source = |file: &Located| file.named.does == Does::Link && file.at == refused.path;
        let refused = match parts.len() == 1 && located.iter().any(source) {
            true => refused.of_link_source(),
            false => refused,
        };
        // A read-only mount stops the supervisor as well.
        let stopped = parts.iter().any(|part| part.refused.errno == libc::EROFS)
            || located.iter().any(|file| asking.never.holds(file));
        if stopped || !self.keeps_rights(call.tid) {
            return Ok(Look::Refused(refused));
        }
        Ok(match Action::of_files(call, &target, located)? {
            // Only a mount keeps the program from writing to this file. A descriptor from outside of that mount could be opened
            // again through /proc/self/fd, for writing.
            Some(action) if copies => Look::Asks { parts, action: action.of_a_copy() },
            Some(action) => Look::Asks { parts, action },
            None => Look::Refused(refused),
        })
    }

    /// Whether a call opens an existing file that was approved for the run: most calls after an approval do. Why the path layers
    /// refuse it does not matter then, and finding out takes as long as the rest.
    fn opens_approved(&self, file: &Located, asking: &Asker) -> bool {
        let subject = match (&file.named.does, &file.place) {
            (Does::Open { write: true, exclusive: false, .. }, Place::File(_)) => Subject::Write(file.at.clone()),
            (Does::Open { write: false, exclusive: false, .. }, Place::File(_)) => Subject::Read(file.at.clone()),
            _ => return false,
        };
        let covered = self.judge.foresight.covered.iter().any(|top| file.at.starts_with(top));
        let in_tree = asking.view == View::Outside && asking.never.is_in_tree(&file.at);
        let never = covered || in_tree || asking.never.holds(file);
        !never && asking.hub.approves(std::slice::from_ref(&subject), &|path| self.closed(path))
    }

    fn refusal_of(&self, file: &Located) -> io::Result<Option<Refused>> {
        let foresight = &self.judge.foresight;
        match (&file.named.does, &file.place) {
            (Does::Open { exclusive: true, .. }, Place::File(_)) | (Does::Change, _) => Ok(None),
            (Does::Open { read, write, .. }, Place::File(found)) => foresight.look_at_file(found, *read, *write),
            (Does::OpenUnnamed, Place::File(directory)) => {
                Ok(foresight.refuse_change(&file.at, directory, file.at.clone()))
            }
            (Does::Link, Place::File(_)) => {
                let above = file.at.parent().filter(|above| above.is_absolute() && !foresight.changes(above));
                let refused =
                    |above: &Path| foresight.refused(What::Write, Layer::Landlock, file.at.clone(), above.to_owned());
                Ok(above.map(refused))
            }
            (does, Place::Entry { parent, name }) => {
                let above = file.at.parent().unwrap_or(Path::new("/"));
                foresight.judge_entry(*does, parent, above, name)
            }
            (_, Place::File(_)) => Ok(None),
        }
    }

    /// A file that a mount covers for the program is found beneath the cover, in the supervisor's own namespace, if it is
    /// opened for reading only.
    fn uncover(&self, file: &mut Located) -> bool {
        let reads = matches!(file.named.does, Does::Open { read: true, write: false, create: false, .. });
        let outside =
            self.judge.plan.inside.is_none() && self.judge.foresight.covered.iter().any(|top| file.at.starts_with(top));
        if !reads || !outside {
            return false;
        }
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(found) = rustix::fs::openat2(rustix::fs::CWD, &file.at, flags, Mode::empty(), how) else { return false };
        // A directory would lead around every mount, by `..`.
        let regular = rustix::fs::fstat(&found).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        file.place = Place::File(found);
        regular
    }

    /// The closed place around a path. An approval of a directory above it does not open it.
    pub(super) fn closed(&self, path: &Path) -> Option<PathBuf> {
        let paths = self.judge.plan.landlock.iter().map(|landlock| &landlock.paths);
        let mut closed = paths.flat_map(|paths| paths.hidden.iter().chain(&paths.covered));
        closed.find(|closed| path.starts_with(closed)).cloned()
    }
}

/// Whether a call opens an existing file for reading, as its permissions allow. If it asks from inside bubblewrap, it is not
/// mounted there.
fn reads_existing(file: &Located) -> bool {
    let (Does::Open { read: true, write: false, create: false, .. }, Place::File(found)) =
        (&file.named.does, &file.place)
    else {
        return false;
    };
    let opens = file.kind().is_some_and(|kind| !kind.is_symlink() && !kind.is_socket());
    opens && permitted(found, Access::READ_OK)
}

/// The files that a call names, each path read once.
pub(super) fn named(call: &Call, target: &Target) -> io::Result<Vec<Named>> {
    if i64::from(call.number) == libc::SYS_bind {
        let peer = address::read(target, call.args[1], call.args[2]);
        let path = peer.as_ref().and_then(Peer::path).map(Path::to_owned);
        let named = |path| Named { directory: libc::AT_FDCWD, path, follow: false, does: Does::Make };
        return Ok(path.map(named).into_iter().collect());
    }
    shapes(call).iter().flatten().map(|shape| shape.named(call, target)).collect()
}
