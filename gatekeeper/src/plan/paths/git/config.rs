//! The syntax of git's configuration files: bytes in, settings out. As git's own parser (config.c) reads it, which is
//! what git-config(1) describes.

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// As git names it: `section.key` or `section.subsection.key`, all but the subsection in lower case.
    pub name: Vec<u8>,
    /// `None` for a name without `=`, which git takes as true.
    pub value: Option<Vec<u8>>,
    /// Whether it holds without a condition.
    pub certain: bool,
}

impl Setting {
    /// The section and the key, without the subsection between them.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        let mut dots = self.name.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
        let first = dots.next().unwrap_or(0);
        let last = dots.next_back().unwrap_or(first);
        (&self.name[..first], self.name.get(last + 1..).unwrap_or_default())
    }
}

/// The settings of a file, and whether all of it was understood. Git refuses to run with a file that it does not
/// understand, but a later edit may make it valid: the lines around the broken ones count.
pub fn parse(text: &[u8]) -> (Vec<Setting>, bool) {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut reader = Reader { rest: text, last: b'\n', ended: false };
    let (mut section, mut settings, mut understood) = (Vec::new(), Vec::new(), true);
    loop {
        let read = match reader.next() {
            b'\n' if reader.ended => return (settings, understood),
            byte if is_space(byte) => Some(()),
            b'#' | b';' => {
                reader.skip_line();
                Some(())
            }
            b'[' => reader.section().map(|name| section = name),
            byte if byte.is_ascii_alphabetic() => reader.setting(byte, &section).map(|setting| settings.push(setting)),
            _ => None,
        };
        if read.is_none() {
            understood = false;
            reader.skip_line();
        }
    }
}

struct Reader<'t> {
    rest: &'t [u8],
    last: u8,
    ended: bool,
}

impl Reader<'_> {
    /// The next byte. The end reads as the end of a line, and so does the end of a line on Windows.
    fn next(&mut self) -> u8 {
        let (byte, rest) = match self.rest {
            [b'\r', b'\n', rest @ ..] => (b'\n', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => {
                self.ended = true;
                (b'\n', self.rest)
            }
        };
        (self.last, self.rest) = (byte, rest);
        byte
    }

    fn skip_line(&mut self) {
        while self.last != b'\n' {
            self.next();
        }
    }

    /// `[section]`, `[section "subsection"]` or the old `[section.subsection]`, after the bracket.
    fn section(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        loop {
            match self.next() {
                b']' => return Some(name),
                b'\n' => return None,
                byte if is_space(byte) => return self.subsection(name),
                byte if is_key(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return None,
            }
        }
    }

    fn subsection(&mut self, mut name: Vec<u8>) -> Option<Vec<u8>> {
        while is_space(self.last) && self.last != b'\n' {
            self.next();
        }
        if self.last != b'"' {
            return None;
        }
        name.push(b'.');
        loop {
            match self.next() {
                b'\n' => return None,
                b'"' => return (self.next() == b']').then_some(name),
                b'\\' => match self.next() {
                    b'\n' => return None,
                    byte => name.push(byte),
                },
                byte => name.push(byte),
            }
        }
    }

    /// `key = value` or `key`, after its first letter.
    fn setting(&mut self, first: u8, section: &[u8]) -> Option<Setting> {
        let mut name = [section, b"."].concat();
        name.push(first.to_ascii_lowercase());
        while is_key(self.next()) {
            name.push(self.last.to_ascii_lowercase());
        }
        while matches!(self.last, b' ' | b'\t') {
            self.next();
        }
        let value = match self.last {
            b'\n' => None,
            b'=' => Some(self.value()?),
            _ => return None,
        };
        Some(Setting { name, value, certain: true })
    }

    /// What follows `=`. White space around it does not belong to it, unless it is quoted.
    fn value(&mut self) -> Option<Vec<u8>> {
        let (mut value, mut quoted, mut kept) = (Vec::new(), false, 0);
        loop {
            match self.next() {
                b'\n' if quoted => return None,
                b'\n' => break,
                byte if is_space(byte) && !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                    continue;
                }
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                b'\\' => match self.next() {
                    // The value goes on in the next line.
                    b'\n' => continue,
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    byte @ (b'\\' | b'"') => value.push(byte),
                    _ => return None,
                },
                b'"' => quoted = !quoted,
                byte => value.push(byte),
            }
            kept = value.len();
        }
        value.truncate(kept);
        // To git, which is written in C, a zero byte ends the value.
        value.truncate(value.iter().position(|byte| *byte == 0).unwrap_or(value.len()));
        Some(value)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a text as `name=value` lines.
    fn shown(text: &str) -> (String, bool) {
        let (settings, understood) = parse(text.as_bytes());
        let line = |setting: &Setting| {
            let value = setting.value.as_ref().map(|value| format!("={}", String::from_utf8_lossy(value)));
            format!("{}{}\n", String::from_utf8_lossy(&setting.name), value.unwrap_or_default())
        };
        (settings.iter().map(line).collect(), understood)
    }

    #[track_caller]
    fn says(text: &str, expected: &str) {
        assert_eq!(shown(text), (expected.to_owned(), true), "{text:?}");
    }

    #[test]
    fn values_are_what_git_takes_them_for() {
        for (value, expected) in [
            (".h", ".h"),
            (".h # x", ".h"),
            (".h;x", ".h"),
            ("\".h\" ; c", ".h"),
            (".\"h\"", ".h"),
            ("\".h \"  ", ".h "),
            ("a  b\t", "a  b"),
            ("\\\n .h", ".h"),
            (".\\\nh", ".h"),
            ("\"a # b\"", "a # b"),
            ("\\\"a\\\\b\\t\\\"", "\"a\\b\t\""),
            ("", ""),
            (".h\r", ".h"),
            (".h\0x", ".h"),
        ] {
            says(&format!("[core]\n\thooksPath = {value}\n"), &format!("core.hookspath={expected}\n"));
        }
    }

    #[test]
    fn names_are_what_git_takes_them_for() {
        says("[CORE] HooksPath=a\n[core]\nbare\n", "core.hookspath=a\ncore.bare\n");
        says("[includeIf \"gitdir:~/W]\\\"\\x/\"] path = c", "includeif.gitdir:~/W]\"x/.path=c\n");
        says("[A.B]\nc = 1\n", "a.b.c=1\n");
        says("\u{feff}# c\n; c\n[a]b=1#\n  [a]\n", "a.b=1\n");
        says("", "");
        let (settings, _) = parse(b"[a \"b.c\"]d=1\n[e]f\n");
        let parts: Vec<_> = settings.iter().map(Setting::parts).collect();
        assert_eq!(parts, [(&b"a"[..], &b"d"[..]), (b"e", b"f")]);
    }

    #[test]
    fn what_git_refuses_is_not_understood_and_hides_nothing_after_it() {
        for broken in
            ["[core", "[co_re]", "[a b]", "[a \"b]", "[a \"b\" ]", "= x", "a b", "a_b = 1", "a = \"x", "a = \\q"]
        {
            let (settings, understood) = shown(&format!("[core]\n{broken}\n[core]\nhooksPath = .h\n"));
            assert!(!understood && settings.ends_with("core.hookspath=.h\n"), "{broken:?}: {settings}");
        }
    }
}
