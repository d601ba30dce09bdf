//! libsandbox.so: reads its variables when it is loaded and installs what they ask for, before main.
//!
//! A guest in someone else's process: it never panics, never prints but through write(2), ends only by `_exit`, leaves
//! no variable of its own behind, and makes no syscall once its filter is on. `docs/design.md` says why each.

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

// A plain constructor: after the program's libraries, before main, so that a list need not hold the loader's calls. The
// loader passes it what main gets.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: Constructor = load;

extern "C" fn load(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) {
    if let Err(failure) = install_from_environment(argc, argv, envp) {
        refuse(&failure)
    }
}

// Apart, so that a program that is not refused does not pay for the stack of this.
#[cold]
#[inline(never)]
fn refuse(failure: &Failure<'_>) -> ! {
    let ignored = raw::SignalAction { handler: libc::SIG_IGN, ..raw::SignalAction::DEFAULT };
    // SAFETY: no handler. The program never starts, so nobody misses the signal; without it, a reader of stderr that is
    // gone would turn exit status 1 into death by SIGPIPE.
    let _ = unsafe { raw::signal_action(libc::SIGPIPE, &ignored) };
    failure.line().print();
    raw::exit(1)
}

fn install_from_environment(
    argc: c_int,
    argv: *mut *mut c_char,
    envp: *mut *mut c_char,
) -> Result<(), Failure<'static>> {
    // SAFETY: these are the arguments that the loader gave the constructor, which nothing runs beside.
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
    // Nothing may follow: this switches the filter on.
    prepared.load()
}

// There is no panic in this library. The symbol exists nowhere, so that a build with a way to one does not link.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn libsandbox_has_a_way_to_panic() -> !;
    }
    // SAFETY: never called, and cannot be linked if it were.
    unsafe { libsandbox_has_a_way_to_panic() }
}
