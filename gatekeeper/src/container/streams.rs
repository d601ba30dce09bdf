//! The streams of a command in a box, as the caller gives them.

use super::front::Running;
use super::wire::{Kind, PIECE};
use std::io::{self, Read, Write};
use std::sync::mpsc::Receiver;

/// The command's standard input.
pub enum Input {
    Nothing,
    /// Copied until its end.
    From(Box<dyn Read + Send>),
    /// Pieces as they arrive; the input ends when the sender is dropped.
    Pieces(Receiver<Vec<u8>>),
}

/// Where the command's output goes, unless it is captured.
pub trait Streams {
    fn stdout(&mut self, bytes: &[u8]);
    fn stderr(&mut self, bytes: &[u8]);
    fn warning(&mut self, text: &str);
}

/// Sends standard input, one piece at a time: the next after the command has taken the last.
pub(super) fn feed(input: Input, running: &Running, permits: &Receiver<()>) {
    let send = |bytes: &[u8]| running.send(Kind::Stdin, bytes).is_ok() && permits.recv().is_ok();
    match input {
        Input::Nothing => {}
        Input::From(mut from) => {
            let mut piece = vec![0; PIECE];
            loop {
                match from.read(&mut piece) {
                    Ok(0) => break,
                    Ok(count) => {
                        if !send(piece.get(..count).unwrap_or_default()) {
                            return;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        Input::Pieces(pieces) => {
            for piece in pieces {
                if !piece.chunks(PIECE).all(&send) {
                    return;
                }
            }
        }
    }
    let _ = running.send(Kind::StdinEnd, b"");
}

/// Streams that go to those of this process.
pub struct Inherited<'a> {
    pub warn: &'a dyn Fn(&str),
}

impl Streams for Inherited<'_> {
    fn stdout(&mut self, bytes: &[u8]) {
        let mut out = io::stdout();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    fn stderr(&mut self, bytes: &[u8]) {
        let _ = io::stderr().write_all(bytes);
    }

    fn warning(&mut self, text: &str) {
        (self.warn)(text);
    }
}
