//! Which sockets may be made, and which calls on them the supervisor makes in the program's place.
//!
//! A filter sees the kind of a socket but not the address that it is connected to: where an address decides, connect and
//! listen are supervised, and every other way to reach an address is closed: datagrams, which name their receiver in each
//! message; protocols with calls of their own; TCP Fast Open; and socket options that route packets elsewhere.

use super::{Clause, Decision, Table, Verb, Why};
use crate::policy::{NetworkMode, Policy, Profile};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::syscalls::{Number, number};

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;
const SOCK_TYPE: u32 = 0xf;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const SOCK_SEQPACKET: u32 = 5;
const MSG_FASTOPEN: u32 = 0x2000_0000;
const EAFNOSUPPORT: u16 = 97;

/// Socket options by which packets go elsewhere than to the address of the socket: source routes and routing headers.
const ROUTING: &[(u32, u32)] = &[
    (0, 4),   // IP_OPTIONS
    (1, 25),  // SO_BINDTODEVICE: even 127.0.0.1 then leaves the machine by that device
    (1, 62),  // SO_BINDTOIFINDEX
    (41, 5),  // IPV6_2292RTHDR
    (41, 6),  // IPV6_2292PKTOPTIONS
    (41, 54), // IPV6_HOPOPTS
    (41, 55), // IPV6_RTHDRDSTOPTS
    (41, 57), // IPV6_RTHDR
    (41, 59), // IPV6_DSTOPTS
];

/// Calls that hold the network, which a list of allowed calls does not open again.
const HELD: &[&str] = &["socket", "connect", "listen", "setsockopt", "sendto", "sendmsg", "sendmmsg"];

/// Whether an address decides, and so somebody has to look at it.
pub fn by_address(policy: &Policy, network: &NetworkMode) -> bool {
    match network {
        NetworkMode::None => false,
        NetworkMode::Full => !policy.network.ports.is_empty(),
        NetworkMode::Loopback | NetworkMode::Hosts(_) => true,
    }
}

impl Table {
    /// With nobody to look at addresses, no socket is granted for which one decides.
    pub(super) fn guard_sockets(&mut self, policy: &Policy, network: &NetworkMode, supervised: bool) {
        let family = |family| Test::low(0, Op::Eq, family);
        let kind = |kind| Test::bits(1, SOCK_TYPE, kind);
        let by_address = by_address(policy, network);
        let mut granted = Vec::new();
        // A socket of the file system's: which one it may reach is looked at when it connects.
        if supervised {
            granted.extend([SOCK_STREAM, SOCK_SEQPACKET].map(|wanted| vec![family(AF_UNIX), kind(wanted)]));
        }
        match network {
            NetworkMode::None => {}
            _ if by_address && !supervised => {}
            _ if by_address => {
                for inet in [AF_INET, AF_INET6] {
                    for tcp in [0, 6] {
                        granted.push(vec![family(inet), kind(SOCK_STREAM), Test::low(2, Op::Eq, tcp)]);
                    }
                    if *network == NetworkMode::Full {
                        granted.push(vec![family(inet), kind(SOCK_DGRAM)]);
                    }
                }
            }
            _ => granted.extend([AF_INET, AF_INET6].map(|inet| vec![family(inet)])),
        }
        if *network == NetworkMode::Full {
            // NETLINK_ROUTE, by which the resolver learns which addresses this host has.
            granted.push(vec![family(AF_NETLINK), Test::low(2, Op::Eq, 0)]);
        }
        self.set_all(&["bind", "accept", "accept4"], Verb::Allow);
        // A name without a file is seen by the whole machine; which name a socket has is known when it listens.
        let listen = if supervised { Verb::Supervise } else { Verb::Allow };
        self.set_all(&["listen"], Decision { verb: listen, why: Why::Reach });
        let connect = match (supervised, network) {
            (true, _) => Verb::Supervise,
            (false, NetworkMode::Full) if !by_address => Verb::Allow,
            (false, _) => Verb::Deny,
        };
        self.set_all(&["connect"], Decision { verb: connect, why: Why::Reach });
        self.set_all(&["socket"], Verb::Allow);
        self.only("socket", granted, Why::Socket);
        if *network != NetworkMode::Full || by_address {
            // As on a machine without a network: told that it may not, a client tries again, for minutes. Raw sockets
            // beside granted ones are answered as the kernel answers for lack of rights.
            for inet in [AF_INET, AF_INET6] {
                if supervised && by_address {
                    self.answer_last("socket", vec![family(inet), kind(SOCK_RAW)], Decision::deny(Why::Socket));
                }
                let refused = Decision { verb: Verb::DenyWith(EAFNOSUPPORT), why: Why::Socket };
                self.answer_last("socket", vec![family(inet)], refused);
            }
        }
        // A datagram socket reaches whatever a message names, also one of a pair.
        let pairs = [SOCK_STREAM, SOCK_SEQPACKET].map(|wanted| vec![family(AF_UNIX), kind(wanted)]);
        self.only("socketpair", pairs, Why::Pair);
        if by_address {
            self.close_detours();
        }
        if *network == NetworkMode::None {
            // Asked by getifaddrs, also where nobody wants to go anywhere: as on a machine that has no such sockets.
            let route = vec![family(AF_NETLINK), Test::low(2, Op::Eq, 0)];
            self.answer_first("socket", route, Decision { verb: Verb::Refuse(EAFNOSUPPORT), why: Why::Socket });
        }
        if matches!(network, NetworkMode::Loopback | NetworkMode::Hosts(_)) {
            // Asked by every resolver and missed by none; as root it could change the routes of the machine.
            let refused = Decision { verb: Verb::Refuse(EAFNOSUPPORT), why: Why::Socket };
            self.answer_first("socket", vec![family(AF_NETLINK)], refused);
        }
    }

    /// The ways to an address that lead around connect.
    fn close_detours(&mut self) {
        for (call, flags) in [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)] {
            self.refuse(call, [Test::bits(flags, MSG_FASTOPEN, MSG_FASTOPEN)], Why::Detour);
        }
        for (level, option) in ROUTING {
            self.refuse("setsockopt", [Test::low(1, Op::Eq, *level), Test::low(2, Op::Eq, *option)], Why::Detour);
        }
    }

    pub(super) fn answer_first(&mut self, call: &str, tests: Vec<Test>, decision: impl Into<Decision>) {
        let Number::Here(nr) = number(call.as_bytes()) else { return };
        if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
            entry.clauses.insert(0, Clause::new(tests, decision));
        }
    }

    fn answer_last(&mut self, call: &str, tests: Vec<Test>, decision: Decision) {
        let Number::Here(nr) = number(call.as_bytes()) else { return };
        if let Some(entry) = self.entries.get_mut(usize::from(nr)) {
            entry.clauses.push(Clause::new(tests, decision));
        }
    }

    /// Whether a call's decision is the network's and stays so.
    pub(super) fn holds_network(policy: &Policy, nr: u16) -> bool {
        let held = |call: &str| matches!(number(call.as_bytes()), Number::Here(known) if known == nr);
        by_address(policy, &policy.network_mode()) && HELD.iter().any(|call| held(call))
    }

    /// Whether a group names a call that only its own name opens whole: pairs that can send to others, in @ipc.
    pub(super) fn only_by_name(policy: &Policy, nr: u16) -> bool {
        let pair = matches!(number(b"socketpair"), Number::Here(known) if known == nr);
        let mut items = policy.syscalls.allow.iter().flat_map(|text| text.split(':'));
        pair && !policy.profiles.contains(&Profile::Custom) && !items.any(|item| item == "socketpair")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Document;

    /// As on a machine that has no sockets of this family.
    const NO_SUCH: Verb = Verb::DenyWith(EAFNOSUPPORT);

    fn table(mode: NetworkMode, allow: &[&str], supervised: bool) -> Table {
        let mut document = Document::default();
        document.network.mode = Some(mode.clone());
        document.syscalls.allow = allow.iter().map(|name| (*name).to_owned()).collect();
        let policy = Policy::resolve(document).expect("a sound policy");
        Table::new(&policy, &mode, false, supervised)
    }

    fn socket(table: &Table, family: u64, kind: u64, protocol: u64) -> Verb {
        table.decide(libc::SYS_socket as u32, &[family, kind, protocol, 0, 0, 0])
    }

    #[test]
    fn where_an_address_decides_only_tcp_is_granted() {
        for mode in [NetworkMode::Loopback, NetworkMode::Hosts(Vec::new())] {
            let table = table(mode, &[], true);
            let cloexec = libc::SOCK_CLOEXEC as u64;
            for family in [2, 10] {
                assert_eq!(socket(&table, family, 1 | cloexec, 0), Verb::Allow);
                assert_eq!(socket(&table, family, 1, 6), Verb::Allow);
                for (kind, protocol) in [(2, 0), (2, 17), (1, 262), (1, 132), (5, 132), (6, 33)] {
                    assert_eq!(socket(&table, family, kind, protocol), NO_SUCH, "{family} {kind} {protocol}");
                }
                assert_eq!(socket(&table, family, 3 | cloexec, 1), Verb::Deny);
            }
            assert_eq!(socket(&table, 1, 1, 0), Verb::Allow);
            assert_eq!(socket(&table, 1, 2, 0), Verb::Deny);
            assert_eq!(socket(&table, 16, 3, 0), Verb::Refuse(EAFNOSUPPORT));
            for family in [17, 38, 40, 43] {
                assert_eq!(socket(&table, family, 1, 0), Verb::Deny, "{family}");
            }
            for call in [libc::SYS_connect, libc::SYS_listen] {
                assert_eq!(table.decide(call as u32, &[0; 6]), Verb::Supervise);
            }
        }
    }

    #[test]
    fn detours_are_closed() {
        let table = table(NetworkMode::Loopback, &[], true);
        let fast = u64::from(MSG_FASTOPEN);
        assert_eq!(table.decide(libc::SYS_sendto as u32, &[3, 0, 0, fast | 0x4000, 0, 0]), Verb::Deny);
        assert_eq!(table.decide(libc::SYS_sendto as u32, &[3, 0, 0, 0x4000, 0, 0]), Verb::Allow);
        assert_eq!(table.decide(libc::SYS_sendmsg as u32, &[3, 0, fast, 0, 0, 0]), Verb::Deny);
        assert_eq!(table.decide(libc::SYS_sendmmsg as u32, &[3, 0, 1, fast, 0, 0]), Verb::Deny);
        for (level, option) in [(0, 4), (1, 25), (1, 62)] {
            assert_eq!(table.decide(libc::SYS_setsockopt as u32, &[3, level, option, 0, 0, 0]), Verb::Deny, "{option}");
        }
        assert_eq!(table.decide(libc::SYS_setsockopt as u32, &[3, 41, 57, 0, 0, 0]), Verb::Deny);
        assert_eq!(table.decide(libc::SYS_setsockopt as u32, &[3, 6, 1, 0, 0, 0]), Verb::Allow);
    }

    #[test]
    fn a_list_of_allowed_calls_opens_nothing_of_it() {
        let table = table(NetworkMode::Loopback, &["@network"], true);
        assert_eq!(table.decide(libc::SYS_connect as u32, &[0; 6]), Verb::Supervise);
        assert_eq!(table.decide(libc::SYS_listen as u32, &[0; 6]), Verb::Supervise);
        assert_eq!(socket(&table, 2, 2, 0), NO_SUCH);
        assert_eq!(table.decide(libc::SYS_setsockopt as u32, &[3, 0, 4, 0, 0, 0]), Verb::Deny);
    }

    #[test]
    fn without_a_supervisor_no_socket_is_left() {
        for mode in [NetworkMode::Loopback, NetworkMode::Hosts(Vec::new())] {
            let table = table(mode, &[], false);
            for (family, kind) in [(2, 1), (2, 2), (10, 1), (10, 3)] {
                assert_eq!(socket(&table, family, kind, 0), NO_SUCH, "{family} {kind}");
            }
            assert_eq!(socket(&table, 1, 1, 0), Verb::Deny);
            assert_eq!(table.decide(libc::SYS_connect as u32, &[0; 6]), Verb::Deny);
        }
    }

    #[test]
    fn without_a_network_internet_sockets_are_as_on_a_machine_that_has_none() {
        for supervised in [true, false] {
            let table = table(NetworkMode::None, &[], supervised);
            for (family, kind) in [(2, 1), (2, 2), (2, 3), (10, 1), (10, 2)] {
                assert_eq!(socket(&table, family, kind, 0), NO_SUCH, "{family} {kind}");
            }
            for family in [17, 38, 40] {
                assert_eq!(socket(&table, family, 1, 0), Verb::Deny, "{family}");
            }
        }
    }

    #[test]
    fn a_full_network_is_looked_at_only_for_the_file_systems_sockets() {
        let full = table(NetworkMode::Full, &[], true);
        for (family, kind) in [(1, 1), (2, 1), (2, 2), (2, 3), (10, 2), (16, 3)] {
            assert_eq!(socket(&full, family, kind, 0), Verb::Allow, "{family} {kind}");
        }
        assert_eq!(socket(&full, 1, 2, 0), Verb::Deny, "datagrams name their receiver in each message");
        assert_eq!(full.decide(libc::SYS_connect as u32, &[0; 6]), Verb::Supervise);
        assert_eq!(full.decide(libc::SYS_listen as u32, &[0; 6]), Verb::Supervise);
        let alone = table(NetworkMode::Full, &[], false);
        assert_eq!(alone.decide(libc::SYS_connect as u32, &[0; 6]), Verb::Allow);
        assert_eq!(socket(&alone, 1, 1, 0), Verb::Deny);
    }
}
