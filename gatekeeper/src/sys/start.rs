//! What the program `gatekeeper` does before anything else, in place of Rust's own runtime.
//!
//! Rust's start reads /proc/self/maps and maps a second stack, for this thread and for every other, in order to print a
//! message when a stack overflows. That is a tenth of the time of a short run. A stack that overflows ends the program by
//! SIGSEGV either way.

use super::signals;
use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The arguments as the C library passes them to `main`. Its field is private and no function makes one, so a value comes
/// from there.
#[repr(transparent)]
pub struct Words(*mut *const c_char);

/// What `keep` has kept; null in a program that Rust's runtime started.
static WORDS: AtomicPtr<*const c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the arguments for `arguments`. glibc passes them to the standard library as well, musl only to `main`.
pub fn keep(words: Words) {
    WORDS.store(words.0, Ordering::Relaxed);
}

/// The arguments of this process. Not `std::env::args_os`, which has none in a program for musl whose `main` the C library
/// calls.
pub fn arguments() -> Vec<OsString> {
    let words = WORDS.load(Ordering::Relaxed);
    if words.is_null() {
        return std::env::args_os().collect();
    }
    let mut arguments = Vec::new();
    // SAFETY: a `Words` is the array that `main` receives: pointers to NUL-terminated strings, and a null pointer at its
    // end. The kernel wrote both to the stack above the first frame, and this process never changes them.
    unsafe {
        while let Some(word) = words.add(arguments.len()).read().as_ref() {
            arguments.push(OsStr::from_bytes(CStr::from_ptr(word).to_bytes()).to_owned());
        }
    }
    arguments
}

/// A bit for each standard stream that the caller has closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Whether the caller has closed this standard stream, which is /dev/null now.
pub fn was_closed(stream: i32) -> bool {
    (0..3).contains(&stream) && CLOSED.load(Ordering::Relaxed) & 1 << stream != 0
}

/// Opens /dev/null in place of standard streams that the caller has closed: the next file that is opened would otherwise
/// become one, and receive messages. Writing to a closed pipe fails with EPIPE from here on, and writing more to a file than
/// its limit of size allows with EFBIG; neither ends the program by a signal. Ends the program if /dev/null cannot be opened.
pub fn standard_streams() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: poll gets an array and its length, the path is NUL-terminated, and the other calls take no pointers.
    unsafe {
        let polled = libc::poll(streams.as_mut_ptr(), 3, 0) >= 0;
        for stream in streams {
            // poll fails if it has no memory, or if the limit of descriptors is below three.
            let closed = match polled {
                true => stream.revents & libc::POLLNVAL != 0,
                false => libc::fcntl(stream.fd, libc::F_GETFD) < 0,
            };
            if closed {
                CLOSED.fetch_or(1 << stream.fd, Ordering::Relaxed);
                if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0 {
                    libc::abort();
                }
            }
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    handle_large_files();
}

/// Handles SIGXFSZ and does nothing. Ignored, it would be ignored in every program that this one starts; a handler is reset by
/// exec. If the caller ignores it, so do those programs, as they would without gatekeeper.
fn handle_large_files() {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // musl unblocks its own signals when it installs the first handler, and the command starts with the caller's mask.
    let mask = signals::current_mask();
    // SAFETY: all zeroes is a valid sigaction, and sigaction reads and writes those passed. The handler does nothing, so it may
    // run at any instruction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
        }
    }
    // Cannot fail: it is the mask that the kernel gave.
    let _ = signals::set_mask(&mask);
}
