//! Names as git prints them in a patch.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as git prints it: quoted if it has a control character, a quote, a backslash or a byte above 127.
pub fn quoted(path: &Path) -> String {
    String::from_utf8_lossy(&prefixed(b"", path.as_os_str().as_bytes())).into_owned()
}

pub fn prefixed(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let odd = |byte: &u8| !(0x20..0x7f).contains(byte) || matches!(byte, b'"' | b'\\');
    // git quotes no spaces in a patch, but patch(1) would cut the name at the first one.
    let cut = !prefix.is_empty() && name.contains(&b' ');
    if !cut && !name.iter().any(odd) {
        return [prefix, name].concat();
    }
    let mut text = [b"\"", prefix].concat();
    for byte in name {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
            byte if odd(byte) => text.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            byte => text.push(*byte),
        }
    }
    text.push(b'"');
    text
}
