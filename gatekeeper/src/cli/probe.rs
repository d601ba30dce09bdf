//! `gatekeeper __probe`: makes one raw syscall that a profile must deny. Internal to `profiles test`.

use super::failed;
use crate::sys::attempts::probe;
use std::ffi::OsString;
use std::io::Write;

pub fn main(words: &[OsString]) -> u8 {
    match probe(words) {
        Ok(said) => {
            let _ = writeln!(std::io::stdout(), "{said}");
            0
        }
        Err(error) => failed(error),
    }
}
