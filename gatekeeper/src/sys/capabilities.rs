//! Capabilities given up between fork and exec; no_new_privs keeps exec from giving them back to root.

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// Version 3, of the calling thread.
const OWN: Header = Header { version: 0x2008_0522, pid: 0 };
const WORD: u32 = 32;

/// What lets root look into processes outside, hear their traffic, and run the machine. Landlock keeps a confined process from tracing those
/// outside, but since Linux 6.15 CAP_PERFMON alone reads their /proc/PID/environ, and with it their secrets.
const OVERSEEING: [u32; 14] = [
    12, // CAP_NET_ADMIN
    13, // CAP_NET_RAW: a raw socket gets a copy of what comes in for everybody
    16, // CAP_SYS_MODULE
    17, // CAP_SYS_RAWIO
    19, // CAP_SYS_PTRACE
    21, // CAP_SYS_ADMIN, which stands for CAP_PERFMON as well
    22, // CAP_SYS_BOOT
    25, // CAP_SYS_TIME
    32, // CAP_MAC_OVERRIDE
    33, // CAP_MAC_ADMIN
    34, // CAP_SYSLOG
    38, // CAP_PERFMON
    39, // CAP_BPF
    40, // CAP_CHECKPOINT_RESTORE
];

/// By which root raises limits that were set for it, and is not counted.
const UNLIMITED: [u32; 1] = [24]; // CAP_SYS_RESOURCE

/// Gives up every capability of the new user namespace, also for root, whom exec would give them back.
pub(super) fn drop_all() -> bool {
    const NO_ROOT_LOCKED: libc::c_ulong = 0b1111;
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT_LOCKED, 0, 0, 0) == 0 && set(&[0; 6]) }
}

/// Gives up those that oversee others; nothing for whoever has none.
pub(super) fn drop_overseeing() -> bool {
    drop_these(&OVERSEEING)
}

/// Gives up those that no limit holds.
pub(super) fn drop_unlimited() -> bool {
    drop_these(&UNLIMITED)
}

fn drop_these(capabilities: &[u32]) -> bool {
    let mut sets = [0u32; 6];
    // SAFETY: the header and the two sets of three words live through the call, in the layout of version 3.
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
    // SAFETY: as in `drop_these`; the kernel only reads.
    unsafe { libc::syscall(libc::SYS_capset, &OWN, sets) == 0 }
}
