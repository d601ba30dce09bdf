//! Bytes in both directions between a client and its host, on one thread, until both have ended. What passes is
//! decided by one filter for each direction; a filter never sees the other's bytes.

use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// What becomes of the bytes of one direction.
pub trait Pass {
    /// Takes bytes and appends what is passed on. `false`: nothing more is wanted from this side.
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<bool>;
}

/// Everything, to the end.
pub struct All;

impl Pass for All {
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        out.extend_from_slice(bytes);
        Ok(true)
    }
}

const BLOCK: usize = 32 * 1024;

struct Way<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    filter: &'a mut dyn Pass,
    pending: Vec<u8>,
    wants: bool,
    ended: bool,
    shut: bool,
}

/// Pumps until the host has ended and everything of it is delivered; `until_both`: and the client has, too.
pub fn pump(
    client: &TcpStream,
    host: &TcpStream,
    up: &mut dyn Pass,
    down: &mut dyn Pass,
    early: &[u8],
    until_both: bool,
) -> io::Result<()> {
    client.set_nonblocking(true)?;
    host.set_nonblocking(true)?;
    let way = |from, to, filter| Way { from, to, filter, pending: Vec::new(), wants: true, ended: false, shut: false };
    let mut ways = [way(client, host, up), way(host, client, down)];
    let [up, _] = &mut ways;
    up.wants = up.filter.pass(early, &mut up.pending)?;
    loop {
        ways.iter_mut().try_for_each(Way::step)?;
        let [up, down] = &ways;
        if down.shut && (up.shut || !until_both) {
            return Ok(());
        }
        wait(&ways)?;
    }
}

impl Way<'_> {
    /// Moves what can be moved without waiting.
    fn step(&mut self) -> io::Result<()> {
        let mut block = [0u8; BLOCK];
        loop {
            while !self.pending.is_empty() {
                match self.to.write(&self.pending) {
                    Ok(written) => drop(self.pending.drain(..written)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if self.ended {
                if !self.shut {
                    self.shut = true;
                    let _ = self.to.shutdown(Shutdown::Write);
                }
                return Ok(());
            }
            match self.from.read(&mut block) {
                Ok(0) => self.ended = true,
                // What it still sends is not wanted; its end is.
                Ok(_) if !self.wants => {}
                Ok(read) => self.wants = self.filter.pass(&block[..read], &mut self.pending)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn reads(&self) -> bool {
        !self.ended && self.pending.is_empty()
    }
}

fn wait(ways: &[Way<'_>; 2]) -> io::Result<()> {
    let [up, down] = ways;
    let flags = |read: bool, write: bool| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, read);
        flags.set(PollFlags::OUT, write);
        flags
    };
    let client = flags(up.reads(), !down.pending.is_empty());
    let host = flags(down.reads(), !up.pending.is_empty());
    let mut polled = [PollFd::new(up.from, client), PollFd::new(down.from, host)];
    match poll(&mut polled, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // An error or a full close shows in the next read or write of the side that has one to make; with none, it is the end.
    let dead = |fd: &PollFd<'_>, asked: PollFlags| {
        fd.revents().intersects(PollFlags::ERR | PollFlags::HUP) && asked.is_empty()
    };
    if dead(&polled[0], client) || dead(&polled[1], host) {
        return Err(io::Error::from(io::ErrorKind::ConnectionReset));
    }
    Ok(())
}
