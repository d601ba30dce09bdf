//! The proxy through which a command reaches the hosts that its policy lists, and no others.
//!
//! It runs on threads of the front process, outside the sandbox, and only if the policy lists hosts. If the front
//! process dies, so does the proxy; the command has no other route to the network, and is killed as well.

pub mod address;
pub mod allow;
mod door;
pub mod gate;
pub mod http;
#[cfg(feature = "http")]
pub mod inspect;
mod listens;
pub mod path;
pub mod pump;
pub mod resolve;
pub mod rules;
#[cfg(feature = "http")]
pub mod secrets;
pub mod socks;
pub mod variables;

pub use door::Door;
pub use listens::Listens;

use gate::{Gate, Guest, Refusal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Connections served at once. Further ones wait in the accept queue.
const MOST_AT_ONCE: usize = 256;
/// How long a client may take to say what it wants.
const SILENCE: Duration = Duration::from_secs(60);
const STACK: usize = 256 * 1024;

/// Which connections the proxy serves.
#[derive(Clone)]
pub enum Guests {
    /// All: the port is in the command's private network namespace.
    Everybody,
    /// Those that the supervisor has announced: every process of this machine can reach the port.
    Known(Door),
}

impl Guests {
    /// The client at the other end of a connection, if it is served.
    fn admit(&self, peer: SocketAddr) -> Option<Guest> {
        match self {
            Guests::Everybody => Some(Guest::default()),
            Guests::Known(door) => door.enter(peer),
        }
    }

    /// Connections have waited in the accept queue for so long, because the proxy accepted none.
    fn paused(&self, time: Duration) {
        if let Guests::Known(door) = self {
            door.paused(time);
        }
    }
}

/// What looks into requests, if the policy has rules for them.
#[cfg(feature = "http")]
pub type Inspects = Option<Arc<inspect::Inspector>>;
/// This build cannot look into requests. A policy with rules for them is refused before it comes to this.
#[cfg(not(feature = "http"))]
pub type Inspects = Option<Arc<std::convert::Infallible>>;

/// A proxy that serves until it is dropped.
pub struct Proxy {
    gate: Arc<Gate>,
    stop: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Listens on a free port of 127.0.0.1.
pub fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Proxy {
    /// Starts serving the connections of this listener, which may be in another network namespace.
    pub fn start(listener: TcpListener, gate: Arc<Gate>, guests: Guests, inspects: Inspects) -> io::Result<Proxy> {
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        listener.set_nonblocking(true)?;
        let serving = Served { gate: gate.clone(), inspects };
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .stack_size(STACK)
            .spawn(move || accept(&listener, &stopped, &serving, &guests))?;
        Ok(Proxy { gate, stop: Some(stop), thread: Some(thread) })
    }

    pub fn refusals(&self) -> (Vec<Refusal>, u64) {
        self.gate.refusals()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How often a proxy with no free place checks whether it has to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What connections are served with.
#[derive(Clone)]
struct Served {
    gate: Arc<Gate>,
    inspects: Inspects,
}

/// The free places for connections.
struct Room(Mutex<usize>, Condvar);

/// One place, which is free again once this is dropped.
pub struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Room {
    /// Waits for a free place; `false` if the proxy has to stop first. A connection may keep its place for any time.
    fn enter(&self, stopped: &OwnedFd) -> bool {
        let mut free = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while *free == 0 {
            let waited = self.1.wait_timeout(free, LOOK_AGAIN).unwrap_or_else(|poisoned| poisoned.into_inner());
            free = waited.0;
            let mut polled = [PollFd::new(stopped, PollFlags::IN)];
            if *free == 0 && poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
                return false;
            }
        }
        *free -= 1;
        true
    }

    fn leave(&self) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 1;
        self.1.notify_one();
    }
}

fn accept(listener: &TcpListener, stopped: &OwnedFd, served: &Served, guests: &Guests) {
    let room = Arc::new(Room(Mutex::new(MOST_AT_ONCE), Condvar::new()));
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let waited = poll(&mut polled, None);
        if !polled[1].revents().is_empty() || waited.is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        let paused = Instant::now();
        let Ok((client, peer)) = listener.accept() else {
            // Out of descriptors: a connection has to end first.
            std::thread::sleep(Duration::from_millis(5));
            guests.paused(paused.elapsed());
            continue;
        };
        let Some(guest) = guests.admit(peer) else { continue };
        if !room.enter(stopped) {
            return;
        }
        guests.paused(paused.elapsed());
        serve_on_thread(client, guest, served, Place(room.clone()));
    }
}

fn serve_on_thread(client: TcpStream, guest: Guest, served: &Served, place: Place) {
    let served = served.clone();
    // Without a thread, the connection is closed and its place is free again.
    let _ = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        // A connection that breaks off concerns only its client and its host.
        let _ = serve(client, &served, guest, place);
    });
}

fn serve(client: TcpStream, served: &Served, guest: Guest, place: Place) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let until = Instant::now() + SILENCE;
    let mut first = [0u8; 1];
    Patient { client: &client, until }.read_exact(&mut first)?;
    let visit = Visit { client, until, gate: &served.gate, inspects: &served.inspects, guest, place };
    match first {
        [5] => socks::serve(visit),
        _ => http::serve(visit, first.to_vec()),
    }
}

/// A client that has to finish what it says by a point in time, however many pieces it sends it in.
pub struct Patient<'a> {
    pub client: &'a TcpStream,
    pub until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        self.client.set_read_timeout(Some(left))?;
        self.client.read(buffer)
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.client.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.client.flush()
    }
}

/// One connection of a client, and what it is served with.
pub struct Visit<'a> {
    pub client: TcpStream,
    /// When the client has to have said what it wants.
    pub until: Instant,
    pub gate: &'a Gate,
    pub inspects: &'a Inspects,
    pub guest: Guest,
    pub place: Place,
}

impl Visit<'_> {
    /// Whether requests to this host are looked into.
    fn is_inspected(&self, host: &str, port: u16) -> bool {
        #[cfg(feature = "http")]
        return self.inspects.as_ref().is_some_and(|inspects| inspects.opens(host, port));
        #[cfg(not(feature = "http"))]
        return self.inspects.is_some() && host.len() + usize::from(port) > 0;
    }

    /// Hands a tunnel over to what looks into requests.
    fn inspect_tunnel(self, early: Vec<u8>, host: &str, port: u16) -> io::Result<()> {
        #[cfg(feature = "http")]
        if let Some(inspects) = self.inspects {
            return inspects.tunnel(self.client, early, host, port, self.guest, self.place);
        }
        Err(io::Error::other(format!("{host}:{port} {early:?}")))
    }

    /// Hands plain requests over, if there is something that looks into them.
    fn inspect_requests(self, early: Vec<u8>) -> io::Result<()> {
        #[cfg(feature = "http")]
        if let Some(inspects) = self.inspects {
            return inspects.proxy(self.client, early, self.guest, self.place);
        }
        Err(io::Error::other(format!("{early:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_sends_byte_by_byte_is_not_waited_for() {
        let (listener, address) = listen().expect("loopback");
        let mut sender = TcpStream::connect(address).expect("loopback");
        let (client, _) = listener.accept().expect("connected");
        let sending = std::thread::spawn(move || {
            while sender.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let mut patient = Patient { client: &client, until: began + Duration::from_millis(300) };
        let ended = loop {
            match patient.read(&mut [0u8; 16]) {
                Ok(count) => assert!(count > 0, "it goes on sending"),
                Err(error) => break error,
            }
        };
        assert!(matches!(ended.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{ended}");
        assert!(began.elapsed() >= Duration::from_millis(300));
        drop(client);
        sending.join().expect("no panic");
    }
}
