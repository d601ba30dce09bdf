//! listen, made by the supervisor in the program's place.

use super::connect::{Connect, Reach, canonical};
use super::decode::address::{Peer, parse};
use super::target::Target;
use crate::policy::NetworkMode;
use crate::sys::notify::{Answer, Call};
use crate::sys::socket;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::AsFd;

const ABSTRACT: &str = "abstract names are seen by the whole machine; listen on a path in a writable tree instead";

/// A socket that listens without having been bound listens everywhere: the address that counts is that of the socket taken
/// here.
///
/// An address that came with a connection goes again when the connection fails or is shut down, which may be between a look
/// and the call. So the socket is held to the loopback first, and looked at once more when it listens.
pub fn judge(call: &Call, target: &Target, reach: &Reach, waits: &dyn Fn() -> bool) -> io::Result<Connect> {
    let socket = target.descriptor(call.args[0] as i32)?;
    let bound = || Ok::<_, io::Error>(parse(&socket::name(socket.as_fd())?));
    let before = bound()?;
    if let Some(refused) = refused(&before, reach)? {
        return Ok(refused);
    }
    if !waits() {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let local = matches!(before, Some(Peer::Internet(_))) && reach.network != NetworkMode::Full && !reach.own_network;
    if local {
        // Not before Linux 5.7, nor where the program has chosen a device: then the second look alone holds.
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
        Some(Peer::Internet(address)) => {
            reach.network == NetworkMode::Full || reach.own_network || canonical(*address).ip().is_loopback()
        }
        // Names without a file are the whole machine's: its programs would come to this one and take it for a service.
        Some(Peer::Abstract(_)) if !reach.own_network => return Ok(Some(Connect::Never(ABSTRACT))),
        // A name may come before listen does; without one there is nothing to listen on.
        Some(Peer::Unnamed) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Some(Peer::Other(_)) => false,
        _ => true,
    };
    Ok((!permitted).then(|| Connect::Refused(None, bound.as_ref().and_then(Peer::host))))
}
