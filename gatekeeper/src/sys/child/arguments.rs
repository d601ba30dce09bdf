//! The arguments of exec, and of the one message that passes the filter.

use crate::sys::message::Message;
use crate::sys::secret::{Secret, random};
use std::ffi::CString;
use std::io;

/// The arguments of exec, at random addresses that only the filter knows. The filter is installed before exec, so it lets
/// through one execveat, with exactly these addresses.
pub struct Arguments {
    pub(super) argv: Secret,
    pub(super) envp: Secret,
    pub(super) path: Secret,
    pub(super) header: Secret,
    /// The flags of the sendmsg below. The kernel reads the lower half; the upper half is random and known only to the filter.
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

impl Arguments {
    /// Arguments for a process that is forked from this one.
    pub fn new(argv: Vec<CString>, envp: Vec<CString>) -> io::Result<Arguments> {
        Arguments::made(argv, envp, |_, bytes| Secret::new(bytes), random()?)
    }

    /// Only the addresses, for a process of the guardian program, which maps them.
    pub fn chosen(argv: Vec<CString>, envp: Vec<CString>) -> io::Result<Arguments> {
        Arguments::made(argv, envp, |_, bytes| Secret::chosen(bytes), random()?)
    }

    /// The arguments at the addresses that another process chose.
    pub(in crate::sys) fn at(
        argv: Vec<CString>,
        envp: Vec<CString>,
        addresses: [u64; 4],
        flags: u64,
    ) -> io::Result<Arguments> {
        Arguments::made(argv, envp, |at, bytes| Secret::at(addresses[at], bytes), flags >> 32)
    }

    fn made(
        argv: Vec<CString>,
        envp: Vec<CString>,
        page: impl Fn(usize, usize) -> io::Result<Secret>,
        random: u64,
    ) -> io::Result<Arguments> {
        let array = |at: usize, strings: &[CString]| -> io::Result<Secret> {
            let mut page = page(at, (strings.len() + 1) * size_of::<usize>())?;
            page.write_words(strings.iter().map(|string| string.as_ptr() as usize));
            Ok(page)
        };
        Ok(Arguments {
            argv: array(0, &argv)?,
            envp: array(1, &envp)?,
            path: page(2, 1)?,
            header: page(3, size_of::<Header>())?,
            flags: random << 32 | libc::MSG_NOSIGNAL as u64,
            strings: (argv, envp),
        })
    }

    /// What [`Arguments::at`] needs: argv, environment, addresses and flags.
    pub(in crate::sys) fn parts(&self) -> (&[CString], &[CString], [u64; 4], u64) {
        let (argv, envp) = &self.strings;
        (argv, envp, [&self.argv, &self.envp, &self.path, &self.header].map(Secret::address), self.flags)
    }

    /// The addresses with which the filter lets execveat through: path, argv, envp.
    pub fn exec(&self) -> [u64; 3] {
        [self.path.address(), self.argv.address(), self.envp.address()]
    }

    /// The address and the flags with which the filter lets sendmsg through.
    pub fn sendmsg(&self) -> [u64; 2] {
        [self.header.address(), self.flags]
    }
}
