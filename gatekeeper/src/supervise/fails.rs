//! Whether a call that gatekeeper does not refuse will fail all the same, because a file is missing or its own permissions
//! forbid it. An audit trail must not say that such a call was allowed.
//!
//! The answer is about the moment before the kernel decides. A program that changes the file meanwhile gets another result.

use super::files::{Does, Named, shapes};
use super::status::Status;
use super::target::Target;
use crate::sys::notify::Call;
use crate::trust::by_descriptor;
use rustix::fs::{Access, AtFlags, FileType, Stat, accessat, fstat, statat};
use std::io;
use std::os::fd::OwnedFd;

const CAP_DAC_OVERRIDE: u64 = 1 << 1;
const CAP_DAC_READ_SEARCH: u64 = 1 << 2;

/// The errno with which the kernel will answer, as far as the files that the call names decide that.
pub fn fails(call: &Call, target: &Target) -> Option<i32> {
    let who = Who::of(target);
    shapes(call).iter().flatten().find_map(|shape| {
        // A path that cannot be read is a bad address, or the process is gone.
        let named = shape.named(call, target).ok()?;
        looked_at(&named, target, who.as_ref()).err().and_then(|error| error.raw_os_error())
    })
}

fn looked_at(named: &Named, target: &Target, who: Option<&Who>) -> io::Result<()> {
    let open = |follow: bool| match named.path.as_os_str().is_empty() {
        true => target.descriptor(named.directory),
        false => target.open(named.directory, &named.path, follow),
    };
    match named.does {
        Does::Open { read, write, create, exclusive } => match open(named.follow) {
            Ok(_) if exclusive => Err(errno(libc::EEXIST)),
            Ok(file) => {
                let mut wanted = Access::empty();
                wanted.set(Access::READ_OK, read);
                wanted.set(Access::WRITE_OK, write);
                let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
                match kind {
                    FileType::Directory if write => Err(errno(libc::EISDIR)),
                    FileType::Socket => Err(errno(libc::ENXIO)),
                    FileType::Symlink => Err(errno(libc::ELOOP)),
                    _ => permitted(&file, wanted, who),
                }
            }
            Err(error) if create && error.raw_os_error() == Some(libc::ENOENT) => entry(named, target, who),
            Err(error) => Err(error),
        },
        Does::OpenUnnamed => permitted(&open(true)?, Access::WRITE_OK | Access::EXEC_OK, who),
        Does::Execute => permitted(&open(named.follow)?, Access::EXEC_OK, who),
        // Made by the supervisor, which notes it afterwards.
        Does::Change => Ok(()),
        Does::Link if named.follow => open(true).map(drop),
        Does::Make | Does::Replace | Does::Remove | Does::Move | Does::Link => entry(named, target, who),
    }
}

/// A name that is created, removed or replaced in its directory.
fn entry(named: &Named, target: &Target, who: Option<&Who>) -> io::Result<()> {
    let (parent, _, name) = target.parent(named.directory, &named.path)?;
    let there = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    match named.does {
        Does::Make if there => return Err(errno(libc::EEXIST)),
        Does::Remove | Does::Move | Does::Link if !there => return Err(errno(libc::ENOENT)),
        // The source of a hard link is only looked up.
        Does::Link => return permitted(&parent, Access::EXEC_OK, who),
        _ => {}
    }
    permitted(&parent, Access::WRITE_OK | Access::EXEC_OK, who)
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Root's supervisor may do everything, and root's command has dropped the capabilities for that: its own rights count.
fn permitted(file: &OwnedFd, wanted: Access, who: Option<&Who>) -> io::Result<()> {
    accessat(rustix::fs::CWD, by_descriptor(file), wanted, AtFlags::EACCESS)?;
    match who {
        Some(who) if !who.may(&fstat(file)?, wanted) => Err(errno(libc::EACCES)),
        _ => Ok(()),
    }
}

/// Whose rights the kernel checks.
struct Who {
    user: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

impl Who {
    /// `None` if the supervisor has no more rights than its command: then the kernel's own check is exact.
    fn of(target: &Target) -> Option<Who> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let status = Status::of(target.tid).ok()?;
        // The fourth number is the one that file systems check (proc_pid_status(5)).
        let id = |name: &str| status.words(name)?.nth(3)?.parse::<u32>().ok();
        let mut groups: Vec<u32> = status.words("Groups")?.filter_map(|word| word.parse().ok()).collect();
        groups.push(id("Gid")?);
        let capabilities = u64::from_str_radix(status.words("CapEff")?.next()?, 16).ok()?;
        Some(Who { user: id("Uid")?, groups, capabilities })
    }

    /// As inode(7) and capabilities(7) say. Access control lists are left out.
    fn may(&self, stat: &Stat, wanted: Access) -> bool {
        let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let executable = stat.st_mode & 0o111 != 0;
        if self.capabilities & CAP_DAC_OVERRIDE != 0 && (directory || executable || !wanted.contains(Access::EXEC_OK)) {
            return true;
        }
        let reads = if directory { Access::READ_OK | Access::EXEC_OK } else { Access::READ_OK };
        if self.capabilities & CAP_DAC_READ_SEARCH != 0 && reads.contains(wanted) {
            return true;
        }
        let shift = if stat.st_uid == self.user {
            6
        } else if self.groups.contains(&stat.st_gid) {
            3
        } else {
            0
        };
        let granted = (stat.st_mode >> shift) & 7;
        let needs = [(Access::READ_OK, 4), (Access::WRITE_OK, 2), (Access::EXEC_OK, 1)];
        needs.iter().all(|(access, bit)| !wanted.contains(*access) || granted & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(user: u32, group: u32, mode: u32) -> Stat {
        let mut stat = fstat(std::fs::File::open("/dev/null").expect("there")).expect("open");
        (stat.st_uid, stat.st_gid, stat.st_mode) = (user, group, mode);
        stat
    }

    #[test]
    fn the_first_class_that_fits_decides_and_capabilities_override_it() {
        let file = |mode: u32| stat(1, 2, 0o100_000 | mode);
        let who = |user: u32, groups: &[u32], capabilities: u64| Who { user, groups: groups.to_vec(), capabilities };
        let plain = |user: u32, group: u32, mode: u32, wanted: Access| who(user, &[group], 0).may(&file(mode), wanted);
        assert!(plain(1, 9, 0o600, Access::READ_OK | Access::WRITE_OK) && !plain(9, 9, 0o600, Access::READ_OK));
        assert!(plain(9, 2, 0o640, Access::READ_OK) && !plain(9, 2, 0o640, Access::WRITE_OK));
        assert!(!plain(1, 2, 0o077, Access::READ_OK), "the owner's bits count for the owner");
        assert!(plain(9, 9, 0o604, Access::READ_OK));
        let root = who(0, &[0], CAP_DAC_OVERRIDE);
        assert!(root.may(&file(0), Access::READ_OK | Access::WRITE_OK) && !root.may(&file(0), Access::EXEC_OK));
        let search = who(0, &[0], CAP_DAC_READ_SEARCH);
        assert!(search.may(&file(0), Access::READ_OK) && !search.may(&file(0), Access::WRITE_OK));
        assert!(search.may(&stat(1, 2, 0o040_000), Access::EXEC_OK));
    }
}
