//! A web server on loopback: pages of the test, a download, a WebSocket echo, and a record of requests and cookies.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub struct Site {
    pub port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

/// Path, type, body.
type Pages = Arc<HashMap<&'static str, (&'static str, &'static str)>>;

impl Site {
    pub fn of(pages: &[(&'static str, &'static str, &'static str)]) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let pages: Pages = Arc::new(pages.iter().map(|(path, kind, body)| (*path, (*kind, *body))).collect());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (pages, kept) = (pages.clone(), kept.clone());
                std::thread::spawn(move || drop(serve(client, &pages, &kept)));
            }
        });
        Site { port, asked }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The paths requested so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

fn serve(client: TcpStream, pages: &Pages, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut client = client;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
        let (mut key, mut cookie) = (None, String::new());
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            match header.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("sec-websocket-key") => key = Some(value.to_owned()),
                Some((name, value)) if name.eq_ignore_ascii_case("cookie") => cookie = value.to_owned(),
                Some(_) => {}
                None => break,
            }
        }
        asked.lock().expect("not poisoned").push(path.clone());
        if let Some(key) = key {
            return echo(client, reader, &key);
        }
        let more = match path.as_str() {
            "/download" => "Content-Disposition: attachment; filename=\"got.txt\"\r\n",
            // Needed for SharedArrayBuffer.
            _ => "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n",
        };
        let known = pages.get(path.as_str()).copied();
        let (status, kind, body) = match (path.as_str(), known) {
            ("/cookie", _) => ("200 OK", "text/plain", cookie.as_str()),
            ("/download", _) => ("200 OK", "application/octet-stream", "downloaded\n"),
            (_, Some((kind, body))) => ("200 OK", kind, body),
            _ => ("404 Not Found", "text/plain", "none"),
        };
        write!(
            client,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{more}\r\n{body}",
            body.len()
        )?;
    }
}

/// Sends the first message back and closes the connection.
fn echo(mut client: TcpStream, mut reader: BufReader<TcpStream>, key: &str) -> std::io::Result<()> {
    let accept = base64(&sha1(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes()));
    write!(
        client,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )?;
    let mut head = [0u8; 6];
    reader.read_exact(&mut head)?;
    let mut body = vec![0u8; usize::from(head[1] & 0x7f)];
    reader.read_exact(&mut body)?;
    body.iter_mut().zip(head[2..].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    client.write_all(&[0x81, body.len() as u8])?;
    client.write_all(&body)
}

/// Sends one request to a local server and returns the body. Reads by length, because DevTools keeps connections open.
#[track_caller]
pub fn ask(port: u16, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("open");
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("an answer");
        match header.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().expect("a number")
            }
            None if header.trim_end().is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0u8; length];
    reader.read_exact(&mut body).expect("the whole answer");
    String::from_utf8(body).expect("text")
}

/// Only for the WebSocket handshake.
fn sha1(text: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = text.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(text.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words: Vec<u32> =
            block.chunks_exact(4).map(|four| u32::from_be_bytes(four.try_into().unwrap())).collect();
        for at in 16..80 {
            words.push((words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in words.iter().enumerate() {
            let (mixed, constant) = match at / 20 {
                0 => (b & c | !b & d, 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        state.iter_mut().zip([a, b, c, d, e]).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
    }
    let mut out = [0u8; 20];
    out.chunks_exact_mut(4).zip(state).for_each(|(four, word)| four.copy_from_slice(&word.to_be_bytes()));
    out
}

pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at)) as usize & 63] as char;
            out.push(if at <= three.len() { letter } else { '=' });
        }
    }
    out
}

/// Decodes base64.
pub fn from_base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').map(value).collect();
    let bytes = letters.chunks(4).flat_map(|four| {
        let word = four.iter().enumerate().fold(0u32, |word, (at, six)| word | u32::from(*six) << (18 - 6 * at));
        (0..four.len() - 1).map(move |at| (word >> (16 - 8 * at)) as u8)
    });
    bytes.collect()
}

#[test]
fn the_handshake_is_that_of_the_standard() {
    let key = "dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    assert_eq!(base64(&sha1(key.as_bytes())), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(from_base64("aGVsbG8="), b"hello");
}
