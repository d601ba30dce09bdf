//! The HTTP side of the proxy: CONNECT, and plain requests with an absolute URL. One request per connection.
//!
//! Only the request line decides where a request goes; the Host header is rewritten from it. Bytes after the request
//! body are dropped: a second request on the same connection may be meant for another host.

use super::allow::split_port;
use super::gate::Closed;
use super::pump::{All, Pass, pump};
use super::{Patient, Visit};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 200;

/// Headers that belong to the connection, not to the request (RFC 9110, section 7.6.1).
const HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "upgrade",
];

/// A parsed request head.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub host: String,
    pub port: u16,
    /// The head to send to the host, and the length of the body that follows it; `None` for CONNECT.
    pub forward: Option<(Vec<u8>, Body)>,
}

/// A response from the proxy itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: &'static str,
    pub text: String,
}

fn bad(text: &str) -> Answer {
    Answer { status: "400 Bad Request", text: text.to_owned() }
}

/// Serves one client. `read` are the bytes that were read before.
pub fn serve(visit: Visit<'_>, mut read: Vec<u8>) -> io::Result<()> {
    let Visit { gate, guest, .. } = &visit;
    let mut client = &visit.client;
    let mut patient = Patient { client, until: visit.until };
    let (request, length) = loop {
        match parse(&read) {
            Ok(Some(parsed)) => break parsed,
            Ok(None) if read.len() < LONGEST_HEAD => {
                let mut block = [0u8; 4096];
                let count = patient.read(&mut block)?;
                if count == 0 {
                    return Ok(());
                }
                read.extend_from_slice(&block[..count]);
            }
            Ok(None) => {
                let status = "431 Request Header Fields Too Large";
                return refuse(client, &Answer { status, text: "gatekeeper: the request head is too long".to_owned() });
            }
            Err(answer) => return refuse(client, &answer),
        }
    };
    match &request.forward {
        Some(_) if visit.inspects.is_some() => return visit.inspect_requests(read),
        None if visit.is_inspected(&request.host, request.port) => {
            // Judge the host now, as for any tunnel. The connection to it is made when the first request is allowed.
            if let Some(no) = gate.refuses_at_once(&request.host, request.port) {
                let why = gate.refuse(&request.host, request.port, guest, &no);
                let text = format!("gatekeeper: the sandbox refused {why}. Retrying will fail the same way.");
                return refuse(client, &Answer { status: "403 Forbidden", text });
            }
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let early = read.get(length..).unwrap_or_default().to_vec();
            return visit.inspect_tunnel(early, &request.host, request.port);
        }
        _ => {}
    }
    let host = match gate.open(&request.host, request.port, guest) {
        Ok(host) => host,
        Err(Closed::Refused(why)) => {
            let text = format!("gatekeeper: the sandbox refused {why}. Retrying will fail the same way.");
            return refuse(client, &Answer { status: "403 Forbidden", text });
        }
        Err(Closed::Failed(why)) => {
            return refuse(client, &Answer { status: "502 Bad Gateway", text: format!("gatekeeper: {why}") });
        }
    };
    client.set_read_timeout(None)?;
    let early = read.get(length..).unwrap_or_default();
    match request.forward {
        None => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            pump(client, &host, &mut All, &mut All, early, true)
        }
        Some((head, mut body)) => {
            (&host).write_all(&head)?;
            pump(client, &host, &mut body, &mut Response::default(), early, false)
        }
    }
}

/// Parses the request head at the start of these bytes. Also returns its length; `None` if it is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(bad(&format!("gatekeeper: not an HTTP request: {error}"))),
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(bad("gatekeeper: not an HTTP request"));
    };
    if method == "CONNECT" {
        let (host, port) = authority(target, None)?;
        return Ok(Some((Request { host, port, forward: None }, length)));
    }
    let Some(rest) = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).and(target.get(7..))
    else {
        let text = match target.contains("://") {
            true => "gatekeeper: this proxy takes http URLs, and CONNECT for everything else",
            false => "gatekeeper: this is a proxy; send it the whole URL",
        };
        return Err(Answer { status: "501 Not Implemented", text: text.to_owned() });
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, path) = rest.split_at(end);
    let (host, port) = authority(place, Some(80))?;
    let body = Body::of(request.headers)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let path = path.split('#').next().unwrap_or_default();
    let shown = place.rsplit('@').next().unwrap_or(place);
    let mut head = format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {shown}\r\n").into_bytes();
    let dropped = named_by_connection(request.headers);
    for header in request.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        if name != "host" && !HOP.contains(&name.as_str()) && !dropped.contains(&name) {
            push_header(&mut head, header);
        }
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Ok(Some((Request { host, port, forward: Some((head, body)) }, length)))
}

fn push_header(head: &mut Vec<u8>, header: &httparse::Header<'_>) {
    head.extend_from_slice(header.name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(header.value);
    head.extend_from_slice(b"\r\n");
}

/// The headers that the Connection header names, which a proxy must not forward. Those that frame the body are exempt.
fn named_by_connection(headers: &[httparse::Header<'_>]) -> Vec<String> {
    let connection = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("connection"));
    let names =
        connection.filter_map(|header| std::str::from_utf8(header.value).ok()).flat_map(|value| value.split(','));
    let names = names.map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| name != "content-length" && name != "transfer-encoding" && name != "host").collect()
}

/// Splits `user@host:port` into host and port.
fn authority(text: &str, default: Option<u16>) -> Result<(String, u16), Answer> {
    let text = text.rsplit('@').next().unwrap_or(text);
    let (host, port) = split_port(text);
    let port = match port {
        Some(digits) => digits.parse().ok().filter(|port| *port > 0),
        None => default,
    };
    match port {
        Some(port) if !host.is_empty() => Ok((host.to_owned(), port)),
        _ => Err(bad("gatekeeper: no host and port in the request")),
    }
}

/// How much of the bytes after the head belongs to the request.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    Length(u64),
    Chunked(Chunks),
}

impl Body {
    fn of(headers: &[httparse::Header<'_>]) -> Result<Body, Answer> {
        let of = |name: &'static str| headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        let lengths: Vec<_> = of("content-length").map(|header| header.value).collect();
        let codings: Vec<_> = of("transfer-encoding").map(|header| header.value).collect();
        // Refuse requests with two answers to where they end: request smuggling uses the difference.
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(Body::Length(0)),
            ([length], []) => {
                let digits = std::str::from_utf8(length).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                let length = digits.and_then(|digits| digits.parse().ok());
                length
                    .map(Body::Length)
                    .ok_or_else(|| bad("gatekeeper: the Content-Length of the request is not a number"))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked(Chunks::Size(Vec::new()))),
            _ => Err(bad("gatekeeper: the headers of the request are ambiguous about where it ends")),
        }
    }
}

impl Pass for Body {
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        match self {
            Body::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                out.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                *left -= taken as u64;
                Ok(*left > 0)
            }
            Body::Chunked(chunks) => {
                for byte in bytes {
                    if *chunks == Chunks::Done {
                        break;
                    }
                    out.push(*byte);
                    chunks.take(*byte)?;
                }
                Ok(*chunks != Chunks::Done)
            }
        }
    }
}

/// The position of the next byte in a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In the size line, of which this much was read.
    Size(Vec<u8>),
    /// In a chunk. The number counts what is left of it, including its CRLF.
    Data(u64),
    /// In the trailer, after the last chunk. `empty`: nothing of the current line was read.
    Trailer {
        empty: bool,
    },
    Done,
}

impl Chunks {
    fn take(&mut self, byte: u8) -> io::Result<()> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        match self {
            Chunks::Size(line) if byte == b'\n' => {
                let digits = line.split(|byte| matches!(byte, b';' | b'\r' | b' ')).next().unwrap_or_default();
                let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
                let sound = (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let size = u64::from_str_radix(digits, 16).ok().filter(|_| sound).ok_or_else(wrong)?;
                *self = if size == 0 { Chunks::Trailer { empty: true } } else { Chunks::Data(size + 2) };
            }
            Chunks::Size(line) if line.len() < 256 => line.push(byte),
            Chunks::Size(_) => return Err(wrong()),
            Chunks::Data(1) => *self = Chunks::Size(Vec::new()),
            Chunks::Data(left) => *left -= 1,
            Chunks::Trailer { empty: true } if byte == b'\n' => *self = Chunks::Done,
            Chunks::Trailer { empty } if byte == b'\n' => *empty = true,
            Chunks::Trailer { .. } if byte == b'\r' => {}
            Chunks::Trailer { empty } => *empty = false,
            Chunks::Done => {}
        }
        Ok(())
    }
}

/// The filter for the host's response: rewrites its head, so that the client sends no further request on this
/// connection.
#[derive(Default)]
pub struct Response {
    head: Vec<u8>,
    /// Whether the final head was passed on.
    started: bool,
}

impl Pass for Response {
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        if self.started {
            out.extend_from_slice(bytes);
            return Ok(true);
        }
        self.head.extend_from_slice(bytes);
        while !self.started {
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut response = httparse::Response::new(&mut headers);
            let length = match response.parse(&self.head) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) if self.head.len() < LONGEST_HEAD => return Ok(true),
                _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
            };
            let (version, code) = (response.version.unwrap_or(1), response.code.unwrap_or(502));
            // 1xx responses come before the final one. 101 cannot occur: the Upgrade header was not forwarded.
            let last = code >= 200;
            out.extend_from_slice(format!("HTTP/1.{version} {code} {}\r\n", response.reason.unwrap_or("")).as_bytes());
            for header in response.headers.iter() {
                let hop = ["connection", "keep-alive", "proxy-connection"];
                if !hop.iter().any(|hop| header.name.eq_ignore_ascii_case(hop)) {
                    push_header(out, header);
                }
            }
            out.extend_from_slice(if last { b"Connection: close\r\n\r\n" } else { b"\r\n" });
            self.head.drain(..length);
            self.started = last;
        }
        out.append(&mut self.head);
        Ok(true)
    }
}

/// Sends a response and closes. Drains what the client still sends, because closing with unread data resets the
/// connection, and the client would lose the response.
fn refuse(mut client: &TcpStream, answer: &Answer) -> io::Result<()> {
    let Answer { status, text } = answer;
    let length = text.len() + 1;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         X-Gatekeeper: {status}\r\nConnection: close\r\n\r\n{text}\n"
    );
    client.write_all(head.as_bytes())?;
    client.shutdown(Shutdown::Write)?;
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut sink = [0u8; 4096];
    for _ in 0..256 {
        if client.read(&mut sink)? == 0 {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
