//! Copies bytes in both directions between a client and its host, on one thread. Each direction has its own filter,
//! which decides what passes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The filter of one direction.
pub trait Pass {
    /// Takes bytes and appends those that pass to `out`. `false`: drop everything that follows.
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<bool>;
}

/// Passes everything.
pub struct All;

impl Pass for All {
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        out.extend_from_slice(bytes);
        Ok(true)
    }
}

const BLOCK: usize = 32 * 1024;

/// How long a half-closed connection may be silent in its other direction. More than the 120 s between two of TCP's
/// zero-window probes: a host may be silent for that long after a slow client has gone on reading.
const HALF_CLOSED: Duration = Duration::from_secs(300);

/// One direction.
struct Way<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    filter: &'a mut dyn Pass,
    /// Bytes that passed the filter and are not written yet.
    pending: Vec<u8>,
    /// Whether the filter wants more bytes.
    wants: bool,
    /// Whether `from` has reached its end.
    ended: bool,
    /// Whether the end was passed on to `to`, after everything before it.
    shut: bool,
}

/// Copies until the host has closed its side and everything it sent is delivered; with `until_both`, until the client
/// has closed its side, too. `early` are bytes of the client that were read before.
///
/// A half-closed connection goes on in the other direction until that is silent for `HALF_CLOSED`. Without a limit, a
/// client that is gone and a host that never closes would occupy the proxy for ever.
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
    carry(&mut ways, until_both, HALF_CLOSED)
}

fn carry(ways: &mut [Way<'_>; 2], until_both: bool, silence: Duration) -> io::Result<()> {
    loop {
        ways.iter_mut().try_for_each(Way::step)?;
        let [up, down] = &*ways;
        if down.shut && (up.shut || !until_both) {
            return Ok(());
        }
        // A client that has closed its side may read the answer as slowly as it likes; the host may not be slow to send
        // it.
        let half_closed = down.shut || up.shut && down.pending.is_empty();
        wait(ways, half_closed.then_some(silence))?;
    }
}

impl Way<'_> {
    /// Copies as much as possible without blocking.
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
                // Dropped; only the end of the stream still matters.
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

/// Waits until a direction can go on; an error if that takes longer than `limit`.
fn wait(ways: &[Way<'_>; 2], limit: Option<Duration>) -> io::Result<()> {
    let [up, down] = ways;
    let flags = |read: bool, write: bool| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, read);
        flags.set(PollFlags::OUT, write);
        flags
    };
    let client = flags(up.reads(), !down.pending.is_empty());
    let host = flags(down.reads(), !up.pending.is_empty());
    // Do not watch a side that has closed while its last bytes are still pending: it would be ready for ever.
    let sides =
        [(up, client), (down, host)].into_iter().filter(|(way, asked)| !asked.is_empty() || way.pending.is_empty());
    let (mut polled, asked): (Vec<_>, Vec<_>) = sides.map(|(way, asked)| (PollFd::new(way.from, asked), asked)).unzip();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut polled, limit.as_ref()) {
        Ok(0) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // The next read or write on a broken connection returns its error. If none is due on it, end here.
    let broken = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP);
    match polled.iter().zip(asked).any(|(fd, asked)| asked.is_empty() && broken(fd)) {
        true => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    use std::net::TcpListener;
    use std::thread;

    /// Well above the delays of a busy machine.
    const LIMIT: Duration = Duration::from_secs(1);

    /// Both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let one = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
        (one, listener.accept().expect("connected").0)
    }

    /// Carries between two connections on a thread. Returns the client's and the host's end, and the thread.
    fn carried(until_both: bool) -> (TcpStream, TcpStream, thread::JoinHandle<io::Result<()>>) {
        let ((client, near), (far, host)) = (pair(), pair());
        set_socket_recv_buffer_size(&client, 4096).expect("open");
        set_socket_send_buffer_size(&near, 4096).expect("open");
        let carrying = thread::spawn(move || {
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            let (mut up, mut down) = (All, All);
            let way = |from, to, filter| Way {
                from,
                to,
                filter,
                pending: Vec::new(),
                wants: true,
                ended: false,
                shut: false,
            };
            carry(&mut [way(&near, &far, &mut up), way(&far, &near, &mut down)], until_both, LIMIT)
        });
        (client, host, carrying)
    }

    #[test]
    fn a_client_that_closed_its_side_still_gets_the_answer() {
        for until_both in [true, false] {
            let (mut client, mut host, carrying) = carried(until_both);
            client.write_all(b"question").expect("open");
            client.shutdown(Shutdown::Write).expect("open");
            let mut asked = String::new();
            host.read_to_string(&mut asked).expect("open");
            for part in ["ans", "wer"] {
                thread::sleep(LIMIT / 2);
                host.write_all(part.as_bytes()).expect("open");
            }
            drop(host);
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("open");
            assert_eq!((asked.as_str(), answer.as_str()), ("question", "answer"));
            carrying.join().expect("no panic").expect("both have ended");
        }
    }

    #[test]
    fn a_half_closed_connection_that_is_silent_ends() {
        for close_client in [true, false] {
            let (client, host, carrying) = carried(true);
            let (closed, mut waiting) = if close_client { (client, host) } else { (host, client) };
            closed.shutdown(Shutdown::Write).expect("open");
            let ended = carrying.join().expect("no panic").expect_err("nothing came");
            assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
            assert_eq!(waiting.read(&mut [0]).expect("closed in order"), 0);
        }
    }

    #[test]
    fn an_open_connection_may_be_silent() {
        let (client, mut host, carrying) = carried(true);
        thread::sleep(LIMIT * 2);
        assert!(!carrying.is_finished());
        host.write_all(b"x").expect("open");
        drop((client, host));
        let _ = carrying.join().expect("no panic");
    }

    #[test]
    fn a_client_that_died_ends_the_connection_at_once() {
        let (client, mut host, carrying) = carried(true);
        client.shutdown(Shutdown::Write).expect("open");
        assert_eq!(host.read(&mut [0]).expect("open"), 0);
        // Closing with unread data resets the connection.
        host.write_all(b"x").expect("open");
        while client.peek(&mut [0]).expect("open") == 0 {}
        drop(client);
        let ended = carrying.join().expect("no panic").expect_err("reset");
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_client_may_read_the_answer_late() {
        let (mut client, mut host, carrying) = carried(true);
        client.shutdown(Shutdown::Write).expect("open");
        // More than the client's connection holds (a window of 64 KiB and small buffers), so that a part is pending.
        let answer = vec![7u8; 4 * BLOCK];
        host.write_all(&answer).expect("room");
        drop(host);
        thread::sleep(LIMIT * 2);
        assert!(!carrying.is_finished());
        let mut read = Vec::new();
        client.read_to_end(&mut read).expect("open");
        assert!(read == answer, "{} bytes", read.len());
        carrying.join().expect("no panic").expect("both have ended");
    }
}
