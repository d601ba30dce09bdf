//! How far the set-up has come, in a page that the front process shares with the processes it forks. A page needs no syscall, so
//! the front learns the truth also where an outer sandbox refuses every call or kills the child for one. exec unmaps it.

use super::check;
use crate::operation::Operation;
use rustix::fs::MemfdFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    at: At,
}

/// Where the page is.
enum At {
    /// In a mapping of its own; with the memory file that the guardian program has to map, if it starts the command.
    Own(Option<OwnedFd>),
    /// On a board, which the guardian program has mapped when it started.
    Board(Arc<Board>, usize),
}

/// Pages of many runs in one memory file, so that a run takes no call to make its page, none to send it and none to unmap it.
pub struct Board {
    pages: *mut Slot,
    /// Those that no run uses. One that may still be written to by a process of an earlier run is never used again.
    free: Mutex<Vec<usize>>,
}

/// A page of the board, by itself in a line of the processors' caches.
#[repr(C, align(64))]
struct Slot(Page);

/// As many as a client of `serve` runs at once, and some more.
const SLOTS: usize = 512;

// SAFETY: the pages are only reached through atomics, and unmapped once, by their owner.
unsafe impl Send for Board {}
// SAFETY: as above; the list has a lock.
unsafe impl Sync for Board {}

impl Board {
    /// A new board, and the memory file for the guardian program.
    pub fn new() -> io::Result<(Board, OwnedFd)> {
        let file = rustix::fs::memfd_create("progress", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, size_of::<[Slot; SLOTS]>() as u64)?;
        let board = Board::of_file(file.as_fd())?;
        board.free().extend(0..SLOTS);
        Ok((board, file))
    }

    /// The same board in the guardian program, which takes no page itself.
    pub fn of_file(file: BorrowedFd<'_>) -> io::Result<Board> {
        let pages = map(Some(file), size_of::<[Slot; SLOTS]>())?.cast();
        Ok(Board { pages, free: Mutex::default() })
    }

    fn page(&self, number: usize) -> Option<*mut Page> {
        // SAFETY: the mapping has that many pages, each of which begins with its `Page`.
        (number < SLOTS).then(|| unsafe { self.pages.add(number) }.cast())
    }

    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; every `Progress` on it keeps the board.
        unsafe { libc::munmap(self.pages.cast(), size_of::<[Slot; SLOTS]>()) };
    }
}

// SAFETY: the page is only reached through atomics, and unmapped once, by its owner.
unsafe impl Send for Progress {}

impl Progress {
    /// A page that forked processes share.
    pub fn new() -> io::Result<Progress> {
        Progress::mapped(None)
    }

    /// A page for a process of the guardian program that has this board.
    pub fn on(board: &Arc<Board>) -> io::Result<Progress> {
        let number = board.free().pop();
        match number.and_then(|number| Some((number, board.page(number)?))) {
            Some((number, page)) => Ok(Progress { page, at: At::Board(board.clone(), number) }),
            None => Progress::in_file(),
        }
    }

    /// The page that another process has taken on this board.
    pub(super) fn at(board: &Arc<Board>, number: usize) -> io::Result<Progress> {
        let page = board.page(number).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADMSG))?;
        Ok(Progress { page, at: At::Board(board.clone(), number) })
    }

    /// Lets another run use the page. Every process of this run that could write to it has ended, or will not do so.
    pub fn give_back(self) {
        if let At::Board(board, number) = &self.at {
            let Page { operation, failure, mount, found } = self.page();
            [operation, mount, found].into_iter().for_each(|field| field.store(0, Ordering::Release));
            failure.store(0, Ordering::Release);
            board.free().push(*number);
        }
    }

    /// A page in a memory file, for a process that is not forked from this one.
    pub(super) fn in_file() -> io::Result<Progress> {
        let file = rustix::fs::memfd_create("progress", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, size_of::<Page>() as u64)?;
        Progress::mapped(Some(file))
    }

    /// The same page, from the descriptor of its memory file.
    pub fn of_file(file: OwnedFd) -> io::Result<Progress> {
        Progress::mapped(Some(file))
    }

    /// What the guardian program finds the page by: its number on the board, or its memory file.
    pub(super) fn place(&self) -> (Option<usize>, Option<BorrowedFd<'_>>) {
        match &self.at {
            At::Own(file) => (None, file.as_ref().map(AsFd::as_fd)),
            At::Board(_, number) => (Some(*number), None),
        }
    }

    fn mapped(file: Option<OwnedFd>) -> io::Result<Progress> {
        let page = map(file.as_ref().map(AsFd::as_fd), size_of::<Page>())?.cast();
        Ok(Progress { page, at: At::Own(file) })
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
        if let At::Own(_) = self.at {
            // SAFETY: this value owns the mapping, and nothing borrows from it.
            unsafe { libc::munmap(self.page.cast(), size_of::<Page>()) };
        }
    }
}

/// New shared memory, of a file or anonymous.
fn map(file: Option<BorrowedFd<'_>>, size: usize) -> io::Result<*mut libc::c_void> {
    let (anonymous, fd) = file.map_or((libc::MAP_ANONYMOUS, -1), |file| (0, file.as_raw_fd()));
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | anonymous);
    // SAFETY: a new mapping at an address of the kernel's choice; nothing existing is touched.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, fd, 0) };
    check(if memory == libc::MAP_FAILED { -1 } else { 0 })?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_board_is_used_again_only_if_it_was_given_back() {
        let (board, file) = Board::new().expect("memory");
        let (board, theirs) = (Arc::new(board), Arc::new(Board::of_file(file.as_fd()).expect("memory")));
        let number = |progress: &Progress| progress.place().0.expect("on the board");
        let first = Progress::on(&board).expect("free");
        let taken = number(&first);
        Progress::at(&theirs, taken).expect("there").fail(Operation::Mounts, libc::EPERM);
        assert_eq!(first.reached(), (Operation::Mounts, libc::EPERM), "one page");
        first.give_back();
        let again = Progress::on(&board).expect("free");
        assert_eq!((number(&again), again.reached().1, again.mounted()), (taken, 0, None));
        // A process of this run may still write to it.
        drop(again);
        let others: Vec<Progress> = (0..SLOTS).map(|_| Progress::on(&board).expect("memory")).collect();
        assert!(others.iter().all(|other| other.place().0 != Some(taken)));
        assert_eq!(others.iter().filter(|other| other.place().1.is_some()).count(), 1, "a file of its own");
        assert!(Progress::at(&board, SLOTS).is_err());
    }
}
