//! The gatekeeper inside bubblewrap sends a refused call to the one outside, and refuses it if that one does not carry it out.
//!
//! Inside, everything outside of the writable trees is mounted read-only or not at all, so nothing could be carried out here. The
//! gatekeeper outside gets the seccomp listener and a descriptor of the calling process, reads the call itself, asks, and
//! answers the program through the listener.

use super::place::Located;
use super::view::{Eyes, View};
use crate::plan::table::Decision as Ruled;
use crate::report::Denial;
use crate::supervise::clerk::Desk;
use crate::supervise::files::Does;
use crate::supervise::target::Target;
use crate::sys::message::{receive_rights, send_rights};
use crate::sys::notify::{Answer, Call};
use crate::sys::{process, signals};
use rustix::net::RecvFlags;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// The first byte of a message to the gatekeeper outside.
pub(super) const STARTED: u8 = 1;
pub(super) const LISTENER: u8 = 2;
pub(super) const CALL: u8 = 3;
/// The first byte of its answer: it carried the call out, or the call ended; or refuse it.
pub(super) const DONE: u8 = 4;
pub(super) const REFUSE: u8 = 5;
/// The length of a call on the wire: kind, id, thread, number and six arguments.
pub(super) const LENGTH: usize = 1 + 8 + 4 + 4 + 6 * 8;

/// What to do with a call that the gatekeeper outside does not carry out: the same as without asking.
pub enum Otherwise {
    /// Left to the kernel, which refuses it or finds nothing.
    Continue,
    Answer(Answer),
    Path(Box<Denial>),
    Deny {
        ruled: Ruled,
        path: Option<PathBuf>,
        host: Option<String>,
    },
}

impl Otherwise {
    fn carry_out(self, desk: &Desk, call: &Call) -> io::Result<()> {
        match self {
            Otherwise::Continue => {
                desk.note(call, None)?;
                desk.answer(call, Answer::Continue).map(drop)
            }
            Otherwise::Answer(answer) => desk.answer(call, answer).map(drop),
            Otherwise::Path(denial) => desk.refuse_path(call, *denial),
            Otherwise::Deny { ruled, path, host } => desk.deny_found(call, ruled, path, host),
        }
    }
}

#[derive(Clone)]
pub struct Relay(Arc<Shared>);

struct Shared {
    socket: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    has_listener: bool,
    closed: bool,
    waiting: HashMap<u64, (Arc<Desk>, Call, Otherwise)>,
}

impl Relay {
    /// Starts the thread that receives answers.
    pub fn start(socket: OwnedFd) -> io::Result<Relay> {
        let shared = Arc::new(Shared { socket, state: Mutex::default() });
        let receiving = shared.clone();
        let thread = std::thread::Builder::new().name("relay".to_owned()).stack_size(256 * 1024);
        thread.spawn(move || receiving.receive())?;
        Ok(Relay(shared))
    }

    /// The command runs below this process.
    pub fn started(&self, guardian: i32) -> io::Result<()> {
        let process = process::pidfd_open(guardian)?;
        Ok(send_rights(self.0.socket.as_fd(), &[STARTED], &[process.as_fd()])?)
    }

    /// Sends a call out. It waits until the gatekeeper outside has answered it, or says that it does not.
    pub(super) fn ask(&self, desk: &Arc<Desk>, call: &Call, otherwise: Otherwise) {
        self.0.state().waiting.insert(call.id, (desk.clone(), *call, otherwise));
        if self.0.send(desk, call).is_err() {
            self.0.refuse(call.id);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn send(&self, desk: &Desk, call: &Call) -> io::Result<()> {
        let mut state = self.state();
        if state.closed {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        }
        if !state.has_listener {
            send_rights(self.socket.as_fd(), &[LISTENER], &[desk.listener.as_fd()])?;
            state.has_listener = true;
        }
        drop(state);
        let process = process::pidfd_open(Target { tid: call.tid }.pid()?)?;
        Ok(send_rights(self.socket.as_fd(), &encoded(call), &[process.as_fd()])?)
    }

    fn refuse(&self, id: u64) {
        let waiting = self.state().waiting.remove(&id);
        if let Some((desk, call, otherwise)) = waiting {
            // An error means that the listener is gone, and the run with it.
            let _ = otherwise.carry_out(&desk, &call);
        }
    }

    fn receive(&self) {
        let _ = signals::block_all();
        let mut answer = [0u8; 9];
        loop {
            match receive_rights(self.socket.as_fd(), &mut answer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok((9, _)) => {}
                // The gatekeeper outside is gone.
                Ok(_) | Err(_) => break,
            }
            let [kind, id @ ..] = answer;
            match kind {
                REFUSE => self.refuse(u64::from_ne_bytes(id)),
                _ => drop(self.state().waiting.remove(&u64::from_ne_bytes(id))),
            }
        }
        let mut state = self.state();
        state.closed = true;
        let left: Vec<u64> = state.waiting.keys().copied().collect();
        drop(state);
        left.into_iter().for_each(|id| self.refuse(id));
    }
}

fn encoded(call: &Call) -> [u8; LENGTH] {
    let mut bytes = [CALL; LENGTH];
    let words = call.args.iter().flat_map(|word| word.to_ne_bytes());
    let all = call.id.to_ne_bytes().into_iter().chain(call.tid.to_ne_bytes()).chain(call.number.to_ne_bytes());
    bytes.iter_mut().skip(1).zip(all.chain(words)).for_each(|(to, from)| *to = from);
    bytes
}

/// The call, with the thread as the gatekeeper inside numbers it.
pub(super) fn decoded(bytes: &[u8; LENGTH]) -> Call {
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let half = |at: usize| i32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    Call { id: word(1), tid: half(9), number: half(13), args: std::array::from_fn(|at| word(17 + 8 * at)) }
}

impl Desk {
    /// A watched call: left to the kernel, unless a path layer refuses it or it names what is not mounted here.
    pub(super) fn watch_relaying(self: &Arc<Desk>, call: &Call, relay: &Relay) -> io::Result<()> {
        let otherwise = match self.foreseen(call) {
            Some(denial) => Otherwise::Path(Box::new(denial)),
            None if names_nothing(call) => Otherwise::Continue,
            None => return Otherwise::Continue.carry_out(self, call),
        };
        if matches!(i64::from(call.number), libc::SYS_execve | libc::SYS_execveat) {
            return otherwise.carry_out(self, call);
        }
        relay.ask(self, call, otherwise);
        Ok(())
    }

    /// A call of the supervisor's that failed because it names nothing here. `false`: answer it so.
    pub(in crate::supervise) fn asks_absent(self: &Arc<Desk>, call: &Call, answer: Answer) -> bool {
        match &self.judge.asking {
            Some(super::Asking::Outside(relay)) if answer == Answer::Errno(libc::ENOENT) => {
                relay.ask(self, call, Otherwise::Answer(answer));
                true
            }
            _ => false,
        }
    }
}

/// Whether a call names a file that does not exist for the program.
fn names_nothing(call: &Call) -> bool {
    let target = Target { tid: call.tid };
    let eyes = Eyes { view: View::Programs, target: &target };
    let is_absent = |named| match Located::find(named, &eyes) {
        Err(error) => error.raw_os_error() == Some(libc::ENOENT),
        Ok(file) => {
            matches!(file.named.does, Does::Remove | Does::Move | Does::Link | Does::Change) && file.kind().is_none()
        }
    };
    super::look::named(call, &target).is_ok_and(|all| all.into_iter().any(is_absent))
}
