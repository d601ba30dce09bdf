//! The sockets: 127.0.0.1 or a UNIX socket, and nothing else. A client that is slow to send its request or to take the
//! answer, or that opens too many connections, loses them.

use super::patient::{PATIENCE, Patient};
use super::visitors::{MOST, Met, Visitors};
use axum::Router;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::Mode;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The time for the head of a request.
const HEAD: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let wrong = || format!("{text:?}: write 127.0.0.1:PORT or unix:FILE");
        let at: SocketAddrV4 = text.replace("localhost:", "127.0.0.1:").parse().map_err(|_| wrong())?;
        match *at.ip() == Ipv4Addr::LOCALHOST {
            true => Ok(Address::Tcp(at.into())),
            false => Err(format!("{text:?}: gatekeeperd serves this machine only; put a proxy with TLS before it")),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(at) => write!(f, "http://{at}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(at) => Ok(Listener::Tcp(TcpListener::bind(at).await?)),
            Address::Unix(path) => {
                // The socket of a daemon that was killed is still there; one that answers belongs to a running daemon.
                let left = std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
                if left && tokio::net::UnixStream::connect(path).await.is_err() {
                    std::fs::remove_file(path)?;
                }
                // The socket must not exist for a moment with more permissions than it should have.
                let before = rustix::process::umask(Mode::from_raw_mode(0o177));
                let listener = UnixListener::bind(path);
                rustix::process::umask(before);
                let listener = listener?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                Ok(Listener::Unix(listener, path.clone()))
            }
        }
    }

    /// The real address, with the port that the kernel chose if 0 was asked for.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?)),
            Listener::Unix(_, path) => Ok(Address::Unix(path.clone())),
        }
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(self, router: Router, mut stop: watch::Receiver<bool>) {
        let (slots, visitors) = (Arc::new(Semaphore::new(MOST)), Arc::<Visitors>::default());
        loop {
            let accepted = tokio::select! {
                accepted = self.accept() => accepted,
                () = stopped(&mut stop) => break,
            };
            // Out of descriptors, for example: those who are connected may end meanwhile.
            let Ok(stream) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if slots.available_permits() == 0 {
                visitors.make_room();
            }
            let slot = tokio::select! {
                slot = Arc::clone(&slots).acquire_owned() => slot,
                () = stopped(&mut stop) => break,
            };
            let Ok(slot) = slot else { break };
            let met = Met::new(visitors.enter());
            tokio::spawn(connection(stream, router.clone(), met, slot, stop.clone()));
        }
        if let Listener::Unix(_, path) = &self {
            let _ = std::fs::remove_file(path);
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            Listener::Unix(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn connection(
    stream: Box<dyn Stream>,
    router: Router,
    met: Met,
    _slot: OwnedSemaphorePermit,
    mut stop: watch::Receiver<bool>,
) {
    let (router, known) = (TowerToHyperService::new(router), met.clone());
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(known.clone());
        router.call(request)
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), service);
    tokio::pin!(served);
    tokio::select! {
        _ = served.as_mut() => {}
        () = met.visitor().leaves() => {}
        () = stopped(&mut stop) => {
            served.as_mut().graceful_shutdown();
            // A stream of pictures never ends by itself.
            let _ = tokio::time::timeout(Duration::from_secs(2), served).await;
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender is gone only if the daemon ends.
    let _ = stop.wait_for(|stop| *stop).await;
}
