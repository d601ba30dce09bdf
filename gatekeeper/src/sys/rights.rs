//! The ids and capabilities of a thread, and a thread that takes those of another one.
//!
//! In the kernel every thread has its own. The functions of the C library change those of all threads of a process, so these are
//! the syscalls themselves.

use super::{capabilities, check};
use std::io;

/// What decides the access to files, and what a receiver learns about a sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// Real, effective, saved and that for file systems.
    pub users: [u32; 4],
    pub groups: [u32; 4],
    pub supplementary: Vec<u32>,
}

/// Gives this thread other ids and no more than these capabilities. There is no way back: the thread has to end soon. After an
/// error it may have some of them, and must not act.
pub fn take(ids: Option<&Ids>, effective: u64) -> io::Result<()> {
    if let Some(ids) = ids {
        ids.take()?;
    }
    capabilities::keep(effective)
}

impl Ids {
    fn take(&self) -> io::Result<()> {
        let ([user, effective_user, saved_user, user_of_files], [group, effective_group, saved_group, group_of_files]) =
            (self.users, self.groups);
        // SAFETY: setgroups reads `supplementary`, which outlives the call; the others take no pointers.
        unsafe {
            check(libc::syscall(libc::SYS_setgroups, self.supplementary.len(), self.supplementary.as_ptr()))?;
            check(libc::syscall(libc::SYS_setresgid, group, effective_group, saved_group))?;
            becomes(libc::SYS_setfsgid, group_of_files)?;
            // The permitted set is to survive the change, for the file system's id and the capabilities that follow.
            check(i64::from(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0)))?;
            check(libc::syscall(libc::SYS_setresuid, user, effective_user, saved_user))?;
            capabilities::raise()?;
            becomes(libc::SYS_setfsuid, user_of_files)
        }
    }
}

/// setfsuid(2) and setfsgid(2) report no errors; with an id that does not exist they only tell the one in force.
unsafe fn becomes(call: libc::c_long, id: u32) -> io::Result<()> {
    // SAFETY: these calls take no pointers.
    let now = unsafe {
        libc::syscall(call, id);
        libc::syscall(call, u32::MAX)
    };
    if now as u32 == id { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Whether this process has no capabilities, and its real, effective and saved ids are the same.
pub fn is_one_ordinary_user() -> bool {
    let (mut users, mut groups) = ([0u32; 3], [0u32; 3]);
    let [user, effective_user, saved_user] = &mut users;
    let [group, effective_group, saved_group] = &mut groups;
    // SAFETY: both calls write three numbers into the arrays, which outlive them.
    let read = unsafe {
        libc::getresuid(user, effective_user, saved_user) == 0
            && libc::getresgid(group, effective_group, saved_group) == 0
    };
    let same = |ids: [u32; 3]| ids.iter().all(|id| *id == ids[0]);
    read && same(users) && same(groups) && capabilities::of(0).is_ok_and(|own| own.permitted == 0)
}
