//! What a command does under `learn`: every call is allowed and noted.
//!
//! The program may change its memory before the kernel reads it, so the notes may be wrong. That is acceptable, because
//! a person reviews the policy that is made from them.

use super::decode::{self, address::Peer};
use super::files::{self, Does, Named};
use super::status::Status;
use super::target::Target;
use crate::sys;
use crate::sys::notify::Call;
use crate::trust::place;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Of memfd_create(2), in its second argument: the file can never be executed.
const MFD_NOEXEC_SEAL: u64 = libc::MFD_NOEXEC_SEAL as u64;
/// The most entries of each kind.
const MOST: usize = 50_000;

/// What a command did, as far as a policy can grant it.
#[derive(Debug, Default)]
pub struct Lesson {
    /// Each distinct call by number and by the arguments that policies distinguish, with the arguments of one example.
    pub calls: BTreeMap<(i32, [u64; 2]), [u64; 6]>,
    pub read: BTreeSet<PathBuf>,
    pub listed: BTreeSet<PathBuf>,
    /// Existing files that were written.
    pub written: BTreeSet<PathBuf>,
    /// Names that were created, removed or replaced.
    pub entries: BTreeSet<PathBuf>,
    pub executed: BTreeSet<PathBuf>,
    /// Addresses connected or sent to.
    pub hosts: BTreeSet<SocketAddr>,
    /// Addresses bound to.
    pub bound: BTreeSet<SocketAddr>,
    pub sockets: BTreeSet<PathBuf>,
    pub peak_processes: usize,
    /// Bytes of the largest process.
    pub peak_memory: u64,
    /// Whether a set reached its limit, so that entries are missing.
    pub overflowed: bool,
    alive: HashSet<i32>,
}

impl Lesson {
    /// Notes one call.
    pub fn hear(&mut self, call: &Call) {
        let target = Target { tid: call.tid };
        self.count(call.tid);
        match i64::from(call.number) {
            libc::SYS_exit_group => return self.ends(call.tid),
            libc::SYS_connect | libc::SYS_bind | libc::SYS_sendto => self.address(call, &target),
            _ => self.files(call, &target),
        }
        self.calls.entry((call.number, class(call))).or_insert(call.args);
    }

    fn count(&mut self, tid: i32) {
        if self.alive.insert(tid) {
            self.alive.retain(|tid| sys::process::kill(*tid, 0).is_ok());
            self.peak_processes = self.peak_processes.max(self.alive.len());
        }
    }

    /// Reads the peak memory of a process that is about to exit.
    fn ends(&mut self, tid: i32) {
        let status = Status::of(tid).ok();
        let field = |name: &str| status.as_ref().and_then(|status| status.number::<u64>(name));
        self.peak_memory = self.peak_memory.max(field("VmHWM").unwrap_or(0) * 1024);
        let threads = field("Threads").unwrap_or(1) as usize;
        self.peak_processes = self.peak_processes.max(self.alive.len() + threads - 1);
        self.alive.remove(&tid);
    }

    fn address(&mut self, call: &Call, target: &Target) {
        let binds = i64::from(call.number) == libc::SYS_bind;
        let peer = match i64::from(call.number) {
            libc::SYS_sendto => decode::address::read(target, call.args[4], call.args[5]),
            _ => decode::address::read(target, call.args[1], call.args[2]),
        };
        match peer {
            Some(Peer::Internet(address)) => {
                let kept = if binds { &mut self.bound } else { &mut self.hosts };
                keep(kept, address, &mut self.overflowed);
            }
            Some(Peer::Unix(path)) if binds => {
                self.name(&Named { directory: libc::AT_FDCWD, path, follow: false, does: Does::Make }, target);
            }
            Some(Peer::Unix(path)) => {
                let file = target.open(libc::AT_FDCWD, &path, true);
                if let Ok(at) = file.and_then(|file| place(&file)) {
                    keep(&mut self.sockets, at, &mut self.overflowed);
                }
            }
            _ => {}
        }
    }

    fn files(&mut self, call: &Call, target: &Target) {
        if let Some(fd) = files::descriptor(call) {
            let at = target.place_of(fd).ok().filter(|at| at.is_absolute() && at.exists());
            at.into_iter().for_each(|at| keep(&mut self.written, at, &mut self.overflowed));
            return;
        }
        for shape in files::shapes(call).into_iter().flatten() {
            if let Ok(named) = shape.named(call, target) {
                self.name(&named, target);
            }
        }
    }

    fn name(&mut self, named: &Named, target: &Target) {
        let opened = || target.open(named.directory, &named.path, named.follow).ok();
        let there = || opened().and_then(|file| place(&file).ok()).filter(|at| at.is_absolute());
        let entry = || target.parent(named.directory, &named.path).ok().map(|(_, at, name)| at.join(name));
        let lost = &mut self.overflowed;
        match named.does {
            Does::Open { read, write, create, exclusive } => match there() {
                // These fail with EEXIST and EISDIR before any grant is looked for.
                Some(_) if exclusive => {}
                Some(at) if write && at.is_dir() => {}
                Some(at) if write => keep(&mut self.written, at, lost),
                Some(at) if read && at.is_dir() => keep(&mut self.listed, at, lost),
                Some(at) => keep(&mut self.read, at, lost),
                None if create => entry().into_iter().for_each(|at| keep(&mut self.entries, at, lost)),
                None => {}
            },
            Does::OpenUnnamed => there().into_iter().for_each(|at| keep(&mut self.entries, at.join("(unnamed)"), lost)),
            Does::Replace => entry().into_iter().for_each(|at| keep(&mut self.entries, at, lost)),
            Does::Make => {
                // A name that exists needs no grant: the call fails with EEXIST, as most of those of `mkdir -p` do.
                let at = entry().filter(|at| at.symlink_metadata().is_err());
                at.into_iter().for_each(|at| keep(&mut self.entries, at, lost));
            }
            Does::Remove | Does::Move | Does::Link => {
                // Removing a name that does not exist needs no grant.
                let at = entry().filter(|at| at.symlink_metadata().is_ok());
                at.into_iter().for_each(|at| keep(&mut self.entries, at, lost));
            }
            Does::Execute => {
                let at = match named.path.as_os_str() == OsStr::new("") {
                    true => target.place_of(named.directory).ok(),
                    false => there(),
                };
                at.filter(|at| at.is_file()).into_iter().for_each(|at| keep(&mut self.executed, at, lost));
            }
            Does::Change => there().into_iter().for_each(|at| keep(&mut self.written, at, lost)),
        }
    }
}

fn keep<T: Ord>(set: &mut BTreeSet<T>, item: T, overflowed: &mut bool) {
    if set.len() < MOST {
        set.insert(item);
    } else {
        *overflowed = true;
    }
}

/// The arguments by which a policy distinguishes calls of one syscall.
fn class(call: &Call) -> [u64; 2] {
    let low = |at: usize| u64::from(call.args[at] as u32);
    match i64::from(call.number) {
        libc::SYS_socket => [low(0), low(1) & 0xf | (low(2) & 0xffff) << 8],
        libc::SYS_socketpair => [low(0), low(1) & 0xf],
        libc::SYS_memfd_create => [u64::from(call.args[1] & MFD_NOEXEC_SEAL != 0), 0],
        libc::SYS_clone => [call.args[0] & 0x7e03_0000, 0],
        libc::SYS_ioctl => [low(1), 0],
        libc::SYS_prctl | libc::SYS_personality => [low(0), 0],
        libc::SYS_prlimit64 => [u64::from(low(0) != 0), 0],
        _ => [0, 0],
    }
}
