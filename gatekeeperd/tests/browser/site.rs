//! A web site on loopback.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The head of an answer after the status line, without the length, and its body.
type Answer = (&'static str, String);

pub struct Site {
    pub port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// Serves these pages as HTML. `/never` is accepted and never answered, `/file` is a download.
    pub fn of(pages: &[(&str, &str)]) -> Site {
        let mut served: HashMap<String, Answer> = pages
            .iter()
            .map(|(path, body)| ((*path).to_owned(), ("Content-Type: text/html; charset=utf-8", (*body).to_owned())))
            .collect();
        let file = ("Content-Type: application/octet-stream\r\nContent-Disposition: attachment", "bytes".to_owned());
        served.insert("/file".to_owned(), file);
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (known, served) = (Arc::clone(&heads), Arc::new(served));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (known, served) = (Arc::clone(&known), Arc::clone(&served));
                std::thread::spawn(move || serve(stream, &known, &served));
            }
        });
        Site { port, heads }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

fn serve(mut stream: TcpStream, heads: &Mutex<Vec<String>>, served: &HashMap<String, Answer>) {
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = path.split('?').next().unwrap_or_default().to_owned();
    heads.lock().expect("no panic").push(head);
    if path == "/never" {
        std::thread::sleep(std::time::Duration::from_secs(30));
        return;
    }
    let none = ("Content-Type: text/html", "<title>none</title>".to_owned());
    let (status, (kind, body)) = served.get(&path).map_or(("404 Not Found", &none), |page| ("200 OK", page));
    let length = body.len();
    let _ =
        write!(stream, "HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
}
