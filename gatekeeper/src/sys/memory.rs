//! Memory of the program's own: where there is none left, the end is the same as for every other step that fails.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with 125 and a word for an end. The standard library would end by SIGABRT, which is the
/// code of a command that aborted.
pub struct Memory;

const SETUP_FAILED: i32 = 125;

fn known(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        let text = b"gatekeeper: out of memory\n";
        // SAFETY: the text is static. Neither call allocates; whatever was started is ended by its guardian.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(SETUP_FAILED)
        }
    }
    memory
}

// SAFETY: every call is the system's own, with what the caller promised; a null answer is never returned.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        known(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        known(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        known(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
