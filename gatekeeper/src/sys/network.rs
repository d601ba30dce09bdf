//! The loopback interface of a new network namespace. Runs between fork and exec: raw syscalls, no allocation.

use super::child::errno;
use super::set_errno;

/// Switches the loopback interface on, which is off in a new network namespace, and gives it two more addresses.
pub(super) fn prepare_loopback() -> bool {
    let done = switch_on();
    if done {
        let mut local = [0; 16];
        local[..4].copy_from_slice(&[127, 0, 0, 2]);
        add_address(libc::AF_INET, &local[..4], 8);
        local[..4].copy_from_slice(&[0xfe, 0x80, 0, 0]);
        local[15] = 1;
        add_address(libc::AF_INET6, &local, 64);
    }
    done
}

fn switch_on() -> bool {
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

/// An RTM_NEWADDR message (rtnetlink(7)).
#[repr(C)]
struct NewAddress {
    size: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
    family: u8,
    prefix: u8,
    address_flags: u8,
    scope: u8,
    interface: u32,
    attribute_size: u16,
    attribute: u16,
    address: [u8; 16],
}

/// Adds an address to the loopback interface. With none but 127.0.0.1 and ::1, glibc's AI_ADDRCONFIG takes IPv4 and IPv6 for
/// absent, and `localhost` has no address. A kernel without IPv6 refuses its address, which then is not missed.
fn add_address(family: libc::c_int, address: &[u8], prefix: u8) {
    const LOOPBACK: u32 = 1;
    const NLM_F_REQUEST: u16 = 1;
    const NLM_F_CREATE: u16 = 0x400;
    const IFA_LOCAL: u16 = 2;
    let mut message = NewAddress {
        size: (size_of::<NewAddress>() - 16 + address.len()) as u32,
        kind: libc::RTM_NEWADDR,
        flags: NLM_F_REQUEST | NLM_F_CREATE,
        sequence: 1,
        port: 0,
        family: family as u8,
        prefix,
        address_flags: 0,
        scope: if family == libc::AF_INET { libc::RT_SCOPE_HOST } else { libc::RT_SCOPE_LINK },
        interface: LOOPBACK,
        attribute_size: (4 + address.len()) as u16,
        attribute: IFA_LOCAL,
        address: [0; 16],
    };
    message.address[..address.len()].copy_from_slice(address);
    let error = errno();
    // SAFETY: the message is plain bytes without padding, and `size` is at most its length. The descriptor is new and closed
    // here.
    unsafe {
        let socket = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE);
        if socket >= 0 {
            libc::send(socket, (&raw const message).cast(), message.size as usize, 0);
            libc::close(socket);
        }
    }
    set_errno(error);
}
