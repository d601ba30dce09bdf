//! The guardian program: starts the commands of a process that must not be forked. See `gatekeeper/src/warden`.
//!
//! Descriptor 0 is a socket to that process, 1 the memory in which its runs show their progress, 2 an eventfd that tells of a
//! message. Each message on the socket brings the socket of one run. The program forks a guardian for it, which reads its
//! letter from that socket, and becomes what a guardian forked by `gatekeeper run` is: the code is the same.
//!
//! The program is the subreaper of all of them. If a guardian is killed, what it leaves becomes a child of this process, and is
//! killed. If this process is killed, every guardian ends its tree.

// Compiled from gatekeeper's own sources; gatekeeper uses the rest of them.
#![allow(dead_code)]

#[path = "../../src/operation.rs"]
mod operation;
#[path = "../../src/sys/mod.rs"]
mod sys;
mod trust;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use sys::child::Group;
use sys::guardian::Post;
use sys::letter::{self, Received};
use sys::message::{self, Message};
use sys::progress::Board;
use sys::{descriptors, guardian, process, signals};

/// Where the runs show their progress.
static BOARD: OnceLock<Arc<Board>> = OnceLock::new();

fn main() {
    let Ok(control) = descriptors::duplicate(0) else { return };
    let Ok(board) = Board::of_file(rustix::stdio::stdout()) else { return };
    BOARD.get_or_init(|| Arc::new(board));
    let Ok(bell) = descriptors::duplicate(2) else { return };
    let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else { return };
    if [1, 2].into_iter().any(|stream| descriptors::replace(stream, null.as_raw_fd()).is_err()) {
        return;
    }
    drop(null);
    let ready = signals::block_all()
        .and_then(|()| process::set_subreaper())
        .and_then(|()| process::leave_session())
        .and_then(|()| (0..3).try_for_each(descriptors::close_on_exec))
        .and_then(|()| signals::of_children());
    let Ok(children) = ready else { return };
    // Somebody may have stopped this process. It has to run again to see that the other process is gone.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT));
    // The directory of the process that started this one may have to be unmounted.
    let _ = std::env::set_current_dir("/");
    if rustix::net::send(&control, &[0], rustix::net::SendFlags::NOSIGNAL) != Ok(1) {
        return;
    }
    let mut guardians = Vec::new();
    serve(&control, &bell, &children, &mut guardians);
    // The process that embeds gatekeeper is gone or has dismissed us. Every guardian sees the same and ends its tree. One that was
    // killed leaves its tree to this process.
    while !guardians.is_empty() {
        let mut polled = [rustix::event::PollFd::new(&children, rustix::event::PollFlags::IN)];
        if !matches!(rustix::event::poll(&mut polled, None), Ok(_) | Err(Errno::INTR)) {
            break;
        }
        look_at(&children, &mut guardians);
    }
    process::end_children();
}

/// Starts a guardian for each socket that arrives, and reaps them, until the other process closes its end.
fn serve(control: &OwnedFd, bell: &OwnedFd, children: &OwnedFd, guardians: &mut Vec<i32>) {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut polled = [
            PollFd::new(bell, PollFlags::IN),
            // Only for its end, which cannot be masked.
            PollFd::new(control, PollFlags::empty()),
            PollFd::new(children, PollFlags::IN),
        ];
        if !matches!(poll(&mut polled, None), Ok(_) | Err(Errno::INTR)) {
            return;
        }
        let [asked, closed, ended] = polled.map(|polled| !polled.revents().is_empty());
        if asked {
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
        if (asked || closed) && !take_all(control, guardians) {
            return;
        }
        if ended {
            look_at(children, guardians);
        }
    }
}

/// Reaps the children that have ended, and continues those that were stopped.
fn look_at(children: &OwnedFd, guardians: &mut Vec<i32>) {
    signals::forget(children);
    reap_ended(guardians);
    // A guardian never stops itself. If it is stopped, its command sent it SIGSTOP.
    process::wake_children();
}

/// Starts a guardian for each socket that has arrived. `false`: the other process has closed its end.
fn take_all(control: &OwnedFd, guardians: &mut Vec<i32>) -> bool {
    loop {
        let mut byte = [0u8; 1];
        match message::receive_rights(control.as_fd(), &mut byte, RecvFlags::DONTWAIT) {
            Ok((1, [Some(socket), ..])) => guardians.extend(start(socket)),
            Ok((1, _)) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            _ => return false,
        }
    }
}

/// Forks a guardian. Returns its process id; `None` if there is none, which the other process then learns.
fn start(socket: OwnedFd) -> Option<i32> {
    let forked = guardian::fork_alone(socket, guard);
    forked.map_err(|(socket, error)| not_started(&socket, error.raw_os_error())).ok()
}

fn guard(socket: OwnedFd, program: i32) -> ! {
    // A guardian that kept the socket of this program would hide its end from the other process.
    let kept = descriptors::keep_only(socket.as_fd());
    // The other process is still preparing the letter. Whatever can be done without it is done meanwhile.
    let post = Post::take(Group::Session, Some(program), true);
    let received = kept.and_then(|()| letter::receive(&socket, BOARD.get()));
    match received {
        Ok(Some(Received { launch, front, setup })) => {
            drop(socket);
            guardian::guard(&launch, front.as_raw_fd(), setup.as_raw_fd(), post)
        }
        // The other process starts no command after all.
        Ok(None) => std::process::exit(0),
        Err(error) => {
            not_started(&socket, error.raw_os_error());
            std::process::exit(1)
        }
    }
}

fn not_started(socket: &OwnedFd, errno: Option<i32>) {
    let a = errno.unwrap_or(libc::EBADMSG);
    let _ = message::send(socket.as_fd(), &Message { kind: Message::NOT_STARTED, a, ..Message::default() });
}

/// Reaps what has ended. If a guardian was killed, ends what it left.
fn reap_ended(guardians: &mut Vec<i32>) {
    let mut orphans = false;
    while let Some((pid, status)) = process::ended_child() {
        // A guardian that exits has ended its tree before. Any other child was that of a killed guardian.
        orphans |= status != 0 || !guardians.contains(&pid);
        guardians.retain(|guardian| *guardian != pid);
    }
    if orphans {
        process::end_children_but(guardians);
    }
}
