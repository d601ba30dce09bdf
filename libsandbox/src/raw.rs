//! Syscalls made with the processor's syscall instruction, never through the C library.
//!
//! A program may define `syscall`, `prctl`, `getenv` or `_exit` itself, and the dynamic linker would bind our calls to
//! its versions. One that returns success and does nothing would leave the program without a filter.

use core::ffi::CStr;

/// Makes a syscall and returns its result, or its errno as the error. The C library's `errno` is not touched.
///
/// # Safety
/// The arguments are the ones this syscall takes, and each pointer is valid for the kernel's use of it.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: the caller vouches for the arguments; the registers and clobbers are those of the kernel's syscall ABI.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "syscall", inlateout("rax") number as isize => answer, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack)
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "svc 0", in("x8") number, inlateout("x0") a as isize => answer, in("x1") b, in("x2") c, in("x3") d,
            in("x4") e, in("x5") f, options(nostack)
        );
        #[cfg(target_arch = "riscv64")]
        core::arch::asm!(
            "ecall", in("a7") number, inlateout("a0") a as isize => answer, in("a1") b, in("a2") c, in("a3") d,
            in("a4") e, in("a5") f, options(nostack)
        );
    }
    // -4095 to -1 are errors.
    if (-4095..0).contains(&answer) { Err(-answer as i32) } else { Ok(answer as usize) }
}

/// Ends the process. Loops, because an older filter of the program could make exit_group fail.
pub fn exit(status: usize) -> ! {
    loop {
        // SAFETY: no memory is passed.
        let _ = unsafe { call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Writes to stderr and returns the number of bytes written.
pub fn write_stderr(bytes: &[u8]) -> Result<usize, i32> {
    // SAFETY: pointer and length are those of one live slice.
    unsafe { call(libc::SYS_write, [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
}

/// Opens a path with O_CLOEXEC.
pub fn open(path: &CStr, flags: i32) -> Result<i32, i32> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    // SAFETY: `path` is NUL-terminated and lives through the call.
    unsafe { call(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0]) }
        .map(|fd| fd as i32)
}

pub fn close(fd: i32) {
    // SAFETY: no memory is passed; the caller owns the descriptor.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// fstat(2). The C library exports `fstat` only since glibc 2.33, and we support 2.17.
pub fn fstat(fd: i32) -> Result<libc::stat, i32> {
    // SAFETY: an all-zero stat is valid, has the kernel's layout on these architectures, and the kernel fills it in.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        call(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0])?;
        Ok(stat)
    }
}

/// The kernel's `struct sigaction`, whose layout differs from the C library's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SignalAction {
    pub handler: usize,
    pub flags: usize,
    #[cfg(not(target_arch = "riscv64"))]
    pub restorer: usize,
    pub mask: u64,
}

impl SignalAction {
    pub const DEFAULT: SignalAction = SignalAction {
        handler: libc::SIG_DFL,
        flags: 0,
        #[cfg(not(target_arch = "riscv64"))]
        restorer: 0,
        mask: 0,
    };
}

/// Sets the disposition of a signal and returns the previous one.
///
/// # Safety
/// The handler has the signature that its flags require, and may safely run at any instruction.
pub unsafe fn signal_action(signal: i32, action: &SignalAction) -> Result<SignalAction, i32> {
    let mut before = SignalAction::DEFAULT;
    let (new, old) = (core::ptr::from_ref(action) as usize, &raw mut before as usize);
    // SAFETY: both have the layout of the kernel's struct and live through the call; the kernel's mask is 8 bytes long.
    unsafe { call(libc::SYS_rt_sigaction, [signal as usize, new, old, size_of::<u64>(), 0, 0]) }?;
    Ok(before)
}

/// Unblocks a signal for the calling thread.
pub fn unblock(signal: i32) {
    let set = 1u64 << (signal - 1);
    let how = libc::SIG_UNBLOCK as usize;
    // SAFETY: `set` lives through the call and is 8 bytes, the size of the kernel's mask.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, [how, &raw const set as usize, 0, size_of::<u64>(), 0, 0]) };
}
