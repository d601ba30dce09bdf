//! The `trap` action: one line that names the denied call, then death by SIGSYS.
//!
//! The handler runs under the filter, and may interrupt the program anywhere, even in malloc. So it builds the line in
//! static memory, and makes only calls that the filter allows for the addresses of that memory: the write of the line,
//! and the rt_sigaction that restores the default of SIGSYS.
//!
//! When the program installs its own SIGSYS handler (Go and browsers do), the call reports success and changes nothing.
//! Otherwise its handler would replace ours, and a denied call would neither be named nor end the process.

use crate::failure::Failure;
use crate::line::{DIGITS, decimal};
use crate::raw::{self, SignalAction};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use sandbox_contract::bpf::{Clause, Op, Test, ret};
use sandbox_contract::syscalls;

const PREFIX: &[u8] = b"libsandbox: denied syscall ";
const LINE: usize = 80;

struct Shared<T>(UnsafeCell<T>);
// SAFETY: TEXT, the only such static, is accessed only while WRITING is held.
unsafe impl<T> Sync for Shared<T> {}

static TEXT: Shared<[u8; LINE]> = Shared(UnsafeCell::new([0; LINE]));
static WRITING: AtomicBool = AtomicBool::new(false);

/// The kernel's `struct sigaction` (handler, flags, restorer, mask). All zero is the default disposition.
static DEFAULT: [u64; 4] = [0; 4];

/// `SYS_SECCOMP` from the kernel's siginfo.h: a filter sent the signal.
const FROM_SECCOMP: i32 = 1;

/// The filter rules that the handler needs, whatever the list says.
pub struct Own {
    line: [Test; 2],
    default: [Test; 2],
    handler: [Test; 2],
    /// Whether the list allows rt_sigaction.
    sigaction: bool,
}

impl Own {
    pub fn new(sigaction: bool) -> Own {
        let sigsys = Test::low(0, Op::Eq, libc::SIGSYS as u32);
        Own {
            line: [Test::low(0, Op::Eq, 2), Test::word(1, TEXT.0.get() as u64)],
            default: [sigsys, Test::word(1, DEFAULT.as_ptr() as u64)],
            handler: [sigsys, Test { arg: 1, mask: u64::MAX, op: Op::Ne, value: 0 }],
            sigaction,
        }
    }

    /// The clauses for write, then those for rt_sigaction.
    pub fn clauses(&self) -> ([Clause<'_>; 1], [Clause<'_>; 2]) {
        let line = Clause { tests: &self.line, ret: ret::ALLOW };
        let default = Clause { tests: &self.default, ret: ret::ALLOW };
        // With errno 0 the kernel skips the call and it returns success. If the list denies it, it stays denied.
        let handler = if self.sigaction { ret::errno(0) } else { ret::TRAP };
        ([line], [default, Clause { tests: &self.handler, ret: handler }])
    }

    pub fn rules<'a>(&self, clauses: &'a ([Clause<'a>; 1], [Clause<'a>; 2])) -> [(u16, &'a [Clause<'a>]); 2] {
        [(libc::SYS_write as u16, &clauses.0), (libc::SYS_rt_sigaction as u16, &clauses.1)]
    }
}

// On x86_64 the program must supply the code that returns from a signal handler; other kernels map their own.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.libsandbox_restore, \"ax\", @progbits",
    ".globl libsandbox_restore",
    ".hidden libsandbox_restore",
    ".type libsandbox_restore, @function",
    "libsandbox_restore: mov eax, 15", // rt_sigreturn
    "syscall",
    ".size libsandbox_restore, . - libsandbox_restore",
    ".popsection"
);
#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn libsandbox_restore();
}
#[cfg(target_arch = "x86_64")]
const SA_RESTORER: usize = 0x0400_0000;

/// Installs the SIGSYS handler and returns the previous disposition.
pub fn install() -> Result<SignalAction, Failure<'static>> {
    let mut action = SignalAction::DEFAULT;
    action.handler = on_sigsys as extern "C" fn(i32, *const u8, *mut u8) as usize;
    // SA_ONSTACK, because a goroutine's stack is too small for a signal frame.
    action.flags = (libc::SA_SIGINFO | libc::SA_ONSTACK) as usize;
    #[cfg(target_arch = "x86_64")]
    {
        action.flags |= SA_RESTORER;
        action.restorer = libsandbox_restore as unsafe extern "C" fn() as usize;
    }
    // SAFETY: the handler has the signature that SA_SIGINFO requires, allocates nothing, and gives up on its lock in
    // time.
    let before = unsafe { raw::signal_action(libc::SIGSYS, &action) };
    let before = before.map_err(|errno| Failure::Kernel("a handler for SIGSYS", errno))?;
    // The blocked mask survives exec, and a blocked SIGSYS would kill the process without the line.
    raw::unblock(libc::SIGSYS);
    Ok(before)
}

/// Restores the disposition of SIGSYS after the filter could not be loaded.
pub fn uninstall(before: &SignalAction) {
    // SAFETY: the kernel itself wrote `before`.
    let _ = unsafe { raw::signal_action(libc::SIGSYS, before) };
}

extern "C" fn on_sigsys(_signal: i32, info: *const u8, _context: *mut u8) {
    // SAFETY: the kernel passes a siginfo of 128 bytes; for SIGSYS, si_code is at 8 and si_syscall at 24 on 64 bits.
    let (code, number) = unsafe { (info.add(8).cast::<i32>().read(), info.add(24).cast::<i32>().read()) };
    if code == FROM_SECCOMP && take_turn() {
        let len = write_line(number);
        // SAFETY: TEXT is static, and `len` is at most its size.
        let _ = unsafe { raw::call(libc::SYS_write, [2, TEXT.0.get() as usize, len, 0, 0, 0]) };
        // Release it: a child of vfork shares this memory with its parent, which lives on.
        WRITING.store(false, Ordering::Release);
    }
    die(code, number)
}

/// Waits, but not for ever, while another thread writes its line: dying now would cut that line off.
fn take_turn() -> bool {
    (0..50_000_000u32).any(|_| {
        core::hint::spin_loop();
        !WRITING.swap(true, Ordering::Acquire)
    })
}

fn write_line(number: i32) -> usize {
    // SAFETY: WRITING is held, so this is the only writer.
    let text = unsafe { &mut *TEXT.0.get() };
    let mut room = [0; DIGITS];
    let digits = decimal(number.unsigned_abs() as usize, &mut room);
    let name = u16::try_from(number).ok().and_then(syscalls::name).unwrap_or(b"unknown");
    // -1 is what a tracer leaves of a call that it skips.
    let sign: &[u8] = if number < 0 { b"-" } else { b"" };
    let line = PREFIX.iter().chain(name).chain(b" (").chain(sign).chain(digits).chain(b")\n");
    let mut len = 0;
    text.iter_mut().zip(line).for_each(|(to, from)| {
        *to = *from;
        len += 1;
    });
    len
}

/// Repeats the denied call. SIGSYS is blocked inside its handler, so this time the kernel kills the process with it.
fn die(code: i32, number: i32) {
    // SAFETY: the only memory passed is DEFAULT, which has the layout of the kernel's sigaction with its 8-byte mask.
    unsafe {
        if code == FROM_SECCOMP {
            let _ = raw::call(libc::c_long::from(number), [0; 6]);
        }
        // A process sent this SIGSYS: restore the default and send it again, to be delivered when the handler returns.
        // If the list denies one of these calls, that ends the process just as well.
        let sigsys = libc::SIGSYS as usize;
        let _ = raw::call(libc::SYS_rt_sigaction, [sigsys, DEFAULT.as_ptr() as usize, 0, 8, 0, 0]);
        if let (Ok(process), Ok(thread)) = (raw::call(libc::SYS_getpid, [0; 6]), raw::call(libc::SYS_gettid, [0; 6])) {
            let _ = raw::call(libc::SYS_tgkill, [process, thread, sigsys, 0, 0, 0]);
        }
    }
}
