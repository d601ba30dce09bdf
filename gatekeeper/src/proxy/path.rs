//! The path of a request, as a server may read it, and whether a pattern matches it.
//!
//! Servers differ in what they decode, merge and cut off. So a path is turned into all of its plausible readings, and a
//! rule has to allow every one of them. What has no sound reading is refused.

/// Why a path is refused whatever the rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Odd {
    #[error("its path does not start with /")]
    Relative,
    #[error("its path has a backslash, which some servers read as /")]
    Backslash,
    #[error("its path has a . or .. segment")]
    Dots,
    #[error("its path has a control character")]
    Control,
    #[error("its path has a % that starts no escape")]
    Escape,
    #[error("its path is escaped more than twice")]
    Nested,
    #[error("its path has a character that must be escaped")]
    Unescaped,
}

/// The readings of one path, each as decoded segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readings(Vec<Vec<Vec<u8>>>);

/// How often a path is decoded: some servers decode twice.
const MOST_DECODED: usize = 3;

impl Readings {
    /// Takes the path of a request without its query.
    pub fn of(path: &str) -> Result<Readings, Odd> {
        if !path.starts_with('/') {
            return Err(Odd::Relative);
        }
        if path.bytes().any(|byte| !byte.is_ascii_graphic() || b"#\"<>^`{|}".contains(&byte)) {
            return Err(if path.contains(|letter: char| letter.is_ascii_control()) {
                Odd::Control
            } else {
                Odd::Unescaped
            });
        }
        // Segments are split first, then decoded: a server that does so sees %2F as a part of a name.
        let first: Vec<Vec<u8>> =
            path.split('/').skip(1).map(|segment| decoded(segment.as_bytes())).collect::<Result<_, _>>()?;
        let mut readings = vec![first];
        let mut whole = path.as_bytes().to_vec();
        for round in 0.. {
            // Sound the first time; afterwards a % that starts no escape is just a character, and what follows is decoded.
            let next = if round == 0 { decoded(&whole)? } else { lenient(&whole) };
            if next == whole {
                break;
            }
            if round == MOST_DECODED {
                return Err(Odd::Nested);
            }
            readings.push(segments(&next));
            whole = next;
        }
        // Some servers decode first and look for the query then (/a%3fx).
        readings.extend(readings.iter().filter_map(|reading| without_query(reading)).collect::<Vec<_>>());
        for reading in readings.clone() {
            check(&reading)?;
            // Some servers cut parameters off (/a;x=1/b), some merge slashes.
            let cut: Vec<Vec<u8>> = reading.iter().map(|segment| before(segment, b';')).collect();
            readings.push(merged(&cut));
            readings.push(cut);
            readings.push(merged(&reading));
        }
        readings.sort();
        readings.dedup();
        Ok(Readings(readings))
    }

    /// Whether one of these patterns matches every reading.
    pub fn all_match(&self, patterns: &[String]) -> bool {
        self.0.iter().all(|reading| patterns.iter().any(|pattern| matches(pattern, reading)))
    }
}

fn segments(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').skip(1).map(<[u8]>::to_vec).collect()
}

fn check(reading: &[Vec<u8>]) -> Result<(), Odd> {
    for segment in reading {
        if segment.contains(&b'\\') {
            return Err(Odd::Backslash);
        }
        if segment.iter().any(u8::is_ascii_control) {
            return Err(Odd::Control);
        }
        // Tomcat reads /..;x/ as /../; Windows drops blanks and dots at the end.
        let name = before(segment, b';').trim_ascii().to_vec();
        if !name.is_empty() && name.iter().all(|byte| *byte == b'.') {
            return Err(Odd::Dots);
        }
        // Overlong UTF-8 forms of . and / (C0 AE, C0 AF, E0 80 AE).
        if std::str::from_utf8(segment).is_err() && segment.iter().any(|byte| matches!(byte, 0xc0 | 0xc1 | 0xe0 | 0xf0))
        {
            return Err(Odd::Dots);
        }
        // A server that normalises Unicode (NFKC) reads these as dots and slashes.
        let text =
            String::from_utf8_lossy(&name).replace(['\u{2024}', '\u{2025}', '\u{2026}', '\u{fe52}', '\u{ff0e}'], ".");
        if !text.is_empty() && text.chars().all(|letter| letter == '.') {
            return Err(Odd::Dots);
        }
        if String::from_utf8_lossy(segment).contains(['\u{ff0f}', '\u{ff3c}', '\u{fe68}']) {
            return Err(Odd::Backslash);
        }
    }
    Ok(())
}

fn before(segment: &[u8], end: u8) -> Vec<u8> {
    segment.split(|byte| *byte == end).next().unwrap_or_default().to_vec()
}

/// What is in front of a decoded ? or #; `None` without one.
fn without_query(reading: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let ends = |byte: &u8| matches!(byte, b'?' | b'#');
    let last = reading.iter().position(|segment| segment.iter().any(ends))?;
    let mut cut = reading.get(..=last).unwrap_or_default().to_vec();
    if let Some(segment) = cut.last_mut() {
        segment.truncate(segment.iter().position(ends).unwrap_or(segment.len()));
    }
    Some(cut)
}

/// Without empty segments, except at the end.
fn merged(reading: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let last = reading.len().saturating_sub(1);
    let kept = reading.iter().enumerate().filter(|(at, segment)| !segment.is_empty() || *at == last);
    kept.map(|(_, segment)| segment.clone()).collect()
}

/// Decodes each %XX once.
pub fn decoded(bytes: &[u8]) -> Result<Vec<u8>, Odd> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(*byte).to_digit(16)).ok_or(Odd::Escape);
        out.push((digit()? * 16 + digit()?) as u8);
    }
    Ok(out)
}

/// Decodes escapes, and keeps what is none.
pub fn lenient(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match bytes.get(at..at + 3).filter(|_| *byte == b'%').and_then(|escape| decoded(escape).ok()) {
            Some(one) => {
                out.extend(one);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

/// Whether a pattern of a policy matches one reading.
fn matches(pattern: &str, reading: &[Vec<u8>]) -> bool {
    let pattern: Vec<&[u8]> = pattern.as_bytes().split(|byte| *byte == b'/').skip(1).collect();
    fits(&pattern, reading)
}

fn fits(pattern: &[&[u8]], path: &[Vec<u8>]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        // At the end: one or more segments, which may be empty as in /v1/.
        ([b"**"], path) => !path.is_empty(),
        ([b"**", rest @ ..], path) => {
            (0..=path.len()).any(|skipped| fits(rest, path.get(skipped..).unwrap_or_default()))
        }
        ([first, rest @ ..], [segment, others @ ..]) => segment_fits(first, segment) && fits(rest, others),
        _ => false,
    }
}

/// `*` stands for any characters of one segment. A whole `*` needs at least one.
fn segment_fits(pattern: &[u8], segment: &[u8]) -> bool {
    if pattern == b"*" {
        return !segment.is_empty();
    }
    match pattern.iter().position(|byte| *byte == b'*') {
        None => pattern == segment,
        Some(star) => {
            let (front, rest) = pattern.split_at(star);
            let rest = rest.get(1..).unwrap_or_default();
            segment.strip_prefix(front).is_some_and(|left| {
                (0..=left.len()).any(|skipped| segment_fits_rest(rest, left.get(skipped..).unwrap_or_default()))
            })
        }
    }
}

fn segment_fits_rest(pattern: &[u8], segment: &[u8]) -> bool {
    match pattern.iter().position(|byte| *byte == b'*') {
        None => pattern == segment,
        Some(_) => segment_fits(pattern, segment) || pattern == b"*",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(path: &str, patterns: &[&str]) -> bool {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Readings::of(path).is_ok_and(|readings| readings.all_match(&patterns))
    }

    #[test]
    fn patterns_match_whole_segments() {
        for (pattern, yes, no) in [
            ("/v1/**", &["/v1/", "/v1/a", "/v1/a/b/"][..], &["/v1", "/v1x", "/v2/a", "/", "/V1/a", "/a/v1/b"][..]),
            ("/v1/*", &["/v1/a"], &["/v1/", "/v1/a/b", "/v1", "/v1/a/"]),
            ("/**", &["/", "/a", "/a/b"], &[]),
            ("/", &["/"], &["/a"]),
            ("/a/**/z", &["/a/z", "/a/b/z", "/a/b/c/z"], &["/a/b", "/z", "/a/zz"]),
            ("/x/*.json", &["/x/a.json", "/x/.json"], &["/x/a.json/b", "/x/a.jsonx", "/x/"]),
            ("/x/a*b*c", &["/x/abc", "/x/a1b2c", "/x/abbcc"], &["/x/acb", "/x/ab"]),
            ("/r/*/p", &["/r/o/p"], &["/r/o/q/p", "/r//p"]),
        ] {
            yes.iter().for_each(|path| assert!(allowed(path, &[pattern]), "{pattern} {path}"));
            no.iter().for_each(|path| assert!(!allowed(path, &[pattern]), "{pattern} {path}"));
        }
    }

    #[test]
    fn every_reading_has_to_match() {
        // A part of a name, or two segments.
        assert!(allowed("/npm/@scope%2fname", &["/npm/**"]));
        assert!(!allowed("/npm/@scope%2fname", &["/npm/*"]));
        assert!(allowed("/v1/%61", &["/v1/a"]) && !allowed("/v1/%2561", &["/v1/a"]));
        assert!(!allowed("/v1//admin", &["/v1/*/admin"]) && allowed("/v1//x", &["/v1/**"]));
        assert!(!allowed("//evil/v1/a", &["/v1/**"]) && !allowed("/a;/v1/x", &["/a;/**"]));
        assert!(!allowed("/open;x/../v1", &["/**"]));
        assert!(!allowed("/a/;x/b", &["/a/;x/b", "/a//b"]), "cut and merged: /a/b");
        assert!(allowed("/x/a%3f.json", &["/x/**"]) && !allowed("/x/admin%3f.json", &["/x/*.json"]));
        assert!(!allowed("/x/admin%2523.json", &["/x/*.json"]) && allowed("/x/100%25", &["/x/*"]));
        for path in ["/v1%2fadmin", "/v1/x%2f..%2f..%2fadmin", "/v1;admin/x"] {
            assert!(!allowed(path, &["/v1/*"]), "{path}");
        }
    }

    #[test]
    fn odd_paths_have_no_reading() {
        for (path, odd) in [
            ("/v1/../admin", Odd::Dots),
            ("/v1/./x", Odd::Dots),
            ("/v1/..", Odd::Dots),
            ("/v1/%2e%2e/admin", Odd::Dots),
            ("/v1/.%2E/admin", Odd::Dots),
            ("/v1/%2e%2e%2fadmin", Odd::Dots),
            ("/v1/%252e%252e/admin", Odd::Dots),
            ("/v1/%252e%252e%252fadmin", Odd::Dots),
            ("/v1/%25zz/%252e%252e/admin", Odd::Dots),
            ("/v1/%25/%252e%252e%252fadmin", Odd::Dots),
            ("/v1/%25zz/%255cadmin", Odd::Backslash),
            ("/v1/..%3fx", Odd::Dots),
            ("/v1/..%2523x", Odd::Dots),
            ("/v1/..;/admin", Odd::Dots),
            ("/v1/..%3b/admin", Odd::Dots),
            ("/v1/.../x", Odd::Dots),
            ("/v1/%20..%20/x", Odd::Dots),
            ("/v1/%c0%ae%c0%ae/admin", Odd::Dots),
            ("/v1/%ef%bc%8e%ef%bc%8e/admin", Odd::Dots),
            ("/v1/%e2%80%a5/admin", Odd::Dots),
            ("/v1/x%ef%bc%8fadmin", Odd::Backslash),
            ("/v1\\..\\admin", Odd::Backslash),
            ("/v1/%5c..%5cadmin", Odd::Backslash),
            ("/v1/%255cadmin", Odd::Backslash),
            ("/v1/%00", Odd::Control),
            ("/v1/x%0d%0aHost:%20y", Odd::Control),
            ("/v1/a\tb", Odd::Control),
            ("/v1/%zz", Odd::Escape),
            ("/v1/%2", Odd::Escape),
            ("/v1/%25252525", Odd::Nested),
            ("/v1/a#b", Odd::Unescaped),
            ("/v1/b\u{fc}cher", Odd::Unescaped),
            ("v1", Odd::Relative),
            ("*", Odd::Relative),
            ("", Odd::Relative),
        ] {
            assert_eq!(Readings::of(path), Err(odd), "{path}");
        }
    }
}
