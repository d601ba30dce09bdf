//! The arguments of exec, and of the one message that passes the filter.

use crate::sys::message::Message;
use crate::sys::secret::{PAGE, Secret, random};
use std::ffi::CString;
use std::io;

/// The arguments of exec, at random addresses that only the filter knows. The filter is installed before exec, so it lets
/// through one execveat, with exactly these addresses.
///
/// One mapping at a random page holds all parts, with a gap of random size before each. A mapping for each would take four times as
/// long to make, to copy and to give up. The threat model has the arithmetic.
pub struct Arguments {
    memory: Secret,
    pub(super) argv: u64,
    pub(super) envp: u64,
    pub(super) path: u64,
    header: u64,
    /// The flags of execveat, and of the sendmsg below. The kernel reads the lower halves; the upper halves are random and known
    /// only to the filter.
    pub(super) options: u64,
    pub(super) flags: u64,
    strings: (Vec<CString>, Vec<CString>),
}

/// The message that hands the listener over; the filter lets this one sendmsg through by its address.
#[repr(C)]
pub(super) struct Header {
    pub header: libc::msghdr,
    pub part: libc::iovec,
    pub control: [u64; 4],
    pub message: Message,
}

/// The sizes of gaps are multiples of a word, below this many bytes.
const GAPS: usize = 1 << 16;
/// The parts are aligned to words.
const WORD: usize = size_of::<usize>();

/// How many bytes argv, the environment, the empty path and the message take, in this order.
fn sizes(argv: &[CString], envp: &[CString]) -> [usize; 4] {
    [(argv.len() + 1) * WORD, (envp.len() + 1) * WORD, WORD, size_of::<Header>()]
}

impl Arguments {
    /// Arguments for a process that is forked from this one.
    pub fn new(argv: Vec<CString>, envp: Vec<CString>) -> io::Result<Arguments> {
        Arguments::made(argv, envp, Secret::new)
    }

    /// Only the addresses, for a process of the guardian program, which maps them.
    pub fn chosen(argv: Vec<CString>, envp: Vec<CString>) -> io::Result<Arguments> {
        Arguments::made(argv, envp, Secret::chosen)
    }

    /// The arguments at the addresses that another process chose.
    pub(in crate::sys) fn at(
        argv: Vec<CString>,
        envp: Vec<CString>,
        addresses: [u64; 4],
        flags: [u64; 2],
    ) -> io::Result<Arguments> {
        let ([first, .., last], [.., size]) = (addresses, sizes(&argv, &envp));
        let start = first & !(PAGE as u64 - 1);
        let wrong = || io::Error::from_raw_os_error(libc::EBADMSG);
        let length = last.checked_sub(start).and_then(|bytes| bytes.checked_add(size as u64)).ok_or_else(wrong)?;
        let memory = Secret::at(start, length as usize)?;
        Arguments::filled(argv, envp, memory, addresses, flags)
    }

    fn made(
        argv: Vec<CString>,
        envp: Vec<CString>,
        memory: impl FnOnce(usize) -> io::Result<Secret>,
    ) -> io::Result<Arguments> {
        let [gaps @ .., one, other] = random::<6>()?;
        let mut end = 0;
        let mut starts = [0; 4];
        for ((start, gap), size) in starts.iter_mut().zip(gaps).zip(sizes(&argv, &envp)) {
            *start = end + gap as usize % GAPS / WORD * WORD;
            end = *start + size;
        }
        let memory = memory(end)?;
        let addresses = starts.map(|start| memory.address() + start as u64);
        let flags = [(one, libc::AT_EMPTY_PATH), (other, libc::MSG_NOSIGNAL)];
        let flags = flags.map(|(random, flag)| u64::from(random) << 32 | flag as u64);
        Arguments::filled(argv, envp, memory, addresses, flags)
    }

    fn filled(
        argv: Vec<CString>,
        envp: Vec<CString>,
        mut memory: Secret,
        addresses: [u64; 4],
        [options, flags]: [u64; 2],
    ) -> io::Result<Arguments> {
        let [at_argv, at_envp, path, header] = addresses;
        for (at, strings) in [(at_argv, &argv), (at_envp, &envp)] {
            memory.write_words(at, &mut strings.iter().map(|string| string.as_ptr() as usize));
        }
        Ok(Arguments { memory, argv: at_argv, envp: at_envp, path, header, options, flags, strings: (argv, envp) })
    }

    /// Unmaps the memory in this process; the one that was forked from it has its own. It is of no use here, and unmapping takes
    /// five times as long once there are threads, which run on other processors.
    pub(in crate::sys) fn unmap(&mut self) {
        self.memory.unmap();
    }

    /// The memory of the message.
    pub(super) fn header(&self) -> *mut Header {
        self.memory.as_ptr(self.header)
    }

    /// What [`Arguments::at`] needs: argv, environment, addresses and flags.
    pub(in crate::sys) fn parts(&self) -> (&[CString], &[CString], [u64; 4], [u64; 2]) {
        let (argv, envp) = &self.strings;
        (argv, envp, [self.argv, self.envp, self.path, self.header], [self.options, self.flags])
    }

    /// The arguments with which the filter lets execveat through: path, argv, envp, flags.
    pub fn exec(&self) -> [u64; 4] {
        [self.path, self.argv, self.envp, self.options]
    }

    /// The address and the flags with which the filter lets sendmsg through.
    pub fn sendmsg(&self) -> [u64; 2] {
        [self.header, self.flags]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).expect("without NUL")).collect()
    }

    #[test]
    fn the_parts_follow_one_another_with_gaps_that_differ_from_run_to_run() {
        let mut gaps = std::collections::BTreeSet::new();
        for _ in 0..64 {
            let made = Arguments::new(words(&["/bin/true", "x"]), words(&["A=1"])).expect("memory");
            let addresses = [made.argv, made.envp, made.path, made.header];
            let sizes = sizes(&made.strings.0, &made.strings.1);
            let ends = addresses.iter().zip(sizes).map(|(start, size)| start + size as u64);
            for (start, end) in addresses.iter().skip(1).zip(ends) {
                assert!(*start >= end && start - end < GAPS as u64, "{addresses:x?}");
                assert_eq!(start % WORD as u64, 0);
            }
            gaps.insert(made.path - made.envp);
            // SAFETY: the array of two words and a null pointer is there, as the strings are.
            let second = unsafe { std::ffi::CStr::from_ptr(*(made.argv as *const *const std::ffi::c_char).add(1)) };
            assert_eq!(second.to_bytes(), b"x");
            assert_eq!(made.header() as u64, made.header);
        }
        // Of 8,192 sizes, 64 tries that find fewer than 32 do not happen by chance.
        assert!(gaps.len() >= 32, "{} sizes", gaps.len());
    }

    #[test]
    fn another_process_maps_the_same_addresses() {
        let (argv, envp) = (words(&["/bin/true"]), words(&["A=1", "B=2"]));
        let chosen = Arguments::chosen(argv.clone(), envp.clone()).expect("random numbers");
        let (_, _, addresses, flags) = chosen.parts();
        let made = Arguments::at(argv, envp, addresses, flags).expect("memory");
        assert_eq!((made.exec(), made.sendmsg()), (chosen.exec(), chosen.sendmsg()));
        // SAFETY: the arrays are there, as the strings are.
        let ends = unsafe {
            [*(made.argv as *const usize).add(1), *(made.envp as *const usize).add(2), *(made.path as *const usize)]
        };
        assert_eq!(ends, [0; 3]);
        let backwards = [addresses[0] + PAGE as u64, addresses[1], addresses[2], addresses[0]];
        assert!(Arguments::at(Vec::new(), Vec::new(), backwards, flags).is_err());
    }
}
