//! The gatekeeper outside of bubblewrap asks about calls of a program inside, and carries out what is approved.
//!
//! It gets the seccomp listener, and for each call a descriptor of the process that makes it. Paths are read from that process
//! and resolved here, through this gatekeeper's own mounts: what the question shows is what was found here, and what is
//! opened is that. Nothing that the gatekeeper inside says grants anything.

use super::hub::Hub;
use super::pending::Refusal;
use super::relay::{CALL, DONE, LENGTH, LISTENER, REFUSE, STARTED, decoded};
use super::view::Eyes;
use super::{Asker, Asking, Look};
use crate::supervise::clerk::Desk;
use crate::supervise::connect::{self, Connect, Connection, Instead, Refused};
use crate::supervise::decode::address::{Peer, read};
use crate::supervise::judge::Judge;
use crate::supervise::status::Status;
use crate::supervise::target::Target;
use crate::supervise::{metadata, tree};
use crate::sys::message::receive_rights;
use crate::sys::notify::{self, Call};
use crate::sys::signals;
use rustix::fs::FileType;
use rustix::net::{RecvFlags, SendFlags};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

/// A call that was sent out. Dropped, it says that nothing more has to be done about it.
pub struct Sent {
    socket: Arc<OwnedFd>,
    id: u64,
    kind: u8,
}

impl Sent {
    /// Has the gatekeeper inside refuse it.
    pub(super) fn refuse(mut self) {
        self.kind = REFUSE;
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let mut answer = [self.kind; 9];
        answer.iter_mut().skip(1).zip(self.id.to_ne_bytes()).for_each(|(to, from)| *to = from);
        // If the gatekeeper inside is gone, so is the program.
        let _ = rustix::net::send(&*self.socket, &answer, SendFlags::NOSIGNAL);
    }
}

/// The guardian of the command inside, as this process numbers it; 0 before it is known.
#[derive(Clone, Default)]
pub struct Guardian(Arc<AtomicI32>);

impl Guardian {
    /// Whether the command runs. A question on the terminal stops it and lets it go on.
    pub fn runs(&self) -> bool {
        let below = tree::sum(self.0.load(Ordering::SeqCst)).pids;
        below.first().is_some_and(|command| !tree::is_stopped(*command))
    }
}

/// Serves the gatekeeper inside until it closes its end.
pub fn serve(socket: OwnedFd, judge: Judge, hub: &Hub, guardian: &Guardian) {
    let _ = signals::block_all();
    let socket = Arc::new(socket);
    let until = judge.plan.policy.timeout.map(|timeout| Instant::now() + timeout);
    let (mut judge, mut desk) = (Some(judge), None);
    loop {
        let mut bytes = [0u8; LENGTH];
        let (read, [descriptor, ..]) = match receive_rights(socket.as_fd(), &mut bytes, RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok((0, _)) | Err(_) => return,
            Ok(received) => received,
        };
        match (bytes[0], descriptor) {
            (STARTED, Some(process)) => {
                if let Some([outer, _]) = numbers(&process) {
                    guardian.0.store(outer, Ordering::SeqCst);
                    hub.started(outer, until);
                }
            }
            (LISTENER, Some(listener)) if desk.is_none() => {
                desk = judge.take().and_then(|judge| Desk::new(judge, None, listener).ok()).map(Arc::new);
            }
            (CALL, process) if read == LENGTH => {
                let call = decoded(&bytes);
                let sent = Sent { socket: socket.clone(), id: call.id, kind: DONE };
                let found = process.and_then(|process| thread(&process, call.tid));
                match (&desk, found) {
                    (Some(desk), Some(tid)) => desk.ask_for(&Call { tid, ..call }, sent),
                    _ => sent.refuse(),
                }
            }
            _ => {}
        }
    }
}

/// The number of a process here, and that in the namespace one below, which is bubblewrap's.
fn numbers(process: &OwnedFd) -> Option<[i32; 2]> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next().filter(|outer| *outer > 0)?, numbers.next()?])
}

/// The thread of a process that has this number in bubblewrap's namespace, as numbered here.
fn thread(process: &OwnedFd, inner: i32) -> Option<i32> {
    let [outer, first] = numbers(process)?;
    if first == inner {
        return Some(outer);
    }
    let threads = fs::read_dir(format!("/proc/{outer}/task")).ok()?.flatten();
    let mut threads = threads.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |tid: &i32| {
        let second = |status: Status| status.words("NSpid").and_then(|mut words| words.nth(1)?.parse::<i32>().ok());
        Status::of(*tid).ok().and_then(second) == Some(inner)
    };
    threads.find(is_it)
}

impl Desk {
    /// Asks about a call of the gatekeeper inside, or leaves it to that one.
    fn ask_for(self: &Arc<Desk>, call: &Call, sent: Sent) {
        let Some(Asking::Here(asking)) = &self.judge.asking else { return sent.refuse() };
        let refusal = Refusal::Inside(sent);
        let asked = match i64::from(call.number) {
            libc::SYS_connect | libc::SYS_listen => self.ask_for_connection(call, asking, refusal),
            _ => self.ask_for_files(call, asking, refusal),
        };
        // An error means that the listener is gone, and the run with it.
        if let Ok(Some(refusal)) = asked {
            let _ = refusal.carry_out(self, call);
        }
    }

    fn ask_for_files(self: &Arc<Desk>, call: &Call, asking: &Asker, refusal: Refusal) -> io::Result<Option<Refusal>> {
        let target = Target { tid: call.tid };
        let eyes = Eyes { view: asking.view, target: &target };
        if let Ok((at, prepared)) = metadata::prepare_by(call, &target, &|at, path, follow| eyes.open(at, path, follow))
        {
            return match notify::still_waits(self.listener.as_fd(), call.id) {
                true => self.asks_prepared(call, asking, at, prepared, refusal),
                false => Ok(Some(refusal)),
            };
        }
        match self.look(call, asking) {
            Ok(Look::Asks { parts, action }) => self.ask_parts(call, asking, parts, action, |_| refusal).map(|()| None),
            _ => Ok(Some(refusal)),
        }
    }

    fn ask_for_connection(
        self: &Arc<Desk>,
        call: &Call,
        asking: &Asker,
        refusal: Refusal,
    ) -> io::Result<Option<Refusal>> {
        let target = Target { tid: call.tid };
        let waits = || notify::still_waits(self.listener.as_fd(), call.id);
        let connects = i64::from(call.number) == libc::SYS_connect;
        let path = connects.then(|| read(&target, call.args[1], call.args[2])).flatten();
        let refused = match path.as_ref().and_then(Peer::path) {
            Some(path) => socket_file(call, &target, asking, path).ok(),
            // Its network is another one, where no address of this machine can be reached.
            None if self.judge.reach.own_network => None,
            None => match connect::judge(call, &self.judge.reach, &waits) {
                Connect::Refused(refused) => Some(*refused),
                _ => None,
            },
        };
        let Some(mut refused) = refused.filter(|_| waits()) else { return Ok(Some(refusal)) };
        match refused.instead.take() {
            Some(instead) => self.asks_connection(call, asking, &refused, instead, refusal),
            None => Ok(Some(refusal)),
        }
    }
}

/// A connection to a socket file, as it is found outside.
fn socket_file(call: &Call, target: &Target, asking: &Asker, path: &Path) -> io::Result<Refused> {
    let file = Eyes { view: asking.view, target }.open(libc::AT_FDCWD, path, true)?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_socket() {
        return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
    }
    let at = crate::trust::place(&file)?;
    if connect::is_name_service(&at) {
        return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
    }
    let socket = target.descriptor(call.args[0] as i32)?;
    let instead = Some(Instead::Connect(Connection::to_file(socket, file)));
    Ok(Refused { path: Some(at), host: None, instead })
}
