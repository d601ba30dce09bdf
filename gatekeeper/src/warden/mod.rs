//! Starts commands without forking this process.
//!
//! A fork copies the page tables of its process: 8 ms for 200 MB, 34 ms for 1 GB, twice for each command. So a program that
//! embeds gatekeeper, `mcp` and `serve` start the *guardian program* once, from bytes that gatekeeper carries, by
//! posix_spawn, which copies nothing. That program is small. It forks one guardian for each command, from a letter
//! ([`crate::sys::letter`]) with everything that the command's process needs.
//!
//! What a command inherits from its parent (user, groups, capabilities, namespaces, limits, filters and so on) it now inherits
//! from that program. If this process has changed any of it since, another guardian program is started: see
//! `circumstances`.

mod circumstances;

use crate::sys::child::{Arguments, Launch};
use crate::sys::guardian::{self, Started};
use crate::sys::message::Message;
use crate::sys::progress::{Board, Progress};
use crate::sys::{letter, message, process};
use circumstances::Circumstances;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A guardian program that serves the thread that hired it, for one run.
pub struct Warden {
    program: Arc<Program>,
    /// The socket to a guardian that waits for its letter.
    waiting: Mutex<Option<OwnedFd>>,
}

/// A running guardian program. Closing the socket ends it, once the commands that it started have ended.
struct Program {
    control: OwnedFd,
    /// An eventfd that tells the program of a message. For a message alone the kernel may wake it on the processor of the sender, which it
    /// expects to sleep.
    bell: OwnedFd,
    pid: i32,
    since: Circumstances,
    number: u64,
    board: Arc<Board>,
}

/// The guardian program of this process, and the former ones that have not been reaped yet.
#[derive(Default)]
struct Office {
    current: Option<Arc<Program>>,
    children: Vec<Child>,
    /// The program cannot be started here, for example because memory files must not be executed.
    impossible: bool,
}

impl Office {
    /// Reaps the former programs that have ended. Each ends after its last command, which can be long after it was replaced.
    fn reap_former(&mut self) {
        if self.children.len() > 1 {
            self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        }
    }
}

static OFFICE: Mutex<Option<Office>> = Mutex::new(None);

/// How many were started.
static STARTED: AtomicU64 = AtomicU64::new(0);

static STEADY: AtomicBool = AtomicBool::new(false);

/// Promises that no thread of this process will change its user, groups, capabilities, namespaces or root, or restrict itself. Then not
/// all of it has to be read before each run.
pub fn stay_as_it_is() {
    STEADY.store(true, Ordering::Relaxed);
}

/// How long the program may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The guardian program for a command that this thread starts now. `None`: there is none on this machine, and the command has
/// to be forked from this process.
pub fn hire() -> Option<Arc<Warden>> {
    let mut office: MutexGuard<'_, Option<Office>> = OFFICE.lock().unwrap_or_else(PoisonError::into_inner);
    let office = office.get_or_insert_default();
    if office.impossible {
        return None;
    }
    office.reap_former();
    let now = office.current.as_ref().map_or_else(Circumstances::now, |current| current.circumstances()).ok()?;
    if let Some(current) = office.current.as_ref().filter(|current| current.serves(&now)) {
        return Some(hired(current));
    }
    office.current = None;
    office.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    match Program::start(now) {
        Ok((program, child)) => {
            office.children.push(child);
            office.current = Some(Arc::new(program));
            office.current.as_ref().map(hired)
        }
        Err(error) => {
            // Too few descriptors or processes: perhaps there are more at the next run.
            office.impossible =
                !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM));
            None
        }
    }
}

/// The guardian program that served this process last, if there is one. Nothing may be executed before [`Warden::serves`] was asked.
pub fn suppose() -> Option<Arc<Warden>> {
    let mut office = OFFICE.lock().unwrap_or_else(PoisonError::into_inner);
    let office = office.as_mut()?;
    office.reap_former();
    office.current.as_ref().map(hired)
}

fn hired(program: &Arc<Program>) -> Arc<Warden> {
    Arc::new(Warden { program: program.clone(), waiting: Mutex::default() })
}

/// The arguments of a command that [`start`] starts.
pub fn arguments(warden: Option<&Arc<Warden>>, argv: Vec<CString>, envp: Vec<CString>) -> io::Result<Arguments> {
    if warden.is_some() { Arguments::chosen(argv, envp) } else { Arguments::new(argv, envp) }
}

/// The page through which a command that [`start`] starts reports its progress.
pub fn progress(warden: Option<&Arc<Warden>>) -> io::Result<Progress> {
    warden.map_or_else(Progress::new, |warden| Progress::on(&warden.program.board))
}

/// Starts a command: by the guardian program for which the launch was prepared, or else by a fork of this process.
pub fn start(mut launch: Launch, warden: Option<Arc<Warden>>) -> io::Result<Started> {
    let Some(warden) = warden else { return guardian::start(launch) };
    let (setup, child_end) = message::pair()?;
    let mut program = warden.program.pid;
    let sent = |tree: OwnedFd, launch: &Launch| match letter::send(tree.as_fd(), launch, child_end.as_fd()) {
        Ok(()) => Ok(tree),
        Err(error) if has_closed(&error) => Err(refused(tree.as_fd()).unwrap_or(error)),
        Err(error) => Err(error),
    };
    let tree = match warden.guardian().and_then(|tree| sent(tree, &launch)) {
        // The program, or the guardian that waited, was killed since. No part of the command has started.
        Err(error) if has_closed(&error) => {
            let another = hire().ok_or_else(|| io::Error::other("the guardian program cannot be started again"))?;
            launch.progress = progress(Some(&another))?;
            program = another.program.pid;
            sent(another.guardian()?, &launch)?
        }
        other => other?,
    };
    let (progress, mounts) = (launch.progress, launch.mounts);
    Ok(Started { guardian: 0, is_child: false, program: Some(program), tree, setup, progress, mounts, spent: None })
}

/// Whether the other side of a socket has closed it.
fn has_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET))
}

/// Why the program has made no guardian, if it says so before it closes its end.
fn refused(tree: BorrowedFd<'_>) -> Option<io::Error> {
    let (message, _) = message::receive(tree).ok()??;
    (message.kind == Message::NOT_STARTED).then(|| io::Error::from_raw_os_error(message.a))
}

impl Warden {
    /// Different for each program that this process starts. While it stays the same, nothing has changed of what a command inherits.
    pub fn number(&self) -> u64 {
        self.program.number
    }

    /// Whether a command that this thread starts now inherits the same from the program as from this thread.
    pub fn serves(&self) -> bool {
        self.program.circumstances().is_ok_and(|now| self.program.serves(&now))
    }

    /// Asks for a guardian, which gets ready while the launch is prepared. If nothing is started, it ends with this value. A failure
    /// shows when the command is started.
    pub fn expect_launch(&self) {
        *self.waiting() = self.program.guardian().ok();
    }

    fn guardian(&self) -> io::Result<OwnedFd> {
        let waiting = self.waiting().take();
        waiting.map_or_else(|| self.program.guardian(), Ok)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program {
    fn start(since: Circumstances) -> io::Result<(Program, Child)> {
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "built without the guardian program");
        let program = executable(libsandbox_embed::GUARDIAN.ok_or_else(missing)?)?;
        let (control, theirs) = message::pair()?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (board, memory) = Board::new()?;
        // std uses posix_spawn for this, which neither copies memory nor runs atfork handlers.
        let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .arg0("gatekeeper-guardian")
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(memory))
            .stderr(Stdio::from(bell.try_clone()?))
            .spawn()?;
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let program = Program { control, bell, pid: child.id() as i32, since, number, board: Arc::new(board) };
        match program.has_started() && circumstances::may_look_into(program.pid) {
            true => Ok((program, child)),
            false => Err(io::Error::other("the guardian program did not start")),
        }
    }

    /// Waits for the program's first byte.
    fn has_started(&self) -> bool {
        let timeout = rustix::event::Timespec::try_from(PATIENCE).ok();
        let mut polled = [PollFd::new(&self.control, PollFlags::IN)];
        loop {
            match poll(&mut polled, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Ok(1) => return rustix::io::read(&self.control, &mut [0u8; 1]) == Ok(1),
                _ => return false,
            }
        }
    }

    /// The state of this thread now, to be compared with that at the start of the program.
    fn circumstances(&self) -> io::Result<Circumstances> {
        if STEADY.load(Ordering::Relaxed) { self.since.later() } else { Circumstances::now() }
    }

    /// Whether a command that a thread in this state starts inherits the same from the program as from the thread.
    fn serves(&self, now: &Circumstances) -> bool {
        self.since == *now && circumstances::may_look_into(self.pid)
    }

    /// Asks for a guardian, which gets its letter through the socket.
    fn guardian(&self) -> io::Result<OwnedFd> {
        let (tree, theirs) = message::pair()?;
        // The program never stops itself. If it is stopped, a command sent it SIGSTOP.
        let _ = process::kill(self.pid, libc::SIGCONT);
        loop {
            match message::send_rights(self.control.as_fd(), &[0], &[theirs.as_fd()]) {
                Err(Errno::INTR) => {}
                other => {
                    other?;
                    rustix::io::write(&self.bell, &1u64.to_ne_bytes())?;
                    return Ok(tree);
                }
            }
        }
    }
}

/// A sealed memory file with these bytes, to be executed.
fn executable(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC, and need none.
    let file = match rustix::fs::memfd_create("gatekeeper-guardian", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("gatekeeper-guardian", flags)?,
        other => other?,
    };
    let mut file = File::from(file);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    // The file must not be open for writing when it is executed (ETXTBSY).
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}
