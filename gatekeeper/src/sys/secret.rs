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
    /// False for an address that another process maps.
    mapped: bool,
}

// SAFETY: the mapping is owned by this value alone and is not tied to a thread.
unsafe impl Send for Secret {}

impl Secret {
    pub fn new(bytes: usize) -> io::Result<Secret> {
        for _ in 0..64 {
            match Secret::at(Secret::chosen(bytes)?.address(), bytes) {
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => continue,
                other => return other,
            }
        }
        Err(io::Error::from(io::ErrorKind::AddrInUse))
    }

    /// A random address that is not mapped here: the guardian program maps it with [`Secret::at`]. All of that program's own
    /// mappings are above `HIGHEST` or below `LOWEST`.
    pub fn chosen(bytes: usize) -> io::Result<Secret> {
        let at = LOWEST + random()? % (HIGHEST - LOWEST);
        let address = ((at as usize) & !(PAGE - 1)) as *mut u8;
        Ok(Secret { address, len: bytes.max(1).next_multiple_of(PAGE), mapped: false })
    }

    /// Memory at this address. EEXIST if something is mapped there.
    pub fn at(address: u64, bytes: usize) -> io::Result<Secret> {
        let (wanted, len) = (address as usize, bytes.max(1).next_multiple_of(PAGE));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping. Before Linux 4.17 the address is only a hint, which the
        // comparison below checks.
        let address = unsafe { libc::mmap(wanted as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let secret = Secret { address: address.cast(), len, mapped: true };
        match address as usize == wanted {
            true => Ok(secret),
            false => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        }
    }

    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Writes words to the start of the memory; the rest stays zero. Does nothing if another process maps it.
    pub fn write_words(&mut self, words: impl IntoIterator<Item = usize>) {
        if !self.mapped {
            return;
        }
        // SAFETY: the mapping is `len` bytes, page-aligned and initialised by the kernel; `&mut self` makes it exclusive.
        let slots =
            unsafe { std::slice::from_raw_parts_mut(self.address.cast::<usize>(), self.len / size_of::<usize>()) };
        slots.iter_mut().zip(words).for_each(|(slot, word)| *slot = word);
    }

    /// The memory as a C type, for a syscall that reads or writes it there.
    pub fn as_ptr<T>(&self) -> *mut T {
        assert!(self.mapped && size_of::<T>() <= self.len, "the secret page is too small, or not mapped here");
        self.address.cast()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: this value owns the mapping, and nothing borrows from it.
            unsafe { libc::munmap(self.address.cast(), self.len) };
        }
    }
}
