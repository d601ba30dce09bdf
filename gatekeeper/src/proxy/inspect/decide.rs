//! Where one request goes, and whether the rules allow it, whatever the server takes for its method, path and host.

use super::strict::is_plain_length;
use super::upstream::Upstream;
use super::{Connection, Way};
use crate::proxy::allow::{Host, split_port};
use crate::proxy::gate::Requested;
use crate::proxy::path::lenient;
use crate::proxy::rules::{Asked, Refused};
use hyper::body::Incoming;
use hyper::{Method, Request, Uri, Version, header};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Headers with which some servers take another method than that of the request line.
const METHODS: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-forwarded-method"];
/// Headers with which some servers take another path. With COPY and MOVE, WebDAV reads a second one from Destination.
const PATHS: [&str; 10] = [
    "destination",
    "x-original-url",
    "x-original-uri",
    "x-original-path",
    "x-rewrite-url",
    "x-rewrite-uri",
    "x-forwarded-uri",
    "x-forwarded-url",
    "x-forwarded-path",
    "x-envoy-original-path",
];
/// Headers with which some servers take another host.
const HOSTS: [&str; 5] =
    ["x-forwarded-host", "x-forwarded-server", "x-original-host", "x-host", "x-envoy-original-host"];
/// Headers with which some servers take a part of the path for the place where the application is, and leave it out.
const PARTS: [&str; 2] = ["script-name", "path-info"];
/// Headers that end a request or say where it goes.
const FRAMING: [&str; 3] = ["content-length", "transfer-encoding", "host"];
/// Headers of a request that do not belong after its body (RFC 9110, section 6.5.1), besides those above.
const HEADS: [&str; 10] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "forwarded",
    "content-type",
    "content-encoding",
    "content-range",
    "expect",
    "range",
    "te",
];
/// Parameters of a query with which some frameworks take another method.
const PARAMETERS: [&str; 2] = ["_method", "x-http-method-override"];
/// The most methods with paths that a request may name.
const MOST_ASKED: usize = 64;
/// Requests that wait for a decision. Further ones are refused.
const MOST_WAITING: usize = 200;
const STACK: usize = 128 * 1024;

/// Where a request goes. The host of the tunnel, of TLS, of the request line and of the Host header have to agree.
pub fn place(connection: &Arc<Connection>, request: &Request<Incoming>) -> Result<Arc<Upstream>, String> {
    let uri = request.uri();
    if request.method() == Method::CONNECT {
        return Err("there is a tunnel inside of this connection".to_owned());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err("there are two Host headers".to_owned());
    }
    let mut lengths = request.headers().get_all(header::CONTENT_LENGTH).iter();
    let (length, second) = (lengths.next(), lengths.next());
    if second.is_some() {
        return Err("there are two Content-Length".to_owned());
    }
    if length.is_some_and(|length| !is_plain_length(length.as_bytes())) {
        return Err("Content-Length is not a plain number".to_owned());
    }
    let alike = |name: &str| !FRAMING.contains(&name) && FRAMING.contains(&plain(name).as_str());
    if request.headers().keys().any(|name| alike(name.as_str())) {
        return Err("a header looks like one that says where the request goes or ends".to_owned());
    }
    let host = host.map(|host| host.to_str().map_err(|_| "the Host header is not text".to_owned())).transpose()?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the URL has a user in it".to_owned());
    }
    match &connection.way {
        Way::Tunnel(upstream) => {
            let scheme = uri.scheme_str().is_none_or(|scheme| scheme == if upstream.tls { "https" } else { "http" });
            if !scheme {
                return Err("the scheme of the URL is not that of the connection".to_owned());
            }
            let written = uri.authority().map(hyper::http::uri::Authority::as_str);
            if written.is_none() && host.is_none() {
                return Err("there is no Host header".to_owned());
            }
            for text in written.into_iter().chain(host) {
                if !same(text, upstream) {
                    return Err(format!(
                        "it names the host {}, and the connection is one to {}",
                        text.escape_debug(),
                        upstream.authority()
                    ));
                }
            }
            Ok(upstream.clone())
        }
        Way::Proxy(known) => {
            if uri.scheme_str() != Some("http") {
                return Err("this proxy takes http URLs, and CONNECT for everything else".to_owned());
            }
            let authority = uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default();
            let (name, port) = parts(authority, 80)?;
            let mut known = known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(known) = known.iter().find(|known| known.host == name && known.port == port) {
                return Ok(known.clone());
            }
            let upstream = Arc::new(Upstream::new(name, port, false, false));
            if known.len() > 16 {
                known.clear();
            }
            known.push(upstream.clone());
            Ok(upstream)
        }
    }
}

fn parts(authority: &str, usual: u16) -> Result<(Host, u16), String> {
    let (name, port) = split_port(authority);
    let port = match port {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).ok_or("the port is not a number")?
        }
        Some(_) => return Err("the port is not a number".to_owned()),
        None => usual,
    };
    Ok((Host::parse(name).map_err(|error| error.to_string())?, port))
}

fn same(authority: &str, upstream: &Upstream) -> bool {
    let usual = if upstream.tls { 443 } else { 80 };
    parts(authority, usual).is_ok_and(|(host, port)| host == upstream.host && port == upstream.port)
}

/// What a server may take a request for.
pub struct Wanted {
    /// Methods and paths, first those of the request line.
    asked: Vec<(String, String)>,
    hosts: Vec<String>,
    /// Whether a header takes a part of the path away.
    parted: bool,
    /// Why no rule can allow it.
    never: Option<&'static str>,
}

impl Wanted {
    pub fn of<B>(request: &Request<B>) -> Wanted {
        let named = |names: &[&str]| -> Vec<String> {
            let headers = request.headers().iter();
            let wanted = headers.filter(|(name, _)| names.contains(&plain(name.as_str()).as_str()));
            wanted.map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).trim().to_owned()).collect()
        };
        let (method, path) = (request.method().as_str().to_owned(), path_of(request.uri()).to_owned());
        let mut methods = vec![method];
        methods.extend(named(&METHODS));
        methods.extend(in_query(request.uri().query().unwrap_or_default()));
        let mut paths = vec![path];
        let mut hosts: Vec<String> =
            named(&HOSTS).iter().flat_map(|value| value.split(',')).map(|host| host.trim().to_owned()).collect();
        for other in named(&PATHS) {
            // Destination is a whole URL.
            let path =
                match other.split_once("://").map(|(_, rest)| rest.split_at(rest.find('/').unwrap_or(rest.len()))) {
                    Some((host, path)) => {
                        hosts.push(host.to_owned());
                        path
                    }
                    None => other.as_str(),
                };
            paths.push(path.split('?').next().unwrap_or_default().to_owned());
        }
        let pairs = methods.iter().flat_map(|method| paths.iter().map(move |path| (method.clone(), path.clone())));
        let asked: Vec<(String, String)> = pairs.collect();
        for value in named(&["forwarded"]) {
            let parts = value.split([',', ';']).filter_map(|part| part.split_once('='));
            let host = parts.filter(|(name, _)| name.trim().eq_ignore_ascii_case("host"));
            hosts.extend(host.map(|(_, host)| host.trim().trim_matches('"').to_owned()));
        }
        let upgrades = request.headers().contains_key(header::UPGRADE) && request.version() != Version::HTTP_11;
        let never = match () {
            () if upgrades => Some("it asks for another protocol outside of HTTP/1.1"),
            () if asked.len() > MOST_ASKED => Some("too many of its headers name a method or a path"),
            () => None,
        };
        Wanted { asked, hosts, parted: !named(&PARTS).is_empty(), never }
    }

    /// What no rule can allow.
    fn check(&self, connection: &Connection, upstream: &Upstream) -> Result<(), Refused> {
        if let Some(why) = self.never {
            return Err(Refused::always(why));
        }
        let ruled = connection.inspector.rules.is_ruled(&upstream.host, upstream.port);
        if ruled && self.parted {
            return Err(Refused::always("a header says that a part of the path does not count"));
        }
        // Without its port, as the header is often written.
        let other = |host: &&String| !same(host, upstream) && Host::parse(host).ok().as_ref() != Some(&upstream.host);
        match self.hosts.iter().find(other).filter(|_| ruled) {
            Some(host) => Err(Refused::always(format!(
                "a header names the host {}, and the connection is one to {}",
                host.escape_debug(),
                upstream.authority()
            ))),
            None => Ok(()),
        }
    }
}

/// The name of a header as a server may read it: CGI and WSGI take _ for -, lighttpd and others any such character.
pub fn plain(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }).collect()
}

/// The name of a parameter as a server may read it. PHP leaves out blanks in front and what follows a NUL, and takes
/// blanks, dots and brackets for _.
fn parameter(name: &str) -> String {
    let name =
        name.split('\0').next().unwrap_or_default().trim_start_matches([' ', '+', '\t', '\n', '\r', '\x0b', '\x0c']);
    let read = |letter: char| if " +.[".contains(letter) { '_' } else { letter.to_ascii_lowercase() };
    name.chars().map(read).collect()
}

/// The methods that parameters of a query name.
fn in_query(query: &str) -> impl Iterator<Item = String> + '_ {
    let text = |part: &str| String::from_utf8_lossy(&lenient(part.as_bytes())).into_owned();
    // Some frameworks take ; for &.
    query.split(['&', ';']).filter_map(move |pair| {
        let (name, value) = pair.split_once('=')?;
        PARAMETERS.contains(&parameter(&text(name)).as_str()).then(|| text(value).to_ascii_uppercase())
    })
}

/// Whether a header belongs in front of a body, because it says where a request goes, what it asks for, or who asks.
pub fn is_for_heads(name: &str) -> bool {
    let name = plain(name);
    [&METHODS[..], &PATHS, &PARTS, &HOSTS, &FRAMING, &HEADS].iter().any(|list| list.contains(&name.as_str()))
}

/// Decides one request. Every decision about requests passes through here.
pub async fn decide(connection: &Arc<Connection>, upstream: &Upstream, wanted: Wanted) -> Result<(), Refused> {
    wanted.check(connection, upstream)?;
    let inspector = &connection.inspector;
    let named = format!("{}:{}", upstream.host, upstream.port);
    for (method, path) in &wanted.asked {
        let asked = Asked { host: &upstream.host, port: upstream.port, method, path };
        if let Err(refused) = inspector.rules.decide(&asked)
            && !approved(connection, &named, method, path, &refused).await
        {
            return Err(refused);
        }
    }
    Ok(())
}

/// How many requests wait for a decision.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Set when the request is dropped because its client has gone away.
struct Left(Arc<AtomicBool>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Asks about a request that no rule allows, if the run asks. What no flag can allow is never asked.
async fn approved(connection: &Arc<Connection>, named: &str, method: &str, path: &str, refused: &Refused) -> bool {
    let gate = connection.inspector.gate.clone();
    if !gate.asks() || refused.allow_with.is_none() {
        return false;
    }
    if WAITING.fetch_add(1, Ordering::SeqCst) >= MOST_WAITING {
        WAITING.fetch_sub(1, Ordering::SeqCst);
        return false;
    }
    let left = Left(Arc::default());
    let request = Requested {
        host: named.to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        why: refused.why.clone(),
        allow_with: refused.allow_with.clone(),
        left: left.0.clone(),
    };
    let (decided, waits) = tokio::sync::oneshot::channel();
    let guest = connection.guest.clone();
    // A thread of its own: the answer may take a minute, and connections are made on the event loop's few.
    let asked = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let _ = decided.send(gate.ask_request(&request, &guest));
        WAITING.fetch_sub(1, Ordering::SeqCst);
    });
    if asked.is_err() {
        WAITING.fetch_sub(1, Ordering::SeqCst);
        return false;
    }
    waits.await.unwrap_or(false)
}

/// The path of a request. OPTIONS * has none.
pub fn path_of(uri: &Uri) -> &str {
    if uri.path().is_empty() { "/" } else { uri.path() }
}
