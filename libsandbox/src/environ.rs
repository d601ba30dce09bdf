//! Reads the request from the environment, and removes the variables once they have been read.

use crate::failure::Failure;
use crate::start::Start;
use core::ffi::{CStr, c_char, c_int};
use sandbox_contract::action::Action;
use sandbox_contract::vars;

/// What the variables ask for. The values borrow the environment block, which is never freed.
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
        // The caller of a setuid program controls its environment, and must not choose which of its syscalls fail.
        if !request.is_empty() && environment.is_privileged() {
            return Err(Failure::Privileged);
        }
        Ok(request)
    }

    /// Whether there is nothing to enforce. An action without a list confines nothing.
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
    /// The program's current environment: the C library's variable, or the program's if it defines the symbol itself.
    static mut __environ: Array;
    /// Never called. Referring to it keeps musl, which lacks it, from loading the library: musl passes constructors no
    /// arguments, so we could not find the environment.
    fn gnu_get_libc_version() -> *const c_char;
}

/// Where the variables are read from.
pub struct Environment {
    /// The initial stack. `None` if the library was loaded by dlopen after the environment had moved.
    start: Option<Start>,
}

impl Environment {
    /// # Safety
    /// Called from the constructor, with its arguments.
    pub unsafe fn find(argc: c_int, argv: Array, envp: Array) -> Result<Environment, Failure<'static>> {
        // SAFETY: our caller passes on the constructor's own arguments.
        let start = unsafe { Start::find(argc, argv, envp) };
        core::hint::black_box(gnu_get_libc_version as unsafe extern "C" fn() -> *const c_char);
        start.as_ref().map_or(Ok(()), agrees)?;
        Ok(Environment { start })
    }

    /// The array to read from: the initial one, or after a late dlopen the current one.
    fn array(&self) -> Array {
        self.start.as_ref().map_or_else(now, |start| start.array)
    }

    /// The value of a variable. It borrows the environment block, which is never freed.
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

    /// Removes every occurrence of our variables from the initial and the current array, and overwrites the strings, to
    /// which copies of the array may point.
    pub fn forget(&self) {
        for array in [self.array(), now()] {
            visit(array, |text| our_name(text).is_none());
        }
        for text in self.start.iter().flat_map(Start::strings) {
            let bytes = text.as_ptr().cast_mut();
            if our_name(bytes).is_none() {
                continue;
            }
            // SAFETY: the strings lie on the stack and are writable. Neither array points to this one any longer, and
            // the request's borrows of it are no longer used: the filter is prepared and Landlock is in force.
            (0..text.count_bytes()).for_each(|at| unsafe { bytes.add(at).write_volatile(b' ' as c_char) });
        }
    }
}

/// Fails if the array and the kernel's strings disagree about one of our variables: then code that ran before us
/// changed it, and we cannot know which value the caller wanted.
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

/// The value of an entry, if it belongs to this variable. Compares only as far as the name matches, because this runs
/// for every entry in every program.
fn value(entry: *const c_char, name: &str) -> Option<&'static CStr> {
    // SAFETY: `entry` is a C string, and the comparison stops at the first difference, at the latest at its final NUL.
    let same = |(at, byte): (usize, &u8)| unsafe { *entry.add(at) as u8 } == *byte;
    let whole = name.as_bytes().iter().chain(b"=").enumerate().all(same);
    // SAFETY: the value is the rest of the same string, which is never freed.
    whole.then(|| unsafe { CStr::from_ptr(entry.add(name.len() + 1)) })
}

fn our_name(entry: *const c_char) -> Option<&'static str> {
    vars::ALL.into_iter().find(|name| value(entry, name).is_some())
}

/// The program's current array, or null if the pointer cannot be one.
fn now() -> Array {
    // SAFETY: this reads one pointer. Only a setenv that races with dlopen could change it, and setenv is not
    // thread-safe.
    let array = unsafe { __environ };
    let possible = array.is_aligned() && (array as usize) < 1 << 47;
    if possible { array } else { core::ptr::null_mut() }
}

/// Walks an array of strings and removes the entries for which `keep` returns false.
fn visit(array: Array, mut keep: impl FnMut(*const c_char) -> bool) {
    if array.is_null() {
        return;
    }
    // SAFETY: the array holds C strings and ends with a null. No other thread changes it before main, and entries only
    // move towards its start.
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
        // Write only if an entry was removed.
        if to != from {
            *to = core::ptr::null_mut();
        }
    }
}
