//! The loopback interface of a new network namespace. Runs between fork and exec: raw syscalls, no allocation.

use super::child::errno;
use super::set_errno;

/// Switches the loopback interface on; a new network namespace has it switched off.
pub(super) fn switch_on_loopback() -> bool {
    // SAFETY: all zeroes is a valid `ifreq`; the name fits with its NUL, and the kernel reads and writes one `ifreq`. The
    // descriptor is new and closed here.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return false;
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        let mut done = libc::ioctl(socket, libc::SIOCGIFFLAGS as _, &raw mut request) == 0;
        if done {
            request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
            done = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request) == 0;
        }
        let error = errno();
        libc::close(socket);
        set_errno(error);
        done
    }
}
