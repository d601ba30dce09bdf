//! What the kernel laid on the stack when the program was executed: arguments, environment, auxiliary vector, strings.
//!
//! From the lowest address: argc, argv and a null, envp and a null, the auxiliary vector, and above them the strings:
//! those of argv, then those of envp, then the name of the file executed (AT_EXECFN). The loader passes argv and envp to
//! each constructor. No symbol is asked for, because a program may define any symbol, `environ` too.
//!
//! The strings are the kernel's word for what the caller wanted: setenv, unsetenv and putenv in a constructor that runs
//! before ours change the array and leave the strings.

use core::ffi::{CStr, c_char, c_int};

const AT_NULL: usize = 0;
/// No page below it is ever mapped, and no type of the auxiliary vector reaches it.
const LOWEST_POINTER: usize = 4096;

/// The areas of the stack that a program starts with.
pub struct Start {
    /// The array of the environment, in which the C library changes entries.
    pub array: *mut *mut c_char,
    /// How many strings the kernel put in it.
    count: usize,
    auxiliary: *const [usize; 2],
}

impl Start {
    /// `None` where these are not the arguments that the program started with: the environment was moved since (setenv
    /// does that, before a dlopen), or the C library passes nothing to a constructor.
    ///
    /// # Safety
    /// Called from the constructor, with its arguments.
    pub unsafe fn find(argc: c_int, argv: *mut *mut c_char, envp: *mut *mut c_char) -> Option<Start> {
        let count = usize::try_from(argc).ok().filter(|count| *count < 1 << 24)?;
        // By value: what does not add up is never followed.
        let beside = (argv as usize).checked_add((count + 1) * size_of::<usize>())?;
        if argv.is_null() || !argv.is_aligned() || envp as usize != beside {
            return None;
        }
        // SAFETY: envp stands where only the kernel puts it, right after argv, and behind it the auxiliary vector, which
        // begins with a small number. Before that there are only pointers and nulls: one at the end, and one for each
        // entry that was taken out.
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

    /// The strings of the environment as they were when the program was executed, or none where the stack does not look
    /// as Linux makes it.
    pub fn strings(&self) -> Strings {
        self.before_file_name().or_else(|| self.after_arguments()).unwrap_or(Strings::NONE)
    }

    /// Counted down from the name of the executed file. An explicit `ld.so PROGRAM` writes another name into the vector,
    /// one below the strings; then some entry of the array points beyond it.
    fn before_file_name(&self) -> Option<Strings> {
        let end = self.auxiliary(libc::AT_EXECFN)? as *mut u8;
        let lowest = self.auxiliary as usize;
        let mut start = end;
        // SAFETY: the array is as `find` found it, and all between the auxiliary vector and a name behind it is of one
        // stack.
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

    /// Counted up from the last argument.
    fn after_arguments(&self) -> Option<Strings> {
        // SAFETY: argv, a null, and the array follow each other.
        let last = unsafe { *self.array.sub(2) }.cast::<u8>();
        if last as usize <= self.auxiliary as usize {
            return None;
        }
        // SAFETY: an argument and as many strings as the kernel put behind it, all of one stack that ends with zeroes.
        let skip = |text: *mut u8| unsafe { text.add(CStr::from_ptr(text.cast()).count_bytes() + 1) };
        let at = skip(last);
        Some(Strings { at, end: (0..self.count).fold(at, |text, _| skip(text)) })
    }
}

/// Strings that follow each other.
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
        // SAFETY: the byte before `end` is zero, so each text ends before it; the stack's top is never given back.
        let text = unsafe { CStr::from_ptr(self.at.cast()) };
        // SAFETY: at most `end`.
        self.at = unsafe { self.at.add(text.count_bytes() + 1) };
        Some(text)
    }
}
