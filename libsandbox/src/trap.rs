//! The `trap` action: one line that names the denied call, then death by SIGSYS.
//!
//! The handler runs under the filter, and inside a program that may be anywhere, even in malloc. So the line
//! is built in static memory, and the only calls made are ones that the filter lets through by the address of that memory: the write of the line, and giving SIGSYS back its default.
//!
//! A program that sets a handler of its own for SIGSYS (Go, browsers) is told that it did, and nothing changes:
//! otherwise the denied call would be neither named nor the end.

use crate::failure::Failure;
use crate::raw::{self, SignalAction};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use sandbox_contract::bpf::{Clause, Op, Test, ret};
use sandbox_contract::syscalls;

const PREFIX: &[u8] = b"libsandbox: denied syscall ";
const LINE: usize = 80;

struct Shared<T>(UnsafeCell<T>);
// SAFETY: TEXT is written only while WRITING is held.
unsafe impl<T> Sync for Shared<T> {}

static TEXT: Shared<[u8; LINE]> = Shared(UnsafeCell::new([0; LINE]));
static WRITING: AtomicBool = AtomicBool::new(false);

/// The kernel's own `struct sigaction` (a handler, flags, a restorer, a mask), all zero: the default.
static DEFAULT: [u64; 4] = [0; 4];

/// `SYS_SECCOMP` of the kernel's siginfo.h: the signal comes from a filter.
const FROM_SECCOMP: i32 = 1;

/// What the filter lets through for the handler, whatever the list says.
pub struct Own {
    line: [Test; 2],
    default: [Test; 2],
    handler: [Test; 2],
    /// Whether the list leaves rt_sigaction open.
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

    /// For write, then for rt_sigaction.
    pub fn clauses(&self) -> ([Clause<'_>; 1], [Clause<'_>; 2]) {
        let line = Clause { tests: &self.line, ret: ret::ALLOW };
        let default = Clause { tests: &self.default, ret: ret::ALLOW };
        // An errno of 0: the call is not made and succeeds. Where the list denies it, it is denied.
        let handler = if self.sigaction { ret::errno(0) } else { ret::TRAP };
        ([line], [default, Clause { tests: &self.handler, ret: handler }])
    }

    pub fn rules<'a>(&self, clauses: &'a ([Clause<'a>; 1], [Clause<'a>; 2])) -> [(u16, &'a [Clause<'a>]); 2] {
        [(libc::SYS_write as u16, &clauses.0), (libc::SYS_rt_sigaction as u16, &clauses.1)]
    }
}

// x86_64 returns from a handler only by code that the program brings along; elsewhere the kernel has its own.
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

/// Takes over SIGSYS. Returns what SIGSYS did before.
pub fn install() -> Result<SignalAction, Failure<'static>> {
    let mut action = SignalAction::DEFAULT;
    action.handler = on_sigsys as extern "C" fn(i32, *const u8, *mut u8) as usize;
    // ONSTACK: a Go thread has too little stack for a signal frame.
    action.flags = (libc::SA_SIGINFO | libc::SA_ONSTACK) as usize;
    #[cfg(target_arch = "x86_64")]
    {
        action.flags |= SA_RESTORER;
        action.restorer = libsandbox_restore as unsafe extern "C" fn() as usize;
    }
    // SAFETY: the handler has the form that SA_SIGINFO asks for, takes no lock that is not given back, and allocates nothing.
    let before = unsafe { raw::signal_action(libc::SIGSYS, &action) };
    let before = before.map_err(|errno| Failure::Kernel("a handler for SIGSYS", errno))?;
    // A blocked SIGSYS, which exec hands down, would kill without the line.
    raw::unblock(libc::SIGSYS);
    Ok(before)
}

/// Gives SIGSYS back what it did before, where the filter could not be loaded.
pub fn uninstall(before: &SignalAction) {
    // SAFETY: `before` is what the kernel itself wrote.
    let _ = unsafe { raw::signal_action(libc::SIGSYS, before) };
}

extern "C" fn on_sigsys(_signal: i32, info: *const u8, _context: *mut u8) {
    // SAFETY: the kernel passes a siginfo of 128 bytes; for SIGSYS, si_code is at 8 and si_syscall at 24 on 64 bits.
    let (code, number) = unsafe { (info.add(8).cast::<i32>().read(), info.add(24).cast::<i32>().read()) };
    if code == FROM_SECCOMP && take_turn() {
        let len = write_line(number);
        // SAFETY: TEXT is static, and `len` is at most its size.
        let _ = unsafe { raw::call(libc::SYS_write, [2, TEXT.0.get() as usize, len, 0, 0, 0]) };
        // Given back, because a child of vfork shares it with a parent that lives on.
        WRITING.store(false, Ordering::Release);
    }
    die(code, number)
}

/// Waits while another thread writes its line, since dying now would cut it off; but not for ever.
fn take_turn() -> bool {
    (0..50_000_000u32).any(|_| {
        core::hint::spin_loop();
        !WRITING.swap(true, Ordering::Acquire)
    })
}

fn write_line(number: i32) -> usize {
    // SAFETY: WRITING is held, so this is the only writer.
    let text = unsafe { &mut *TEXT.0.get() };
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
    let name = u16::try_from(number).ok().and_then(syscalls::name).unwrap_or(b"unknown");
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
    // SAFETY: the only memory passed is DEFAULT, laid out as the kernel's sigaction; its mask is 8 bytes long.
    unsafe {
        if code == FROM_SECCOMP {
            let _ = raw::call(libc::c_long::from(number), [0; 6]);
        }
        // A SIGSYS that somebody sent: take the default, and let it come again on return. A list may deny any of these
        // calls, and then that is the end.
        let sigsys = libc::SIGSYS as usize;
        let _ = raw::call(libc::SYS_rt_sigaction, [sigsys, DEFAULT.as_ptr() as usize, 0, 8, 0, 0]);
        if let (Ok(process), Ok(thread)) = (raw::call(libc::SYS_getpid, [0; 6]), raw::call(libc::SYS_gettid, [0; 6])) {
            let _ = raw::call(libc::SYS_tgkill, [process, thread, sigsys, 0, 0, 0]);
        }
    }
}
