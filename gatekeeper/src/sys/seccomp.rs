//! seccomp(2): what the kernel can do. Filters are installed in `child`.

use super::check;
use std::io;

const GET_ACTION_AVAIL: libc::c_ulong = 2;

/// Whether the kernel knows a filter's answer, such as `SECCOMP_RET_USER_NOTIF`.
pub fn action_available(ret: u32) -> bool {
    // SAFETY: the kernel reads one u32, which lives through the call.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &ret) == 0 }
}

/// Whether the seccomp call itself is there and not refused by an outer filter; the error says which.
pub fn probe() -> io::Result<()> {
    let allow = sandbox_contract::bpf::ret::ALLOW;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &allow) }).map(drop)
}
