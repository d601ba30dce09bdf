//! The command's process between fork and exec: carries out the operations of the plan; the first that fails ends it.
//!
//! No allocation, no lock, no destructor here: the program that forked may have had threads. Everything is prepared in
//! `Launch` before the fork; an operation only hands it to the kernel.

mod arguments;

pub use arguments::Arguments;

use super::descriptors::{close_all_but, close_on_exec_from};
use super::guardian::Backstop;
use super::keeper::Watched;
use super::message::Message;
use super::mounts::Mounts;
use super::place::{Place, Stub};
use super::progress::Progress;
use super::stage::Staging;
use super::{capabilities, keeper, signals};
use crate::operation::Operation;
use sandbox_contract::bpf::Insn;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Everything that the operations need, in memory that stays where it is.
pub struct Launch {
    /// What the child carries out, in this order; exec is the last.
    pub operations: Vec<Operation>,
    pub program: OwnedFd,
    pub directory: CString,
    /// What becomes descriptors 0, 1 and 2; `None` leaves the caller's.
    pub streams: [Option<OwnedFd>; 3],
    pub limits: Vec<(i32, libc::rlimit)>,
    pub group: Group,
    pub mask: libc::sigset_t,
    pub mounts: Option<Mounts>,
    /// The stage that replaces the working directory.
    pub stage: Option<Staging>,
    /// The lock on it, which the guardian holds until the tree has ended.
    pub lock: Option<OwnedFd>,
    /// Protected names to watch: a mount on one is lost when a process outside replaces the file.
    pub watched: Option<Watched>,
    pub ruleset: Option<OwnedFd>,
    pub filter: Option<Filter>,
    pub arguments: Arguments,
    pub progress: Progress,
    /// The run directory, which the guardian makes and removes.
    pub place: Option<Place>,
    /// Mount points that bubblewrap makes. The guardian removes them if the front process was killed.
    pub stubs: Vec<Stub>,
    pub cgroup: Option<Joined>,
    /// Descriptors that stay open across exec; used when the program is bubblewrap.
    pub kept: Vec<OwnedFd>,
    /// Inherited descriptors that stay open, by number: the pipe that drives a browser.
    pub numbers: Vec<i32>,
    /// Whether the child waits for `GO` on its socket before it confines itself and executes anything. If the socket is closed
    /// instead, it ends.
    pub waits: bool,
    /// Set if the command may be able to signal the front process.
    pub backstop: Option<Backstop>,
}

/// The cgroup that the command joins.
pub struct Joined {
    /// cgroup.procs, open for writing.
    pub procs: OwnedFd,
    /// The guardian removes it when the tree has ended.
    pub directory: CString,
}

pub struct Filter {
    pub program: Vec<Insn>,
    pub listener: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A new session: without a controlling terminal the command cannot push input into the caller's (TIOCSTI).
    Session,
    /// The caller's process group, so that job control works on a terminal.
    Shared,
}

/// How the child reaches the other processes of the run.
pub(super) struct Pipes {
    /// The socket to the front process.
    pub front: i32,
    /// The guardian's process id.
    pub guardian: i32,
    /// The socket to the keeper of the mounts; -1 where nothing has to be kept.
    pub keeper: i32,
}

impl Launch {
    /// Whether the list names exactly the layers that are prepared. A layer that is prepared and not listed would silently be left
    /// out, although the report calls it enforced.
    pub(super) fn is_consistent(&self) -> bool {
        let listed = |operation| self.operations.contains(&operation);
        let both = [
            (listed(Operation::Landlock), self.ruleset.is_some()),
            (listed(Operation::Seccomp), self.filter.is_some()),
            (listed(Operation::Namespaces), self.mounts.is_some()),
            (listed(Operation::Mounts), self.mounts.is_some()),
            (listed(Operation::Stage), self.stage.is_some()),
            (listed(Operation::Cgroup), self.cgroup.is_some()),
        ];
        both.into_iter().all(|(listed, prepared)| listed == prepared)
            && (self.limits.is_empty() || listed(Operation::Limits))
            && listed(Operation::NoNewPrivs)
            && (!self.waits || self.operations.iter().position(|at| *at == Operation::NoNewPrivs) < self.executes_at())
    }

    fn executes_at(&self) -> Option<usize> {
        self.operations.iter().position(|at| *at == Operation::Exec)
    }

    pub(super) fn must_be_consistent(&self) -> io::Result<()> {
        match self.is_consistent() {
            true => Ok(()),
            false => Err(io::Error::other("the prepared layers are not those of the plan")),
        }
    }

    /// Whether the command's process may use the guardian's memory until exec, instead of a copy of it, which takes longer to
    /// make and to give up than all operations together. Unlike vfork(2), this does not suspend the guardian. Both have one
    /// errno then; until exec the guardian makes no call that fails unless the front process is gone.
    ///
    /// A process that shares its memory cannot enter a user namespace: unshare(2), EINVAL.
    pub(super) fn may_share_memory(&self) -> bool {
        self.mounts.is_none() && self.stage.is_none()
    }

    /// Carries out every operation, the last of which is exec; returns only by ending the process.
    pub(super) fn go(&self, pipes: &Pipes) -> ! {
        for operation in &self.operations {
            self.progress.enter(*operation);
            // Every list that is consistent has this operation, before exec.
            let may_go = *operation != Operation::NoNewPrivs || !self.waits || is_let_go(pipes.front);
            if !may_go || !self.carry_out(*operation, pipes) {
                self.progress.fail(*operation, errno());
                break;
            }
        }
        // A list without exec runs nothing either. The first failure counts, so this one does not replace another.
        self.progress.fail(Operation::Exec, 0);
        // SAFETY: _exit runs no handlers of the program that was forked.
        unsafe { libc::_exit(125) }
    }

    fn carry_out(&self, operation: Operation, pipes: &Pipes) -> bool {
        match operation {
            Operation::Signals => self.reset_signals(),
            Operation::Cgroup => self.join_cgroup(),
            Operation::Namespaces => self.mounts.as_ref().is_none_or(Mounts::enter),
            Operation::Stage => self.stage.as_ref().is_none_or(|stage| stage.apply(self)),
            Operation::Mounts => self.make_mounts(pipes.keeper),
            Operation::ProcessGroup => self.join_group(pipes.guardian),
            Operation::StandardStreams => self.take_streams(),
            // SAFETY: `directory` is NUL-terminated.
            Operation::WorkingDirectory => unsafe { libc::chdir(self.directory.as_ptr()) == 0 },
            Operation::Limits => self.set_limits(),
            Operation::Descriptors => close_on_exec_from(3) && self.keep_descriptors() && self.close_rest(pipes.front),
            // SAFETY: no memory is passed.
            Operation::NoNewPrivs => unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 },
            Operation::Capabilities => capabilities::drop_overseeing() && capabilities::drop_unlimited(),
            Operation::LimitsCapability => capabilities::drop_unlimited(),
            Operation::Landlock => self.restrict(),
            Operation::Seccomp => self.filter.as_ref().is_none_or(|filter| self.install(filter, pipes.front)),
            Operation::Exec => self.execute(),
            // The front process and the guardian did these before; libsandbox.so does the last one.
            Operation::Start
            | Operation::Environment
            | Operation::TemporaryDirectory
            | Operation::RunDirectory
            | Operation::Proxy
            | Operation::Preload => true,
        }
    }

    fn restrict(&self) -> bool {
        // SAFETY: no memory is passed.
        self.ruleset.as_ref().is_none_or(|ruleset| unsafe {
            libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) == 0
        })
    }

    /// Executes the program by its descriptor; returns only if that fails.
    fn execute(&self) -> bool {
        let Arguments { argv, envp, path, options, .. } = &self.arguments;
        // SAFETY: both arrays are null-terminated lists of live C strings, the path is empty and NUL-terminated.
        unsafe {
            libc::syscall(libc::SYS_execveat, self.program.as_raw_fd(), *path, *argv, *envp, *options);
        }
        false
    }

    /// Restores the caller's signal mask, and SIGPIPE, which Rust's runtime ignores. exec resets all other handlers.
    fn reset_signals(&self) -> bool {
        // SAFETY: signal() with SIG_DFL passes no memory.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        signals::set_mask(&self.mask).is_ok()
    }

    /// Makes the mounts. Then, while nothing confines this process yet, hands its namespaces to the guardian, which mounts again
    /// what is lost when a file is replaced.
    fn make_mounts(&self, keeper: i32) -> bool {
        let ruleset = self.ruleset.as_ref().map(AsRawFd::as_raw_fd);
        self.mounts.as_ref().is_none_or(|mounts| {
            mounts.apply(ruleset, &self.progress)
                && (keeper < 0 || keeper::hand_over(keeper, mounts.user.is_some()))
                && mounts.seal()
        })
    }

    fn join_cgroup(&self) -> bool {
        // SAFETY: one byte of a literal is written.
        self.cgroup
            .as_ref()
            .is_none_or(|joined| unsafe { libc::write(joined.procs.as_raw_fd(), c"0".as_ptr().cast(), 1) == 1 })
    }

    fn join_group(&self, guardian: i32) -> bool {
        // SAFETY: none of these calls passes memory.
        unsafe {
            // The guardian made the session; the command leads a group in it.
            let joined = self.group == Group::Shared || libc::setpgid(0, 0) == 0;
            // Set after the user namespace was entered: a change of credentials clears it. If the guardian died before, getppid
            // below differs.
            let guarded = joined && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) == 0;
            // Wait until the guardian has left the session: a signal to the terminal's group must not reach it.
            let session = libc::getsid(0);
            let shares = || session >= 0 && libc::getsid(guardian) == session;
            while self.group == Group::Shared && libc::getppid() == guardian && shares() {
                libc::sched_yield();
            }
            guarded && libc::getppid() == guardian
        }
    }

    fn take_streams(&self) -> bool {
        // SAFETY: dup2 passes no memory.
        (0..)
            .zip(&self.streams)
            .all(|(to, from)| from.as_ref().is_none_or(|from| unsafe { libc::dup2(from.as_raw_fd(), to) == to }))
    }

    fn keep_descriptors(&self) -> bool {
        let mut kept = self.kept.iter().map(|fd| fd.as_raw_fd()).chain(self.numbers.iter().copied());
        // SAFETY: F_SETFD passes no memory.
        kept.all(|fd| unsafe { libc::fcntl(fd, libc::F_SETFD, 0) == 0 })
    }

    /// Closes what neither the command nor the operations that follow use. exec would close it as well, but the listener needs a
    /// number below the limit of `--files`, and the caller may have left more than that open.
    fn close_rest(&self, front: i32) -> bool {
        let used = [front, self.program.as_raw_fd()].into_iter().chain(self.ruleset.as_ref().map(AsRawFd::as_raw_fd));
        let kept = self.kept.iter().map(|fd| fd.as_raw_fd()).chain(self.numbers.iter().copied());
        close_all_but(3, &|from| used.clone().chain(kept.clone()).filter(|fd| *fd >= from).min());
        true
    }

    fn set_limits(&self) -> bool {
        // SAFETY: each rlimit lives through its call.
        self.limits.iter().all(|(resource, limit)| unsafe { libc::setrlimit(*resource as _, limit) == 0 })
    }

    /// Installs the filter and hands its listener over. From here on the filter denies everything but the secret arguments.
    fn install(&self, filter: &Filter, front: i32) -> bool {
        let program =
            libc::sock_fprog { len: filter.program.len() as u16, filter: filter.program.as_ptr().cast_mut().cast() };
        // SAFETY: `program` points to that many live instructions, laid out as the kernel's; it copies them.
        let set = |flags: libc::c_ulong| unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program)
        };
        let answer = match filter.listener {
            false => set(0),
            true => match set(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE_RECV) {
                // A kernel before 5.19.
                ..0 if errno() == libc::EINVAL => set(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
                answer => answer,
            },
        };
        match (answer, filter.listener) {
            (..0, _) => false,
            (_, false) => true,
            (listener, true) => self.hand_over(front, listener as i32),
        }
    }

    /// Sends the listener to the front process by the one message that the filter lets through.
    fn hand_over(&self, front: i32, listener: i32) -> bool {
        let header = self.arguments.header();
        // SAFETY: the page is ours, zeroed at first, aligned, and large enough; only this thread of this process uses it.
        unsafe {
            (*header).message = Message { kind: Message::LISTENER, ..Message::default() };
            (*header).part =
                libc::iovec { iov_base: (&raw mut (*header).message).cast(), iov_len: size_of::<Message>() };
            (*header).header = std::mem::zeroed();
            (*header).header.msg_iov = &raw mut (*header).part;
            (*header).header.msg_iovlen = 1;
            (*header).header.msg_control = (&raw mut (*header).control).cast();
            (*header).header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
            let control = libc::CMSG_FIRSTHDR(&raw const (*header).header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
            libc::CMSG_DATA(control).cast::<i32>().write_unaligned(listener);
            libc::syscall(libc::SYS_sendmsg, front, &raw const (*header).header, self.arguments.flags) >= 0
        }
    }
}

/// Once the supervisor has received a call, only a fatal signal ends the wait for its answer. Without this flag a handled signal
/// can arrive after the supervisor has answered: the kernel then drops the answer and makes the call again, so that a denial
/// would be counted twice and a connection made for the program would be made twice. Since Linux 5.19.
const WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

/// Waits for `GO`. `false`: the front process starts nothing after all, or is gone.
fn is_let_go(front: i32) -> bool {
    let mut message = Message::default();
    loop {
        // SAFETY: recv fills at most the size of the message, which is all integers.
        let read = unsafe { libc::recv(front, (&raw mut message).cast(), size_of::<Message>(), 0) };
        if read >= 0 || errno() != libc::EINTR {
            return read == size_of::<Message>() as isize && message.kind == Message::GO;
        }
    }
}

pub(super) fn errno() -> i32 {
    // SAFETY: the C library gives every thread a valid errno location.
    unsafe { *libc::__errno_location() }
}

pub(super) fn write_file(path: &CStr, text: &CStr) -> bool {
    // SAFETY: both strings are NUL-terminated and live; the descriptor is closed once.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return false;
        }
        let len = text.to_bytes().len();
        let written = libc::write(fd, text.as_ptr().cast(), len);
        let error = errno();
        libc::close(fd);
        *libc::__errno_location() = error;
        written == len as isize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_layer_without_its_operation_does_not_start() {
        let null = || OwnedFd::from(File::open("/dev/null").expect("there"));
        let launch = |operations: &[Operation], ruleset: Option<OwnedFd>| Launch {
            operations: operations.to_vec(),
            program: null(),
            directory: c"/".to_owned(),
            streams: [None, None, None],
            limits: Vec::new(),
            group: Group::Session,
            mask: super::super::signals::current_mask(),
            mounts: None,
            stage: None,
            lock: None,
            watched: None,
            ruleset,
            filter: None,
            arguments: Arguments::new(Vec::new(), Vec::new()).expect("memory"),
            progress: Progress::new().expect("memory"),
            place: None,
            stubs: Vec::new(),
            cgroup: None,
            kept: Vec::new(),
            numbers: Vec::new(),
            waits: false,
            backstop: None,
        };
        let (plain, confined) =
            ([Operation::NoNewPrivs, Operation::Exec], [Operation::NoNewPrivs, Operation::Landlock, Operation::Exec]);
        assert!(launch(&plain, None).is_consistent());
        assert!(launch(&confined, Some(null())).is_consistent());
        assert!(!launch(&plain, Some(null())).is_consistent());
        assert!(!launch(&confined, None).is_consistent());
        assert!(!launch(&[Operation::Exec], None).is_consistent());
    }
}
