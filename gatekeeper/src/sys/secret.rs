//! Pages at random addresses, which exec unmaps.
//!
//! The filter allows the first exec, and the sendmsg that hands over its listener, only if their arguments are at these
//! addresses. The confined program cannot guess them.

use std::io;

pub const PAGE: usize = 4096;
/// Below the end of user space: 47 bits on x86_64, 48 by default on aarch64.
const HIGHEST: u64 = 1 << 46;
/// Above mappings with 32-bit addresses, such as those of a non-PIE executable.
const LOWEST: u64 = 1 << 32;

/// Random numbers of the kernel.
pub fn random<const N: usize>() -> io::Result<[u32; N]> {
    let mut numbers = [0u32; N];
    let bytes = size_of_val(&numbers);
    // SAFETY: the kernel writes at most `bytes` bytes, and any bytes are numbers.
    match unsafe { libc::getrandom(numbers.as_mut_ptr().cast(), bytes, 0) } {
        read if read == bytes as isize => Ok(numbers),
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
        let [high, low] = random()?;
        let at = LOWEST + (u64::from(high) << 32 | u64::from(low)) % (HIGHEST - LOWEST);
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

    /// Writes words from an address on; the rest stays zero. Does nothing if another process maps the memory.
    pub fn write_words(&mut self, address: u64, words: &mut dyn ExactSizeIterator<Item = usize>) {
        if !self.mapped {
            return;
        }
        let first = self.place(address, words.len() * size_of::<usize>()).cast::<usize>();
        for (at, word) in words.enumerate() {
            // SAFETY: `place` has found all of these words inside the mapping; `&mut self` makes it exclusive. No alignment is needed.
            unsafe { first.add(at).write_unaligned(word) };
        }
    }

    /// The memory at an address as a C type, for a syscall that reads or writes it there.
    pub fn as_ptr<T>(&self, address: u64) -> *mut T {
        let place = self.place(address, size_of::<T>()).cast::<T>();
        assert!(self.mapped && place.is_aligned(), "the secret memory is not mapped here");
        place
    }

    fn place(&self, address: u64, bytes: usize) -> *mut u8 {
        let inside = address.checked_sub(self.address()).map(|start| start as usize);
        let start = inside.filter(|start| start.checked_add(bytes).is_some_and(|end| end <= self.len));
        self.address.wrapping_add(start.expect("inside of the secret memory"))
    }
}

impl Secret {
    /// Unmaps the memory. The address stays what it was.
    pub fn unmap(&mut self) {
        if std::mem::take(&mut self.mapped) {
            // SAFETY: this value owned the mapping, and nothing borrows from it.
            unsafe { libc::munmap(self.address.cast(), self.len) };
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.unmap();
    }
}
