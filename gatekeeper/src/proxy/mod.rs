//! The proxy by which a command with a list of hosts reaches them, and nothing else.
//!
//! Runs on threads of the front process, outside of every confinement, so that when that process dies there is no proxy
//! any more and the command, which has no other way out, is ended with it. Started only where a policy lists hosts.

pub mod address;
pub mod allow;
pub mod gate;
pub mod http;
pub mod pump;
pub mod resolve;
pub mod socks;
pub mod variables;

use gate::{Gate, Guest, Refusal};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Connections served at once; the next ones wait to be accepted.
const MOST_AT_ONCE: usize = 400;
/// A client that says nothing for so long is not waited for.
const SILENCE: Duration = Duration::from_secs(60);
const STACK: usize = 256 * 1024;

/// Who may come in.
#[derive(Clone)]
pub enum Guests {
    /// Whoever can reach the port: it is in a network namespace of the command's own.
    Everybody,
    /// Only connections that the supervisor made, known by where they come from.
    Known(Door),
}

/// Connections that the supervisor is about to make. Others on this machine who find the port are not let in.
#[derive(Clone, Default)]
pub struct Door(Arc<Mutex<HashMap<SocketAddr, Guest>>>);

impl Door {
    pub fn announce(&self, from: SocketAddr, guest: Guest) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(from, guest);
    }

    /// It did not come to it.
    pub fn withdraw(&self, from: SocketAddr) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&from);
    }

    /// One announcement lets one connection in.
    fn enter(&self, from: SocketAddr) -> Option<Guest> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&from)
    }
}

/// A proxy that serves until it is dropped.
pub struct Proxy {
    gate: Arc<Gate>,
    stop: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A port of this machine's own, which nobody else can have.
pub fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Proxy {
    /// Serves whoever comes to this listener, wherever that listens.
    pub fn start(listener: TcpListener, gate: Gate, guests: Guests) -> io::Result<Proxy> {
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        listener.set_nonblocking(true)?;
        let gate = Arc::new(gate);
        let serving = gate.clone();
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

/// How long a proxy without a free place takes at most to see that it is to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Room for so many at once.
struct Room(Mutex<usize>, Condvar);

impl Room {
    /// Waits for a place; `false` where the proxy is to stop first. Connections may stay open for as long as a host likes.
    fn enter(&self, stopped: &OwnedFd) -> bool {
        let mut free = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while *free == 0 {
            let waited = self.1.wait_timeout(free, LOOK_AGAIN).unwrap_or_else(|poisoned| poisoned.into_inner());
            free = waited.0;
            let mut polled = [PollFd::new(stopped, PollFlags::IN)];
            let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            if *free == 0 && poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0) {
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

fn accept(listener: &TcpListener, stopped: &OwnedFd, gate: &Arc<Gate>, guests: &Guests) {
    let room = Arc::new(Room(Mutex::new(MOST_AT_ONCE), Condvar::new()));
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let waited = poll(&mut polled, None);
        if !polled[1].revents().is_empty() || waited.is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        let Ok((client, peer)) = listener.accept() else {
            // Out of descriptors: some connection has to end first.
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let guest = match guests {
            Guests::Everybody => Some(Guest::default()),
            Guests::Known(door) => door.enter(peer),
        };
        let Some(guest) = guest else { continue };
        if !room.enter(stopped) {
            return;
        }
        let (gate, left) = (gate.clone(), room.clone());
        let served = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            // A connection that breaks off is the client's and the host's affair.
            let _ = serve(&client, &gate, &guest);
            left.leave();
        });
        if served.is_err() {
            room.leave();
        }
    }
}

fn serve(mut client: &TcpStream, gate: &Gate, guest: &Guest) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(SILENCE))?;
    client.set_nodelay(true)?;
    let mut first = [0u8; 1];
    client.read_exact(&mut first)?;
    match first {
        [5] => socks::serve(client, gate, guest),
        _ => http::serve(client, first.to_vec(), gate, guest),
    }
}
