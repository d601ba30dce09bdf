//! The allocator of a program for musl: dlmalloc under one lock, and large blocks from the kernel. musl's own maps memory for
//! a few blocks at a time: with it, `gatekeeper run -- /bin/true` took 508 page faults instead of 340.

use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Allocates below `LARGE` from dlmalloc, and everything else as a mapping.
pub struct Heap;

/// The heap grows in steps of which most runs need one.
const STEP: usize = 512 << 10;

/// From this size on, a block is a mapping: its pages are zero before they are touched, and the kernel gets them back.
/// glibc starts with the same limit.
const LARGE: usize = 128 << 10;

/// A mapping begins at a page. A block that has to be aligned to more than the smallest page comes from dlmalloc.
const PAGE: usize = 4096;

static HEAP: Mutex<Dlmalloc> = Mutex::new(
    const {
        let mut heap = Dlmalloc::new();
        assert!(heap.set_granularity(STEP));
        heap
    },
);

/// Code between fork and exec does not allocate, so no child waits for a lock that a thread of its parent held.
fn heap() -> MutexGuard<'static, Dlmalloc> {
    HEAP.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_mapping(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= PAGE
}

fn or_null(mapping: *mut libc::c_void) -> *mut u8 {
    if mapping == libc::MAP_FAILED { null_mut() } else { mapping.cast() }
}

fn map(size: usize) -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses an unused range.
    or_null(unsafe { libc::mmap(null_mut(), size, protection, flags, -1, 0) })
}

// SAFETY: the size and alignment of a block, which the caller repeats in every call, decide where it is from. A mapping is
// as large as its layout says. The lock makes the calls of dlmalloc one after the other, and both return null if there
// is no memory.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_mapping(layout) {
            true => map(layout.size()),
            // SAFETY: the lock is held.
            false => unsafe { heap().malloc(layout.size(), layout.align()) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_mapping(layout) {
            true => map(layout.size()),
            // SAFETY: the lock is held.
            false => unsafe { heap().calloc(layout.size(), layout.align()) },
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller passes the layout of the block, so it is from where `alloc` took it for this layout.
        unsafe {
            match is_mapping(layout) {
                true => _ = libc::munmap(memory.cast(), layout.size()),
                false => heap().free(memory, layout.size(), layout.align()),
            }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`. The caller guarantees that `size`, rounded up to the alignment, does not overflow.
        unsafe {
            let new = Layout::from_size_align_unchecked(size, layout.align());
            match (is_mapping(layout), is_mapping(new)) {
                (true, true) => or_null(libc::mremap(memory.cast(), layout.size(), size, libc::MREMAP_MAYMOVE)),
                (false, false) => heap().realloc(memory, layout.size(), layout.align(), size),
                _ => {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        copy_nonoverlapping(memory, moved, layout.size().min(size));
                        self.dealloc(memory, layout);
                    }
                    moved
                }
            }
        }
    }
}
