//! The terminal while a question is on it: its modes, its foreground, and what is drawn.

use crate::sys::process;
use rustix::process::Pid;
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};
use std::io;
use std::os::fd::OwnedFd;

/// Ends an escape sequence that the command has begun, such as a window title, which would swallow the question: CAN, then
/// the end of a string. Then the usual characters instead of those for drawing.
const PLAIN: &str = "\x18\x1b\\\x0f\x1b(B";

/// The terminal, while it is ours.
pub struct Screen<'a> {
    tty: &'a OwnedFd,
    modes: Termios,
    front: Option<Pid>,
    /// Whether the program draws the whole screen, or edits its line itself.
    full: bool,
}

impl<'a> Screen<'a> {
    pub fn take(tty: &'a OwnedFd) -> io::Result<Screen<'a>> {
        let modes = rustix::termios::tcgetattr(tty)?;
        let full = !modes.local_modes.contains(LocalModes::ICANON);
        let front = rustix::termios::tcgetpgrp(tty).ok();
        let screen = Screen { tty, modes, front, full };
        screen.hold()?;
        Ok(screen)
    }

    pub fn hold(&self) -> io::Result<()> {
        // SIGTTOU is blocked in this thread, so a background process may do this.
        rustix::termios::tcsetpgrp(self.tty, rustix::process::getpgrp())?;
        let mut keys = self.modes.clone();
        keys.make_raw();
        // Ctrl-C keeps its meaning; Ctrl-Z is a key here.
        keys.local_modes |= LocalModes::ISIG;
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VSUSP] = 0;
        Ok(rustix::termios::tcsetattr(self.tty, OptionalActions::Now, &keys)?)
    }

    /// The key that stops a job.
    pub fn suspends(&self) -> Option<u8> {
        let key = self.modes.special_codes[SpecialCodeIndex::VSUSP];
        // A program that reads keys itself has no such key.
        Some(key).filter(|key| *key != 0 && self.modes.local_modes.contains(LocalModes::ISIG))
    }

    pub fn write(&self, text: &str) {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            match rustix::io::write(self.tty, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    pub fn show(&self, prompt: &str) {
        self.forget_keys();
        match self.full {
            // Save the cursor, and go to the last line, which is cleared.
            true => self.write(&format!("{PLAIN}\x1b7\x1b[0m\x1b[999;1H\r\n\x1b[2K{prompt}")),
            false => self.write(&format!("{PLAIN}\x1b[0m\r\n{prompt}")),
        }
    }

    /// The question once more. Keys pressed before do not answer it.
    pub fn again(&self, why: &str, prompt: &str) {
        self.forget_keys();
        self.write(&format!("{PLAIN}\x1b[0m"));
        self.more(why, prompt);
    }

    /// What was typed before the question was on the screen is no answer to it: a key pressed twice answers one question.
    pub fn forget_keys(&self) {
        let _ = rustix::termios::tcflush(self.tty, QueueSelector::IFlush);
    }

    pub fn more(&self, text: &str, prompt: &str) {
        self.write(&format!("\r\n{text}\r\n{prompt}"));
    }

    pub fn end(&self, word: &str) {
        match self.full {
            // Clear the line, and put the cursor back.
            true => self.write("\r\x1b[2K\x1b8"),
            false => self.write(&format!("{word}\r\n")),
        }
    }

    /// Puts modes and foreground back, and has a full-screen program draw again what the question has covered.
    pub fn give_back(self) {
        self.release();
        if let Some(front) = self.front.filter(|_| self.full) {
            let _ = process::kill(-front.as_raw_nonzero().get(), libc::SIGWINCH);
        }
    }

    pub fn release(&self) {
        let _ = rustix::termios::tcsetattr(self.tty, OptionalActions::Now, &self.modes);
        if let Some(front) = self.front {
            let _ = rustix::termios::tcsetpgrp(self.tty, front);
        }
    }
}
