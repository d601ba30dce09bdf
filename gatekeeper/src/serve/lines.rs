//! The lines of a client.

use std::io::{self, BufRead};

/// The longest line, so that a client cannot exhaust our memory.
pub(super) const LONGEST: usize = 16 << 20;

pub(super) enum Read {
    Line,
    TooLong,
    End,
}

/// Reads the next line into `line`. A last line without a newline counts.
pub(super) fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Read> {
    line.clear();
    let mut skipping = false;
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The client's end of the socket was reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => &[],
            other => other?,
        };
        if available.is_empty() {
            return Ok(if skipping {
                Read::TooLong
            } else if line.is_empty() {
                Read::End
            } else {
                Read::Line
            });
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let taken = newline.map_or(available.len(), |at| at + 1);
        skipping |= line.len() + taken > LONGEST;
        if skipping {
            *line = Vec::new();
        } else {
            line.extend_from_slice(&available[..taken]);
        }
        input.consume(taken);
        if newline.is_some() {
            return Ok(if skipping { Read::TooLong } else { Read::Line });
        }
    }
}
