//! Whether a stage can be an overlay here.

use super::distribution::Distribution;
use super::fault::{Surroundings, errno_of};
use super::{Finding, Status, Why};
use crate::sys::probe::{self, Attempt};
use crate::sys::stage::Source;
use crate::trust::remove::remove_tree;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;

/// Mounts an overlay of temporary directories, in a process that ends at once.
pub fn stage(around: &Surroundings, distribution: &Distribution) -> Finding {
    const LOST: &str = "run --stage copies the working directory, instead of mounting an overlay over it";
    let unusable = |error: io::Error| {
        let cause = format!("{}: {error}", std::env::temp_dir().display());
        let why = Why { cause, fix: "set TMPDIR to a directory that you may enter and write".to_owned() };
        Finding::lacking("stage", Status::Unavailable, "no temporary directory", why, LOST)
    };
    let attempt = match try_overlay() {
        Ok(attempt) => attempt,
        Err(error) => return unusable(error),
    };
    match attempt {
        Attempt::Works => Finding::available("stage", "an overlay can be mounted"),
        Attempt::Failed { step: 2.., .. } => {
            let cause = format!(
                "overlayfs cannot be mounted ({}): the kernel is older than 5.11, has no overlayfs, or the temporary \
                 directory is on a file system without user.* attributes",
                errno_of(attempt)
            );
            let fix = "use Linux 5.11 or newer with CONFIG_OVERLAY_FS, and keep the stages on ext4, XFS, Btrfs or tmpfs \
                       (XDG_STATE_HOME)";
            let why = around.refused(attempt, "mount", Why { cause, fix: fix.to_owned() });
            Finding::lacking("stage", Status::Partial, "copies only", why, LOST)
        }
        _ => {
            let why = around.no_user_namespace(attempt, distribution);
            Finding::lacking("stage", Status::Partial, "copies only", why, LOST)
        }
    }
}

fn try_overlay() -> io::Result<Attempt> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let base = std::env::temp_dir().join(format!("gatekeeper-doctor-{:016x}", u64::from_ne_bytes(random)));
    std::fs::DirBuilder::new().mode(0o700).create(&base)?;
    let attempt = (|| {
        let base = base.canonicalize()?;
        let part = |name: &str| -> io::Result<CString> {
            let path = base.join(name);
            std::fs::create_dir(&path)?;
            Ok(CString::new(path.as_os_str().as_bytes())?)
        };
        let (tree, upper, work) = (part("tree")?, part("upper")?, part("work")?);
        probe::stage(&tree, &Source::Overlay { upper, work })
    })();
    // overlayfs makes directories there that only root may enter.
    let removed = || -> io::Result<()> {
        let name = CString::new(base.file_name().unwrap_or_default().as_bytes())?;
        Ok(remove_tree(std::fs::File::open(std::env::temp_dir())?.as_fd(), &name)?)
    };
    attempt.and_then(|attempt| removed().map(|()| attempt))
}
