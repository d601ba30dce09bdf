//! Syscalls by instruction.
//!
//! The library is preloaded into programs that may define `syscall`, `prctl`, `getenv` or `_exit` themselves, and the
//! loader would give us theirs: a filter that was never installed, and an answer that it was.

use core::ffi::CStr;

/// Makes a call; the error is its errno. errno itself is left alone.
///
/// # Safety
/// The arguments are what the call takes: each pointer is valid for what the kernel does with it.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: by the caller's word for the arguments; the registers are those that the kernel's ABI names.
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

/// Ends the process, and does not come back whatever the program has put in the way.
pub fn exit(status: usize) -> ! {
    loop {
        // SAFETY: no memory is passed.
        let _ = unsafe { call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Writes to stderr and returns how much of it was written.
pub fn write_stderr(bytes: &[u8]) -> Result<usize, i32> {
    // SAFETY: pointer and length are those of one live slice.
    unsafe { call(libc::SYS_write, [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
}

/// Opens a path of ours, closed on exec.
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

/// fstat, by number: the C library's is a symbol of glibc 2.33.
pub fn fstat(fd: i32) -> Result<libc::stat, i32> {
    // SAFETY: all zeroes is a valid stat, laid out as the kernel's on these architectures, and the kernel fills it.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        call(libc::SYS_fstat, [fd as usize, &raw mut stat as usize, 0, 0, 0, 0])?;
        Ok(stat)
    }
}

/// The kernel's own `struct sigaction`, which is not the C library's.
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

/// Sets what a signal does and returns what it did before.
///
/// # Safety
/// The handler has the form that its flags ask for, and is safe to be called at any instruction.
pub unsafe fn signal_action(signal: i32, action: &SignalAction) -> Result<SignalAction, i32> {
    let mut before = SignalAction::DEFAULT;
    let (new, old) = (core::ptr::from_ref(action) as usize, &raw mut before as usize);
    // SAFETY: both are laid out as the kernel's struct and live through the call; a kernel's mask is 8 bytes long.
    unsafe { call(libc::SYS_rt_sigaction, [signal as usize, new, old, size_of::<u64>(), 0, 0]) }?;
    Ok(before)
}

/// Lets a signal through to this thread.
pub fn unblock(signal: i32) {
    let set = 1u64 << (signal - 1);
    let how = libc::SIG_UNBLOCK as usize;
    // SAFETY: `set` lives through the call and is a kernel's mask of 8 bytes.
    let _ = unsafe { call(libc::SYS_rt_sigprocmask, [how, &raw const set as usize, 0, size_of::<u64>(), 0, 0]) };
}
