//! connect and listen, made by the supervisor in the program's place.
//!
//! Landlock does not see UNIX sockets below ABI 9, and a docker.sock is root. The socket file is opened here, where it
//! really is decides, and the program's own socket is connected to that very file. An internet address is copied once,
//! and the copy is what is judged and what the socket is connected to: letting the program's own call go on would let it
//! change its mind.

use super::decode::address::{Peer, parse};
use super::listen;
use super::target::{Memory, OTHERS_LINKS, Target};
use crate::plan::Plan;
use crate::policy::NetworkMode;
use crate::proxy::Door;
use crate::proxy::gate::Guest;
use crate::sys::notify::{Answer, Call};
use crate::sys::socket;
use crate::trust::{by_descriptor, place};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::SocketAddrUnix;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What may be reached.
pub struct Reach {
    pub network: NetworkMode,
    /// TCP ports, where the mode leaves a choice. Empty: all.
    pub ports: Vec<u16>,
    /// UNIX sockets by real path.
    pub sockets: Sockets,
    /// The proxy, and its door where it is on the loopback that all of this machine share.
    pub proxy: Option<(SocketAddr, Option<Door>)>,
    /// Whether the network namespace is the command's own: its loopback is nobody else's.
    pub own_network: bool,
}

/// Which UNIX sockets may be reached. Real paths.
#[derive(Default)]
pub struct Sockets {
    /// Trees that the command may write.
    pub trees: Vec<PathBuf>,
    /// Sockets, and trees of them, that the policy names.
    pub listed: Vec<PathBuf>,
    /// Hidden, covered and protected places. A socket in one of them needs a listing of its own, in that place.
    pub closed: Vec<PathBuf>,
    /// Denied by name, whatever else is listed.
    pub denied: Vec<PathBuf>,
}

/// What is to be done about a call.
pub enum Connect {
    Answered(Answer),
    /// Refused whatever the policy grants, and why.
    Never(&'static str),
    /// Refused, with the socket's file if it has one, or the address that it listens on.
    Refused(Option<PathBuf>, Option<String>),
    Make(Connection),
}

/// One to be made on this socket.
pub struct Connection {
    socket: OwnedFd,
    to: To,
}

enum To {
    File(OwnedFd),
    /// A socket address as the program gave it.
    Address(Vec<u8>),
    /// The same, of the proxy, which lets in only whom it is told of.
    Proxy(Vec<u8>, Door, Guest),
}

/// Services that answer for users and hosts, asked by the C library before it reads the files itself. What they know
/// would come from outside the sandbox, and their absence is no violation: they are as if they did not run.
const NAME_SERVICES: [&str; 3] = ["/run/nscd", "/run/systemd/userdb", "/run/systemd/resolve"];

const X_SERVERS: &str = "/tmp/.X11-unix/";

const LONGEST_ADDRESS: usize = 128;

/// Judges a connect or a listen.
///
/// `waits`: whether the call still waits. If not, its process may be gone and its number another's: what was taken then is
/// neither used nor kept.
pub fn judge(call: &Call, reach: &Reach, waits: &dyn Fn() -> bool) -> Connect {
    let target = Target { tid: call.tid };
    let judged = match i64::from(call.number) {
        libc::SYS_listen => listen::judge(call, &target, reach, waits),
        _ => judge_connect(call, &target, reach).and_then(|judged| match judged {
            Connect::Make(_) if !waits() => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            judged => Ok(judged),
        }),
    };
    judged.unwrap_or_else(|error| Connect::Answered(Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM))))
}

fn judge_connect(call: &Call, target: &Target, reach: &Reach) -> io::Result<Connect> {
    let size = (call.args[2] as u32 as usize).min(LONGEST_ADDRESS);
    let bytes = target.bytes(call.args[1], size)?;
    let taken = || target.descriptor(call.args[0] as i32);
    match parse(&bytes) {
        None => Ok(Connect::Answered(Answer::Errno(libc::EINVAL))),
        Some(Peer::Unix(path)) => to_file(target, &path, taken, reach),
        // Tried by X clients before the file of the same name, to which they go on if nobody is there.
        Some(Peer::Abstract(name)) if name.starts_with(X_SERVERS) => {
            Ok(Connect::Answered(Answer::Errno(libc::ECONNREFUSED)))
        }
        // Reachable from anywhere: none of ours.
        Some(Peer::Abstract(_) | Peer::Unnamed) => Ok(Connect::Refused(None, None)),
        Some(Peer::Internet(address)) => {
            let socket = taken()?;
            if !reach.permits(address, &socket)? {
                return Ok(Connect::Refused(None, None));
            }
            let to = match &reach.proxy {
                Some((proxy, Some(door))) if *proxy == canonical(address) && reach.network != NetworkMode::Full => {
                    let pid = target.pid().unwrap_or(call.tid);
                    To::Proxy(bytes, door.clone(), Guest { pid, comm: target.comm() })
                }
                _ if reach.network != NetworkMode::Full => To::Address(spelled_out(bytes, address)),
                _ => To::Address(bytes),
            };
            Ok(Connect::Make(Connection { socket, to }))
        }
        // AF_UNSPEC takes a connection back; the others are of families that only a full network grants.
        Some(Peer::Other(family)) => {
            let granted = i32::from(family) == libc::AF_UNSPEC && reach.network != NetworkMode::None
                || i32::from(family) == libc::AF_NETLINK && reach.network == NetworkMode::Full;
            match granted {
                true => Ok(Connect::Make(Connection { socket: taken()?, to: To::Address(bytes) })),
                false => Ok(Connect::Refused(None, None)),
            }
        }
    }
}

fn to_file(
    target: &Target,
    path: &Path,
    taken: impl Fn() -> io::Result<OwnedFd>,
    reach: &Reach,
) -> io::Result<Connect> {
    let file = match target.open(libc::AT_FDCWD, path, true) {
        Err(error) if target.leads_elsewhere(&error, libc::AT_FDCWD, path) => return Ok(Connect::Never(OTHERS_LINKS)),
        // In a place that is covered for the program: the policy names this very socket.
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EACCES))
                && reach.sockets.listed.iter().any(|listed| listed == path) =>
        {
            rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?
        }
        opened => opened?,
    };
    let at = place(&file)?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_socket() {
        return Ok(Connect::Answered(Answer::Errno(libc::ECONNREFUSED)));
    }
    if !reach.sockets.reaches(&at) {
        if NAME_SERVICES.iter().any(|service| at.starts_with(service)) {
            return Ok(Connect::Answered(Answer::Errno(libc::ECONNREFUSED)));
        }
        return Ok(Connect::Refused(Some(at), None));
    }
    Ok(Connect::Make(Connection { socket: taken()?, to: To::File(file) }))
}

/// An IPv4 socket that is bound to one of this machine's other addresses takes "any" for that address: the loopback is meant,
/// so it is written out.
fn spelled_out(mut bytes: Vec<u8>, address: SocketAddr) -> Vec<u8> {
    let ip = match address {
        SocketAddr::V4(_) => bytes.get_mut(4..8),
        SocketAddr::V6(_) => bytes.get_mut(20..24),
    };
    if let (IpAddr::V4(any), Some(ip)) = (address.ip().to_canonical(), ip)
        && any.is_unspecified()
    {
        ip.copy_from_slice(&Ipv4Addr::LOCALHOST.octets());
    }
    bytes
}

/// An IPv4 address in IPv6's clothes is the IPv4 address; "any" as a destination is this machine.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Sockets {
    pub fn of(plan: &Plan) -> Sockets {
        let real = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().filter_map(|path| std::fs::canonicalize(plan.places.absolute(path)).ok()).collect()
        };
        let hidden = plan.landlock.iter().flat_map(|landlock| landlock.paths.hidden.iter().cloned());
        Sockets {
            trees: plan.writable(),
            listed: real(&plan.policy.network.unix),
            closed: plan.protected().into_iter().chain(hidden).collect(),
            denied: real(&plan.policy.paths.deny),
        }
    }

    fn reaches(&self, at: &Path) -> bool {
        let is_below = |places: &[PathBuf]| places.iter().any(|place| at.starts_with(place));
        let around = || self.closed.iter().filter(|closed| at.starts_with(closed));
        let meant = |listed: &&PathBuf| at.starts_with(listed) && around().all(|closed| listed.starts_with(closed));
        !is_below(&self.denied)
            && (self.listed.iter().any(|listed| meant(&listed)) || is_below(&self.trees) && !is_below(&self.closed))
    }
}

impl Reach {
    fn permits(&self, address: SocketAddr, socket: &OwnedFd) -> io::Result<bool> {
        let (family, kind) = socket::kind(socket.as_fd())?;
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Ok(false);
        }
        let address = canonical(address);
        let port = kind != libc::SOCK_STREAM || self.ports.is_empty() || self.ports.contains(&address.port());
        let local = address.ip().is_loopback() || address.ip().is_unspecified();
        Ok(match self.network {
            NetworkMode::None => false,
            NetworkMode::Full => port,
            NetworkMode::Loopback => local && port && kind == libc::SOCK_STREAM,
            NetworkMode::Hosts(_) => {
                let proxy = self.proxy.as_ref().is_some_and(|(proxy, _)| *proxy == address);
                kind == libc::SOCK_STREAM && (proxy || self.own_network && local)
            }
        })
    }
}

impl Connection {
    /// Whether making it may wait for the other side.
    pub fn waits(&self) -> bool {
        !rustix::fs::fcntl_getfl(&self.socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    pub fn make(&self) -> Answer {
        let connected = match &self.to {
            To::File(file) => SocketAddrUnix::new(by_descriptor(file))
                .and_then(|address| rustix::net::connect(&self.socket, &address))
                .map_err(io::Error::from),
            To::Address(address) => socket::connect(self.socket.as_fd(), address),
            To::Proxy(address, door, guest) => self.through(address, door, guest),
        };
        match connected {
            Ok(()) => Answer::Value(0),
            Err(error) => Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM)),
        }
    }

    /// Announced by the address that it comes from, which is therefore taken first.
    fn through(&self, address: &[u8], door: &Door, guest: &Guest) -> io::Result<()> {
        let from = || match parse(&socket::name(self.socket.as_fd())?) {
            Some(Peer::Internet(from)) => Ok(from),
            _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        };
        if from()?.port() == 0 {
            let here = match socket::kind(self.socket.as_fd())?.0 {
                libc::AF_INET => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)),
                _ => SocketAddr::V6(SocketAddrV6::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 0, 0, 0)),
            };
            rustix::net::bind(&self.socket, &here)?;
        }
        let mut from = canonical(from()?);
        if from.ip().is_unspecified() {
            from.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        let connect = || socket::connect(self.socket.as_fd(), address);
        door.announce(from, guest.clone(), connect, || self.has_failed())
    }

    /// Whether a connection attempt has failed. Polls, because reading SO_ERROR would take the error away from the program.
    fn has_failed(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn permits(network: NetworkMode, ports: &[u16], own_network: bool, address: &str) -> bool {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let proxy = Some(("127.0.0.1:4000".parse().expect("an address"), None));
        let reach = Reach { network, ports: ports.to_vec(), sockets: Sockets::default(), proxy, own_network };
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
    fn any_is_spelled_out_as_the_loopback() {
        let any4 = [2, 0, 0, 80, 0, 0, 0, 0, 9, 9];
        let mut mapped = [0u8; 28];
        (mapped[0], mapped[18], mapped[19]) = (10, 0xff, 0xff);
        let mut other = any4;
        other[7] = 3;
        let written = |bytes: &[u8]| match parse(bytes) {
            Some(Peer::Internet(address)) => parse(&spelled_out(bytes.to_vec(), address)).and_then(|peer| peer.host()),
            _ => None,
        };
        assert_eq!(written(&any4).as_deref(), Some("127.0.0.1:80"));
        assert_eq!(written(&mapped).as_deref(), Some("[::ffff:127.0.0.1]:0"));
        assert_eq!(written(&other).as_deref(), Some("0.0.0.3:80"));
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
