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
/// once it listens.
pub fn judge(call: &Call, target: &Target, reach: &Reach, waits: &dyn Fn() -> bool) -> io::Result<Connect> {
    let socket = target.descriptor(call.args[0] as i32)?;
    let bound = || Ok::<_, io::Error>(parse(&socket::name(socket.as_fd())?));
    let before = bound()?;
    if let Some(mut refused) = refused(&before, reach)? {
        if let (Connect::Refused(refused), Some(Peer::Internet(_))) = (&mut refused, &before) {
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
    rustix::net::listen(&socket, call.args[1] as i32)?;
    if local && let Some(refused) = refused(&bound()?, reach)? {
        rustix::net::shutdown(&socket, Shutdown::Both)?;
        return Ok(refused);
    }
    Ok(Connect::Answered(Answer::Value(0)))
}

fn refused(bound: &Option<Peer>, reach: &Reach) -> io::Result<Option<Connect>> {
    let permitted = match bound {
        Some(Peer::Internet(address))
            if !reach.own_network && reach.kept.iter().any(|kept| kept.is_none_or(|port| port == address.port())) =>
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
