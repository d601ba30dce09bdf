//! The part of the proxy that looks into requests. It poses as the hosts that have rules or credentials, towards clients
//! that trust the certificate of this run, and speaks verified TLS with the real ones.
//!
//! It runs on one thread with its own event loop, which starts only if the policy has such rules.

mod answer;
pub mod ca;
mod credentials;
mod decide;
mod serve;
mod strict;
mod tap;
pub mod trust;
mod upstream;

use super::Place;
use super::allow::Host;
use super::gate::{Closed, Gate, Guest, No};
use super::rules::{Refused, Rules};
use super::secrets::Secrets;
use crate::audit::{Audit, Entry, Kind};
use ca::Authority;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tap::{Shared, Tap};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::server::Acceptor;
use upstream::{HANDSHAKE, Upstream};

const STACK: usize = 1 << 20;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a run made to look into requests.
#[derive(Debug)]
pub struct Means {
    pub authority: Authority,
    pub secrets: Arc<Secrets>,
    /// The certificates of `upstream_ca`.
    pub extra: Vec<CertificateDer<'static>>,
}

pub struct Inspector {
    gate: Arc<Gate>,
    rules: Rules,
    means: Arc<Means>,
    secrets: Arc<Secrets>,
    roots: OnceLock<Roots>,
    audit: Option<Arc<Audit>>,
    handle: Handle,
    /// Ends the event loop when it is dropped.
    _stop: tokio::sync::oneshot::Sender<()>,
}

/// The settings for connections to real hosts.
struct Roots {
    both: Arc<ClientConfig>,
    only_one: Arc<ClientConfig>,
}

/// Where the requests of a connection go.
enum Way {
    /// A tunnel to one host.
    Tunnel(Arc<Upstream>),
    /// Each request names its host.
    Proxy(Mutex<Vec<Arc<Upstream>>>),
}

struct Connection {
    inspector: Arc<Inspector>,
    way: Way,
    guest: Guest,
    shared: Arc<Shared>,
    _place: Place,
}

impl Inspector {
    pub fn start(
        gate: Arc<Gate>,
        rules: Rules,
        means: Arc<Means>,
        audit: Option<Arc<Audit>>,
    ) -> io::Result<Arc<Inspector>> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(64)
            .thread_stack_size(STACK)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new().name("inspector".to_owned()).stack_size(STACK).spawn(move || {
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        let secrets = means.secrets.clone();
        Ok(Arc::new(Inspector { gate, rules, means, secrets, roots: OnceLock::new(), audit, handle, _stop: stop }))
    }

    /// Whether a tunnel to this host is looked into.
    pub fn opens(&self, host: &str, port: u16) -> bool {
        // What is no host is refused by the gate.
        Host::parse(host).is_ok_and(|host| self.rules.opens(&host, port))
    }

    /// Serves a tunnel that the client believes to lead to this host.
    pub fn tunnel(
        self: &Arc<Self>,
        client: std::net::TcpStream,
        early: Vec<u8>,
        host: &str,
        port: u16,
        guest: Guest,
        place: Place,
    ) -> io::Result<()> {
        let host = Host::parse(host).map_err(io::Error::other)?;
        let this = self.clone();
        self.spawn(client, move |client| async move {
            this.open_tunnel(Early { early, at: 0, stream: client }, host, port, guest, place).await
        })
    }

    /// Serves requests with whole URLs.
    pub fn proxy(
        self: &Arc<Self>,
        client: std::net::TcpStream,
        early: Vec<u8>,
        guest: Guest,
        place: Place,
    ) -> io::Result<()> {
        let this = self.clone();
        self.spawn(client, move |client| async move {
            let shared = Arc::new(Shared::default());
            let way = Way::Proxy(Mutex::default());
            let connection = Arc::new(Connection { inspector: this, way, guest, shared, _place: place });
            connection.speak(Early { early, at: 0, stream: client }, false).await
        })
    }

    fn spawn<F, T>(&self, client: std::net::TcpStream, serve: F) -> io::Result<()>
    where
        F: FnOnce(TcpStream) -> T + Send + 'static,
        T: Future<Output = io::Result<()>> + Send + 'static,
    {
        client.set_read_timeout(None)?;
        client.set_nonblocking(true)?;
        self.handle.spawn(async move {
            // A connection that breaks off concerns only its client and its host.
            match TcpStream::from_std(client) {
                Ok(client) => serve(client).await,
                Err(error) => Err(error),
            }
        });
        Ok(())
    }

    async fn open_tunnel(
        self: Arc<Self>,
        mut client: Early,
        host: Host,
        port: u16,
        guest: Guest,
        place: Place,
    ) -> io::Result<()> {
        let first = tokio::time::timeout(tap::SILENCE, client.first()).await??;
        let connection = |tls: bool, prior: bool| {
            let way = Way::Tunnel(Arc::new(Upstream::new(host.clone(), port, tls, prior)));
            Arc::new(Connection {
                inspector: self.clone(),
                way,
                guest: guest.clone(),
                shared: Arc::default(),
                _place: place,
            })
        };
        // A TLS record that starts a handshake.
        if first != Some(0x16) {
            let two = first == Some(b'P') && tokio::time::timeout(tap::SILENCE, client.starts_with(PREFACE)).await??;
            let connection = connection(false, two);
            return connection.speak(client, two).await;
        }
        let accepted = tokio::time::timeout(HANDSHAKE, LazyConfigAcceptor::new(Acceptor::default(), client)).await??;
        let named = accepted.client_hello().server_name().map(str::to_owned);
        if let Some(named) = named.filter(|named| Host::parse(named).ok().as_ref() != Some(&host)) {
            let why = format!("TLS names the host {}, and the connection is one to {host}", named.escape_debug());
            self.record(&format!("{host}:{port}"), &guest, "CONNECT", "/", &Refused::always(why));
            return Ok(());
        }
        let config = self.means.authority.poses_as(&host.to_string())?;
        let stream = tokio::time::timeout(HANDSHAKE, accepted.into_stream(config)).await??;
        let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        connection(true, false).speak(stream, two).await
    }

    fn roots(&self) -> Result<&Roots, Closed> {
        if let Some(roots) = self.roots.get() {
            return Ok(roots);
        }
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(trust::system());
        store.add_parsable_certificates(self.means.extra.iter().cloned());
        let config = |protocols: &[&[u8]]| -> Result<Arc<ClientConfig>, Closed> {
            let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| Closed::Failed(error.to_string()))?;
            let mut config = builder.with_root_certificates(store.clone()).with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Ok(Arc::new(config))
        };
        let roots = Roots { both: config(&[b"h2", b"http/1.1"])?, only_one: config(&[b"http/1.1"])? };
        Ok(self.roots.get_or_init(|| roots))
    }

    /// Records a refused request, in the report and in the audit trail.
    fn record(&self, named: &str, guest: &Guest, method: &str, path: &str, refused: &Refused) {
        let Refused { why, allow_with } = refused;
        // A placeholder in a path would otherwise be in the report and the trail.
        let path = if self.secrets.sent_in(path.as_bytes()).is_some() { "(placeholder)" } else { path };
        let no = No { why: why.clone(), allow_with: allow_with.clone(), host: None };
        self.gate.record_request(named, &no, guest, method, path);
        let _ = self.note(false, named, guest, method, path, Some(why));
    }

    fn note(
        &self,
        allowed: bool,
        named: &str,
        guest: &Guest,
        method: &str,
        path: &str,
        why: Option<&str>,
    ) -> Result<(), String> {
        let Some(audit) = &self.audit else { return Ok(()) };
        let entry = Entry::decided(Kind::Http, allowed).with("host", named).with("method", method).with("path", path);
        let entry = entry.with("rule", why).with("pid", guest.pid).with("comm", guest.comm.as_str());
        audit.note(entry).map_err(|error| error.to_string())
    }
}

impl Connection {
    fn shown(&self) -> String {
        match &self.way {
            Way::Tunnel(upstream) => format!("{}:{}", upstream.host, upstream.port),
            Way::Proxy(_) => "the proxy".to_owned(),
        }
    }

    /// Speaks HTTP with the client until the connection ends.
    async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        two: bool,
    ) -> io::Result<()> {
        let io = TokioIo::new(Tap::new(stream, !two, self.shared.clone()));
        let service = service_fn({
            let connection = self.clone();
            move |request| serve::serve(connection.clone(), request)
        });
        if two {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(100).max_header_list_size(64 * 1024);
            builder
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(1 << 20)
                .max_send_buf_size(256 * 1024);
            builder.keep_alive_interval(Duration::from_secs(30)).keep_alive_timeout(Duration::from_secs(30));
            return builder.serve_connection(io, service).await.map_err(io::Error::other);
        }
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(tap::SILENCE).max_headers(200).max_buf_size(128 * 1024);
        let mut served = builder.serve_connection(io, service).with_upgrades();
        let ended = std::future::poll_fn(|context| std::pin::Pin::new(&mut served).poll(context)).await;
        let Some(why) = self.shared.ambiguous.get() else { return ended.map_err(io::Error::other) };
        self.inspector.record(&self.shown(), &self.guest, "", "", &Refused::always(*why));
        Ok(())
    }
}

/// A client's stream, with bytes that were read before.
struct Early {
    early: Vec<u8>,
    at: usize,
    stream: TcpStream,
}

impl Early {
    /// The next byte, which stays to be read; `None` at the end.
    async fn first(&mut self) -> io::Result<Option<u8>> {
        if self.early.is_empty() && !self.more().await? {
            return Ok(None);
        }
        Ok(self.early.first().copied())
    }

    async fn more(&mut self) -> io::Result<bool> {
        let mut block = [0u8; 4096];
        let count = self.stream.read(&mut block).await?;
        self.early.extend_from_slice(block.get(..count).unwrap_or_default());
        Ok(count > 0)
    }

    async fn starts_with(&mut self, text: &[u8]) -> io::Result<bool> {
        while self.early.len() < text.len() && text.starts_with(&self.early) && self.more().await? {}
        Ok(self.early.starts_with(text))
    }
}

impl AsyncRead for Early {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let this = &mut *self;
        let left = this.early.get(this.at..).unwrap_or_default();
        if left.is_empty() {
            return std::pin::Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(left.get(..count).unwrap_or_default());
        this.at += count;
        std::task::Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Early {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
