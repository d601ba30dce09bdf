//! The `trap` action: one line that names the denied call, then death by SIGSYS.
//!
//! The handler runs under the filter, and inside a program that may be anywhere, even in malloc. So names are looked up
//! before, the line is built in static memory, and the only call made is a write of that very memory to stderr, which
//! the filter lets through by its address.

use crate::failure::Failure;
use crate::filter::errno;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::syscalls;

const NAMED: usize = 512;
const LONGEST: usize = 24;
const PREFIX: &[u8] = b"libsandbox: denied syscall ";
const LINE: usize = 80;

struct Shared<T>(UnsafeCell<T>);
// SAFETY: NAMES is written once before the filter is on; LINE only by the first thread that takes DYING.
unsafe impl<T> Sync for Shared<T> {}

static NAMES: Shared<[[u8; LONGEST]; NAMED]> = Shared(UnsafeCell::new([[0; LONGEST]; NAMED]));
static TEXT: Shared<[u8; LINE]> = Shared(UnsafeCell::new([0; LINE]));
static DYING: AtomicBool = AtomicBool::new(false);

/// `SYS_SECCOMP` of the kernel's siginfo.h: the signal comes from a filter.
const FROM_SECCOMP: i32 = 1;

/// The write that the handler makes: to stderr, from the line's own address.
pub fn line_tests() -> [Test; 2] {
    [Test::low(0, Op::Eq, 2), Test::word(1, TEXT.0.get() as u64)]
}

/// Looks up every name and takes over SIGSYS.
pub fn install() -> Result<(), Failure<'static>> {
    // SAFETY: no handler of ours runs yet, so nobody else reads NAMES.
    let names = unsafe { &mut *NAMES.0.get() };
    for (number, slot) in (0u16..).zip(names) {
        syscalls::with_name(number, |name| slot.iter_mut().zip(name).for_each(|(to, from)| *to = *from));
    }
    // SAFETY: all zeroes is a valid sigaction; the handler has the three-argument form that SA_SIGINFO asks for.
    let answer = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_sigsys as extern "C" fn(i32, *const u8, *mut u8) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &action, core::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(Failure::Kernel("a handler for SIGSYS", errno())) }
}

extern "C" fn on_sigsys(_signal: i32, info: *const u8, _context: *mut u8) {
    // SAFETY: the kernel passes a siginfo of 128 bytes; for SIGSYS, si_code is at 8 and si_syscall at 24 on 64 bits.
    let (code, number) = unsafe { (info.add(8).cast::<i32>().read(), info.add(24).cast::<i32>().read()) };
    if code == FROM_SECCOMP && !DYING.swap(true, Ordering::Relaxed) {
        let len = write_line(number);
        // SAFETY: TEXT is static, and `len` is at most its size.
        unsafe { libc::syscall(libc::SYS_write, 2, TEXT.0.get(), len) };
    }
    die(code, number)
}

fn write_line(number: i32) -> usize {
    // SAFETY: DYING was taken, so this is the only writer; NAMES is no longer written.
    let (text, names) = unsafe { (&mut *TEXT.0.get(), &*NAMES.0.get()) };
    let mut digits = [0u8; 10];
    let mut rest = number.unsigned_abs();
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    let digits = digits.get(digits.len() - used..).unwrap_or_default();
    let name = usize::try_from(number).ok().and_then(|number| names.get(number)).map_or(&[][..], |name| name);
    let name = name.iter().take_while(|byte| **byte != 0);
    let line = PREFIX.iter().chain(name).chain(b" (").chain(digits).chain(b")\n");
    let mut len = 0;
    text.iter_mut().zip(line).for_each(|(to, from)| {
        *to = *from;
        len += 1;
    });
    len
}

/// SIGSYS is blocked in its own handler, so making the denied call once more ends the process by SIGSYS for good.
fn die(code: i32, number: i32) {
    // SAFETY: none of these calls reads memory of ours but the sigaction, which is valid when all zeroes (SIG_DFL).
    unsafe {
        if code == FROM_SECCOMP {
            libc::syscall(i64::from(number) as libc::c_long, 0, 0, 0, 0, 0, 0);
        }
        // A SIGSYS that somebody sent: take the default, and let it come again on return.
        let default: libc::sigaction = core::mem::zeroed();
        libc::sigaction(libc::SIGSYS, &default, core::ptr::null_mut());
        libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::syscall(libc::SYS_gettid), libc::SIGSYS);
    }
}
