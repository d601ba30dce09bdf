//! Fuzzes the proxy: what a confined program sends it, and what a host answers.

use gatekeeper::proxy::allow::{Allowlist, Host};
use gatekeeper::proxy::gate::Gate;
use gatekeeper::proxy::http::{Body, Response, parse};
use gatekeeper::proxy::pump::Pass;
use gatekeeper::proxy::resolve::Resolve;
use gatekeeper::proxy::socks;
use std::io::{self, Cursor, Read, Write};
use std::net::{IpAddr, SocketAddr};

const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 1));

/// Resolves listed names only, each to several private addresses and one public one.
struct Listed;

impl Resolve for Listed {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        assert!(name == "a.org" || name.ends_with(".b.org"), "{name} was resolved and is not listed");
        let private = ["127.0.0.1", "::ffff:10.0.0.1", "169.254.169.254", "::1", "64:ff9b::7f00:1", "0.0.0.0"];
        let private = private.iter().map(|address| address.parse().expect("an address"));
        Ok(private.chain([PUBLIC]).collect())
    }
}

/// A client reaches only listed hosts, and only by their public address.
fn judged(host: &str, port: u16) {
    let listed = ["a.org", "*.b.org:443", "10.1.2.3:80"].map(str::to_owned);
    let gate = Gate::new(Allowlist::new(&listed, &[]), Box::new(Listed));
    let Ok(addresses) = gate.choose(host, port) else { return };
    match Host::parse(host).expect("it was chosen") {
        Host::Name(name) => {
            assert!(name == "a.org" || (name.ends_with(".b.org") && port == 443), "{host}:{port}");
            assert_eq!(addresses, [SocketAddr::new(PUBLIC, port)]);
        }
        Host::Address(address) => assert_eq!((address.to_string().as_str(), port), ("10.1.2.3", 80)),
    }
}

/// The bytes as a request with its body, and as a response.
pub fn http(bytes: &[u8]) {
    let parsed = parse(bytes);
    if let Ok(Some((request, length))) = &parsed {
        // The request is the same however the client splits it.
        assert!(*length <= bytes.len());
        assert_eq!(parse(&bytes[..*length]), parsed);
        for cut in [length / 3, length / 2, length - 1] {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "half a head was taken for a request");
        }
        judged(&request.host, request.port);
        if let Some((head, body)) = &request.forward {
            forwarded(head, &request.host, body);
        }
    }
    if let Ok(Some((request, length))) = parsed
        && let Some((_, whole)) = request.forward
        && let Ok(Some((again, _))) = parse(bytes)
        && let Some((_, single)) = again.forward
    {
        let out = same(whole, single, &bytes[length..]);
        assert!(bytes[length..].starts_with(&out), "bytes that the client did not send");
    }
    same(Response::default(), Response::default(), bytes);
}

/// The head that a host receives is complete, names the judged host, and has one framing.
fn forwarded(head: &[u8], host: &str, body: &Body) {
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut request = httparse::Request::new(&mut headers);
    assert_eq!(request.parse(head), Ok(httparse::Status::Complete(head.len())), "{}", String::from_utf8_lossy(head));
    let of = |name: &str| -> Vec<&[u8]> {
        let same = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        same.map(|header| header.value).collect()
    };
    let [named] = of("host")[..] else { panic!("not one Host in {}", String::from_utf8_lossy(head)) };
    assert!(named.starts_with(host.as_bytes()), "{host} and {}", String::from_utf8_lossy(named));
    assert_eq!(of("connection"), [b"close"]);
    let framed = of("content-length").len() + of("transfer-encoding").len();
    assert!(framed <= 1 && (framed == 1 || *body == Body::Length(0)), "{}", String::from_utf8_lossy(head));
    assert!(of("proxy-authorization").is_empty() && of("upgrade").is_empty());
    assert!(request.path.is_some_and(|path| path.starts_with('/')));
}

/// Passing the bytes in one piece and one by one gives the same output.
fn same(mut whole: impl Pass, mut single: impl Pass, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut bytewise) = (Vec::new(), Vec::new());
    let ended = whole.pass(bytes, &mut out);
    let mut broken = false;
    for byte in bytes {
        match single.pass(&[*byte], &mut bytewise) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => {
                broken = true;
                break;
            }
        }
    }
    assert_eq!(ended.is_err(), broken, "one way of cutting it breaks off, the other does not");
    if ended.is_ok() {
        assert_eq!(out, bytewise);
    }
    out
}

struct Client<'a> {
    says: Cursor<&'a [u8]>,
    hears: Vec<u8>,
}

impl Read for Client<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.says.read(into)
    }
}

impl Write for Client<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.hears.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn socks(bytes: &[u8]) {
    let mut client = Client { says: Cursor::new(bytes), hears: Vec::new() };
    if let Ok(Some((host, port))) = socks::ask(&mut client) {
        assert_eq!(client.hears, [5, 0], "one answer, to the greeting");
        judged(&host, port);
    }
    assert!(client.hears.is_empty() || client.hears.starts_with(&[5]));
}
