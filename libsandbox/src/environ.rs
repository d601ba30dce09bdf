//! The request: what the environment asks for.

use crate::failure::Failure;
use crate::start::Start;
use core::ffi::{CStr, c_char, c_int};
use sandbox_contract::action::Action;
use sandbox_contract::vars;

/// The values borrow the process's environment block, which outlives them.
pub struct Request {
    pub allow: Option<&'static [u8]>,
    pub deny: Option<&'static [u8]>,
    pub action: Action,
    pub filter: Option<&'static CStr>,
    pub fs_read: Option<&'static [u8]>,
    pub fs_write: Option<&'static [u8]>,
    pub verbose: bool,
    pub required: bool,
}

impl Request {
    pub fn read(environment: &Environment) -> Result<Request, Failure<'static>> {
        let get = |name: &str| environment.get(name).map(CStr::to_bytes);
        let switch = |name: &str| get(name).is_some_and(|value| !matches!(value, b"" | b"0"));
        let action = match get(vars::ACTION) {
            Some(text) => Action::parse(text).ok_or(Failure::UnknownAction(text))?,
            None => Action::Kill,
        };
        let request = Request {
            allow: get(vars::ALLOW),
            deny: get(vars::DENY),
            action,
            filter: environment.get(vars::FILTER),
            fs_read: get(vars::FS_READ),
            fs_write: get(vars::FS_WRITE),
            verbose: switch(vars::VERBOSE),
            required: switch(vars::REQUIRED),
        };
        // The environment of a setuid program is its caller's, who must not choose which of its calls fail.
        if !request.is_empty() && environment.is_privileged() {
            return Err(Failure::Privileged);
        }
        Ok(request)
    }

    /// Whether nothing is to be enforced: an action alone confines nothing.
    pub fn is_empty(&self) -> bool {
        self.allow.is_none()
            && self.deny.is_none()
            && self.filter.is_none()
            && self.fs_read.is_none()
            && self.fs_write.is_none()
    }
}

type Array = *mut *mut c_char;

unsafe extern "C" {
    /// The array that the program has now; its own, if it defines one of this name.
    static mut __environ: Array;
    /// Never called. musl has no such function and so does not load this library: it passes nothing to a constructor.
    fn gnu_get_libc_version() -> *const c_char;
}

/// Where the variables are read.
pub struct Environment {
    /// What the program started with, unless it was loaded by dlopen after that was moved.
    start: Option<Start>,
}

impl Environment {
    /// # Safety
    /// Called from the constructor, with its arguments.
    pub unsafe fn find(argc: c_int, argv: Array, envp: Array) -> Result<Environment, Failure<'static>> {
        // SAFETY: by the caller's word.
        let start = unsafe { Start::find(argc, argv, envp) };
        core::hint::black_box(gnu_get_libc_version as unsafe extern "C" fn() -> *const c_char);
        start.as_ref().map_or(Ok(()), agrees)?;
        Ok(Environment { start })
    }

    /// The array to read from. After a dlopen that is the one that the program has now.
    fn array(&self) -> Array {
        self.start.as_ref().map_or_else(now, |start| start.array)
    }

    /// The value of a variable. It belongs to the environment block, which is never freed.
    fn get(&self, name: &str) -> Option<&'static CStr> {
        let mut found = None;
        visit(self.array(), |text| {
            if found.is_none() {
                found = value(text, name);
            }
            true
        });
        found
    }

    fn is_privileged(&self) -> bool {
        match &self.start {
            Some(start) => start.auxiliary(libc::AT_SECURE) != Some(0),
            // SAFETY: getauxval only reads the auxiliary vector.
            None => unsafe { libc::getauxval(libc::AT_SECURE) != 0 },
        }
    }

    /// Takes our variables out, every one of each name: out of the array that the program started with, out of those that
    /// it has now, and out of the strings themselves, to which copies of the array point.
    pub fn forget(&self) {
        for array in [self.array(), now()] {
            visit(array, |text| our_name(text).is_none());
        }
        for text in self.start.iter().flat_map(Start::strings) {
            let bytes = text.as_ptr().cast_mut();
            if our_name(bytes).is_none() {
                continue;
            }
            // SAFETY: the strings are on the stack and writable. No array that we know points to this one any longer, and
            // what the request borrowed of it is in the prepared filter and in the kernel.
            (0..text.count_bytes()).for_each(|at| unsafe { bytes.add(at).write_volatile(b' ' as c_char) });
        }
    }
}

/// The array and the strings say the same of our variables. Where they do not, something ran before us that changed them,
/// and neither can be taken for what the caller wanted.
fn agrees(start: &Start) -> Result<(), Failure<'static>> {
    let strings = start.strings();
    if !strings.are_known() {
        return Ok(());
    }
    let mut changed = None;
    visit(start.array, |text| {
        changed = our_name(text).filter(|_| !strings.hold(text)).or(changed);
        true
    });
    for text in strings {
        let Some(name) = our_name(text.as_ptr()) else { continue };
        let mut found = false;
        visit(start.array, |entry| {
            found |= entry == text.as_ptr();
            true
        });
        changed = if found { changed } else { Some(name) };
    }
    changed.map_or(Ok(()), |name| Err(Failure::Changed(name)))
}

/// An entry's value, if it is this variable's. Read no further than the name goes: this is done for every entry, in every
/// program.
fn value(entry: *const c_char, name: &str) -> Option<&'static CStr> {
    // SAFETY: a C string; a byte that differs, as its last one does, ends the comparison.
    let same = |(at, byte): (usize, &u8)| unsafe { *entry.add(at) as u8 } == *byte;
    let whole = name.as_bytes().iter().chain(b"=").enumerate().all(same);
    // SAFETY: what follows the name is the rest of the same string, which is never freed.
    whole.then(|| unsafe { CStr::from_ptr(entry.add(name.len() + 1)) })
}

fn our_name(entry: *const c_char) -> Option<&'static str> {
    vars::ALL.into_iter().find(|name| value(entry, name).is_some())
}

/// The array that the program has now, if it can be one.
fn now() -> Array {
    // SAFETY: a pointer is read, which nothing changes meanwhile: a program that calls dlopen and setenv at once has lost
    // already.
    let array = unsafe { __environ };
    let possible = array.is_aligned() && (array as usize) < 1 << 47;
    if possible { array } else { core::ptr::null_mut() }
}

/// Walks an array of strings and keeps what `keep` answers true for.
fn visit(array: Array, mut keep: impl FnMut(*const c_char) -> bool) {
    if array.is_null() {
        return;
    }
    // SAFETY: a null-terminated array of C strings, which nothing else changes before main; entries are only moved
    // towards its start.
    unsafe {
        let (mut from, mut to) = (array, array);
        while !(*from).is_null() {
            if keep(*from) {
                if to != from {
                    *to = *from;
                }
                to = to.add(1);
            }
            from = from.add(1);
        }
        // Where nothing was taken out, nothing is written.
        if to != from {
            *to = core::ptr::null_mut();
        }
    }
}
