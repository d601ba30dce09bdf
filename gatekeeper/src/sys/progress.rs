//! How far the set-up has come, in a page that the front process shares with the processes it forks. A page needs no syscall, so
//! the front learns the truth also where an outer sandbox refuses every call or kills the child for one. exec unmaps it.

use super::check;
use crate::operation::Operation;
use rustix::fs::MemfdFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

#[repr(C)]
struct Page {
    operation: AtomicI32,
    /// The operation that failed and its errno in one word, so that what another process enters meanwhile does not mix with it.
    failure: AtomicI64,
    /// The mount that was begun last, counted from 1, and whether its place was found as it was planned.
    mount: AtomicI32,
    found: AtomicI32,
}

pub struct Progress {
    page: *mut Page,
    /// The memory file of the page, if the guardian program has to map it.
    file: Option<OwnedFd>,
}

// SAFETY: the page is only reached through atomics, and unmapped once, by its owner.
unsafe impl Send for Progress {}

impl Progress {
    /// A page that forked processes share.
    pub fn new() -> io::Result<Progress> {
        Progress::mapped(None)
    }

    /// A page in a memory file, for a process that is not forked from this one.
    pub fn in_file() -> io::Result<Progress> {
        let file = rustix::fs::memfd_create("progress", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, size_of::<Page>() as u64)?;
        Progress::mapped(Some(file))
    }

    /// The same page, from the descriptor of its memory file.
    pub fn of_file(file: OwnedFd) -> io::Result<Progress> {
        Progress::mapped(Some(file))
    }

    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    fn mapped(file: Option<OwnedFd>) -> io::Result<Progress> {
        let (anonymous, fd) = file.as_ref().map_or((libc::MAP_ANONYMOUS, -1), |file| (0, file.as_raw_fd()));
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | anonymous);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing existing is touched.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Page>(), access, flags, fd, 0) };
        check(if page == libc::MAP_FAILED { -1 } else { 0 })?;
        Ok(Progress { page: page.cast(), file })
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped, zeroed and aligned for as long as this value lives.
        unsafe { &*self.page }
    }

    /// An operation begins.
    pub fn enter(&self, operation: Operation) {
        self.page().operation.store(operation as i32, Ordering::Release);
    }

    /// A mount begins: its place is looked for, or has been found.
    pub fn mounts(&self, at: usize, found: bool) {
        self.page().mount.store(at as i32 + 1, Ordering::Release);
        self.page().found.store(found.into(), Ordering::Release);
    }

    /// The mount that was begun last, and whether its place was found.
    pub fn mounted(&self) -> Option<(usize, bool)> {
        let at = usize::try_from(self.page().mount.load(Ordering::Acquire)).ok()?.checked_sub(1)?;
        Some((at, self.page().found.load(Ordering::Acquire) != 0))
    }

    /// An operation has failed, and nothing will be executed. An errno of 0 means that it failed without a failing syscall.
    pub fn fail(&self, operation: Operation, errno: i32) {
        let errno = if errno == 0 { libc::ECANCELED } else { errno };
        let failure = i64::from(operation as i32) << 32 | i64::from(errno);
        // The first failure is the cause of all others.
        let _ = self.page().failure.compare_exchange(0, failure, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The operation that failed and its errno; or the one that was entered last, and 0.
    pub fn reached(&self) -> (Operation, i32) {
        let (number, errno) = match self.page().failure.load(Ordering::Acquire) {
            0 => (self.page().operation.load(Ordering::Acquire), 0),
            failure => ((failure >> 32) as i32, failure as i32),
        };
        (Operation::from_number(number), errno)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it.
        unsafe { libc::munmap(self.page.cast(), size_of::<Page>()) };
    }
}
