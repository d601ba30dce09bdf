//! Drops capabilities between fork and exec. no_new_privs keeps exec from restoring them for root.

use super::check;
use std::io;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// _LINUX_CAPABILITY_VERSION_3, for the calling thread.
const OWN: Header = Header { version: 0x2008_0522, pid: 0 };
const WORD: u32 = 32;
const SYS_PTRACE: u64 = 1 << 19;

/// Capabilities by which root inspects other processes, sniffs traffic or administers the machine. Landlock denies ptrace
/// on processes outside, but since Linux 6.15 CAP_PERFMON alone reads their /proc/PID/environ and the secrets in it.
const OVERSEEING: [u32; 14] = [
    12, // CAP_NET_ADMIN
    13, // CAP_NET_RAW: a raw socket receives a copy of all incoming packets
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE
    21, // CAP_SYS_ADMIN, which includes CAP_PERFMON
    22, // CAP_SYS_BOOT
    25, // CAP_SYS_TIME
    32, // CAP_MAC_OVERRIDE
    33, // CAP_MAC_ADMIN
    34, // CAP_SYSLOG
    38, // CAP_PERFMON
    39, // CAP_BPF
    40, // CAP_CHECKPOINT_RESTORE
];

/// Lets root raise its hard limits and exceed some of them.
const UNLIMITED: [u32; 1] = [24]; // CAP_SYS_RESOURCE

/// Drops every capability of the new user namespace. The securebits keep exec from giving them back to uid 0.
pub(super) fn drop_all() -> bool {
    const NO_ROOT_LOCKED: libc::c_ulong = 0b1111;
    // SAFETY: PR_SET_SECUREBITS takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT_LOCKED, 0, 0, 0) == 0 && set(&[0; 6]) }
}

/// Drops the capabilities that reach other processes and the machine. Succeeds if there are none to drop.
pub(super) fn drop_overseeing() -> bool {
    drop_these(&OVERSEEING)
}

/// Drops the capability that lifts limits.
pub(super) fn drop_unlimited() -> bool {
    drop_these(&UNLIMITED)
}

fn drop_these(capabilities: &[u32]) -> bool {
    let mut sets = [0u32; 6];
    // SAFETY: version 3 has two structs of three u32 each (effective, permitted, inheritable), which is what `sets` holds.
    if unsafe { libc::syscall(libc::SYS_capget, &OWN, &mut sets) } != 0 {
        return false;
    }
    let before = sets;
    for capability in capabilities {
        let half = (capability / WORD) as usize * 3;
        for word in &mut sets[half..half + 3] {
            *word &= !(1 << (capability % WORD));
        }
    }
    sets == before || set(&sets)
}

fn set(sets: &[u32; 6]) -> bool {
    // SAFETY: the layout is as in `drop_these`, and the kernel only reads it.
    unsafe { libc::syscall(libc::SYS_capset, &OWN, sets) == 0 }
}

/// Capabilities of a thread, as bits.
pub struct Held {
    pub effective: u64,
    pub permitted: u64,
}

/// Those of a thread; 0 is the calling one.
pub fn of(tid: i32) -> io::Result<Held> {
    let mut sets = [0u32; 6];
    // SAFETY: as in `drop_these`.
    check(unsafe { libc::syscall(libc::SYS_capget, &Header { pid: tid, ..OWN }, &mut sets) })?;
    let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << WORD;
    Ok(Held { effective: both(sets[0], sets[3]), permitted: both(sets[1], sets[4]) })
}

/// Those with which a command starts that is started with these, at least.
pub fn left_to_command(effective: u64) -> u64 {
    OVERSEEING.iter().chain(&UNLIMITED).fold(effective, |left, capability| left & !(1 << capability))
}

/// Makes every permitted capability of this thread effective.
pub(super) fn raise() -> io::Result<()> {
    let permitted = of(0)?.permitted;
    hold(permitted)
}

/// Leaves this thread no other capabilities than these, and CAP_SYS_PTRACE, by which it reads the memory of the program.
pub(super) fn keep(effective: u64) -> io::Result<()> {
    hold(of(0)?.permitted & (effective | SYS_PTRACE))
}

fn hold(capabilities: u64) -> io::Result<()> {
    let (low, high) = (capabilities as u32, (capabilities >> WORD) as u32);
    if set(&[low, low, 0, high, high, 0]) { Ok(()) } else { Err(io::Error::last_os_error()) }
}
