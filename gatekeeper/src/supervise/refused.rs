//! A refusal by a path layer, as `foresee` predicts it, with the errno that the kernel will answer.

use crate::report::Layer;
use std::path::PathBuf;

/// A refusal that a path layer will make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub layer: Layer,
    pub errno: i32,
    pub what: What,
    /// The real path.
    pub path: PathBuf,
    /// The smallest set of paths whose grant would allow the call.
    pub grant: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Read,
    Write,
    Execute,
}

/// Merges the refusals of both files of a call into one.
pub(super) fn merge(refusals: Vec<Refused>) -> Option<Refused> {
    let mut refusals = refusals.into_iter();
    let mut first = refusals.next()?;
    for more in refusals {
        // The kernel looks at the new name first.
        if first.errno == libc::EXDEV {
            first.errno = more.errno;
        }
        first.grant.extend(more.grant);
    }
    first.grant.dedup();
    Some(first)
}

impl Refused {
    /// For the file that gets a second name. Landlock answers EXDEV where only the right to link it elsewhere is missing, and so
    /// does the VFS between two mounts (security/landlock/fs.c, current_check_refer_path; fs/namei.c, do_linkat).
    pub(super) fn of_link_source(self) -> Refused {
        match self.layer {
            Layer::Landlock => Refused { errno: libc::EXDEV, ..self },
            _ => self,
        }
    }
}
