//! Our own copies of the memory functions that the compiler emits calls to, such as `memcpy`.
//!
//! Without them, the dynamic linker would bind our calls to the program's `memcpy`, `memcmp` or `strlen` if it exports
//! one, and code of the program would run in the middle of our work. Hidden symbols are bound at link time instead.
//!
//! x86_64 copies and fills with its string instructions. All other loops go byte by byte, because the inputs are short,
//! with volatile accesses, because the compiler would otherwise recognise each loop and replace it by a call to itself.

use core::ffi::c_int;

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}
#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    () => {
        "tail {function}"
    };
}

macro_rules! own {
    ($($name:literal is $function:path;)*) => {
        $(
            core::arch::global_asm!(
                concat!(".pushsection .text.libsandbox_", $name, ", \"ax\", @progbits"),
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
                jump!(),
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                function = sym $function,
            );
        )*
    };
}

own! {
    "memcpy" is copy;
    "memmove" is copy_overlapping;
    "memset" is fill;
    "memcmp" is compare;
    "bcmp" is compare;
    "strlen" is length;
}

/// # Safety
/// Both areas are valid for `len` bytes.
unsafe extern "C" fn copy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller vouches for both areas; the direction flag is clear by the C ABI.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..len).for_each(|at| {
        // SAFETY: `at` is below `len`, for which the caller vouches.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    });
    to
}

/// # Safety
/// Both areas are valid for `len` bytes.
unsafe extern "C" fn copy_overlapping(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if (to as usize) <= from as usize {
        // SAFETY: the caller vouches for both areas; copying upwards reads every byte before it is overwritten.
        return unsafe { copy(to, from, len) };
    }
    let mut at = len;
    while at > 0 {
        at -= 1;
        // SAFETY: `at` is below `len`, for which the caller vouches.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
    to
}

/// # Safety
/// The area is valid for `len` bytes.
unsafe extern "C" fn fill(to: *mut u8, byte: c_int, len: usize) -> *mut u8 {
    // SAFETY: the caller vouches for the area; the direction flag is clear by the C ABI.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..len).for_each(|at| {
        // SAFETY: `at` is below `len`, for which the caller vouches.
        unsafe { to.add(at).write_volatile(byte as u8) };
    });
    to
}

/// # Safety
/// Both areas are valid for `len` bytes.
unsafe extern "C" fn compare(one: *const u8, other: *const u8, len: usize) -> c_int {
    let mut at = 0;
    while at < len {
        // SAFETY: `at` is below `len`, for which the caller vouches.
        let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
        if a != b {
            return c_int::from(a) - c_int::from(b);
        }
        at += 1;
    }
    0
}

/// # Safety
/// The text ends with a zero byte.
unsafe extern "C" fn length(text: *const u8) -> usize {
    let mut at = 0;
    // SAFETY: the caller vouches for a zero byte, and the loop stops there.
    while unsafe { text.add(at).read_volatile() } != 0 {
        at += 1;
    }
    at
}
