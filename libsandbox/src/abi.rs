//! The C interface, for programs that link or dlopen the library. `include/sandbox.h` declares it.

use crate::failure::Failure;
use crate::filter::Prepared;
use core::ffi::{CStr, c_char, c_int};
use sandbox_contract::action::Action;
use sandbox_contract::grammar::ItemError;

const TEXTS: [&CStr; 9] = [
    c"the filter is in force",
    c"unknown syscall",
    c"unknown syscall group",
    c"a syscall that has no number on this architecture",
    c"an item longer than 127 bytes",
    c"unknown action (kill, log, errno, errno:NAME or trap)",
    c"neither an allow list nor a deny list was given",
    c"the list needs a longer filter than the kernel takes",
    c"the kernel refused; errno says why",
];

/// Installs a filter on every thread of the process, just as the variables do. A null argument is an unset variable.
///
/// # Safety
/// Each argument is null or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sandbox_install(allow: *const c_char, deny: *const c_char, action: *const c_char) -> c_int {
    // SAFETY: the caller passes null or NUL-terminated strings that live through this call.
    let text = |pointer: *const c_char| unsafe { (!pointer.is_null()).then(|| CStr::from_ptr(pointer).to_bytes()) };
    match install(text(allow), text(deny), text(action)) {
        Ok(()) => 0,
        Err(failure) => code(&failure),
    }
}

fn install<'a>(allow: Option<&'a [u8]>, deny: Option<&'a [u8]>, action: Option<&'a [u8]>) -> Result<(), Failure<'a>> {
    if allow.is_none() && deny.is_none() {
        return Err(Failure::NothingAsked);
    }
    let action = match action {
        Some(text) => Action::parse(text).ok_or(Failure::UnknownAction(text))?,
        None => Action::Kill,
    };
    Prepared::from_lists(allow, deny, action, ("allow", "deny"))?.load()
}

fn code(failure: &Failure<'_>) -> c_int {
    match failure {
        Failure::Item(_, ItemError::Unknown(_)) => -1,
        Failure::Item(_, ItemError::UnknownGroup(_)) => -2,
        Failure::Item(_, ItemError::NoNumber(_)) => -3,
        Failure::Item(_, ItemError::TooLong(_)) => -4,
        Failure::UnknownAction(_) => -5,
        Failure::NothingAsked => -6,
        Failure::FilterTooLong => -7,
        Failure::Kernel(_, errno) => refused(*errno),
        // The errno that SECCOMP_FILTER_FLAG_TSYNC_ESRCH makes the kernel return for the same failure.
        Failure::Thread(_) => refused(libc::ESRCH),
        _ => refused(libc::EINVAL),
    }
}

fn refused(errno: c_int) -> c_int {
    // SAFETY: glibc returns a pointer to this thread's errno, which is always valid.
    unsafe { *libc::__errno_location() = errno };
    -8
}

/// Describes a return value of `sandbox_install`: a constant string, never null.
#[unsafe(no_mangle)]
pub extern "C" fn sandbox_strerror(code: c_int) -> *const c_char {
    let known = usize::try_from(code.unsigned_abs()).ok().filter(|_| code <= 0).and_then(|code| TEXTS.get(code));
    known.map_or(c"unknown error".as_ptr(), |text| text.as_ptr())
}
