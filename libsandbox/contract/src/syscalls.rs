//! Names and numbers of syscalls on this architecture: libseccomp's table, and what kernels have gained since it.

use crate::bpf::LIMIT;
use core::ffi::{CStr, c_char, c_int, c_void};

/// What a name means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Here(u16),
    /// Some architecture has it, this one does not: it has a pseudo number below zero, which would filter nothing.
    NotHere,
    Unknown,
}

/// Newer than the oldest libseccomp we build against (2.5.4 ends at 456). Since 424 every architecture uses one number.
const NEWER: &[(&str, u16)] = &[
    #[cfg(target_arch = "x86_64")]
    ("uretprobe", 335),
    #[cfg(target_arch = "x86_64")]
    ("uprobe", 336),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("mseal", 462),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
];

/// Where libseccomp's own pseudo numbers end: -1 is "no such name", everything below is a name from elsewhere.
const NR_SCMP_ERROR: c_int = -1;

const NAME_SIZE: usize = 128;

/// The number of a name on this architecture.
pub fn number(name: &[u8]) -> Number {
    if let Some((_, number)) = NEWER.iter().find(|(known, _)| known.as_bytes() == name) {
        return Number::Here(*number);
    }
    let mut text = [0u8; NAME_SIZE];
    // A NUL inside would end the name early and find a shorter one.
    if name.len() >= NAME_SIZE || name.contains(&0) {
        return Number::Unknown;
    }
    text.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    // SAFETY: `text` is NUL-terminated (the name is shorter than the zeroed buffer) and outlives the call.
    let number = unsafe { seccomp_syscall_resolve_name(text.as_ptr().cast::<c_char>()) };
    match number {
        NR_SCMP_ERROR => Number::Unknown,
        ..NR_SCMP_ERROR => Number::NotHere,
        0.. => u16::try_from(number).ok().filter(|number| *number < LIMIT).map_or(Number::NotHere, Number::Here),
    }
}

/// Calls `with` with the name of a number, if it has one on this architecture.
pub fn with_name<T>(number: u16, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
    if let Some((name, _)) = NEWER.iter().find(|(_, known)| *known == number) {
        return Some(with(name.as_bytes()));
    }
    // SAFETY: any number may be asked for; the answer is null or a string of libc's malloc that is ours to free.
    unsafe {
        let text = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, c_int::from(number));
        if text.is_null() {
            return None;
        }
        let answer = with(CStr::from_ptr(text).to_bytes());
        free(text.cast_mut().cast());
        Some(answer)
    }
}

/// libseccomp's word for "the architecture that this was built for".
const SCMP_ARCH_NATIVE: u32 = 0;

// Declared here because the libseccomp-sys crate needs std, and std in the preload means the unwinder and libgcc_s.
unsafe extern "C" {
    fn seccomp_syscall_resolve_name(name: *const c_char) -> c_int;
    fn seccomp_syscall_resolve_num_arch(arch: u32, number: c_int) -> *const c_char;
    fn free(pointer: *mut c_void);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        let mut known = 0;
        for nr in 0..LIMIT {
            if let Some(back) = with_name(nr, number) {
                assert_eq!(back, Number::Here(nr));
                known += 1;
            }
        }
        assert!(known > 300, "{known}");
    }

    #[test]
    fn a_name_with_a_nul_is_not_a_shorter_name() {
        assert_eq!(number(b"read\0"), Number::Unknown);
    }

    #[test]
    fn names_newer_than_the_library_are_known() {
        assert_eq!(number(b"mseal"), Number::Here(462));
        assert_eq!(with_name(462, |name| name == b"mseal"), Some(true));
    }
}
