//! Builds a line for stderr without allocating, and writes it with write(2).

use crate::raw;

const SIZE: usize = 1024;

/// Room for any `usize` in decimal.
pub const DIGITS: usize = 20;

/// A number in decimal, written to the end of `room`.
pub fn decimal(number: usize, room: &mut [u8; DIGITS]) -> &[u8] {
    let mut rest = number;
    let mut used = 0;
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    room.get(room.len() - used..).unwrap_or_default()
}

pub struct Line {
    bytes: [u8; SIZE],
    len: usize,
}

impl Line {
    /// A line that begins with `libsandbox: `.
    pub fn new() -> Line {
        Line { bytes: [0; SIZE], len: 0 }.text("libsandbox: ")
    }

    pub fn text(self, text: &str) -> Line {
        self.bytes(text.as_bytes())
    }

    /// Untrusted text, quoted and shortened to 127 bytes. Bytes that could control a terminal become `?`.
    pub fn quoted(self, text: &[u8]) -> Line {
        const SHOWN: usize = 127;
        let shown = text.get(..SHOWN).unwrap_or(text);
        let line = self.text("'").bytes(shown);
        if shown.len() < text.len() { line.text("...'") } else { line.text("'") }
    }

    /// Untrusted text without quotes. Bytes that could control a terminal become `?`.
    pub fn shown(self, text: &[u8]) -> Line {
        self.bytes(text)
    }

    pub fn number(self, number: usize) -> Line {
        self.bytes(decimal(number, &mut [0; DIGITS]))
    }

    /// An errno by name, or by number if we have no name for it.
    pub fn errno(self, errno: i32) -> Line {
        let number = u16::try_from(errno).unwrap_or(0);
        match sandbox_contract::action::errno_name(number) {
            Some(name) => self.text(name),
            None => self.text("errno ").number(usize::from(number)),
        }
    }

    fn bytes(mut self, bytes: &[u8]) -> Line {
        // Keep the last byte for the newline.
        let room = self.bytes.iter_mut().take(SIZE - 1).skip(self.len);
        let mut written = 0;
        room.zip(bytes).for_each(|(to, from)| {
            *to = if matches!(from, b' '..=b'~') { *from } else { b'?' };
            written += 1;
        });
        self.len += written;
        if written < bytes.len() {
            // Show the reader that the line was cut.
            self.bytes.iter_mut().take(SIZE - 1).rev().take(3).for_each(|byte| *byte = b'.');
        }
        self
    }

    /// Writes the line. Errors are ignored: a closed or full stderr must not change what happens next.
    pub fn print(mut self) {
        if let Some(end) = self.bytes.get_mut(self.len) {
            *end = b'\n';
        }
        let mut rest = self.bytes.get(..self.len + 1).unwrap_or(&self.bytes);
        while !rest.is_empty() {
            match raw::write_stderr(rest) {
                Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
                _ => return,
            }
        }
    }
}
