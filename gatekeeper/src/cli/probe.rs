//! `gatekeeper __probe`: one raw call that a sandbox must stop, for `profiles test`. Not for people.

use super::{EXIT_ERROR, complain};
use crate::sys::attempts::probe;
use std::ffi::OsString;
use std::io::Write;

pub fn main(words: &[OsString]) -> u8 {
    match probe(words) {
        Ok(said) => {
            let _ = writeln!(std::io::stdout(), "{said}");
            0
        }
        Err(error) => {
            complain(error);
            EXIT_ERROR
        }
    }
}
