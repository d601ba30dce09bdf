//! Cuts a stream of bytes into messages that end with a NUL byte.

/// The largest message. A picture is the largest that is asked for. As base64, the browser's limit of pixels fits
/// even if it cannot be compressed.
pub const LARGEST: usize = 128 * 1024 * 1024;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a message is larger than {LARGEST} bytes")]
pub struct TooLarge;

#[derive(Default)]
pub struct Framing {
    bytes: Vec<u8>,
    /// Up to here there is no NUL.
    searched: usize,
    /// Up to here the bytes were taken as messages.
    taken: usize,
}

impl Framing {
    pub fn push(&mut self, more: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.searched -= self.taken;
            self.taken = 0;
        }
        if self.bytes.is_empty() {
            // Return the memory of one large message.
            self.bytes.shrink_to(1024 * 1024);
        }
        self.bytes.extend_from_slice(more);
    }

    /// The next whole message, or `None` if more bytes are needed.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, TooLarge> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        match unsearched.iter().position(|byte| *byte == 0) {
            Some(at) => {
                let end = self.searched + at;
                let message = self.bytes.get(self.taken..end).unwrap_or_default().to_vec();
                (self.taken, self.searched) = (end + 1, end + 1);
                Ok(Some(message))
            }
            None if self.bytes.len() - self.taken > LARGEST => Err(TooLarge),
            None => {
                self.searched = self.bytes.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let stream = b"one\0two\0\0three\0rest";
        for step in 1..stream.len() {
            let mut framing = Framing::default();
            let mut found = Vec::new();
            for part in stream.chunks(step) {
                framing.push(part);
                while let Some(message) = framing.next().expect("small") {
                    found.push(String::from_utf8(message).expect("text"));
                }
            }
            assert_eq!(found, ["one", "two", "", "three"], "in steps of {step}");
        }
    }

    #[test]
    fn a_message_without_end_is_an_error() {
        let mut framing = Framing::default();
        let block = vec![b'x'; 1024 * 1024];
        let mut pushed = 0;
        while framing.next() != Err(TooLarge) {
            assert!(pushed <= LARGEST, "no error after {pushed} bytes");
            framing.push(&block);
            pushed += block.len();
        }
        assert!(pushed > LARGEST);
    }
}
