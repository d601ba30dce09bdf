//! The messages of the gatekeeper inside bubblewrap, received on a thread for as long as it runs.

use crate::isolate::available::PATIENCE;
use crate::proxy::gate::Gate;
use crate::proxy::{Guests, Inspects, Proxy};
use crate::supervise::ending;
use crate::sys::message::{self, Message};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to do with the messages.
pub struct Listener {
    /// Our end of the socket.
    pub socket: OwnedFd,
    /// The guardian, which ends the tree if the inner gatekeeper does not start in time.
    pub tree: OwnedFd,
    /// The proxy's rules, if the policy lists hosts.
    pub gate: Option<(Arc<Gate>, Inspects)>,
    pub shares_terminal: bool,
    /// Whether a question on the terminal has stopped the command, rather than job control.
    pub stopped_to_ask: Option<Box<dyn Fn() -> bool + Send>>,
    /// When the run times out.
    pub until: Option<Instant>,
}

/// What the inner gatekeeper has sent.
#[derive(Default)]
pub struct Heard {
    /// It started, so bubblewrap works here.
    pub alive: bool,
    /// It did not start in time.
    pub late: bool,
    /// The proxy that serves its listening socket.
    pub proxy: Option<Proxy>,
}

impl Listener {
    /// Handles messages until the inner gatekeeper closes its end.
    pub fn listen(mut self) -> Heard {
        let mut heard = Heard::default();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = (!heard.alive).then(|| timespec(left));
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], wait.as_ref()) {
                Ok(0) if !heard.alive && left.is_zero() => {
                    heard.late = true;
                    let _ = message::send(self.tree.as_fd(), &Message { kind: Message::KILL, ..Message::default() });
                    // Ignore later messages: the guardian is ending the tree that sends them.
                    return heard;
                }
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return heard,
            }
            match message::receive(self.socket.as_fd()) {
                Ok(Some((message, descriptor))) => self.handle(&message, descriptor, &mut heard),
                Ok(None) | Err(_) => return heard,
            }
        }
    }

    fn handle(&mut self, message: &Message, descriptor: Option<OwnedFd>, heard: &mut Heard) {
        match (message.kind, descriptor) {
            (Message::ALIVE, _) => heard.alive = true,
            (Message::LISTENER, Some(listener)) => {
                // It listens in the command's network namespace, so only the command can connect to it.
                let serve = |(gate, inspects)| Proxy::start(listener.into(), gate, Guests::Everybody, inspects).ok();
                heard.proxy = self.gate.take().and_then(serve);
            }
            (Message::STOPPED, _) if self.stopped_to_ask.as_ref().is_some_and(|stopped| stopped()) => {}
            (Message::STOPPED, _) if self.shares_terminal => ending::stop_with(0, self.until),
            _ => {}
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}
