//! Connections to the real hosts: verified TLS, HTTP/2 or HTTP/1.1, kept for the next request of the same client.

use super::Inspector;
use crate::proxy::allow::Host;
use crate::proxy::gate::{Closed, Guest};
use http_body_util::combinators::BoxBody;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub type Body = BoxBody<Bytes, io::Error>;

/// How long a TLS handshake may take.
pub const HANDSHAKE: Duration = Duration::from_secs(20);
/// The most idle connections to one host.
const IDLE: usize = 8;

/// The connections of one client to one host.
pub struct Upstream {
    pub host: Host,
    pub port: u16,
    pub tls: bool,
    /// The client speaks HTTP/2 without TLS, so the host is taken to do so as well.
    pub prior_knowledge: bool,
    two: Mutex<Option<http2::SendRequest<Body>>>,
    one: Mutex<Vec<http1::SendRequest<Body>>>,
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Upstream {
    pub fn new(host: Host, port: u16, tls: bool, prior_knowledge: bool) -> Upstream {
        Upstream { host, port, tls, prior_knowledge, two: Mutex::default(), one: Mutex::default() }
    }

    /// Sends a request, on a connection that is open or on a new one. `upgrades`: it asks to leave HTTP, which only
    /// HTTP/1.1 can.
    pub async fn send(
        self: &Arc<Upstream>,
        inspector: &Arc<Inspector>,
        guest: &Guest,
        mut request: Request<Body>,
        upgrades: bool,
    ) -> Result<Response<Incoming>, Closed> {
        // Each try takes one idle connection away; the last one opens a new connection.
        for _ in 0..=IDLE {
            let (mut sender, fresh) = match self.idle(upgrades) {
                Some(sender) => (sender, false),
                None => (self.connect(inspector, guest, upgrades).await?, true),
            };
            let failed = |error: &hyper::Error| Closed::Failed(format!("{}:{}: {error}", self.host, self.port));
            let sent = match &mut sender {
                Sender::One(one) => {
                    *request.version_mut() = hyper::Version::HTTP_11;
                    one.try_send_request(self.for_one(request)).await
                }
                Sender::Two(two) => {
                    *request.version_mut() = hyper::Version::HTTP_2;
                    two.try_send_request(self.for_two(request)).await
                }
            };
            match sent {
                Ok(response) => {
                    self.keep(sender);
                    return Ok(response);
                }
                Err(mut error) => match TrySendError::take_message(&mut error) {
                    // The host had closed it meanwhile, and nothing was sent.
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(failed(error.error())),
                },
            }
        }
        Err(Closed::Failed(format!("{}:{}: every connection broke", self.host, self.port)))
    }

    fn idle(&self, upgrades: bool) -> Option<Sender> {
        let mut two = self.two.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        two.take_if(|two| two.is_closed());
        if let Some(two) = two.as_ref().filter(|_| !upgrades) {
            return Some(Sender::Two(two.clone()));
        }
        let mut one = self.one.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        one.retain(|one| !one.is_closed());
        let at = one.iter().position(http1::SendRequest::is_ready)?;
        Some(Sender::One(one.swap_remove(at)))
    }

    /// Keeps a connection of HTTP/1.1 for the next request. It is ready once the response was read to its end.
    fn keep(&self, sender: Sender) {
        if let Sender::One(one) = sender {
            let mut kept = self.one.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if kept.len() < IDLE {
                kept.push(one);
            }
        }
    }

    async fn connect(&self, inspector: &Arc<Inspector>, guest: &Guest, upgrades: bool) -> Result<Sender, Closed> {
        let failed = |why: String| Closed::Failed(format!("{}:{}: {why}", self.host, self.port));
        let (gate, host, port, guest) = (inspector.gate.clone(), self.host.to_string(), self.port, guest.clone());
        // Resolving and connecting block.
        let opened = tokio::task::spawn_blocking(move || gate.open(&host, port, &guest)).await;
        let stream = opened.map_err(|error| failed(error.to_string()))??;
        let plain = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let stream = plain.and_then(|()| TcpStream::from_std(stream)).map_err(|error| failed(error.to_string()))?;
        if !self.tls {
            return self.greet(stream, self.prior_knowledge).await;
        }
        let config = match upgrades {
            true => inspector.roots()?.only_one.clone(),
            false => inspector.roots()?.both.clone(),
        };
        let bare = self.host.to_string();
        let name = ServerName::try_from(bare.trim_matches(['[', ']']).to_owned())
            .map_err(|error| failed(error.to_string()))?;
        let shaken = tokio::time::timeout(HANDSHAKE, TlsConnector::from(config).connect(name, stream)).await;
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let hint = match error.to_string().contains("certificate") {
                    true => "; network.upstream_ca adds an authority that the proxy trusts",
                    false => "",
                };
                return Err(failed(format!("TLS: {error}{hint}")));
            }
            Err(_) => return Err(failed("TLS: the handshake took too long".to_owned())),
        };
        let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.greet(stream, two).await
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        two: bool,
    ) -> Result<Sender, Closed> {
        let failed = |error: hyper::Error| Closed::Failed(format!("{}:{}: {error}", self.host, self.port));
        let io = TokioIo::new(stream);
        if two {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(4 << 20);
            let (sender, connection) = builder.handshake(io).await.map_err(failed)?;
            tokio::spawn(connection);
            *self.two.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(sender.clone());
            return Ok(Sender::Two(sender));
        }
        let mut builder = http1::Builder::new();
        builder.max_headers(200);
        let (sender, connection) = builder.handshake(io).await.map_err(failed)?;
        tokio::spawn(connection.with_upgrades());
        Ok(Sender::One(sender))
    }

    /// The authority as requests name it: without the port that the scheme implies.
    pub fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }

    /// A request for HTTP/1.1: the path in the request line, and one Host header.
    fn for_one(&self, mut request: Request<Body>) -> Request<Body> {
        let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
        if let Ok(uri) = path.parse() {
            *request.uri_mut() = uri;
        }
        if let Ok(host) = self.authority().parse() {
            request.headers_mut().insert(hyper::header::HOST, host);
        }
        // HTTP/2 may have a header for each cookie (RFC 9113, section 8.2.3).
        let cookies: Vec<&[u8]> =
            request.headers().get_all(hyper::header::COOKIE).iter().map(|cookie| cookie.as_bytes()).collect();
        if cookies.len() > 1
            && let Ok(all) = hyper::header::HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
        {
            request.headers_mut().insert(hyper::header::COOKIE, all);
        }
        // hyper leaves out a body of unknown length where bodies are rare, as with GET, unless this says that there is one.
        if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
            let chunked = hyper::header::HeaderValue::from_static("chunked");
            request.headers_mut().insert(hyper::header::TRANSFER_ENCODING, chunked);
        }
        request
    }

    /// A request for HTTP/2: the whole URL, no Host header, and only `trailers` in TE.
    fn for_two(&self, mut request: Request<Body>) -> Request<Body> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let scheme = if self.tls { "https" } else { "http" };
        let path = if path == "*" { String::new() } else { path };
        if let Ok(uri) = format!("{scheme}://{}{path}", self.authority()).parse() {
            *request.uri_mut() = uri;
        }
        request.headers_mut().remove(hyper::header::HOST);
        request
    }
}
