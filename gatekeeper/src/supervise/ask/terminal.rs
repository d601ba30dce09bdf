//! The user at the terminal answers, on /dev/tty.
//!
//! The command may use the terminal itself. While a question is on the screen every process of the command is stopped, the
//! terminal's modes and foreground process group are ours, and both are put back afterwards. A program that reads single keys
//! (an editor, a pager) owns the screen: the question goes to its last line, and the program is then made to draw it again.
//! A yes counts only if the command did not run since the question was drawn: it could have drawn another one over it.

use super::hub::{Answerer, Reply};
use super::screen::Screen;
use super::stopped::Stopped;
use crate::report::{Because, Decision, Question};
use crate::supervise::tree;
use crate::sys::{process, signals};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Writes a grant into the policy file; returns what to tell the user.
pub type Persist = dyn Fn(&Question) -> Result<String, String> + Send + Sync;
/// Makes text from the program harmless for a terminal.
pub type Escape = fn(&str) -> String;

pub struct Terminal {
    shared: Arc<Shared>,
}

struct Shared {
    tty: OwnedFd,
    bell: OwnedFd,
    state: Mutex<State>,
    guardian: AtomicI32,
    /// Whether the command is stopped for a question.
    holding: AtomicBool,
    persist: Option<Box<Persist>>,
    escape: Escape,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Question, Reply)>,
    over: bool,
    /// When the run times out.
    until: Option<Instant>,
}

/// What the user pressed, or what happened instead.
enum Key {
    Letter(u8),
    /// Ctrl-Z.
    Suspend,
    /// The command ran, and may have drawn over the question.
    Ran,
    Withdrawn,
    Gone,
}

/// How often a job in the background looks whether it is in the foreground again.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often a question is drawn again because the command ran. Then it is denied.
const MOST_DRAWN: usize = 5;
/// How long nobody can have read a question that is drawn again.
const READING: std::time::Duration = std::time::Duration::from_millis(700);
const RAN: &str = "the command ran while the question was on the screen, and may have drawn over it; here it is again";

impl Terminal {
    /// `persist`: writes a grant into the policy file, if there is one.
    pub fn open(persist: Option<Box<Persist>>, escape: Escape) -> io::Result<Terminal> {
        let tty = rustix::fs::open("/dev/tty", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            tty,
            bell,
            state: Mutex::default(),
            guardian: AtomicI32::new(0),
            holding: AtomicBool::new(false),
            persist,
            escape,
        });
        let serving = shared.clone();
        std::thread::Builder::new()
            .name("terminal".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || serving.serve())?;
        Ok(Terminal { shared })
    }
}

impl Answerer for Terminal {
    fn ask(&self, question: &Question, reply: Reply) {
        self.shared.state().queue.push_back((question.clone(), reply));
        self.shared.ring();
    }

    fn withdrawn(&self, id: u64) {
        self.shared.state().queue.retain(|(question, _)| question.id != id);
        self.shared.ring();
    }

    fn started(&self, guardian: i32, until: Option<Instant>) {
        self.shared.guardian.store(guardian, Ordering::SeqCst);
        self.shared.state().until = until;
    }

    fn holds(&self) -> bool {
        self.shared.holding.load(Ordering::SeqCst)
    }

    fn finish(&self) {
        let mut state = self.shared.state();
        state.over = true;
        state.queue.clear();
        drop(state);
        self.shared.ring();
        // The terminal must be as it was before gatekeeper ends.
        for _ in 0..100 {
            if !self.holds() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn serve(&self) {
        // This thread starts before gatekeeper takes its signals over. One that it gets here would end the process. With SIGTTOU
        // blocked, it may change the terminal from the background.
        let _ = signals::block_all();
        loop {
            let mut polled = [PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut polled, None);
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            if self.state().over {
                return;
            }
            if self.front().is_some() {
                self.session();
            }
        }
    }

    fn front(&self) -> Option<(Question, Reply)> {
        self.state().queue.front().cloned()
    }

    /// Asks everything that waits, with the command stopped.
    fn session(&self) {
        if !self.wait_for_foreground() {
            return;
        }
        self.holding.store(true, Ordering::SeqCst);
        let mut stopped = Stopped::halt(self.guardian.load(Ordering::SeqCst));
        if let Ok(screen) = Screen::take(&self.tty) {
            while let Some((question, reply)) = self.front() {
                self.ask_one(&screen, &mut stopped, &question, &reply);
                self.state().queue.retain(|(other, _)| other.id != question.id);
            }
            screen.give_back();
        } else {
            self.deny_all();
        }
        stopped.resume();
        self.holding.store(false, Ordering::SeqCst);
    }

    /// Denies everything that waits, and what is asked from now on: nobody can answer.
    fn deny_all(&self) {
        let waiting: Vec<_> = self.state().queue.drain(..).collect();
        for (_, reply) in waiting {
            reply.close();
            reply.deny(Because::Closed);
        }
    }

    /// A job in the background must not take the terminal from the shell. `false`: nothing waits any more.
    fn wait_for_foreground(&self) -> bool {
        loop {
            let own = rustix::process::getpgrp();
            let front = match rustix::termios::tcgetpgrp(&self.tty) {
                // The terminal is closed. What still runs must not wait for an answer.
                Err(rustix::io::Errno::IO | rustix::io::Errno::NOTTY) => {
                    self.deny_all();
                    return false;
                }
                front => front.ok(),
            };
            let of_command = || {
                let pids = tree::sum(self.guardian.load(Ordering::SeqCst)).pids;
                pids.iter()
                    .any(|pid| Pid::from_raw(*pid).and_then(|pid| rustix::process::getpgid(Some(pid)).ok()) == front)
            };
            if front == Some(own) || of_command() {
                return true;
            }
            let mut polled = [PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&LOOK_AGAIN));
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            if self.front().is_none() || self.state().over {
                return false;
            }
        }
    }

    fn ask_one(&self, screen: &Screen<'_>, stopped: &mut Stopped, question: &Question, reply: &Reply) {
        let text = |text: &str| (self.escape)(text);
        let policy = if self.persist.is_some() { ", p and write it into the policy" } else { "" };
        let prompt = format!(
            "gatekeeper: {}; {}. y once, a for this run, n no, d deny the rest{policy}, ? more: ",
            text(&question.sentence()),
            text(&question.rule)
        );
        stopped.settle();
        screen.show(&prompt);
        let mut drawn = 0;
        loop {
            let (decision, word) = match self.key(screen, question.id, stopped) {
                Key::Suspend => {
                    if !self.suspend(screen) {
                        return;
                    }
                    stopped.settle();
                    screen.show(&prompt);
                    continue;
                }
                Key::Ran if drawn == MOST_DRAWN => {
                    screen.end("denied: the command does not stay stopped");
                    return reply.deny(Because::Invalid);
                }
                Key::Ran => {
                    drawn += 1;
                    stopped.again();
                    screen.again(RAN, &prompt);
                    // Keys pressed before anyone can have read it answer what the command drew.
                    std::thread::sleep(READING);
                    screen.forget_keys();
                    continue;
                }
                Key::Letter(b'y' | b'Y') => (Decision::Once, "once"),
                Key::Letter(b'a' | b'A') => (Decision::Run, "for this run"),
                Key::Letter(b'n' | b'N') => (Decision::Deny, "no"),
                Key::Letter(b'd' | b'D') => {
                    screen.end("denied, and everything after it");
                    reply.close();
                    let rest: Vec<_> = self.state().queue.drain(..).collect();
                    return rest.iter().for_each(|(_, reply)| reply.decide(Decision::Deny));
                }
                Key::Letter(b'p' | b'P') if self.persist.is_some() => {
                    let written = self.persist.as_ref().map(|persist| persist(question));
                    match written {
                        Some(Ok(done)) => {
                            screen.end(&text(&done));
                            return reply.decide(Decision::Run);
                        }
                        Some(Err(why)) => screen.more(&format!("not written: {}", text(&why)), &prompt),
                        None => {}
                    }
                    continue;
                }
                Key::Letter(b'?') => {
                    screen.more(&self.details(question), &prompt);
                    continue;
                }
                Key::Letter(_) => continue,
                Key::Withdrawn => return screen.end("withdrawn"),
                Key::Gone => {
                    reply.close();
                    return reply.deny(Because::Closed);
                }
            };
            screen.end(word);
            return reply.decide(decision);
        }
    }

    /// Ctrl-Z: gives the terminal to the shell, and takes it again once the job continues in the foreground. A SIGTSTP of the
    /// terminal would be lost: the command is stopped already, and the SIGCONT that lets it go on clears it. `false`: nothing
    /// waits any more.
    fn suspend(&self, screen: &Screen<'_>) -> bool {
        screen.write("\r\n");
        screen.release();
        let until = self.state().until;
        let wake = until.map(|until| process::Wake::after(until.saturating_duration_since(Instant::now()))).transpose();
        // Do not stop without the timer: the time limit would not be enforced until the shell continues us.
        if wake.is_ok() {
            process::stop();
        }
        self.wait_for_foreground() && screen.hold().is_ok()
    }

    fn details(&self, question: &Question) -> String {
        let none = || "-".to_owned();
        let rows = [
            ("call", question.syscall.clone()),
            ("command", crate::policy::grants::quoted(&question.argv)),
            ("path", question.path.clone().unwrap_or_else(none)),
            ("as named", question.named.clone().or_else(|| question.path.clone()).unwrap_or_else(none)),
            ("host", question.host.clone().unwrap_or_else(none)),
            ("refused because", question.rule.clone()),
            ("flag for next time", question.allow_with.clone().unwrap_or_else(none)),
        ];
        let row = |(name, value): &(&str, String)| format!("  {name}: {}", (self.escape)(value));
        rows.iter().filter(|(_, value)| value != "-").map(row).collect::<Vec<_>>().join("\r\n")
    }

    fn key(&self, screen: &Screen<'_>, id: u64, stopped: &Stopped) -> Key {
        let withdrawn = || self.state().over || self.front().is_none_or(|(question, _)| question.id != id);
        loop {
            if withdrawn() {
                return Key::Withdrawn;
            }
            let mut polled = [PollFd::new(&self.tty, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&LOOK_AGAIN));
            let [tty, bell] = polled.map(|fd| fd.revents());
            if !bell.is_empty() {
                let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            }
            if tty.contains(PollFlags::IN) {
                let mut letter = [0u8; 1];
                match rustix::io::read(&self.tty, &mut letter) {
                    Ok(1) if Some(letter[0]) == screen.suspends() => return Key::Suspend,
                    // To deny is always safe.
                    Ok(1) if !b"nNdD".contains(&letter[0]) && stopped.has_run() => return Key::Ran,
                    Ok(1) => return Key::Letter(letter[0]),
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    _ => return Key::Gone,
                }
            } else if !tty.is_empty() {
                return Key::Gone;
            } else if stopped.has_run() {
                // It also runs because its call was answered or interrupted, and then nobody asks any more.
                let _ = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&LOOK_AGAIN));
                return if withdrawn() { Key::Withdrawn } else { Key::Ran };
            }
        }
    }
}
