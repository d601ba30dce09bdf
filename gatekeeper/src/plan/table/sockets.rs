//! Which sockets a program may create, and which calls on them the supervisor makes in its place.
//!
//! A filter sees the kind of a socket but not the address of a connection. If the policy depends on the address, the
//! supervisor handles connect and listen, and every other way to reach an address is denied: datagrams, which carry their
//! own destination; protocols with their own connect calls; TCP Fast Open; and socket options that reroute packets.

use super::edit::number_of;
use super::{Decision, Table, Verb, Why};
use crate::policy::{NetworkMode, Policy, Profile};
use sandbox_contract::bpf::{Op, Test};

const AF_UNIX: u32 = libc::AF_UNIX as u32;
pub(super) const AF_INET: u32 = libc::AF_INET as u32;
pub(super) const AF_INET6: u32 = libc::AF_INET6 as u32;
pub(super) const AF_NETLINK: u32 = libc::AF_NETLINK as u32;
/// The bits of the type argument that hold the type; the others are SOCK_CLOEXEC and SOCK_NONBLOCK.
pub(super) const SOCK_TYPE: u32 = 0xf;
const SOCK_STREAM: u32 = libc::SOCK_STREAM as u32;
const SOCK_DGRAM: u32 = libc::SOCK_DGRAM as u32;
pub(super) const SOCK_RAW: u32 = libc::SOCK_RAW as u32;
const SOCK_SEQPACKET: u32 = libc::SOCK_SEQPACKET as u32;
const MSG_FASTOPEN: u32 = libc::MSG_FASTOPEN as u32;
pub(super) const EAFNOSUPPORT: u16 = libc::EAFNOSUPPORT as u16;

/// Socket options that send packets elsewhere than to the socket's address, as (level, option).
const ROUTING: &[(u32, u32)] = &[
    (0, 4),   // IP_OPTIONS
    (1, 25),  // SO_BINDTODEVICE: even packets to 127.0.0.1 then leave the machine through that device
    (1, 62),  // SO_BINDTOIFINDEX
    (41, 5),  // IPV6_2292RTHDR
    (41, 6),  // IPV6_2292PKTOPTIONS
    (41, 54), // IPV6_HOPOPTS
    (41, 55), // IPV6_RTHDRDSTOPTS
    (41, 57), // IPV6_RTHDR
    (41, 59), // IPV6_DSTOPTS
];

/// The calls that send a message, which may name its receiver.
const SENDS: &[&str] = &["sendto", "sendmsg", "sendmmsg"];

/// The calls that enforce a limit on addresses. `syscalls.allow` does not change their decisions.
const HELD: &[&str] = &["socket", "connect", "listen", "setsockopt", "sendto", "sendmsg", "sendmmsg"];

/// Whether the policy depends on addresses, which only a supervisor can read.
pub fn by_address(policy: &Policy, network: &NetworkMode) -> bool {
    match network {
        NetworkMode::None | NetworkMode::Own => false,
        NetworkMode::Full => !policy.network.ports.is_empty(),
        NetworkMode::Loopback | NetworkMode::Hosts(_) => true,
    }
}

/// Whether the command may use everything that its network namespace has: the machine's, or one of its run alone.
fn is_whole(network: &NetworkMode) -> bool {
    matches!(network, NetworkMode::Full | NetworkMode::Own)
}

fn family(family: u32) -> Test {
    Test::low(0, Op::Eq, family)
}

fn kind(kind: u32) -> Test {
    Test::bits(1, SOCK_TYPE, kind)
}

/// The kinds of UNIX sockets that are granted. A datagram names its receiver, so a datagram socket is granted only where the
/// supervisor sends every message.
fn local(datagrams: bool) -> Vec<Vec<Test>> {
    let kinds = [SOCK_STREAM, SOCK_SEQPACKET].into_iter().chain(datagrams.then_some(SOCK_DGRAM));
    kinds.map(|wanted| vec![family(AF_UNIX), kind(wanted)]).collect()
}

/// Whether a policy grants UNIX datagrams within its run: network mode own, with socketpair allowed by its name. Not by mode
/// own alone: each message then costs the time of a notified call, and carries the supervisor's credentials.
fn grants_datagrams(policy: &Policy) -> bool {
    policy.network_mode() == NetworkMode::Own && names_pairs(policy) && !policy.profiles.contains(&Profile::Custom)
}

fn names_pairs(policy: &Policy) -> bool {
    policy.syscalls.allow.iter().flat_map(|text| text.split(':')).any(|item| item == "socketpair")
}

/// The kinds of sockets that a network mode grants.
fn granted(network: &NetworkMode, supervised: bool, by_address: bool, datagrams: bool) -> Vec<Vec<Test>> {
    let mut granted = Vec::new();
    // A UNIX socket: the supervisor checks which file it reaches when it connects.
    if supervised {
        granted.extend(local(datagrams));
    }
    match network {
        NetworkMode::None => {}
        _ if by_address && !supervised => {}
        _ if by_address => {
            for inet in [AF_INET, AF_INET6] {
                for tcp in [0, libc::IPPROTO_TCP as u32] {
                    granted.push(vec![family(inet), kind(SOCK_STREAM), Test::low(2, Op::Eq, tcp)]);
                }
                if *network == NetworkMode::Full {
                    granted.push(vec![family(inet), kind(SOCK_DGRAM)]);
                }
            }
        }
        _ => granted.extend([AF_INET, AF_INET6].map(|inet| vec![family(inet)])),
    }
    granted
}

impl Table {
    /// Without a supervisor, denies every socket whose policy depends on its peer's address.
    pub(super) fn guard_sockets(&mut self, policy: &Policy, network: &NetworkMode, supervised: bool) {
        let by_address = by_address(policy, network);
        self.guard_connections(network, supervised, by_address);
        self.set_all(&["socket"], Verb::Allow);
        let datagrams = supervised && grants_datagrams(policy);
        let mut sockets = granted(network, supervised, by_address, datagrams);
        // NETLINK_ROUTE lists interfaces and addresses. Changing them takes CAP_NET_ADMIN, which the run drops
        // together with the path rules; `without_paths` refuses these sockets otherwise.
        sockets.push(vec![family(AF_NETLINK), Test::low(2, Op::Eq, 0)]);
        self.only("socket", sockets, Why::Socket);
        if !is_whole(network) || by_address {
            self.refuse_as_without_network(supervised && by_address);
        }
        // A datagram socket can send to any address, even if it is one of a pair.
        self.only("socketpair", local(datagrams), Why::Pair);
        if datagrams {
            self.set_all(SENDS, Decision { verb: Verb::Supervise, why: Why::Reach });
            self.answer_first("sendto", vec![Test::word(4, 0)], Verb::Allow);
        }
        if by_address {
            self.close_detours();
        }
        if policy.profiles.contains(&Profile::Browser) {
            self.refuse_netlink(network);
        }
    }

    fn guard_connections(&mut self, network: &NetworkMode, supervised: bool, by_address: bool) {
        self.set_all(&["bind", "accept", "accept4"], Verb::Allow);
        // An abstract UNIX name is visible to the whole machine. The supervisor sees the socket's name at listen.
        let listen = if supervised { Verb::Supervise } else { Verb::Allow };
        self.set_all(&["listen"], Decision { verb: listen, why: Why::Reach });
        let connect = match (supervised, network) {
            (true, _) => Verb::Supervise,
            (false, network) if is_whole(network) && !by_address => Verb::Allow,
            (false, _) => Verb::Deny,
        };
        self.set_all(&["connect"], Decision { verb: connect, why: Why::Reach });
    }

    /// Answers internet sockets with EAFNOSUPPORT, as on a machine without a network: on EPERM clients retry for minutes.
    /// Where TCP is granted, raw sockets get the kernel's usual EPERM.
    fn refuse_as_without_network(&mut self, tcp_granted: bool) {
        for inet in [AF_INET, AF_INET6] {
            if tcp_granted {
                self.answer_last("socket", vec![family(inet), kind(SOCK_RAW)], Decision::deny(Why::Socket));
            }
            let refused = Decision { verb: Verb::DenyWith(EAFNOSUPPORT), why: Why::Socket };
            self.answer_last("socket", vec![family(inet)], refused);
        }
    }

    /// Answers netlink sockets as a kernel without them would: to a browser, which works without them, and where nothing takes
    /// CAP_NET_ADMIN from root.
    pub(super) fn refuse_netlink(&mut self, network: &NetworkMode) {
        if !is_whole(network) {
            let refused = Decision { verb: Verb::Refuse(EAFNOSUPPORT), why: Why::Socket };
            self.answer_first("socket", vec![family(AF_NETLINK)], refused);
        }
    }

    /// Denies the ways to reach an address without connect.
    fn close_detours(&mut self) {
        for (call, flags) in [("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)] {
            self.refuse(call, [Test::bits(flags, MSG_FASTOPEN, MSG_FASTOPEN)], Why::Detour);
        }
        for (level, option) in ROUTING {
            self.refuse("setsockopt", [Test::low(1, Op::Eq, *level), Test::low(2, Op::Eq, *option)], Why::Detour);
        }
    }

    /// Whether a call enforces a limit on addresses, so that `syscalls.allow` must not change it.
    pub(super) fn holds_network(policy: &Policy, nr: u16) -> bool {
        let is_one_of = |calls: &[&str]| calls.iter().any(|call| number_of(call) == Some(nr));
        by_address(policy, &policy.network_mode()) && is_one_of(HELD)
            || grants_datagrams(policy) && (is_one_of(SENDS) || is_one_of(&["socket", "socketpair", "connect"]))
    }

    /// Whether a call came into `syscalls.allow` through a group and keeps its limits. That is socketpair, a member of
    /// @ipc: only its own name lifts the limit to streams.
    pub(super) fn only_by_name(policy: &Policy, nr: u16) -> bool {
        let pair = number_of("socketpair") == Some(nr);
        pair && !policy.profiles.contains(&Profile::Custom) && !names_pairs(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Document;

    /// The answer of a kernel without sockets of this family.
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
            assert_eq!(socket(&table, 16, 3, 0), Verb::Allow, "interfaces can be listed");
            assert_eq!(socket(&table, 16, 3, 9), Verb::Deny);
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
    fn datagrams_are_granted_only_where_every_message_is_supervised() {
        let sends = [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg];
        let named = [1, 2, 3, 0, 0x1000, 110];
        for allow in [&["socketpair"][..], &["@network", "socketpair"], &["socketpair:sendmsg:sendto:sendmmsg:socket"]]
        {
            let table = table(NetworkMode::Own, allow, true);
            assert_eq!(socket(&table, 1, 2, 0), Verb::Allow);
            assert_eq!(socket(&table, 1, 3, 0), Verb::Deny, "the kernel makes a datagram socket of a raw one");
            for call in sends {
                assert_eq!(table.decide(call as u32, &named), Verb::Supervise, "{allow:?} {call}");
            }
            assert_eq!(table.decide(libc::SYS_sendto as u32, &[1, 2, 3, 0, 0, 0]), Verb::Allow, "to its peer");
        }
        for (mode, allow, supervised) in [
            (NetworkMode::Own, &[][..], true),
            (NetworkMode::Own, &["@ipc"], true),
            (NetworkMode::Own, &["socketpair"], false),
            (NetworkMode::Full, &["socketpair"], true),
        ] {
            assert_eq!(socket(&table(mode.clone(), allow, supervised), 1, 2, 0), Verb::Deny, "{mode:?} {allow:?}");
        }
        assert_eq!(table(NetworkMode::Own, &[], true).decide(libc::SYS_sendmsg as u32, &named), Verb::Allow);
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
