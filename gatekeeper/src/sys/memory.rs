//! gatekeeper's allocator. Out of memory ends the program as any other failed step does: with exit code 125.

#[cfg(target_env = "musl")]
use super::heap::Heap as System;
#[cfg(not(target_env = "musl"))]
use std::alloc::System;
use std::alloc::{GlobalAlloc, Layout};

/// The C library's allocator, or `heap` in place of musl's, except that a failed allocation prints a message and exits
/// with 125. The standard library would abort, and exit code 134 would read as a command that aborted.
pub struct Memory;

const SETUP_FAILED: i32 = 125;

/// Settings of glibc's allocator for a process that supervises runs. All threads share one arena: another one takes four
/// syscalls and grows page by page, and the threads allocate little. The heap grows, and shrinks, in steps of which most runs need
/// none.
pub fn for_runs() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers and changes a setting of the allocator under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 512 << 10);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 << 20);
    }
}

/// Exits with 125, as a failed allocation does, if this process cannot get `size` more bytes. The standard library aborts if
/// a new thread finds no memory; asking first turns that into a failed step.
pub fn must_have(size: usize) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an unused range, which is unmapped again without having been used.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
        or_exit(if memory == libc::MAP_FAILED { std::ptr::null_mut() } else { memory.cast() });
        libc::munmap(memory, size);
    }
}

fn or_exit(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        let text = b"gatekeeper: out of memory\n";
        // SAFETY: pointer and length are those of a static text, and neither call allocates. A guardian that was started
        // notices that this process is gone and ends its tree.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(SETUP_FAILED)
        }
    }
    memory
}

// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract of `GlobalAlloc`.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`, which is that of `System.alloc`.
        or_exit(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        or_exit(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; `memory` came from `System`, because every allocation here does.
        or_exit(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}
