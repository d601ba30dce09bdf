//! What the program may connect to: internet addresses by network mode and port, UNIX sockets by real path.

use crate::plan::Plan;
use crate::policy::NetworkMode;
use crate::proxy::Door;
use crate::sys::socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What may be connected to.
pub struct Reach {
    pub network: NetworkMode,
    /// The TCP ports that may be used, in modes loopback and full. Empty: all.
    pub ports: Vec<u16>,
    pub sockets: Sockets,
    /// The proxy, and its door if every process of this machine can reach its port.
    pub proxy: Option<(SocketAddr, Option<Door>)>,
    /// Whether the command has a network namespace to itself, and with it a private loopback.
    pub own_network: bool,
    /// Ports of this machine to which the proxy sends secrets, where the command must not listen. `None`: all ports.
    pub kept: Vec<Option<u16>>,
}

/// Which UNIX sockets may be connected to, by real path.
#[derive(Default)]
pub struct Sockets {
    /// The trees that the command may write.
    pub trees: Vec<PathBuf>,
    /// Sockets, and directories of sockets, that the policy lists.
    pub listed: Vec<PathBuf>,
    /// Hidden, covered and protected paths. A socket inside one needs an entry in `listed` that is inside it, too.
    pub closed: Vec<PathBuf>,
    /// Denied paths; these win.
    pub denied: Vec<PathBuf>,
}

/// The address with an IPv4-mapped IPv6 address replaced by the IPv4 address.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Sockets {
    pub fn of(plan: &Plan) -> Sockets {
        let real = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().filter_map(|path| std::fs::canonicalize(plan.places.absolute(path)).ok()).collect()
        };
        let hidden = plan.landlock.iter().flat_map(|landlock| landlock.paths.hidden.iter().cloned());
        let denied = plan.landlock.iter().flat_map(|landlock| landlock.paths.denied.iter().cloned());
        Sockets {
            trees: plan.written(),
            listed: real(&plan.policy.network.unix),
            closed: plan.protected().into_iter().chain(hidden).collect(),
            denied: real(&plan.policy.paths.deny).into_iter().chain(denied).collect(),
        }
    }

    pub(super) fn reaches(&self, at: &Path) -> bool {
        let is_below = |places: &[PathBuf]| places.iter().any(|place| at.starts_with(place));
        let around = || self.closed.iter().filter(|closed| at.starts_with(closed));
        let meant = |listed: &&PathBuf| at.starts_with(listed) && around().all(|closed| listed.starts_with(closed));
        !is_below(&self.denied)
            && (self.listed.iter().any(|listed| meant(&listed)) || is_below(&self.trees) && !is_below(&self.closed))
    }
}

impl Reach {
    /// Whether there are ports on which the command must not listen, because the proxy sends secrets there.
    pub(super) fn keeps_ports(&self) -> bool {
        !self.own_network && !self.kept.is_empty()
    }

    pub(super) fn permits(&self, address: SocketAddr, socket: &OwnedFd) -> io::Result<bool> {
        let (family, kind) = socket::kind(socket.as_fd())?;
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Ok(false);
        }
        let address = canonical(address);
        let port = kind != libc::SOCK_STREAM || self.ports.is_empty() || self.ports.contains(&address.port());
        let local = address.ip().is_loopback() || address.ip().is_unspecified();
        Ok(match self.network {
            NetworkMode::None => false,
            NetworkMode::Own => true,
            NetworkMode::Full => port,
            NetworkMode::Loopback => local && port && kind == libc::SOCK_STREAM,
            NetworkMode::Hosts(_) => {
                let proxy = self.proxy.as_ref().is_some_and(|(proxy, _)| *proxy == address);
                kind == libc::SOCK_STREAM && (proxy || self.own_network && local)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn permits(network: NetworkMode, ports: &[u16], own_network: bool, address: &str) -> bool {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let proxy = Some(("127.0.0.1:4000".parse().expect("an address"), None));
        let reach =
            Reach { network, ports: ports.to_vec(), sockets: Sockets::default(), proxy, own_network, kept: Vec::new() };
        reach.permits(address.parse().expect("an address"), &OwnedFd::from(listener)).expect("a socket")
    }

    #[test]
    fn loopback_is_this_machine_in_every_spelling_and_nothing_else() {
        for local in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80"] {
            assert!(permits(NetworkMode::Loopback, &[], false, local), "{local}");
        }
        for other in ["10.0.0.1:80", "1.1.1.1:80", "169.254.169.254:80", "[::ffff:8.8.8.8]:80", "[fe80::1]:80"] {
            assert!(!permits(NetworkMode::Loopback, &[], false, other), "{other}");
        }
        assert!(!permits(NetworkMode::Loopback, &[5432], false, "127.0.0.1:80"));
        assert!(permits(NetworkMode::Loopback, &[5432], false, "127.0.0.1:5432"));
    }

    #[test]
    fn with_a_list_of_hosts_only_the_proxy_is_reached() {
        let hosts = || NetworkMode::Hosts(vec!["127.0.0.1:80".to_owned()]);
        assert!(permits(hosts(), &[], false, "127.0.0.1:4000"));
        assert!(permits(hosts(), &[], false, "[::ffff:127.0.0.1]:4000"));
        for other in ["127.0.0.1:80", "127.0.0.2:4000", "1.1.1.1:4000", "0.0.0.0:4000", "[::1]:4000"] {
            assert!(!permits(hosts(), &[], false, other), "{other}");
        }
        assert!(permits(hosts(), &[], true, "127.0.0.1:80"), "in its own namespace the loopback is its own");
        assert!(!permits(hosts(), &[], true, "10.0.0.1:80"));
    }

    #[test]
    fn a_closed_place_in_a_writable_tree_is_reached_only_if_it_is_listed() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let sockets = |listed: &[&str]| Sockets {
            trees: paths(&["/h"]),
            listed: paths(listed),
            closed: paths(&["/h/.gnupg", "/run/secret"]),
            denied: paths(&["/h/denied"]),
        };
        let reaches = |listed: &[&str], at: &str| sockets(listed).reaches(Path::new(at));
        assert!(reaches(&[], "/h/app.sock") && !reaches(&[], "/run/app.sock") && reaches(&["/run"], "/run/app.sock"));
        assert!(!reaches(&[], "/h/.gnupg/agent") && !reaches(&["/h"], "/h/.gnupg/agent"));
        assert!(reaches(&["/h/.gnupg/agent"], "/h/.gnupg/agent") && reaches(&["/h/.gnupg"], "/h/.gnupg/agent"));
        assert!(!reaches(&["/h/.gnupg/agent"], "/h/.gnupg/other") && !reaches(&["/run"], "/run/secret/a"));
        assert!(!reaches(&["/h/denied/a"], "/h/denied/a"), "what is denied stays denied");
    }

    #[test]
    fn a_full_network_may_be_held_to_ports() {
        assert!(permits(NetworkMode::Full, &[], false, "1.1.1.1:22"));
        assert!(permits(NetworkMode::Full, &[443], false, "1.1.1.1:443"));
        assert!(!permits(NetworkMode::Full, &[443], false, "1.1.1.1:22"));
        assert!(!permits(NetworkMode::None, &[], false, "127.0.0.1:80"));
    }
}
