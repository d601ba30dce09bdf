//! Parses socket addresses from the program's memory.

use crate::supervise::target::{Memory, shown};
use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    Internet(SocketAddr),
    /// A socket file, by the path that the program gave; it may be relative.
    Unix(PathBuf),
    /// A UNIX socket in the abstract namespace (unix(7)).
    Abstract(String),
    /// A UNIX address without a name: bind(2) would choose one.
    Unnamed,
    Other(u16),
}

/// sizeof(struct sockaddr_storage), the most that the kernel takes.
const LONGEST: usize = 128;
const FAMILY: usize = 2;

/// Reads the address that a call points to.
pub fn read(memory: &dyn Memory, address: u64, size: u64) -> Option<Peer> {
    if address == 0 {
        return None;
    }
    let size = usize::try_from(size as u32).ok()?.min(LONGEST);
    parse(&memory.bytes(address, size).ok()?)
}

/// Reads the address in a struct msghdr, if it has one.
pub fn of_message(memory: &dyn Memory, header: u64) -> Option<Peer> {
    let bytes = memory.bytes(header, 12).ok()?;
    let (name, rest) = bytes.split_first_chunk::<8>()?;
    let (size, _) = rest.split_first_chunk::<4>()?;
    read(memory, u64::from_ne_bytes(*name), u64::from(u32::from_ne_bytes(*size)))
}

pub fn parse(bytes: &[u8]) -> Option<Peer> {
    let (family, rest) = bytes.split_first_chunk::<FAMILY>()?;
    let family = u16::from_ne_bytes(*family);
    Some(match i32::from(family) {
        libc::AF_UNIX => match rest.first() {
            None => Peer::Unnamed,
            Some(0) => Peer::Abstract(String::from_utf8_lossy(rest.get(1..)?).trim_end_matches('\0').to_owned()),
            Some(_) => {
                let name = rest.split(|byte| *byte == 0).next()?;
                Peer::Unix(PathBuf::from(OsStr::from_bytes(name)))
            }
        },
        libc::AF_INET => {
            let (port, rest) = rest.split_first_chunk::<2>()?;
            let (ip, _) = rest.split_first_chunk::<4>()?;
            Peer::Internet(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(*ip)), u16::from_be_bytes(*port)))
        }
        libc::AF_INET6 => {
            let (port, rest) = rest.split_first_chunk::<2>()?;
            let (ip, _) = rest.get(4..)?.split_first_chunk::<16>()?;
            Peer::Internet(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(*ip)), u16::from_be_bytes(*port)))
        }
        _ => Peer::Other(family),
    })
}

/// Whether an address is that of the kernel at the other end of a netlink socket: port 0, and no multicast groups (netlink(7)).
pub fn is_netlink_of_kernel(bytes: &[u8]) -> bool {
    let rest = bytes.strip_prefix(&(libc::AF_NETLINK as u16).to_ne_bytes()[..]).and_then(|rest| rest.get(2..10));
    rest.is_some_and(|port_and_groups| port_and_groups.iter().all(|byte| *byte == 0))
}

impl Peer {
    pub fn host(&self) -> Option<String> {
        match self {
            Peer::Internet(address) => Some(address.to_string()),
            _ => None,
        }
    }

    pub fn path(&self) -> Option<&Path> {
        match self {
            Peer::Unix(path) => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Internet(address) => write!(f, "{address}"),
            Peer::Unix(path) => f.write_str(&shown(path)),
            Peer::Abstract(name) => write!(f, "@{name}"),
            Peer::Unnamed => f.write_str("(unnamed)"),
            Peer::Other(family) => f.write_str(&super::names::one(super::names::FAMILIES, u64::from(*family))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(family: i32, rest: &[u8]) -> Option<Peer> {
        parse(&[&(family as u16).to_ne_bytes()[..], rest].concat())
    }

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them() {
        let text = |peer: Option<Peer>| peer.map(|peer| peer.to_string());
        assert_eq!(text(of(2, &[1, 187, 127, 0, 0, 1])).as_deref(), Some("127.0.0.1:443"));
        let six = [&[0, 80, 0, 0, 0, 0][..], &[0; 15], &[1], &[0; 4]].concat();
        assert_eq!(text(of(10, &six)).as_deref(), Some("[::1]:80"));
        assert_eq!(text(of(1, b"/run/x\0junk")).as_deref(), Some("/run/x"));
        assert_eq!(text(of(1, b"\0name\0")).as_deref(), Some("@name"));
        assert_eq!(of(1, b""), Some(Peer::Unnamed));
        assert_eq!(of(16, b"xxxx"), Some(Peer::Other(16)));
    }

    #[test]
    fn the_kernel_has_port_0_and_is_in_no_group() {
        let to = |port: u32, groups: u32| {
            [&16u16.to_ne_bytes()[..], &[7, 7], &port.to_ne_bytes(), &groups.to_ne_bytes()].concat()
        };
        assert!(is_netlink_of_kernel(&to(0, 0)));
        assert!(!is_netlink_of_kernel(&to(1, 0)) && !is_netlink_of_kernel(&to(0, 1)));
        assert!(!is_netlink_of_kernel(&to(0, 0)[..11]), "the kernel refuses it too");
        assert!(!is_netlink_of_kernel(&[0; 12]), "another family");
    }

    #[test]
    fn what_is_too_short_is_no_address() {
        for size in 0..7 {
            assert_eq!(of(2, &vec![1; size]).is_some(), size >= 6, "{size}");
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"x"), None);
        assert!(of(10, &[0; 20]).is_none());
    }
}
