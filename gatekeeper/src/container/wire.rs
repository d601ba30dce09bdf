//! What the gatekeeper outside and the one in the container say to each other, over the standard input and output that an
//! engine's `exec` carries: frames of a kind, a length and bytes. The command itself never holds these descriptors.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The largest frame: a report with captured output.
const LONGEST: usize = 256 << 20;
/// The largest piece of a stream.
pub const PIECE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the container: an [`Order`].
    Order = 1,
    /// To the container: bytes for standard input. Answered by `Taken`, so that nothing piles up.
    Stdin,
    /// To the container: the end of standard input.
    StdinEnd,
    /// To the container: a signal's number, one byte.
    Signal,
    /// From the container: it works; what it sees of its limits ([`super::seen::Seen`]).
    Alive,
    Taken,
    Stdout,
    Stderr,
    Warning,
    /// From the container, last: the report.
    Report,
    /// From the container: an entry of the audit trail ([`crate::audit::Entry`]). Its decision waits for `Written`.
    Noted,
    /// To the container: the entry was written, or why not.
    Written,
}

const KINDS: [Kind; 12] = [
    Kind::Order,
    Kind::Stdin,
    Kind::StdinEnd,
    Kind::Signal,
    Kind::Alive,
    Kind::Taken,
    Kind::Stdout,
    Kind::Stderr,
    Kind::Warning,
    Kind::Report,
    Kind::Noted,
    Kind::Written,
];

/// What the gatekeeper inside has to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// The request, as bubblewrap's inner gatekeeper gets it.
    pub handover: String,
    /// Capture the output for the report.
    pub capture: bool,
    /// Send the entries of the audit trail.
    pub audited: bool,
}

pub fn send(to: &mut impl Write, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::other("too long for one frame"))?;
    let mut frame = Vec::with_capacity(bytes.len() + 5);
    frame.push(kind as u8);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(bytes);
    to.write_all(&frame)?;
    to.flush()
}

/// The next frame; `None` at the end, also in the middle of a frame.
pub fn receive(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; 5];
    if !filled(from, &mut head)? {
        return Ok(None);
    }
    let [kind, length @ ..] = head;
    let wrong = || io::Error::other("what answers in the container is not gatekeeper");
    let kind = KINDS.into_iter().find(|known| *known as u8 == kind).ok_or_else(wrong)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(wrong());
    }
    // Grows as bytes arrive: the length alone reserves no memory.
    let mut bytes = Vec::new();
    let read = from.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    Ok((read == length).then_some((kind, bytes)))
}

fn filled(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were_sent_and_nothing_else_passes() {
        let mut bytes = Vec::new();
        send(&mut bytes, Kind::Stdout, b"hello").expect("memory");
        send(&mut bytes, Kind::StdinEnd, b"").expect("memory");
        let mut from = bytes.as_slice();
        assert_eq!(receive(&mut from).expect("whole"), Some((Kind::Stdout, b"hello".to_vec())));
        assert_eq!(receive(&mut from).expect("whole"), Some((Kind::StdinEnd, Vec::new())));
        assert_eq!(receive(&mut from).expect("the end"), None);
        assert_eq!(receive(&mut &bytes[..7]).expect("cut off"), None);
        assert!(receive(&mut b"error: no such container".as_slice()).is_err());
        assert!(receive(&mut [7, 255, 255, 255, 255].as_slice()).is_err(), "a length that no frame has");
    }
}
