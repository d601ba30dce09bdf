//! libsandbox.so: reads its variables when it is loaded and installs the confinement they ask for, before main.
//!
//! It is a guest in another program's process. It never panics, prints only with write(2), ends the process only with
//! `_exit`, removes its variables, and makes no syscall once its filter is loaded. `docs/design.md` gives the reasons.

#![no_std]

mod abi;
mod environ;
mod failure;
mod filter;
mod landlock;
mod line;
mod memory;
mod raw;
mod start;
mod trap;

use core::ffi::{c_char, c_int};
use environ::Environment;
use failure::Failure;
use line::Line;

type Constructor = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

// A plain constructor runs after the program's libraries are loaded and before main, so lists need not include the
// loader's syscalls. glibc passes constructors the arguments of main.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: Constructor = load;

extern "C" fn load(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) {
    if let Err(failure) = install_from_environment(argc, argv, envp) {
        refuse(&failure)
    }
}

// A function of its own, so that its large stack frame is paid for only by programs that are refused.
#[cold]
#[inline(never)]
fn refuse(failure: &Failure<'_>) -> ! {
    let ignored = raw::SignalAction { handler: libc::SIG_IGN, ..raw::SignalAction::DEFAULT };
    // Ignore SIGPIPE: if the reader of stderr is gone, we must still exit with status 1 and not die by the signal.
    // SAFETY: SIG_IGN runs no handler, and the program that could need the old disposition never starts.
    let _ = unsafe { raw::signal_action(libc::SIGPIPE, &ignored) };
    failure.line().print();
    raw::exit(1)
}

fn install_from_environment(
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
) -> Result<(), Failure<'static>> {
    // SAFETY: these are the constructor's own arguments.
    let environment = unsafe { Environment::find(argc, argv, envp) }?;
    let request = environ::Request::read(&environment)?;
    if request.is_empty() {
        return if request.required { Err(Failure::NothingAsked) } else { Ok(()) };
    }
    install(&request, &environment)
}

#[inline(never)]
fn install(request: &environ::Request, environment: &Environment) -> Result<(), Failure<'static>> {
    let prepared = filter::Prepared::new(request)?;
    if request.fs_read.is_some() || request.fs_write.is_some() {
        landlock::restrict(request.fs_read, request.fs_write)?;
        if request.verbose {
            Line::new().text("Landlock rules are in force").print();
        }
    }
    environment.forget();
    // Must come last: the filter may deny any further syscall of ours.
    prepared.load()
}

// This library must not be able to panic. The symbol is defined nowhere, so a build with a reachable panic does not
// link.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn libsandbox_has_a_way_to_panic() -> !;
    }
    // SAFETY: unreachable; a build in which it were reachable would not link.
    unsafe { libsandbox_has_a_way_to_panic() }
}
