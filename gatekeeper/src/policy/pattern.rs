//! Patterns of denied paths: `**/.env`, `secrets/*.json`, `/etc/**/*.key`. Takes text, gives a matcher; reads no files.
//!
//! As in a gitignore file, `*`, `?` and `[...]` match within one name, `**` matches any number of directories, and `\`
//! quotes the next character. A walk matches name by name, and skips directories below which nothing can match.

use super::ValueError;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One entry of `paths.deny`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// A path without wildcards.
    Path(PathBuf),
    Pattern(Pattern),
}

/// A path with wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The part before the first wildcard: empty, or a path as in a policy.
    base: PathBuf,
    parts: Vec<Part>,
    /// Whether it matches only directories: it ends in `/` or `/**`.
    directories: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`
    Directories,
    Literal(OsString),
    Name(glob::Pattern),
}

const WILDCARDS: &[u8] = b"*?[";

/// The state of a walk: one bit for each part of the pattern that may match next. 0: nothing below can match.
pub type Progress = u64;

/// The bits of `Progress`, less one for the end of the pattern.
const MAX_PARTS: usize = 62;

const OPTIONS: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

impl Denied {
    /// Text without wildcards is a plain path, and a backslash in it an ordinary character.
    pub fn parse(path: &Path) -> Result<Denied, ValueError> {
        let bytes = path.as_os_str().as_bytes();
        if !bytes.iter().any(|byte| WILDCARDS.contains(byte)) {
            return Ok(Denied::Path(path.to_owned()));
        }
        let shown = path.to_string_lossy();
        let wrong = |why| ValueError::unusable("pattern", &shown, why);
        let mut names: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').collect();
        let mut directories = false;
        // Denying a directory denies what is below it.
        while let Some(b"" | b"**") = names.last().copied() {
            directories = true;
            names.pop();
        }
        let mut base: Vec<u8> = if bytes.starts_with(b"/") { b"/".to_vec() } else { Vec::new() };
        let mut parts: Vec<Part> = Vec::new();
        for name in names {
            match part(name).map_err(wrong)? {
                None => {}
                Some(Part::Literal(name)) if parts.is_empty() => {
                    if !matches!(base.last(), None | Some(b'/')) {
                        base.push(b'/');
                    }
                    base.extend_from_slice(name.as_bytes());
                }
                Some(Part::Literal(name)) if name == ".." => {
                    return Err(wrong("'..' cannot follow a wildcard"));
                }
                Some(Part::Directories) if parts.last() == Some(&Part::Directories) => {}
                Some(part) => parts.push(part),
            }
        }
        if parts.len() > MAX_PARTS {
            return Err(wrong("it has more than 62 parts"));
        }
        let base = PathBuf::from(OsString::from_vec(base));
        if parts.is_empty() {
            let here = base.as_os_str().is_empty();
            return Ok(Denied::Path(if here { PathBuf::from(".") } else { base }));
        }
        Ok(Denied::Pattern(Pattern { base, parts, directories }))
    }
}

/// An entry of `paths.deny` that denies just this path, even if it holds wildcards.
pub fn literal(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    if !bytes.iter().any(|byte| WILDCARDS.contains(byte)) {
        return path.to_owned();
    }
    let escaped = |byte: &u8| [b'\\', *byte].into_iter().skip(usize::from(!b"\\*?[".contains(byte)));
    PathBuf::from(OsString::from_vec(bytes.iter().flat_map(escaped).collect()))
}

/// A component without its backslashes, if it has no wildcard.
fn quoted(name: &[u8]) -> Option<OsString> {
    let mut bytes = name.iter();
    let mut literal = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => literal.push(*bytes.next()?),
            byte if WILDCARDS.contains(byte) => return None,
            byte => literal.push(*byte),
        }
    }
    Some(OsString::from_vec(literal))
}

/// One component of a pattern; `None` if it is empty or `.`.
fn part(name: &[u8]) -> Result<Option<Part>, &'static str> {
    if matches!(name, b"" | b".") {
        return Ok(None);
    }
    if name == b"**" {
        return Ok(Some(Part::Directories));
    }
    if let Some(literal) = quoted(name) {
        return Ok(Some(Part::Literal(literal)));
    }
    let text = std::str::from_utf8(name).map_err(|_| "a pattern has to be UTF-8")?;
    let (mut pattern, mut class) = (String::new(), false);
    let mut letters = text.chars().peekable();
    let escaped = |letter: char| glob::Pattern::escape(letter.encode_utf8(&mut [0; 4]));
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if !class => {
                let next = letters.next().ok_or("nothing follows the last '\\'")?;
                pattern.push_str(&escaped(next));
            }
            // Within a name, `**` means `*`.
            '*' if !class => {
                while letters.next_if_eq(&'*').is_some() {}
                pattern.push('*');
            }
            '?' if !class => pattern.push('?'),
            '[' if !class => {
                class = true;
                pattern.push('[');
                pattern.extend(letters.next_if(|letter| matches!(letter, '!' | '^')).map(|_| '!'));
                // The first character belongs to the class, even if it is `]`.
                pattern.extend(letters.next());
            }
            ']' if class => (class, _) = (false, pattern.push(']')),
            letter if class => pattern.push(letter),
            letter => pattern.push_str(&escaped(letter)),
        }
    }
    glob::Pattern::new(&pattern).map(|pattern| Some(Part::Name(pattern))).map_err(|_| "a '[' is not closed")
}

impl Pattern {
    /// The directory in which the pattern starts; empty for the working directory.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Whether it starts with `**/`, and so applies to every tree.
    pub fn is_anywhere(&self) -> bool {
        self.base.as_os_str().is_empty() && self.parts.first() == Some(&Part::Directories)
    }

    /// Whether it matches only directories.
    pub fn is_for_directories(&self) -> bool {
        self.directories
    }

    /// The state at the start of a walk.
    pub fn start(&self) -> Progress {
        self.closed_over(1)
    }

    /// Whether an entry of a directory matches, and the state of the walk below it.
    pub fn step(&self, progress: Progress, name: &OsStr) -> (bool, Progress) {
        // Bytes that are not UTF-8 become U+FFFD, which wildcards match.
        let mut text: Option<Cow<'_, str>> = None;
        let mut next = 0;
        for (at, part) in self.parts.iter().enumerate().filter(|(at, _)| progress & (1 << at) != 0) {
            next |= match part {
                Part::Directories => 1 << at,
                Part::Literal(literal) if literal == name => 2 << at,
                Part::Name(pattern)
                    if pattern.matches_with(text.get_or_insert_with(|| name.to_string_lossy()), OPTIONS) =>
                {
                    2 << at
                }
                _ => 0,
            };
        }
        let next = self.closed_over(next);
        let end = 1 << self.parts.len();
        (next & end != 0, next & !end)
    }

    /// `**` also matches zero directories, so its next part may match at once.
    fn closed_over(&self, mut progress: Progress) -> Progress {
        for (at, _) in self.parts.iter().enumerate().filter(|(_, part)| **part == Part::Directories) {
            progress |= (progress & (1 << at)) << 1;
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        match Denied::parse(Path::new(text)) {
            Ok(Denied::Pattern(pattern)) => pattern,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn matches(text: &str, path: &str) -> bool {
        let pattern = pattern(text);
        let mut progress = pattern.start();
        let names: Vec<&str> = path.split('/').collect();
        let (last, above) = names.split_last().expect("a name");
        for name in above {
            progress = pattern.step(progress, OsStr::new(name)).1;
        }
        pattern.step(progress, OsStr::new(last)).0
    }

    #[test]
    fn wildcards_stay_inside_a_name_and_two_stars_do_not() {
        for (text, yes, no) in [
            ("**/.env", &[".env", "a/.env", "a/b/c/.env"][..], &["a.env", ".env/x", "a/.envx"][..]),
            ("*.pem", &["x.pem", ".pem"], &["a/x.pem", "x.pem/y"]),
            ("secrets/*.json", &["a.json", ".json"], &["b/a.json", "a.jsonx"]),
            ("a*/**/k?y", &["a/key", "ab/c/d/kzy", "a/k?y"], &["key", "b/key", "ab/ky", "ab/k/y"]),
            ("**/[!a-c]*.k[e]y", &["d.key", "x/zz.key"], &["a.key", "x/b.key"]),
            ("**/[^x]", &["y"], &["x"]),
            ("**/x/**/y", &["x/y", "a/x/b/c/y"], &["y", "a/y"]),
            ("**/a\\*b*", &["a*b", "x/a*bc"], &["aXb"]),
            ("**/[*][?][[]", &["*?["], &["abc"]),
            ("**/[]]x*", &["]x", "]xy"], &["x"]),
            ("**/a**b", &["ab", "axxb"], &["a/b"]),
            ("**/*.{a,b}", &["x.{a,b}"], &["x.a"]),
        ] {
            yes.iter().for_each(|path| assert!(matches(text, path), "{text} should match {path}"));
            no.iter().for_each(|path| assert!(!matches(text, path), "{text} should not match {path}"));
        }
        assert_eq!(pattern("secrets/*.json").base(), Path::new("secrets"));
        assert_eq!(pattern("/etc/**/*.key").base(), Path::new("/etc"));
        assert_eq!(pattern("/*.key").base(), Path::new("/"));
        assert_eq!(pattern("~/x/*").base(), Path::new("~/x"));
        assert!(pattern("**/x").is_anywhere() && !pattern("a/**/x").is_anywhere() && !pattern("/**/x").is_anywhere());
    }

    #[test]
    fn names_that_are_no_text_are_matched_by_wildcards() {
        let pattern = pattern("**/*.pem");
        assert!(pattern.step(pattern.start(), OsStr::from_bytes(b"\xff\xfe.pem")).0);
    }

    #[test]
    fn a_directory_below_which_nothing_can_match_is_not_entered() {
        let pattern = pattern("a/*/*.json");
        let (_, below) = pattern.step(pattern.start(), OsStr::new("b"));
        assert_ne!(below, 0);
        let (matched, below) = pattern.step(below, OsStr::new("x.json"));
        assert_eq!((matched, below), (true, 0));
        assert_eq!(pattern.step(pattern.step(pattern.start(), OsStr::new("b")).1, OsStr::new("c")), (false, 0));
    }

    #[test]
    fn a_literal_denies_its_own_path_whatever_it_holds() {
        for bytes in [&b"/a/b"[..], b"/a\\b", b"/x[.log", b"/x\\*.log", b"/[a]/**/?", b"/\xff[/\\", b"/*", b"x*/y\\"] {
            let path = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(Denied::parse(&literal(path)), Ok(Denied::Path(path.to_owned())), "{path:?}");
        }
    }

    #[test]
    fn without_wildcards_it_is_a_path() {
        for (text, path) in [
            ("a/b", "a/b"),
            (r"a\b", r"a\b"),
            (r"a\*b", "a*b"),
            ("~/x/**", "~/x"),
            ("**", "."),
            ("/**", "/"),
            (r"./odd\[1\]/", "odd[1]"),
        ] {
            assert_eq!(Denied::parse(Path::new(text)), Ok(Denied::Path(path.into())), "{text}");
        }
        assert!(pattern("**/secrets/**").is_for_directories() && pattern("a*/").is_for_directories());
    }

    #[test]
    fn what_is_no_pattern_is_an_error_that_names_it() {
        for text in ["**/[a", "*/../x", r"*\", "**/[", "[!"] {
            let error = Denied::parse(Path::new(text)).expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
        assert!(Denied::parse(Path::new(OsStr::from_bytes(b"*\xff"))).is_err());
    }
}
