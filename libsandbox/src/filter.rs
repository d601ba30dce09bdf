//! From the request to a seccomp program, and the program into the kernel.

use crate::environ::Request;
use crate::failure::Failure;
use crate::line::Line;
use crate::trap;
use core::ffi::CStr;
use sandbox_contract::action::Action;
use sandbox_contract::bpf::{self, Insn, List, ret};
use sandbox_contract::grammar::{self, NumberSet};
use sandbox_contract::syscalls::{self, Number};
use sandbox_contract::{equivalents, file, vars};

/// A program ready to be loaded; all that can fail before the kernel is asked has been done.
pub struct Prepared {
    program: [Insn; bpf::MAX_LEN],
    len: usize,
    trap: bool,
}

impl Prepared {
    pub fn new(request: &Request) -> Result<Prepared, Failure<'static>> {
        match (request.filter, request.allow, request.deny) {
            (Some(path), None, None) => Prepared::from_file(path),
            (Some(_), ..) => Err(Failure::FilterAndList),
            // Paths alone: Landlock and no filter.
            (None, None, None) => Ok(Prepared { program: [Insn::default(); bpf::MAX_LEN], len: 0, trap: false }),
            (None, allow, deny) => {
                let prepared = Prepared::from_lists(allow, deny, request.action, (vars::ALLOW, vars::DENY))?;
                if request.verbose {
                    chatter(allow, deny, request.action);
                }
                Ok(prepared)
            }
        }
    }

    /// ALLOW wins over DENY. `names` is what an error calls the two lists.
    pub fn from_lists<'a>(
        allow: Option<&'a [u8]>,
        deny: Option<&'a [u8]>,
        action: Action,
        names: (&'static str, &'static str),
    ) -> Result<Prepared, Failure<'a>> {
        let (list, name) = match (allow, deny) {
            (Some(allow), _) => (allow, names.0),
            (None, deny) => (deny.unwrap_or_default(), names.1),
        };
        let listed = grammar::parse(list).map_err(|error| Failure::Item(name, error))?;
        let (answer, others) = if allow.is_some() { (ret::ALLOW, action.ret()) } else { (action.ret(), ret::ALLOW) };
        let trap = action == Action::Trap;
        let mut prepared = Prepared { program: [Insn::default(); bpf::MAX_LEN], len: 0, trap };
        let tests = trap::line_tests();
        let clauses = [bpf::Clause { tests: &tests, ret: ret::ALLOW }];
        let first = [(libc::SYS_write as u16, &clauses[..])];
        let list = List { listed: &listed, answer, others, first: if trap { &first } else { &[] } };
        prepared.len = bpf::compile(&list, &mut prepared.program).map_err(|_| Failure::FilterTooLong)?;
        Ok(prepared)
    }

    fn from_file(path: &'static CStr) -> Result<Prepared, Failure<'static>> {
        let name = path.to_bytes();
        if !name.starts_with(b"/") {
            return Err(Failure::FilterNotAbsolute(name));
        }
        let mut bytes = [0u8; file::MAX_FILE + 1];
        let len = read_regular(path, &mut bytes)?;
        let mut prepared = Prepared { program: [Insn::default(); bpf::MAX_LEN], len: 0, trap: false };
        let bytes = bytes.get(..len).unwrap_or_default();
        prepared.len = file::decode(bytes, &mut prepared.program).map_err(|error| Failure::FilterBad(name, error))?;
        Ok(prepared)
    }

    /// Sets no_new_privs and switches the filter on for every thread. The last thing to be called.
    pub fn load(&self) -> Result<(), Failure<'static>> {
        if self.len == 0 {
            return Ok(());
        }
        no_new_privs()?;
        if self.trap {
            trap::install()?;
        }
        let program = libc::sock_fprog { len: self.len as u16, filter: self.program.as_ptr().cast_mut().cast() };
        // SAFETY: `program` points to `len` live instructions laid out as struct sock_filter; the kernel copies them.
        let answer = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC, &program)
        };
        match answer {
            0 => Ok(()),
            thread @ 1.. => Err(Failure::Thread(thread as usize)),
            _ => Err(Failure::Kernel("the seccomp filter", errno())),
        }
    }
}

pub fn no_new_privs() -> Result<(), Failure<'static>> {
    // SAFETY: prctl with these arguments reads no memory.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(Failure::Kernel("no_new_privs", errno())),
    }
}

pub fn errno() -> i32 {
    // SAFETY: glibc gives every thread an errno; the pointer is always valid.
    unsafe { *libc::__errno_location() }
}

/// Reads a regular file, whole, and returns its length.
fn read_regular(path: &'static CStr, into: &mut [u8]) -> Result<usize, Failure<'static>> {
    let name = path.to_bytes();
    // Not blocking, so that a FIFO put in its place cannot hang the program.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: `path` is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 {
        return Err(Failure::FilterUnreadable(name, "open", errno()));
    }
    let result = read_open(fd, name, into);
    // SAFETY: `fd` was opened above and is closed once.
    unsafe { libc::close(fd) };
    result
}

fn read_open(fd: i32, name: &'static [u8], into: &mut [u8]) -> Result<usize, Failure<'static>> {
    // SAFETY: all zeroes is a valid stat, and fstat writes no more than that struct.
    let stat = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        if libc::syscall(libc::SYS_fstat, fd, &mut stat) != 0 {
            return Err(Failure::FilterUnreadable(name, "examine", errno()));
        }
        stat
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Failure::FilterNotRegular(name));
    }
    let mut len = 0;
    while let Some(room) = into.get_mut(len..).filter(|room| !room.is_empty()) {
        // SAFETY: pointer and length are those of one live slice.
        match unsafe { libc::read(fd, room.as_mut_ptr().cast(), room.len()) } {
            0 => break,
            more @ 1.. => len += more as usize,
            _ => return Err(Failure::FilterUnreadable(name, "read", errno())),
        }
    }
    Ok(len)
}

/// What the ancestor prints always: the action, and every item.
fn chatter(allow: Option<&'static [u8]>, deny: Option<&'static [u8]>, action: Action) {
    let line = Line::new().text("initializing seccomp: default action ");
    match action {
        Action::Kill => line.text("kill"),
        Action::Log => line.text("log"),
        Action::Trap => line.text("trap"),
        Action::Errno(errno) => line.text("errno ").errno(i32::from(errno)),
    }
    .print();
    let (list, what) = match allow {
        Some(allow) => (allow, " (allow)"),
        None => (deny.unwrap_or_default(), " (deny)"),
    };
    for item in grammar::items(list) {
        let line = Line::new().text("adding ");
        match item {
            grammar::Item::Name(name) => line.quoted(name),
            grammar::Item::Group(group) => line.text("group ").quoted(group),
        }
        .text(" to the process seccomp filter")
        .text(what)
        .print();
    }
    if allow.is_none() {
        warn_of_holes(list);
    }
}

/// One line for a deny list that leaves calls open which do the same as denied ones.
fn warn_of_holes(list: &[u8]) {
    let denied = grammar::parse(list).unwrap_or(NumberSet::EMPTY);
    let is_denied = |call: &str| match syscalls::number(call.as_bytes()) {
        Number::Here(number) => Some(denied.contains(number)),
        _ => None,
    };
    let mut line = None;
    equivalents::holes(&is_denied, &mut |family, denied, open| {
        let start = match line.take() {
            Some(line) => Line::text(line, "; "),
            None => Line::new().text("warning: SECCOMP_SYSCALL_DENY stops "),
        };
        line = Some(start.text(denied).text(" but not ").text(open).text(", which can still ").text(family.does));
    });
    if let Some(line) = line {
        line.print();
    }
}
