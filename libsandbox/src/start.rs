//! Reads the initial stack, as the kernel laid it out at exec: arguments, environment, auxiliary vector, strings.
//!
//! From the lowest address: argc, argv and a null, envp and a null, the auxiliary vector, then the strings of argv, the
//! strings of envp, the name of the executed file (AT_EXECFN), and eight zero bytes up to a page's end. glibc passes argv
//! and envp to each constructor. We use these pointers and no symbol, because a program may define any symbol itself, even
//! `environ`.
//!
//! The strings show what the caller asked for: setenv, unsetenv or putenv in an earlier constructor change the array
//! but not the strings.

use core::ffi::{CStr, c_char, c_int};

const AT_NULL: usize = 0;
/// Tells pointers from the types of the auxiliary vector: the lowest page is never mapped, and no type is this large.
const LOWEST_POINTER: usize = 4096;
/// Every page size is a multiple of this one.
const PAGE: usize = 4096;

/// The parts of the initial stack that we use.
pub struct Start {
    /// The environment array, which the C library may have changed in place.
    pub array: *mut *mut c_char,
    /// The number of environment strings at exec.
    count: usize,
    auxiliary: *const [usize; 2],
}

impl Start {
    /// `None` if these are not the pointers to the initial stack: the environment has moved (setenv before a dlopen
    /// does that), or the C library passes constructors no arguments.
    ///
    /// # Safety
    /// Called from the constructor, with its arguments.
    pub unsafe fn find(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) -> Option<Start> {
        let count = usize::try_from(argc).ok().filter(|count| *count < 1 << 24)?;
        // Compare the addresses before any pointer is followed.
        let beside = (argv as usize).checked_add((count + 1) * size_of::<usize>())?;
        if argv.is_null() || !argv.is_aligned() || envp as usize != beside {
            return None;
        }
        // SAFETY: envp directly follows argv, as only the kernel places it, so the auxiliary vector follows envp. The
        // vector begins with a small non-zero number. Before it lie only pointers and nulls: the terminating null and
        // one for each removed entry.
        unsafe {
            let mut end = envp;
            while !(1..LOWEST_POINTER).contains(&(*end as usize)) {
                end = end.add(1);
            }
            Some(Start { array: envp, count: end.offset_from(envp) as usize - 1, auxiliary: end.cast() })
        }
    }

    /// An entry of the auxiliary vector.
    pub fn auxiliary(&self, wanted: u64) -> Option<usize> {
        let mut at = self.auxiliary;
        // SAFETY: AT_NULL ends the vector, and nothing changes it.
        unsafe {
            while (*at)[0] != AT_NULL {
                if (*at)[0] == wanted as usize {
                    return Some((*at)[1]);
                }
                at = at.add(1);
            }
        }
        None
    }

    /// The environment strings as they were at exec, or none if the stack does not have the layout that Linux gives it.
    pub fn strings(&self) -> Strings {
        let strings = match self.program_of_loader() {
            Some(program) => self.after_arguments(program),
            None => self.before_file_name().or_else(|| self.after_arguments(core::ptr::null_mut())),
        };
        strings.unwrap_or(Strings::NONE)
    }

    /// PROGRAM, if the command was `ld.so PROGRAM`. The loader then makes AT_EXECFN point to that argument, which ends
    /// before the strings and not at the stack's end. Such a start shows by an AT_BASE of 0, because the kernel loaded no
    /// interpreter.
    fn program_of_loader(&self) -> Option<*mut u8> {
        let name = self.auxiliary(libc::AT_EXECFN).filter(|_| self.auxiliary(libc::AT_BASE) == Some(0))? as *mut u8;
        if name as usize <= self.auxiliary as usize {
            return None;
        }
        // SAFETY: the vector's name is a C string above the vector, on the same stack. Its last page is readable to its
        // end, which is eight bytes after `end` where those are read.
        let last = unsafe {
            let end = name.add(CStr::from_ptr(name.cast()).count_bytes() + 1);
            (end as usize + 8).is_multiple_of(PAGE) && (0..8).all(|at| *end.add(at) == 0)
        };
        (!last).then_some(name)
    }

    /// Finds the strings by counting back from the name of the executed file, if no entry of the array points above it.
    fn before_file_name(&self) -> Option<Strings> {
        let end = self.auxiliary(libc::AT_EXECFN)? as *mut u8;
        let lowest = self.auxiliary as usize;
        let mut start = end;
        // SAFETY: `find` counted the array's entries, and everything between the auxiliary vector and a name above it
        // belongs to the same stack.
        unsafe {
            let beyond = (0..self.count).any(|at| *self.array.add(at) as usize > end as usize);
            if beyond || start as usize <= lowest || *start.sub(1) != 0 {
                return None;
            }
            for _ in 0..self.count {
                start = start.sub(1);
                while start as usize > lowest && *start.sub(1) != 0 {
                    start = start.sub(1);
                }
                if start as usize <= lowest {
                    return None;
                }
            }
        }
        Some(Strings { at: start, end })
    }

    /// Finds the strings by counting forward from the last argument: that of argv, or `program` if it is higher. After
    /// `ld.so --argv0 NAME PROGRAM` argv is NAME alone, which precedes PROGRAM.
    fn after_arguments(&self, program: *mut u8) -> Option<Strings> {
        // SAFETY: argv, its null and the environment array are adjacent.
        let last = unsafe { *self.array.sub(2) }.cast::<u8>().max(program);
        if last as usize <= self.auxiliary as usize {
            return None;
        }
        // SAFETY: `count` strings follow the last argument, all on the same stack, which ends with zeroes.
        let skip = |text: *mut u8| unsafe { text.add(CStr::from_ptr(text.cast()).count_bytes() + 1) };
        let at = skip(last);
        Some(Strings { at, end: (0..self.count).fold(at, |text, _| skip(text)) })
    }
}

/// Adjacent NUL-terminated strings.
#[derive(Clone, Copy)]
pub struct Strings {
    at: *mut u8,
    end: *mut u8,
}

impl Strings {
    const NONE: Strings = Strings { at: core::ptr::null_mut(), end: core::ptr::null_mut() };

    pub fn hold(&self, text: *const c_char) -> bool {
        (self.at as usize..self.end as usize).contains(&(text as usize))
    }

    pub fn are_known(&self) -> bool {
        !self.end.is_null()
    }
}

impl Iterator for Strings {
    type Item = &'static CStr;

    fn next(&mut self) -> Option<&'static CStr> {
        if self.at >= self.end {
            return None;
        }
        // SAFETY: the byte before `end` is zero, so each string ends before it; the initial stack is never freed.
        let text = unsafe { CStr::from_ptr(self.at.cast()) };
        // SAFETY: the result is at most `end`.
        self.at = unsafe { self.at.add(text.count_bytes() + 1) };
        Some(text)
    }
}
