//! listen(2), performed by the supervisor for the program.

use super::connect::{Connect, Instead, Reach, Refused};
use super::decode::address::{Peer, parse};
use super::reach::canonical;
use super::target::Target;
use crate::policy::NetworkMode;
use crate::sys::notify::{Answer, Call};
use crate::sys::socket;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::AsFd;

const ABSTRACT: &str =
    "abstract names are visible to the whole machine; listen on a socket file in a writable tree instead";

const SECRETS: &str =
    "a credential of this run is for this port of the machine, and the command would receive the secret";

/// Judges a listen by the address that the program's socket is bound to: one that is not bound listens on all
/// addresses.
///
/// A socket that got its address from a connection loses it when that connection fails or is shut down, possibly
/// between our check and the listen. So the socket is first restricted to the loopback interface, and checked again
/// once it listens. Until then it may listen on a port that is kept for secrets, so the proxy counts these calls.
pub fn judge(call: &Call, target: &Target, reach: &Reach, waits: &dyn Fn() -> bool) -> io::Result<Connect> {
    let socket = target.descriptor(call.args[0] as i32)?;
    let bound = || Ok::<_, io::Error>(parse(&socket::name(socket.as_fd())?));
    let before = bound()?;
    if let Some(mut refused) = refused(&before, reach)? {
        // An approved call is made later, from another thread, and would not be counted.
        if let (Connect::Refused(refused), Some(Peer::Internet(_))) = (&mut refused, &before)
            && !reach.keeps_ports()
        {
            refused.instead = Some(Instead::Listen { socket, backlog: call.args[1] as i32 });
        }
        return Ok(refused);
    }
    if !waits() {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let local = matches!(before, Some(Peer::Internet(_))) && reach.network != NetworkMode::Full && !reach.own_network;
    if local {
        // Fails before Linux 5.7, or if the program has bound the socket to a device. Then the second check has to
        // suffice.
        let _ = socket::keep_local(socket.as_fd());
    }
    let keeps = matches!(before, Some(Peer::Internet(_))) && reach.keeps_ports();
    let listen = || {
        rustix::net::listen(&socket, call.args[1] as i32)?;
        if (local || keeps)
            && let Some(refused) = refused(&bound()?, reach)?
        {
            rustix::net::shutdown(&socket, Shutdown::Both)?;
            return Ok(refused);
        }
        Ok(Connect::Answered(Answer::Value(0)))
    };
    match &reach.proxy {
        _ if !keeps => listen(),
        Some((_, Some(door))) => door.listens.count(listen),
        // The proxy is in another process, and could not know.
        _ => Ok(Connect::Never(SECRETS)),
    }
}

fn refused(bound: &Option<Peer>, reach: &Reach) -> io::Result<Option<Connect>> {
    let permitted = match bound {
        Some(Peer::Internet(address))
            if reach.keeps_ports() && reach.kept.iter().any(|kept| kept.is_none_or(|port| port == address.port())) =>
        {
            return Ok(Some(Connect::Never(SECRETS)));
        }
        Some(Peer::Internet(address)) => {
            reach.network == NetworkMode::Full || reach.own_network || canonical(*address).ip().is_loopback()
        }
        // Abstract names are shared by the whole machine: programs outside could take this one for the service they
        // look for.
        Some(Peer::Abstract(_)) if !reach.own_network => return Ok(Some(Connect::NotShared(ABSTRACT))),
        // The kernel answers EINVAL to listen(2) on an unbound UNIX socket. So do we: it could be bound in between.
        Some(Peer::Unnamed) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Some(Peer::Other(_)) => false,
        _ => true,
    };
    let host = || bound.as_ref().and_then(Peer::host);
    Ok((!permitted).then(|| Connect::Refused(Box::new(Refused { host: host(), ..Refused::default() }))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::Door;
    use crate::supervise::connect::Sockets;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::os::fd::{AsRawFd, OwnedFd};

    fn bound() -> OwnedFd {
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback");
        socket
    }

    /// Judges a listen of this process itself.
    fn listens(socket: &OwnedFd, kept: Vec<Option<u16>>, door: Option<Door>) -> Connect {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let args = [socket.as_raw_fd() as u64, 1, 0, 0, 0, 0];
        let call = Call { id: 0, tid, number: libc::SYS_listen as i32, args };
        let reach = Reach {
            network: NetworkMode::Hosts(Vec::new()),
            ports: Vec::new(),
            sockets: Sockets::default(),
            proxy: Some((SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), door)),
            own_network: false,
            kept,
        };
        judge(&call, &Target { tid }, &reach, &|| true).expect("an answer")
    }

    /// How often the proxy connects while the command listens once.
    fn connections(kept: Vec<Option<u16>>) -> usize {
        let (door, mut tries) = (Door::default(), 0);
        let connected = door.listens.apart(|| {
            tries += 1;
            if tries == 1 {
                let listened = listens(&bound(), kept.clone(), Some(door.clone()));
                assert!(matches!(listened, Connect::Answered(Answer::Value(0))), "another port");
            }
            Ok(())
        });
        connected.expect("the second try");
        tries
    }

    #[test]
    fn the_proxy_trusts_no_connection_during_a_listen_where_ports_are_kept() {
        assert_eq!(connections(vec![Some(1)]), 2);
        assert_eq!(connections(Vec::new()), 1);
    }

    #[test]
    fn a_listen_that_the_proxy_cannot_know_of_is_refused_where_ports_are_kept() {
        assert!(matches!(listens(&bound(), vec![Some(1)], None), Connect::Never(SECRETS)));
        assert!(matches!(listens(&bound(), Vec::new(), None), Connect::Answered(Answer::Value(0))));
    }
}
