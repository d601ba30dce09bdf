//! Comparisons of paths by their bytes. Those of `Path` parse both paths into components, and a plan makes thousands of them.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether a path is absolute and has only one spelling: no empty component, `.`, `..`, or slash at its end.
pub fn is_plain(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let Some(names) = bytes.strip_prefix(b"/") else { return false };
    names.is_empty() || names.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

/// What is before and after the last slash of an absolute path; `None` if that is no name, as in `/`. Where the rest is plain, the
/// path is too.
pub fn last(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/')?;
    let (above, name) = (bytes.get(..slash.max(1))?, bytes.get(slash + 1..)?);
    // Before a second slash at the beginning, there is no directory.
    let named = bytes.first() == Some(&b'/') && slash != 1 && !matches!(name, b"" | b"." | b"..");
    named.then(|| (Path::new(OsStr::from_bytes(above)), OsStr::from_bytes(name)))
}

/// `Path::starts_with`.
pub fn is_under(path: &Path, top: &Path) -> bool {
    let (bytes, prefix) = (path.as_os_str().as_bytes(), top.as_os_str().as_bytes());
    let same = common(bytes, prefix);
    match (bytes.get(same), prefix.get(same)) {
        (None | Some(b'/'), None) => true,
        // Up to here both have the same components. What comes next decides, unless it can be spelled in another way.
        (next, other) => {
            let ends = |byte: Option<&u8>| matches!(byte, None | Some(b'/'));
            let unclear = match same.checked_sub(1).and_then(|at| bytes.get(at)) {
                None => true,
                Some(b'/') => ends(next) || ends(other) || next == Some(&b'.') || other == Some(&b'.'),
                Some(b'.') => ends(next) || ends(other),
                Some(_) => next.is_none() && other == Some(&b'/'),
            };
            unclear && path.starts_with(top)
        }
    }
}

/// The order of two plain paths, which is that of `Path`: component by component.
pub fn order(one: &Path, other: &Path) -> Ordering {
    let (one, other) = (one.as_os_str().as_bytes(), other.as_os_str().as_bytes());
    let same = common(one, other);
    // The end of a path comes first, then the end of a component.
    let rank = |bytes: &[u8]| bytes.get(same).map(|byte| (*byte != b'/', *byte));
    rank(one).cmp(&rank(other))
}

/// How many bytes are the same at the beginning.
fn common(one: &[u8], other: &[u8]) -> usize {
    const WORD: usize = 8;
    let words = one.chunks_exact(WORD).zip(other.chunks_exact(WORD)).take_while(|(one, other)| one == other);
    let start = WORD * words.count();
    let rest = |bytes: &'_ [u8]| bytes.len().min(start);
    let (one, other) = (&one[rest(one)..], &other[rest(other)..]);
    start + one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Every text of up to five of these bytes.
    fn texts() -> Vec<PathBuf> {
        let mut texts = vec![String::new()];
        let mut from = 0;
        for _ in 0..5 {
            let to = texts.len();
            for at in from..to {
                for letter in ["/", ".", "a", "-"] {
                    texts.push(format!("{}{letter}", texts[at]));
                }
            }
            from = to;
        }
        // Beyond the length of a word.
        texts.extend(
            ["/abcdefgh/a", "/abcdefgh/b", "/abcdefgh", "/abcdefgh-", "/abcdefg", "/abcdefgh/a/b"].map(String::from),
        );
        texts.into_iter().map(PathBuf::from).collect()
    }

    #[test]
    fn comparisons_say_what_those_of_path_say() {
        let texts = texts();
        for one in &texts {
            for other in &texts {
                assert_eq!(is_under(one, other), one.starts_with(other), "{one:?} under {other:?}");
                if is_plain(one) && is_plain(other) {
                    assert_eq!(order(one, other), one.cmp(other), "{one:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn a_plain_path_is_spelled_like_its_components() {
        for text in texts() {
            let again: PathBuf = text.components().collect();
            let up = text.components().any(|part| part.as_os_str() == "..");
            assert_eq!(is_plain(&text), text.is_absolute() && !up && again.as_os_str() == text.as_os_str(), "{text:?}");
            let parts = last(&text);
            assert_eq!(
                parts.is_some_and(|(above, _)| is_plain(above)),
                is_plain(&text) && text.parent().is_some(),
                "{text:?}"
            );
            if is_plain(&text) {
                assert_eq!(parts, text.parent().zip(text.file_name()), "{text:?}");
            }
        }
    }
}
