//! What a browser may do in addition to other programs: only what its own sandbox needs.

use super::arguments::F2FS_IOC_GET_FEATURES;
use super::sockets::{AF_INET, AF_INET6, AF_NETLINK, EAFNOSUPPORT, SOCK_RAW, SOCK_TYPE};
use super::{Decision, NEW_NAMESPACES, Table, Verb, Why};
use sandbox_contract::bpf::{Op, Test};
use sandbox_contract::profiles::{BROWSER_NAMESPACES, BROWSER_REFUSED};

const CLONE_NEWUSER: u32 = libc::CLONE_NEWUSER as u32;
const ENOTTY: u16 = libc::ENOTTY as u16;
const EPERM: u16 = libc::EPERM as u16;

impl Table {
    pub(super) fn guard_browser(&mut self) {
        let foreign = NEW_NAMESPACES & !BROWSER_NAMESPACES;
        self.set_all(&["clone"], Verb::Allow);
        self.only("clone", [vec![Test::bits(0, foreign, 0)]], Why::Process);
        self.only("unshare", [vec![Test::low(0, Op::Eq, CLONE_NEWUSER)]], Why::Arguments(0));
        self.set_all(BROWSER_REFUSED, Verb::Errno(EPERM));
        // The browser sets these for its children too. Not granted: the calls take any process of the same user.
        self.otherwise("setpriority", Verb::Errno(EPERM));
        self.otherwise("sched_setaffinity", Verb::Errno(EPERM));
        // SQLite asks on every database whether the file system has atomic writes. Answer that it has none.
        let features = vec![Test::low(1, Op::Eq, F2FS_IOC_GET_FEATURES)];
        self.answer_first("ioctl", features, Verb::Errno(ENOTTY));
        // With the capabilities in its own user namespace the browser could create raw sockets.
        for inet in [AF_INET, AF_INET6] {
            let raw = vec![Test::low(0, Op::Eq, inet), Test::bits(1, SOCK_TYPE, SOCK_RAW)];
            self.answer_first("socket", raw, Decision::deny(Why::Socket));
        }
        // Other netlink families report hotplugged devices, and the browser gets no devices.
        let other = vec![Test::low(0, Op::Eq, AF_NETLINK), Test::low(2, Op::Ne, 0)];
        self.answer_first("socket", other, Verb::Errno(EAFNOSUPPORT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Document, NetworkMode, Policy, Profile};

    fn table() -> Table {
        let document = Document { profile: Some(vec![Profile::Browser]), ..Document::default() };
        let policy = Policy::resolve(document).expect("a policy");
        Table::new(&policy, &NetworkMode::Full, true, true)
    }

    fn decide(call: i64, args: [u64; 3]) -> Verb {
        table().decide(call as u32, &[args[0], args[1], args[2], 0, 0, 0])
    }

    #[test]
    fn only_the_namespaces_of_its_sandbox_can_be_made() {
        let sigchld = libc::SIGCHLD as u64;
        for flags in [0, libc::CLONE_NEWUSER, libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNET] {
            assert_eq!(decide(libc::SYS_clone, [flags as u64 | sigchld, 0, 0]), Verb::Allow, "{flags:#x}");
        }
        for flags in [libc::CLONE_NEWNS, libc::CLONE_NEWIPC, libc::CLONE_NEWUTS, libc::CLONE_NEWCGROUP] {
            assert_eq!(decide(libc::SYS_clone, [flags as u64 | sigchld, 0, 0]), Verb::Deny, "{flags:#x}");
            assert_eq!(decide(libc::SYS_unshare, [flags as u64, 0, 0]), Verb::Deny, "{flags:#x}");
        }
        assert_eq!(decide(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0]), Verb::Allow);
        for call in [libc::SYS_mount, libc::SYS_setns, libc::SYS_pivot_root, libc::SYS_move_mount, libc::SYS_fsopen] {
            assert_eq!(decide(call, [0; 3]), Verb::Deny, "{call}");
        }
    }

    #[test]
    fn rights_in_its_own_namespace_open_no_sockets() {
        for (family, kind, protocol) in [(2, 3, 1), (10, 3, 58), (17, 3, 3), (40, 1, 0), (38, 5, 0)] {
            assert_eq!(decide(libc::SYS_socket, [family, kind, protocol]), Verb::Deny, "{family} {kind}");
        }
        // NETLINK_NETFILTER
        assert_eq!(decide(libc::SYS_socket, [16, 3, 12]), Verb::Errno(EAFNOSUPPORT));
        for (family, kind) in [(2, 1), (2, 2), (10, 1), (10, 2), (16, 3)] {
            assert_eq!(decide(libc::SYS_socket, [family, kind, 0]), Verb::Allow, "{family} {kind}");
        }
    }
}
