//! SOCKS5 (RFC 1928): CONNECT, with names resolved by the proxy. No authentication: the proxy has already decided
//! whether to serve this connection.

use super::gate::Closed;
use super::pump::{All, pump};
use super::{Patient, Visit};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NONE_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

const GRANTED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// Serves one client. Its first byte, the version, was read before.
pub fn serve(visit: Visit<'_>) -> io::Result<()> {
    let Visit { gate, guest, .. } = &visit;
    let mut client = &visit.client;
    let mut patient = Patient { client, until: visit.until };
    let Some((host, port)) = ask(&mut patient)? else { return Ok(()) };
    if visit.is_inspected(&host, port) {
        if let Some(no) = gate.refuses_at_once(&host, port) {
            gate.refuse(&host, port, guest, &no);
            return answer(&mut client, NOT_ALLOWED);
        }
        answer(&mut client, GRANTED)?;
        return visit.inspect_tunnel(Vec::new(), &host, port);
    }
    let stream = match gate.open(&host, port, guest) {
        Ok(stream) => stream,
        Err(Closed::Refused(_)) => return answer(&mut client, NOT_ALLOWED),
        Err(Closed::Failed(_)) => return answer(&mut client, UNREACHABLE),
    };
    client.set_read_timeout(None)?;
    answer(&mut client, GRANTED)?;
    pump(client, &stream, &mut All, &mut All, &[], true)
}

/// Reads the host and port that a client asks for. `None`: the request is not supported, and was answered so.
pub fn ask(client: &mut (impl Read + Write)) -> io::Result<Option<(String, u16)>> {
    let [count] = bytes(client)?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods)?;
    if !methods.contains(&NO_AUTHENTICATION) {
        return client.write_all(&[VERSION, NONE_ACCEPTABLE]).map(|()| None);
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION])?;
    let [version, command, _, kind] = bytes(client)?;
    if version != VERSION {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let host = match kind {
        IPV4 => IpAddr::from(Ipv4Addr::from(bytes::<4>(client)?)).to_string(),
        IPV6 => IpAddr::from(Ipv6Addr::from(bytes::<16>(client)?)).to_string(),
        NAME => {
            let [length] = bytes(client)?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name)?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return answer(client, NO_SUCH_ADDRESS).map(|()| None),
    };
    let port = u16::from_be_bytes(bytes(client)?);
    if command != CONNECT {
        return answer(client, NO_SUCH_COMMAND).map(|()| None);
    }
    Ok(Some((host, port)))
}

fn bytes<const N: usize>(client: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Sends a reply. Its bound address is 0.0.0.0:0, since clients ignore it.
fn answer(client: &mut impl Write, code: u8) -> io::Result<()> {
    client.write_all(&[VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0])
}
