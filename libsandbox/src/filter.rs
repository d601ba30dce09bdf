//! Turns the request into a seccomp program and loads it.

use crate::environ::Request;
use crate::failure::Failure;
use crate::line::Line;
use crate::raw;
use crate::trap;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use sandbox_contract::action::Action;
use sandbox_contract::bpf::{self, Insn, List, ret};
use sandbox_contract::grammar::{self, NumberSet};
use sandbox_contract::syscalls::{self, Number};
use sandbox_contract::{equivalents, file, vars};

/// The length of a compiled filter's header, in instructions. The program after it is thus aligned and loaded in place.
const HEADER: usize = file::HEADER / size_of::<Insn>();

/// Room for the longest file plus one instruction, so that a longer file is noticed.
const ROOM: usize = HEADER + bpf::MAX_LEN + 1;

/// Where programs are built. Static, because a thread may have as little as 16 KiB of stack, and because a large frame
/// would touch its pages in every process, even in one that asks for no filter.
static BUFFER: Buffer = Buffer { taken: AtomicBool::new(false), cells: UnsafeCell::new([EMPTY; ROOM]) };
const EMPTY: Insn = Insn { code: 0, jt: 0, jf: 0, k: 0 };

struct Buffer {
    taken: AtomicBool,
    cells: UnsafeCell<[Insn; ROOM]>,
}
// SAFETY: only a `Prepared` reaches the cells, and `taken` allows one `Prepared` at a time.
unsafe impl Sync for Buffer {}

/// A program ready to be loaded. Everything that can fail before the kernel sees it has been done.
pub struct Prepared {
    cells: &'static mut [Insn; ROOM],
    /// Where in the cells the program starts.
    start: usize,
    len: usize,
    trap: bool,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        BUFFER.taken.store(false, Ordering::Release);
    }
}

impl Prepared {
    pub fn new(request: &Request) -> Result<Prepared, Failure<'static>> {
        match (request.filter, request.allow, request.deny) {
            (Some(path), None, None) => {
                let prepared = Prepared::from_file(path)?;
                if request.verbose {
                    let line = Line::new().text("loading the compiled filter ").quoted(path.to_bytes()).text(", ");
                    line.number(prepared.len).text(" instructions").print();
                }
                Ok(prepared)
            }
            (Some(_), ..) => Err(Failure::FilterAndList),
            // Paths alone: Landlock and no filter.
            (None, None, None) => Prepared::empty(),
            (None, allow, deny) => {
                let prepared = Prepared::from_lists(allow, deny, request.action, (vars::ALLOW, vars::DENY))?;
                if request.verbose {
                    chatter(allow, deny, request.action);
                }
                Ok(prepared)
            }
        }
    }

    fn empty() -> Result<Prepared, Failure<'static>> {
        // Another thread holds the buffer for well under a millisecond. If it stays taken, we are the child of a fork
        // that happened while it was held.
        for _ in 0..50_000_000u32 {
            if !BUFFER.taken.swap(true, Ordering::Acquire) {
                // SAFETY: `taken` was false, so there is no other `Prepared`, and its drop alone makes it false again.
                let cells = unsafe { &mut *BUFFER.cells.get() };
                return Ok(Prepared { cells, start: 0, len: 0, trap: false });
            }
            core::hint::spin_loop();
        }
        Err(Failure::Kernel("a second installation at the same time", libc::EAGAIN))
    }

    /// ALLOW wins over DENY. `names` are the names of the two lists in error messages.
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
        let mut prepared = Prepared::empty()?;
        prepared.trap = action == Action::Trap;
        let own = trap::Own::new(listed.contains(libc::SYS_rt_sigaction as u16) == allow.is_some());
        let clauses = own.clauses();
        let rules = own.rules(&clauses);
        let first = if prepared.trap { &rules[..] } else { &[] };
        let list = List { listed: &listed, answer, others, first };
        prepared.len = bpf::compile(&list, prepared.cells).map_err(|_| Failure::FilterTooLong)?;
        Ok(prepared)
    }

    fn from_file(path: &'static CStr) -> Result<Prepared, Failure<'static>> {
        let name = path.to_bytes();
        if !name.starts_with(b"/") {
            return Err(Failure::FilterNotAbsolute(name));
        }
        let mut prepared = Prepared::empty()?;
        let size = size_of_val(prepared.cells);
        // SAFETY: an instruction is 8 bytes without padding, any bit pattern is a valid one, and `cells` stays
        // borrowed.
        let bytes = unsafe { core::slice::from_raw_parts_mut(prepared.cells.as_mut_ptr().cast::<u8>(), size) };
        let len = read_regular(path, bytes)?;
        let bytes = bytes.get(..len).unwrap_or_default();
        prepared.len = file::verify(bytes).map_err(|error| Failure::FilterBad(name, error))?;
        prepared.start = HEADER;
        Ok(prepared)
    }

    /// Sets no_new_privs and installs the filter on every thread. Must be the library's last act.
    pub fn load(&self) -> Result<(), Failure<'static>> {
        let program = self.cells.get(self.start..self.start + self.len).unwrap_or_default();
        if program.is_empty() {
            return Ok(());
        }
        no_new_privs()?;
        let handler = if self.trap { Some(trap::install()?) } else { None };
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut().cast() };
        let arguments = [
            libc::SECCOMP_SET_MODE_FILTER as usize,
            libc::SECCOMP_FILTER_FLAG_TSYNC as usize,
            &raw const program as usize,
            0,
            0,
            0,
        ];
        // SAFETY: `program` points to `len` live instructions in the layout of struct sock_filter; the kernel copies
        // them.
        let failure = match unsafe { raw::call(libc::SYS_seccomp, arguments) } {
            Ok(0) => return Ok(()),
            Ok(thread) => Failure::Thread(thread),
            Err(errno) => Failure::Kernel("the seccomp filter", errno),
        };
        if let Some(before) = handler {
            trap::uninstall(&before);
        }
        Err(failure)
    }
}

pub fn no_new_privs() -> Result<(), Failure<'static>> {
    // SAFETY: prctl with these arguments reads no memory.
    let answer = unsafe { raw::call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0]) };
    answer.map(drop).map_err(|errno| Failure::Kernel("no_new_privs", errno))
}

/// Reads a whole regular file and returns its length.
fn read_regular(path: &'static CStr, into: &mut [u8]) -> Result<usize, Failure<'static>> {
    let name = path.to_bytes();
    // O_NONBLOCK, so that a FIFO at this path cannot hang the program.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    let fd = raw::open(path, flags).map_err(|errno| Failure::FilterUnreadable(name, "open", errno))?;
    let result = read_open(fd, name, into);
    raw::close(fd);
    result
}

fn read_open(fd: i32, name: &'static [u8], into: &mut [u8]) -> Result<usize, Failure<'static>> {
    let stat = raw::fstat(fd).map_err(|errno| Failure::FilterUnreadable(name, "examine", errno))?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Failure::FilterNotRegular(name));
    }
    let mut len = 0;
    while let Some(room) = into.get_mut(len..).filter(|room| !room.is_empty()) {
        // SAFETY: pointer and length are those of one live slice.
        let read = unsafe { raw::call(libc::SYS_read, [fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0]) };
        match read.map_err(|errno| Failure::FilterUnreadable(name, "read", errno))? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

/// The lines that the original cloudflare/sandbox always prints, in its wording, plus the action and an unused list.
fn chatter(allow: Option<&'static [u8]>, deny: Option<&'static [u8]>, action: Action) {
    if allow.is_some() && deny.is_some() {
        Line::new().text(vars::DENY).text(" is not used, because ").text(vars::ALLOW).text(" is set").print();
    }
    let list = allow.or(deny).unwrap_or_default();
    for item in grammar::items(list) {
        let line = Line::new().text("adding ");
        match item {
            grammar::Item::Name(name) => line.shown(name),
            grammar::Item::Group(group) => line.text("@").shown(group),
        }
        .text(" to the process seccomp filter")
        .print();
    }
    if allow.is_none() {
        warn_of_holes(list);
    }
    let which = if allow.is_some() { "a call that is not listed: " } else { "a call that is listed: " };
    let line = Line::new().text(which);
    match action {
        Action::Kill => line.text("kill"),
        Action::Log => line.text("log"),
        Action::Trap => line.text("trap"),
        Action::Errno(errno) => line.text("errno ").errno(i32::from(errno)),
    }
    .print();
}

/// Warns in one line about a deny list that leaves open an equivalent of a denied call.
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
