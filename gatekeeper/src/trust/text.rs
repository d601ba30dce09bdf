//! Short text on the stack, for code that runs after fork and must not allocate.

use std::ffi::CStr;
use std::io::Write;

const SIZE: usize = 64;

/// A NUL-terminated text of at most `ROOM - 1` bytes; anything longer is cut off.
pub(crate) struct StackText<const ROOM: usize = SIZE>([u8; ROOM]);

impl StackText {
    pub(crate) fn new(text: std::fmt::Arguments<'_>) -> StackText {
        StackText::of(text)
    }
}

impl<const ROOM: usize> StackText<ROOM> {
    pub(crate) fn of(text: std::fmt::Arguments<'_>) -> StackText<ROOM> {
        let mut buffer = [0; ROOM];
        // The last byte is never written, so it stays NUL.
        let _ = (&mut buffer[..ROOM - 1]).write_fmt(text);
        StackText(buffer)
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_formatted_and_cut_at_the_end_of_the_buffer() {
        for pid in [0, 7, 32768, i32::MAX] {
            let path = StackText::new(format_args!("/proc/{pid}/stat"));
            assert_eq!(path.as_c_str().to_str().expect("text"), format!("/proc/{pid}/stat"));
        }
        let long = "x".repeat(100);
        assert_eq!(StackText::new(format_args!("{long}")).as_c_str().count_bytes(), SIZE - 1);
    }
}
