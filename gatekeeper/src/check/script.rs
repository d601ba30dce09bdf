//! The `#!` line, parsed as in fs/binfmt_script.c of Linux 5.x and later.
//!
//! Takes the first bytes of a file, gives the interpreter and its argument, or why the kernel returns ENOEXEC.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// BINPRM_BUF_SIZE: how much of a script the kernel reads.
pub const SEEN: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shebang {
    pub interpreter: OsString,
    /// Everything after the interpreter, as one word. May be empty: the kernel can pass an empty argument.
    pub argument: Option<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    NoInterpreter,
    /// The name may extend beyond the bytes that the kernel reads.
    Truncated,
}

impl Malformed {
    /// For messages, after the script's path.
    pub fn text(self) -> &'static str {
        match self {
            Malformed::NoInterpreter => "its #! line names no interpreter",
            Malformed::Truncated => "its interpreter's name is longer than the 256 bytes that the kernel reads",
        }
    }
}

pub fn is_script(head: &[u8]) -> bool {
    head.starts_with(b"#!")
}

/// Parses what `is_script` accepted.
pub fn parse(head: &[u8]) -> Result<Shebang, Malformed> {
    // The kernel's buffer is zero-filled after the end of the file.
    let mut buffer = [0; SEEN];
    let seen = head.len().min(SEEN);
    buffer.iter_mut().zip(head.iter().take(seen)).for_each(|(to, from)| *to = *from);
    let at = |index: usize| buffer.get(index).copied().unwrap_or(0);
    let last = SEEN - 1;

    // strnchr() stops at a NUL, so it does not find a newline after one.
    let newline = buffer.iter().take_while(|byte| **byte != 0).position(|byte| *byte == b'\n');
    let mut end = match newline {
        Some(position) => position,
        None => {
            let name = next_non_spacetab(&buffer, 2, last).ok_or(Malformed::NoInterpreter)?;
            next_terminator(&buffer, name, last).ok_or(Malformed::Truncated)?;
            last
        }
    };
    while end > 2 && spacetab(at(end - 1)) {
        end -= 1;
    }
    let name = next_non_spacetab(&buffer, 2, end).filter(|name| *name != end).ok_or(Malformed::NoInterpreter)?;
    let separator = next_terminator(&buffer, name, end);
    let argument = separator.filter(|separator| at(*separator) != 0).and_then(|from| {
        let start = next_non_spacetab(&buffer, from, end)?;
        Some(string(&buffer, start, end))
    });
    Ok(Shebang { interpreter: string(&buffer, name, separator.unwrap_or(end).min(end)), argument })
}

/// A C string: up to the first NUL, or up to `end`, where the kernel writes one.
fn string(buffer: &[u8; SEEN], start: usize, end: usize) -> OsString {
    let bytes = buffer.get(start..end).unwrap_or_default();
    OsString::from_vec(bytes.iter().copied().take_while(|byte| *byte != 0).collect())
}

fn spacetab(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn next_non_spacetab(buffer: &[u8; SEEN], first: usize, last: usize) -> Option<usize> {
    (first..=last).find(|index| buffer.get(*index).is_some_and(|byte| !spacetab(*byte)))
}

fn next_terminator(buffer: &[u8; SEEN], first: usize, last: usize) -> Option<usize> {
    (first..=last).find(|index| buffer.get(*index).is_some_and(|byte| spacetab(*byte) || *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(head: &[u8]) -> Result<(String, Option<String>), Malformed> {
        let text = |word: OsString| word.to_string_lossy().into_owned();
        parse(head).map(|shebang| (text(shebang.interpreter), shebang.argument.map(text)))
    }

    fn ok(name: &str, argument: Option<&str>) -> Result<(String, Option<String>), Malformed> {
        Ok((name.into(), argument.map(Into::into)))
    }

    #[test]
    fn the_line_is_split_as_the_kernel_splits_it() {
        assert_eq!(line(b"#!/bin/sh\n"), ok("/bin/sh", None));
        assert_eq!(line(b"#!/bin/sh"), ok("/bin/sh", None));
        assert_eq!(line(b"#! \t/bin/sh \t\n"), ok("/bin/sh", None));
        assert_eq!(line(b"#!/bin/sh -e -u  \n"), ok("/bin/sh", Some("-e -u")));
        assert_eq!(line(b"#!/bin/sh\r\n"), ok("/bin/sh\r", None));
        assert_eq!(line(b"#!/bin/sh -e\r\n"), ok("/bin/sh", Some("-e\r")));
        assert_eq!(line(b"#!/bin/sh\0junk\n"), ok("/bin/sh", None));
        assert_eq!(line(b"#!/bin/sh -x\0junk\n"), ok("/bin/sh", Some("-x")));
    }

    #[test]
    fn a_blank_at_the_end_of_a_file_without_newline_is_an_empty_argument() {
        assert_eq!(line(b"#!/bin/sh "), ok("/bin/sh", Some("")));
        assert_eq!(line(b"#!"), ok("", None));
    }

    #[test]
    fn no_name_is_no_script() {
        assert_eq!(line(b"#!\n"), Err(Malformed::NoInterpreter));
        assert_eq!(line(b"#! \t \n"), Err(Malformed::NoInterpreter));
        let mut blank = b"#!".to_vec();
        blank.resize(300, b' ');
        assert_eq!(line(&blank), Err(Malformed::NoInterpreter));
    }

    #[test]
    fn a_name_past_the_bytes_the_kernel_sees_is_refused_and_an_argument_is_cut() {
        let mut long = b"#!/".to_vec();
        long.resize(300, b'a');
        long.push(b'\n');
        assert_eq!(line(&long), Err(Malformed::Truncated));
        let mut cut = b"#!/bin/sh ".to_vec();
        cut.resize(300, b'a');
        cut.push(b'\n');
        assert_eq!(line(&cut), ok("/bin/sh", Some(&"a".repeat(SEEN - 1 - 10))));
    }
}
