//! libsandbox.so for programs that an embedding program starts: in sealed memory, or in the private file of
//! [`libsandbox_embed::on_disk`].

use rustix::fs::{MemfdFlags, SealFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

pub use libsandbox_embed::on_disk;

/// libsandbox.so in a sealed memfd, which no process can change. Programs started while this value lives inherit the
/// descriptor.
///
/// Use [`on_disk`] for a program that closes inherited descriptors before it starts others: their loader cannot open the
/// memfd and prints a warning. The filter is inherited, and holds there all the same.
#[derive(Debug)]
pub struct Sealed {
    fd: OwnedFd,
}

impl Sealed {
    pub fn new() -> io::Result<Sealed> {
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "built without libsandbox.so");
        let bytes = libsandbox_embed::LIBSANDBOX.ok_or_else(missing)?;
        // Without CLOEXEC, because the loader of the next program opens it by number. NOEXEC_SEAL came with Linux 6.3 and
        // is required if the sysctl vm.memfd_noexec is 2; a loader can still map such a file as executable.
        let made = rustix::fs::memfd_create("libsandbox.so", MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| rustix::fs::memfd_create("libsandbox.so", MemfdFlags::ALLOW_SEALING))?;
        let mut file = File::from(made);
        file.write_all(bytes)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Sealed { fd: file.into() })
    }

    /// The path for `LD_PRELOAD` in the program that is started.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Adds the library to the command's `LD_PRELOAD`, before any others. Keep this value until the command has started.
    pub fn preload(&self, command: &mut Command) {
        let mut list = OsString::from(self.path());
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            list.push(":");
            list.push(others);
        }
        command.env("LD_PRELOAD", list);
    }
}
