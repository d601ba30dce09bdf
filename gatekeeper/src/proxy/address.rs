//! Which addresses are public. Applied to the result of name resolution, so that a name which resolves to a private
//! address gives no access to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Why an address is not on the public internet; `None` if it is.
///
/// IPv6 addresses that embed an IPv4 address (mapped, NAT64, 6to4, ISATAP) are judged by that.
pub fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

/// What an address of this machine is called in a refusal, even if it is a public one.
pub const OWN: &str = "this machine itself, under one of its addresses";

/// Whether an address belongs to this machine. Services that listen on all addresses often trust local clients.
///
/// Asks the routing table, because a list of interface addresses would miss local networks such as 127.0.0.0/8. An
/// address is local if a socket can be bound to it (unless net.ipv4.ip_nonlocal_bind lets sockets bind to any address),
/// or if packets to it would be sent from that same address. No packet is sent.
pub fn is_own(address: IpAddr) -> bool {
    let (any, foreign): (IpAddr, IpAddr) = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    };
    let binds = |address: IpAddr| UdpSocket::bind(SocketAddr::new(address, 0)).is_ok();
    let leaves_from = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(SocketAddr::new(address, 9))?;
        Ok(socket.local_addr()?.ip())
    };
    binds(address) && !binds(foreign) || leaves_from().is_ok_and(|from| from == address)
}

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    Some(match (a, b, c, d) {
        (0, ..) => "this host on this network",
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "a private network",
        (100, 64..=127, ..) => "a shared address space",
        (127, ..) => "this machine itself",
        (169, 254, 169, 254) | (168, 63, 129, 16) => "a cloud metadata service",
        (169, 254, ..) => "link-local",
        (192, 0, 0, _) => "reserved for protocols",
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => "reserved for documentation",
        (192, 88, 99, _) => "a 6to4 relay",
        (198, 18..=19, ..) => "reserved for benchmarks",
        (224..=239, ..) => "multicast",
        (240..=255, ..) => "reserved",
        _ => return None,
    })
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    let carried = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        not_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    if address.is_loopback() {
        return Some("this machine itself");
    }
    Some(match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] => return carried(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return carried(high, low),
        [0x64, 0xff9b, ..] => "a local NAT64",
        [0, 0, 0, 0, 0, 0, ..] => "reserved",
        [0x2002, high, low, ..] => return carried(high, low),
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] if carried(high, low).is_some() => {
            "a tunnel to an address that is not public"
        }
        [0xfc00..=0xfdff, ..] => "a private network",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "a private network",
        [0xff00..=0xffff, ..] => "multicast",
        [0x2001, 0, ..] => "a Teredo tunnel",
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => "reserved for documentation",
        [0x2001, 0..=0x01ff, ..] => "reserved for protocols",
        // 2000::/3, the only range that IANA has allocated as global unicast.
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_is_named() {
        for (address, why) in [
            ("0.0.0.0", "this host on this network"),
            ("0.1.2.3", "this host on this network"),
            ("10.0.0.1", "a private network"),
            ("172.16.0.1", "a private network"),
            ("172.31.255.255", "a private network"),
            ("192.168.1.1", "a private network"),
            ("100.64.0.1", "a shared address space"),
            ("100.100.100.200", "a shared address space"),
            ("127.0.0.1", "this machine itself"),
            ("127.255.255.254", "this machine itself"),
            ("169.254.169.254", "a cloud metadata service"),
            ("168.63.129.16", "a cloud metadata service"),
            ("169.254.170.2", "link-local"),
            ("192.0.0.192", "reserved for protocols"),
            ("192.0.2.1", "reserved for documentation"),
            ("198.18.0.1", "reserved for benchmarks"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "reserved"),
            ("::", "reserved"),
            ("::1", "this machine itself"),
            ("::127.0.0.1", "reserved"),
            ("::ffff:127.0.0.1", "this machine itself"),
            ("::ffff:169.254.169.254", "a cloud metadata service"),
            ("::ffff:10.1.2.3", "a private network"),
            ("64:ff9b::127.0.0.1", "this machine itself"),
            ("64:ff9b::a9fe:a9fe", "a cloud metadata service"),
            ("64:ff9b:1::1", "a local NAT64"),
            ("2002:7f00:1::", "this machine itself"),
            ("2002:a9fe:a9fe::1", "a cloud metadata service"),
            ("2600:1::5efe:10.0.0.1", "a tunnel to an address that is not public"),
            ("2600:1::200:5efe:127.0.0.1", "a tunnel to an address that is not public"),
            ("fd00::1", "a private network"),
            ("fd00:ec2::254", "a private network"),
            ("fc00::1", "a private network"),
            ("fe80::1", "link-local"),
            ("fec0::1", "a private network"),
            ("ff02::1", "multicast"),
            ("2001::1", "a Teredo tunnel"),
            ("2001:db8::1", "reserved for documentation"),
            ("2001:10::1", "reserved for protocols"),
            ("3fff::1", "reserved for documentation"),
            ("100::1", "reserved"),
            ("5f00::1", "reserved"),
            ("4000::1", "reserved"),
        ] {
            assert_eq!(not_public(address.parse().expect("an address")), Some(why), "{address}");
        }
    }

    #[test]
    fn own_addresses_are_known_by_the_way_to_them() {
        assert!(is_own("127.0.0.1".parse().expect("an address")));
        assert!(is_own("127.9.9.9".parse().expect("an address")), "the whole network is local");
        assert!(!is_own("192.0.2.1".parse().expect("an address")));
    }

    #[test]
    fn what_is_public_passes() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "169.253.1.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert_eq!(not_public(address.parse().expect("an address")), None, "{address}");
        }
    }
}
