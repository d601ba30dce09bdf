//! binfmt_misc: interpreters that an administrator registered for files, by magic or by extension.
//!
//! Takes the text of /proc/sys/fs/binfmt_misc/NAME, gives a matcher. The kernel tries these before its own formats.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    pub name: String,
    pub interpreter: OsString,
    /// P keeps `argv[0]`, O passes a descriptor, C takes the file's credentials, F holds the interpreter open.
    pub flags: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Extension(Vec<u8>),
    Magic { offset: usize, magic: Vec<u8>, mask: Vec<u8> },
}

impl Handler {
    /// `None` for a disabled handler, and for `register` and `status`.
    pub fn parse(name: &str, text: &str) -> Option<Handler> {
        let mut lines = text.lines();
        if lines.next()?.trim() != "enabled" {
            return None;
        }
        let (mut interpreter, mut flags) = (None, String::new());
        let (mut offset, mut magic, mut mask, mut extension) = (0, None, None, None);
        for line in lines {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "interpreter" => interpreter = Some(OsString::from(value)),
                "flags:" => flags = value.trim().into(),
                "offset" => offset = value.trim().parse().ok()?,
                "magic" => magic = Some(from_hex(value)?),
                "mask" => mask = Some(from_hex(value)?),
                "extension" => extension = Some(value.strip_prefix('.').unwrap_or(value).as_bytes().to_vec()),
                _ => {}
            }
        }
        let rule = match (extension, magic) {
            (Some(extension), _) => Rule::Extension(extension),
            (None, Some(magic)) => {
                let mask = mask.unwrap_or_else(|| vec![0xff; magic.len()]);
                Rule::Magic { offset, magic, mask }
            }
            (None, None) => return None,
        };
        Some(Handler { name: name.into(), interpreter: interpreter?, flags, rule })
    }

    pub fn takes(&self, path: &Path, head: &[u8]) -> bool {
        match &self.rule {
            Rule::Extension(extension) => {
                let bytes = path.as_os_str().as_bytes();
                let dot = bytes.iter().rposition(|byte| *byte == b'.');
                dot.and_then(|dot| bytes.get(dot + 1..)) == Some(extension.as_slice())
            }
            Rule::Magic { offset, magic, mask } => {
                // The kernel compares within its 256-byte buffer, which is zero-filled after the end of the file.
                let at = |index: usize| head.get(index).filter(|_| index < super::script::SEEN).copied().unwrap_or(0);
                magic.iter().zip(mask).enumerate().all(|(i, (magic, mask))| (at(offset + i) ^ magic) & mask == 0)
            }
        }
    }

    /// Whether the kernel does more than prepend words to the arguments.
    pub fn needs_the_kernel(&self) -> bool {
        self.flags.contains(['O', 'C'])
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QEMU: &str = "enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: OCF\noffset 0\n\
        magic 7f454c460201010000000000000000000200b700\nmask ffffffffffffff00fffffffffffffffffeffffff\n";

    #[test]
    fn a_magic_is_compared_under_its_mask() {
        let handler = Handler::parse("qemu-aarch64", QEMU).expect("valid");
        let mut head = vec![0; 64];
        head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        head[16..20].copy_from_slice(&[3, 0, 0xb7, 0]);
        assert!(handler.takes(Path::new("/x"), &head), "ET_DYN differs from ET_EXEC only where the mask is 0");
        head[18] = 62;
        assert!(!handler.takes(Path::new("/x"), &head));
        assert!(handler.needs_the_kernel());
    }

    #[test]
    fn an_extension_is_what_follows_the_last_dot() {
        let handler = Handler::parse("jar", "enabled\ninterpreter /usr/bin/jexec\nflags: \nextension .jar\n").unwrap();
        assert!(handler.takes(Path::new("/a/b.c.jar"), b"PK"));
        assert!(!handler.takes(Path::new("/a/jar"), b"PK"));
        assert!(!handler.needs_the_kernel());
    }

    #[test]
    fn a_disabled_or_malformed_handler_is_none() {
        assert_eq!(Handler::parse("x", "disabled\ninterpreter /x\nextension .x\n"), None);
        assert_eq!(Handler::parse("status", "enabled\n"), None);
        assert_eq!(Handler::parse("x", "enabled\ninterpreter /x\nmagic 0\n"), None);
    }
}
