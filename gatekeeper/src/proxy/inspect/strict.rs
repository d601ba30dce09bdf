//! What a client of HTTP/1 sends, checked byte by byte before hyper parses it. Request heads that two parsers could read
//! differently are refused, so that a request cannot hide in another one.

use super::decide::plain;

/// Why the bytes are refused.
pub type Ambiguous = &'static str;

const LONGEST_HEAD: usize = 64 * 1024;
const LONGEST_TRAILER: usize = 16 * 1024;

/// The position in the stream of requests.
#[derive(Debug, Default)]
pub enum Strict {
    /// In a head, of which this much was read.
    #[default]
    Start,
    Head(Vec<u8>),
    /// In a body of known length.
    Length(u64),
    /// In the size line of a chunk.
    Size(Vec<u8>),
    /// In a chunk, with its CRLF.
    Data(u64),
    Trailer(Vec<u8>),
}

impl Strict {
    /// Takes bytes, and appends those that may be passed on. A head is passed on as a whole.
    pub fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Ambiguous> {
        while !bytes.is_empty() {
            match self {
                Strict::Start => *self = Strict::Head(Vec::new()),
                Strict::Head(head) => {
                    let used = until_blank_line(head, bytes, LONGEST_HEAD, "the head of the request is too long")?;
                    bytes = bytes.get(used..).unwrap_or_default();
                    if head.ends_with(b"\r\n\r\n") {
                        let next = check_head(head)?;
                        out.append(head);
                        *self = next;
                    }
                }
                Strict::Length(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (now, later) = bytes.split_at(taken);
                    out.extend_from_slice(now);
                    bytes = later;
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Strict::Start;
                    }
                }
                Strict::Size(line) => {
                    let (byte, later) = bytes.split_first().unwrap_or((&0, &[]));
                    bytes = later;
                    line.push(*byte);
                    if line.ends_with(b"\r\n") {
                        let digits = line.strip_suffix(b"\r\n").unwrap_or_default();
                        let size =
                            std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
                        let size = size.filter(|_| digits.iter().all(u8::is_ascii_hexdigit)).ok_or(CHUNK)?;
                        out.append(line);
                        *self = if size == 0 { Strict::Trailer(b"\r\n".to_vec()) } else { Strict::Data(size + 2) };
                    } else if line.len() > 16 || *byte == b'\n' {
                        return Err(CHUNK);
                    }
                }
                Strict::Data(left) => {
                    let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let (now, later) = bytes.split_at(taken);
                    // The last two bytes are CR LF.
                    let first = *left;
                    for (byte, place) in now.iter().rev().zip((first - taken as u64 + 1)..) {
                        match place {
                            1 if *byte != b'\n' => return Err(CHUNK),
                            2 if *byte != b'\r' => return Err(CHUNK),
                            1 | 2 => {}
                            _ => break,
                        }
                    }
                    out.extend_from_slice(now);
                    bytes = later;
                    *left -= taken as u64;
                    if *left == 0 {
                        *self = Strict::Size(Vec::new());
                    }
                }
                Strict::Trailer(lines) => {
                    let used =
                        until_blank_line(lines, bytes, LONGEST_TRAILER, "the trailers of the request are too long")?;
                    bytes = bytes.get(used..).unwrap_or_default();
                    if lines.ends_with(b"\r\n\r\n") {
                        for (name, _) in headers(lines.get(2..).unwrap_or_default())? {
                            if FRAMING.contains(&plain(&name).as_str()) {
                                return Err("a trailer says where the request goes or ends");
                            }
                        }
                        out.extend_from_slice(lines.get(2..).unwrap_or_default());
                        *self = Strict::Start;
                    }
                }
            }
        }
        Ok(())
    }

    /// What was taken and not passed on, for a connection that is no longer HTTP.
    pub fn rest(&mut self) -> Vec<u8> {
        match std::mem::take(self) {
            Strict::Head(head) => head,
            _ => Vec::new(),
        }
    }
}

const CHUNK: Ambiguous = "a chunk of the request has no plain size, or does not end where it says";
const FRAMING: [&str; 6] = ["content-length", "transfer-encoding", "host", "content-encoding", "connection", "upgrade"];

/// Appends bytes up to and with the first empty line. Returns how many were used.
fn until_blank_line(lines: &mut Vec<u8>, bytes: &[u8], most: usize, too_long: Ambiguous) -> Result<usize, Ambiguous> {
    for (at, byte) in bytes.iter().enumerate() {
        let last = lines.last().copied();
        match byte {
            b'\n' if last != Some(b'\r') => return Err("a line ends with a bare LF"),
            0 => return Err("there is a NUL in the head"),
            other if *other != b'\n' && last == Some(b'\r') => return Err("there is a bare CR in the head"),
            _ => {}
        }
        if lines.len() >= most {
            return Err(too_long);
        }
        lines.push(*byte);
        if lines.ends_with(b"\r\n\r\n") {
            return Ok(at + 1);
        }
    }
    Ok(bytes.len())
}

/// Checks a whole head. Returns what follows it.
fn check_head(head: &[u8]) -> Result<Strict, Ambiguous> {
    let end = head.windows(2).position(|two| two == b"\r\n").unwrap_or(0);
    let line = head.get(..end).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words.as_slice() else { return Err("the request line has no three words") };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err("the method is not a token");
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err("the target has a character that must be escaped");
    }
    let newer = match *version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ => return Err("the version is neither HTTP/1.1 nor HTTP/1.0"),
    };
    let (mut length, mut chunked, mut hosts) = (None, false, 0);
    for (name, value) in headers(head.get(end + 2..).unwrap_or_default())? {
        match name.as_str() {
            "content-length" if length.is_some() => return Err("there are two Content-Length"),
            "content-length" => {
                let sound = is_plain_length(value.as_bytes());
                length = Some(value.parse().ok().filter(|_| sound).ok_or("Content-Length is not a plain number")?);
            }
            "transfer-encoding" if chunked => return Err("there are two Transfer-Encoding"),
            "transfer-encoding" if newer && value.eq_ignore_ascii_case("chunked") => chunked = true,
            "transfer-encoding" => return Err("Transfer-Encoding is not exactly chunked"),
            "host" => hosts += 1,
            other if ["content-length", "transfer-encoding", "host"].contains(&plain(other).as_str()) => {
                return Err("a header looks like one that says where the request goes or ends");
            }
            _ => {}
        }
    }
    if hosts > 1 {
        return Err("there are two Host headers");
    }
    Ok(match (length, chunked) {
        (Some(_), true) => return Err("there are both Content-Length and Transfer-Encoding"),
        (_, true) => Strict::Size(Vec::new()),
        (None | Some(0), false) => Strict::Start,
        (Some(length), false) => Strict::Length(length),
    })
}

/// The headers in these lines: names in lower case, values without blanks around them.
fn headers(lines: &[u8]) -> Result<Vec<(String, String)>, Ambiguous> {
    let mut headers = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)) {
        if line.is_empty() {
            continue;
        }
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err("a header is folded over two lines");
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or("a header has no colon")?;
        let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err("the name of a header is not a token");
        }
        if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err("a header has a control character");
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        headers.push((name, String::from_utf8_lossy(value).trim_matches([' ', '\t']).to_owned()));
    }
    Ok(headers)
}

/// A length that every parser reads the same: decimal digits, of which the first of several is not 0, which some take for octal.
pub fn is_plain_length(text: &[u8]) -> bool {
    (1..=18).contains(&text.len())
        && text.iter().all(u8::is_ascii_digit)
        && (text.len() == 1 || text.first() != Some(&b'0'))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the bytes in every block size from one byte on.
    fn taken(bytes: &[u8]) -> Result<Vec<u8>, Ambiguous> {
        let results: Vec<_> = [1, 2, 3, 7, 1000]
            .into_iter()
            .map(|size| {
                let (mut strict, mut out) = (Strict::default(), Vec::new());
                bytes.chunks(size).try_for_each(|block| strict.take(block, &mut out)).map(|()| out)
            })
            .collect();
        assert!(results.windows(2).all(|two| two[0] == two[1]), "{results:?}");
        results.into_iter().next().expect("some")
    }

    #[test]
    fn plain_requests_pass_as_they_are() {
        for request in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nx-sum: 1\r\n\r\n",
            "POST / HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert_eq!(taken(request.as_bytes()).as_deref(), Ok(request.as_bytes()), "{request:?}");
        }
    }

    #[test]
    fn nothing_ambiguous_passes() {
        let head = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
        let chunked = |body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let heads = [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1, 1",
            "Content-Length: +1",
            "Content-Length: -1",
            "Content-Length: 0x1",
            "Content-Length: 010",
            "Content-Length: 1 ",
            "Content-Length: 99999999999999999999",
            "Content-Length:",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 1",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \u{b}chunked",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding\t: chunked",
            " Transfer-Encoding: chunked",
            "X: 1\r\n Transfer-Encoding: chunked",
            "X: 1\n Transfer-Encoding: chunked",
            "X: 1\nContent-Length: 5",
            "X: 1\rContent-Length: 5",
            "X: a\0b",
            "X\0: a",
            "Transfer_Encoding: chunked",
            "Content_Length: 5",
            "Host: b",
            "No colon",
            ": empty",
            "A B: c",
        ];
        for headers in heads {
            let sound = headers == "Content-Length: 1 ";
            assert_eq!(taken(head(headers).as_bytes()).is_ok(), sound, "{headers:?}");
        }
        for body in [
            "5\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "5;x=y\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n",
            "+5\r\nhello\r\n",
            "\r\n",
            "g\r\n",
            "5\r\nhelloXX0\r\n\r\n",
            "5\r\nhello\n\n0\r\n\r\n",
            "ffffffffffffffffff\r\n",
            "0\r\nContent-Length: 5\r\n\r\n",
            "0\r\n folded: x\r\n\r\n",
            "0\nx: y\n\n",
        ] {
            assert!(taken(chunked(body).as_bytes()).is_err(), "{body:?}");
        }
        for line in [
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "G\u{e4}T / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(taken(line.as_bytes()).is_err(), "{line:?}");
        }
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000));
        assert!(taken(long.as_bytes()).is_err());
    }
}
