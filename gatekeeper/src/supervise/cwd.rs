//! The working directories of the command's threads, as far as they are known for certain.
//!
//! A name is looked up in an open directory in a third of the time that a lookup through /proc takes. A working directory changes
//! only by chdir(2) and fchdir(2), which are notified before they happen. So a directory that was opened stays the right one until
//! a thread that shares it makes such a call. Used by the thread that answers calls only.

use super::target::Target;
use crate::sys::notify::Call;
use crate::sys::process::share_directories;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// How many threads are remembered.
const REMEMBERED: usize = 4;
/// With more threads of which this is unknown, nothing is remembered.
const MOST_MOVING: usize = 16;

#[derive(Default)]
struct State {
    known: Vec<(i32, Rc<OwnedFd>)>,
    /// Threads whose chdir was let through and that have made no call since: it may happen at any time.
    moving: Vec<i32>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Takes note of a call before it is answered. Returns whether it changes the working directory.
pub(super) fn hear(call: &Call) -> bool {
    let changes = matches!(i64::from(call.number), libc::SYS_chdir | libc::SYS_fchdir);
    STATE.with_borrow_mut(|state| {
        state.moving.retain(|tid| *tid != call.tid);
        if changes {
            state.known.clear();
            state.moving.push(call.tid);
        }
    });
    changes
}

pub(super) fn forget() {
    STATE.with_borrow_mut(|state| state.known.clear());
}

/// The working directory of a thread whose call waits, if nothing can have changed it since it was opened.
pub(super) fn of(target: &Target, waits: &dyn Fn() -> bool) -> Option<Rc<OwnedFd>> {
    STATE.with_borrow_mut(|state| {
        if let Some((_, opened)) = state.known.iter().find(|(tid, _)| *tid == target.tid) {
            return Some(opened.clone());
        }
        if state.moving.len() > MOST_MOVING {
            return None;
        }
        let mut shared = false;
        state.moving.retain(|tid| match share_directories(*tid, target.tid) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
            answer => {
                shared |= answer.unwrap_or(true);
                true
            }
        });
        let opened = if shared { None } else { target.link("cwd").ok() };
        // If the call no longer waits, its thread ID may be that of another process by now.
        let opened = Rc::new(opened.filter(|_| waits())?);
        if state.known.len() >= REMEMBERED {
            state.known.remove(0);
        }
        state.known.push((target.tid, opened.clone()));
        Some(opened)
    })
}
