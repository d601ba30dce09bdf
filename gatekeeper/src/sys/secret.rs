//! Pages at random addresses, which exec unmaps.
//!
//! The filter allows the first exec, and the sendmsg that hands over its listener, only if their arguments are at these
//! addresses. The confined program cannot guess them.

use std::io;

const PAGE: usize = 4096;
/// Below the end of user space: 47 bits on x86_64, 48 by default on aarch64.
const HIGHEST: u64 = 1 << 46;
/// Above mappings with 32-bit addresses, such as those of a non-PIE executable.
const LOWEST: u64 = 1 << 32;

/// 64 random bits of the kernel.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most `bytes.len()` bytes.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Zeroed memory at a random address, unmapped on drop and by exec.
pub struct Secret {
    address: *mut u8,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone and is not tied to a thread.
unsafe impl Send for Secret {}

impl Secret {
    pub fn new(bytes: usize) -> io::Result<Secret> {
        let len = bytes.max(1).next_multiple_of(PAGE);
        for _ in 0..64 {
            let at = LOWEST + random()? % (HIGHEST - LOWEST);
            let wanted = (at as usize) & !(PAGE - 1);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping. Before Linux 4.17 the address is only a hint, which
            // the comparison below checks.
            let address =
                unsafe { libc::mmap(wanted as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            if address == libc::MAP_FAILED {
                match io::Error::last_os_error() {
                    error if error.raw_os_error() == Some(libc::EEXIST) => continue,
                    error => return Err(error),
                }
            }
            let secret = Secret { address: address.cast(), len };
            if address as usize == wanted {
                return Ok(secret);
            }
        }
        Err(io::Error::from(io::ErrorKind::AddrInUse))
    }

    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Writes words to the start of the memory; the rest stays zero.
    pub fn write_words(&mut self, words: impl IntoIterator<Item = usize>) {
        // SAFETY: the mapping is `len` bytes, page-aligned and initialised by the kernel; `&mut self` makes it exclusive.
        let slots =
            unsafe { std::slice::from_raw_parts_mut(self.address.cast::<usize>(), self.len / size_of::<usize>()) };
        slots.iter_mut().zip(words).for_each(|(slot, word)| *slot = word);
    }

    /// The memory as a C type, for a syscall that reads or writes it there.
    pub fn as_ptr<T>(&self) -> *mut T {
        assert!(size_of::<T>() <= self.len, "the secret page is too small");
        self.address.cast()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing borrows from it.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}
