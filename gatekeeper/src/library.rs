//! libsandbox.so for the programs that this one starts: sealed in memory where the program keeps a descriptor of it,
//! else the private file of [`libsandbox_embed::on_disk`].

use rustix::fs::{MemfdFlags, SealFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

pub use libsandbox_embed::on_disk;

/// The library in memory, which nobody can change any more. What is started while this lives inherits the descriptor.
///
/// For a program that starts others which close what they inherit, [`on_disk`] is better: a loader that cannot open the
/// path says so on stderr. The filter holds there all the same, as filters are inherited.
#[derive(Debug)]
pub struct Sealed {
    fd: OwnedFd,
}

impl Sealed {
    pub fn new() -> io::Result<Sealed> {
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "built without libsandbox.so");
        let bytes = libsandbox_embed::LIBSANDBOX.ok_or_else(missing)?;
        // Not closed by exec: the loader of the next program opens it by number. A loader maps what cannot be executed
        // by itself, which is all that some machines (vm.memfd_noexec=2) let be made; before Linux 6.3 nobody asks.
        let made = rustix::fs::memfd_create("libsandbox.so", MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create("libsandbox.so", MemfdFlags::ALLOW_SEALING))?;
        let mut file = File::from(made);
        file.write_all(bytes)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Sealed { fd: file.into() })
    }

    /// What `LD_PRELOAD` names in the program that is started.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Has a command load it, before whatever is preloaded already. To be kept until the command has started.
    pub fn preload(&self, command: &mut Command) {
        let mut list = OsString::from(self.path());
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            list.push(":");
            list.push(others);
        }
        command.env("LD_PRELOAD", list);
    }
}
