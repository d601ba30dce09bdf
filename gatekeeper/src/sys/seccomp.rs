//! seccomp(2): which features the kernel has. `child` installs the filters.

use super::check;
use std::io;

const GET_ACTION_AVAIL: libc::c_ulong = 2;

/// Whether the kernel supports a filter's return value, such as `SECCOMP_RET_USER_NOTIF`.
pub fn action_available(ret: u32) -> bool {
    // SAFETY: SECCOMP_GET_ACTION_AVAIL reads one u32, and `ret` outlives the call.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &ret) == 0 }
}

/// Whether seccomp(2) can be called. ENOSYS: the kernel lacks it; any other error comes from an outer filter.
pub fn probe() -> io::Result<()> {
    let allow = sandbox_contract::bpf::ret::ALLOW;
    // SAFETY: as in `action_available`.
    check(unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &allow) }).map(drop)
}
