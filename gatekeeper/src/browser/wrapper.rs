//! The wrapper script that an automation library starts in place of the browser.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A shell script that executes gatekeeper with these words, followed by the arguments that the library adds.
pub fn script(gatekeeper: &OsStr, flags: &[OsString], command: &[OsString]) -> Vec<u8> {
    let mut text = b"#!/bin/sh\n# Written by gatekeeper browser --wrapper.\nexec ".to_vec();
    let words = std::iter::once(gatekeeper).chain([OsStr::new("browser")]);
    let words = words.chain(flags.iter().map(OsString::as_os_str)).chain([OsStr::new("--")]);
    for word in words.chain(command.iter().map(OsString::as_os_str)) {
        quote(word.as_bytes(), &mut text);
        text.push(b' ');
    }
    text.extend_from_slice(b"\"$@\"\n");
    text
}

fn quote(word: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        out.extend_from_slice(word);
        return;
    }
    out.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => out.extend_from_slice(b"'\\''"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_arrives_unchanged() {
        let odd = OsString::from("a 'b' $(c)\n\"d\"");
        let text = script(OsStr::new("/bin/echo"), std::slice::from_ref(&odd), &["x".into(), "".into()]);
        let text = String::from_utf8(text).expect("text");
        let shell = text.replace("exec /bin/echo browser", "printf '%s|'");
        let done = std::process::Command::new("sh").args(["-c", &shell, "sh", "last one"]).output().expect("sh");
        assert_eq!(String::from_utf8_lossy(&done.stdout), format!("{}|--|x||last one|", odd.display()));
    }
}
