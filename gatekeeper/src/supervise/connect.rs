//! connect(2), performed by the supervisor for the program.
//!
//! Landlock does not restrict UNIX sockets before ABI 9, and access to docker.sock amounts to root. So the supervisor
//! opens the socket file, judges it by its real path, and connects the program's socket to that descriptor. An internet
//! address is copied once; the copy is judged and connected to. If the program's own call went on, another thread could
//! change the address.

use super::decode::address::{Peer, is_netlink_of_kernel, parse};
use super::listen;
use super::reach::canonical;
pub use super::reach::{Reach, Sockets};
use super::rights::{self, Rights};
use super::target::{Memory, OTHERS_LINKS, Target};
use crate::policy::NetworkMode;
use crate::proxy::Door;
use crate::proxy::gate::Guest;
use crate::sys::notify::{Answer, Call};
use crate::sys::socket;
use crate::trust::{by_descriptor, place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{SocketAddrUnix, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What to do about a connect or listen.
pub enum Connect {
    Answered(Answer),
    /// Denied whatever the policy grants, for this reason.
    Never(&'static str),
    /// Denied, for this reason, unless the run has a network namespace to itself.
    NotShared(&'static str),
    Refused(Box<Refused>),
    Make(Connection),
}

impl Connect {
    /// The same, made with other rights than those of the supervisor.
    pub(super) fn made_with(self, rights: Option<Arc<Rights>>) -> Connect {
        match self {
            Connect::Make(connection) => Connect::Make(Connection { rights, ..connection }),
            other => other,
        }
    }
}

/// A connect or listen that the policy does not allow.
#[derive(Default)]
pub struct Refused {
    /// The socket file of a connect.
    pub path: Option<PathBuf>,
    /// The address of a connect, or the address that a listening socket is bound to.
    pub host: Option<String>,
    /// What would have been done.
    pub instead: Option<Instead>,
}

/// A refused call, ready to be made.
pub enum Instead {
    Connect(Connection),
    Listen { socket: OwnedFd, backlog: i32 },
}

/// A connection that is allowed, on a copy of the program's socket.
pub struct Connection {
    socket: OwnedFd,
    to: To,
    /// `None`: those of the supervisor.
    rights: Option<Arc<Rights>>,
}

impl Connection {
    pub fn to_file(socket: OwnedFd, file: OwnedFd) -> Connection {
        Connection::new(socket, To::File(file))
    }

    fn new(socket: OwnedFd, to: To) -> Connection {
        Connection { socket, to, rights: None }
    }

    /// Where it goes; `None` if it goes to the proxy.
    pub fn shown(&self) -> Option<String> {
        match &self.to {
            To::File(socket) => crate::trust::place(socket).ok().map(|path| path.to_string_lossy().into_owned()),
            To::Address(address) => parse(address).and_then(|peer| peer.host()),
            To::Proxy(..) => None,
        }
    }
}

enum To {
    File(OwnedFd),
    /// The bytes of the socket address.
    Address(Vec<u8>),
    /// The address of the proxy, which serves only announced connections.
    Proxy(Vec<u8>, Door, Guest),
}

/// Name services, which the C library asks before it reads /etc/passwd and the like. They leak information from outside
/// the sandbox. They are optional, so they look as if they did not run, and no denial is recorded.
const NAME_SERVICES: [&str; 3] = ["/run/nscd", "/run/systemd/userdb", "/run/systemd/resolve"];

const X_SERVERS: &str = "/tmp/.X11-unix/";

const LONGEST_ADDRESS: usize = 128;

/// Judges a connect or a listen.
///
/// `waits` says whether the call still waits. If not, its process may have died and its PID may be another process's by
/// now, so the descriptor that was copied must not be used.
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
        // X clients try the abstract name first, and fall back to the socket file on ECONNREFUSED.
        Some(Peer::Abstract(name)) if name.starts_with(X_SERVERS) => {
            Ok(Connect::Answered(Answer::Errno(libc::ECONNREFUSED)))
        }
        // Abstract names belong to a network namespace, and this one was made for the processes of the run.
        Some(Peer::Abstract(_)) if reach.network == NetworkMode::Own => {
            Ok(Connect::Make(Connection::new(taken()?, To::Address(bytes))))
        }
        // Any process of the machine can own an abstract name, so it never belongs to this run.
        Some(Peer::Abstract(_) | Peer::Unnamed) => Ok(Connect::Refused(Box::default())),
        Some(Peer::Internet(address)) => {
            let socket = taken()?;
            if !reach.permits(address, &socket)? {
                let to = To::Address(bytes);
                let instead = Some(Instead::Connect(Connection::new(socket, to))).filter(|_| !reach.own_network);
                let host = Some(canonical(address).to_string());
                return Ok(Connect::Refused(Box::new(Refused { path: None, host, instead })));
            }
            let to = match &reach.proxy {
                Some((proxy, Some(door))) if *proxy == canonical(address) && reach.network != NetworkMode::Full => {
                    let pid = target.pid().unwrap_or(call.tid);
                    To::Proxy(bytes, door.clone(), Guest { pid, comm: target.comm() })
                }
                _ if !matches!(reach.network, NetworkMode::Full | NetworkMode::Own) => {
                    To::Address(spelled_out(bytes, address))
                }
                _ => To::Address(bytes),
            };
            Ok(Connect::Make(Connection::new(socket, to)))
        }
        // A netlink socket that exists was granted, but only to speak to the kernel. Other receivers take CAP_NET_ADMIN, which
        // the kernel would find in this process.
        Some(Peer::Other(family)) if i32::from(family) == libc::AF_NETLINK => match is_netlink_of_kernel(&bytes) {
            true => Ok(Connect::Make(Connection::new(taken()?, To::Address(bytes)))),
            false => Ok(Connect::Answered(Answer::Errno(libc::EPERM))),
        },
        // AF_UNSPEC dissolves a connection.
        Some(Peer::Other(family)) if i32::from(family) == libc::AF_UNSPEC && reach.network != NetworkMode::None => {
            Ok(Connect::Make(Connection::new(taken()?, To::Address(bytes))))
        }
        Some(Peer::Other(_)) => Ok(Connect::Refused(Box::default())),
    }
}

fn to_file(
    target: &Target,
    path: &Path,
    taken: impl Fn() -> io::Result<OwnedFd>,
    reach: &Reach,
) -> io::Result<Connect> {
    Ok(match socket_file(target, path, reach)? {
        SocketFile::Open(file) => Connect::Make(Connection::new(taken()?, To::File(file))),
        SocketFile::Closed(file, at) => {
            let instead = Some(Instead::Connect(Connection::new(taken()?, To::File(file))));
            Connect::Refused(Box::new(Refused { path: Some(at), host: None, instead }))
        }
        SocketFile::Elsewhere => Connect::Never(OTHERS_LINKS),
        SocketFile::Answer(errno) => Connect::Answered(Answer::Errno(errno)),
    })
}

/// The socket file that a program names.
pub(super) enum SocketFile {
    Open(OwnedFd),
    /// The policy does not open it.
    Closed(OwnedFd, PathBuf),
    /// The name leads through a magic link of another process.
    Elsewhere,
    /// The errno to answer with.
    Answer(i32),
}

/// Finds a socket file and judges it by its real path.
pub(super) fn socket_file(target: &Target, path: &Path, reach: &Reach) -> io::Result<SocketFile> {
    let file = match target.open(libc::AT_FDCWD, path, true) {
        Err(error) if target.leads_elsewhere(&error, libc::AT_FDCWD, path) => return Ok(SocketFile::Elsewhere),
        // Covered by a mount inside the sandbox, but the policy lists this socket by name.
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
        return Ok(SocketFile::Answer(libc::ECONNREFUSED));
    }
    Ok(match () {
        () if reach.sockets.reaches(&at) => SocketFile::Open(file),
        () if is_name_service(&at) => SocketFile::Answer(libc::ECONNREFUSED),
        () => SocketFile::Closed(file, at),
    })
}

pub fn is_name_service(at: &Path) -> bool {
    NAME_SERVICES.iter().any(|service| at.starts_with(service))
}

/// Replaces 0.0.0.0 by 127.0.0.1. To a socket that is bound to a non-loopback address, 0.0.0.0 means that address.
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

/// connect(2) on the program's socket, ready to be made as often as it takes.
pub type Connect2<'a> = &'a dyn Fn() -> io::Result<()>;

impl Connection {
    /// Whether connecting may block.
    pub fn waits(&self) -> bool {
        !rustix::fs::fcntl_getfl(&self.socket).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// The inode of the program's socket, which names it whatever descriptors there are.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.socket)?.st_ino)
    }

    /// The program's SO_SNDTIMEO, which limits a blocking connect too (socket(7)).
    pub fn send_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_timeout(&self.socket, sockopt::Timeout::Send)?)
    }

    pub fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Send, timeout)?)
    }

    /// Whether connect(2) failed only because its time was over.
    pub fn goes_on(&self, error: &io::Error) -> bool {
        match (&self.to, error.raw_os_error()) {
            (_, Some(libc::EINTR)) => true,
            // The peer's queue is full.
            (To::File(_), errno) => errno == Some(libc::EAGAIN),
            (_, errno) => matches!(errno, Some(libc::EINPROGRESS | libc::EALREADY)),
        }
    }

    /// Connects. `attempt` gets connect(2), and makes it as often as it has to.
    pub fn make(&self, attempt: &dyn Fn(Connect2<'_>) -> io::Result<()>) -> Answer {
        let connected = match &self.to {
            To::File(file) => SocketAddrUnix::new(by_descriptor(file)).map_err(io::Error::from).and_then(|address| {
                attempt(&|| self.with_rights(|| Ok(rustix::net::connect(&self.socket, &address)?)))
            }),
            To::Address(address) => attempt(&|| self.with_rights(|| socket::connect(self.socket.as_fd(), address))),
            To::Proxy(address, door, guest) => {
                self.through(door, guest, || attempt(&|| socket::connect(self.socket.as_fd(), address)))
            }
        };
        match connected {
            Ok(()) => Answer::Value(0),
            Err(error) => Answer::Errno(error.raw_os_error().unwrap_or(libc::EPERM)),
        }
    }

    fn with_rights(&self, connect: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
        rights::with(self.rights.as_deref(), connect)
    }

    /// Connects to the proxy. The proxy knows announced connections by their source address, so the socket is bound
    /// first.
    fn through(&self, door: &Door, guest: &Guest, connect: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
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
        door.announce(from, guest.clone(), connect, || self.has_failed())
    }

    /// Whether a connection attempt has failed. Polls, because reading SO_ERROR would take the error away from the
    /// program.
    fn has_failed(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_failed_attempt_is_told_from_one_that_goes_on() {
        let failed = |socket: OwnedFd| Connection::new(socket, To::Address(Vec::new())).has_failed();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let connected = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
        assert!(!failed(connected.into()));
        let closed = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        assert!(failed(closed), "in the state that a refused attempt leaves");
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
}
