//! `--env-fd`: variables for the command whose values are on no command line, which every user can read, and not in gatekeeper's own
//! environment, by which it finds what it protects.

use crate::sys::descriptors::duplicate;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

/// No command takes more: the kernel allows 6 MiB of arguments and variables.
const MOST: usize = 8 << 20;

/// Reads the descriptor to its end.
pub(super) fn read(fd: i32) -> Result<Vec<(String, String)>, String> {
    let bytes = duplicate(fd).map(File::from).and_then(|mut file| all_of(&mut file));
    let bytes = bytes.map_err(|error| format!("--env-fd {fd}: {error}"))?;
    parse(&bytes).map_err(|error| format!("--env-fd {fd}: {error}"))
}

fn all_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut part = [0u8; 4096];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The caller's end shares this flag.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&file.as_fd(), PollFlags::IN)], None);
            }
            Err(error) => return Err(error),
        }
        if bytes.len() > MOST {
            return Err(io::Error::other(format!("more than {MOST} bytes")));
        }
    }
}

/// NAME=VALUE, each ended by a NUL byte. Without the last one, the writer has not written everything.
fn parse(bytes: &[u8]) -> Result<Vec<(String, String)>, String> {
    let Some((last, bytes)) = bytes.split_last() else { return Ok(Vec::new()) };
    if *last != 0 {
        return Err("it does not end with a NUL byte, so something is missing".to_owned());
    }
    let variables = bytes.split(|byte| *byte == 0).map(|variable| {
        let text = std::str::from_utf8(variable).map_err(|_| {
            let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
            format!("{:?} is not UTF-8", String::from_utf8_lossy(name))
        })?;
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            // Not the text itself: it could be a secret.
            _ => Err("NAME=VALUE is needed".to_owned()),
        }
    });
    variables.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_ends_with_a_nul_byte() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parse(b""), Ok(Vec::new()));
        assert_eq!(parse(b"A=b=c\nd\0B=\0"), Ok(vec![pair("A", "b=c\nd"), pair("B", "")]));
        for (bytes, words) in [
            (&b"A=b\0C=d"[..], "something is missing"),
            (b"secret\0", "NAME=VALUE is needed"),
            (b"=secret\0", "NAME=VALUE is needed"),
            (b"\0", "NAME=VALUE is needed"),
            (b"A=\xff\0", "\"A\" is not UTF-8"),
        ] {
            let error = parse(bytes).expect_err("wrong");
            assert!(error.contains(words) && !error.contains("secret"), "{error}");
        }
    }
}
