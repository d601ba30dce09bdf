//! A file server and a slow server on loopback. Both end with the test program.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves the files below a directory, and index.html for a directory.
    pub fn of(root: &Path) -> Server {
        Server::at("127.0.0.1:0", root)
    }

    pub fn at(address: &str, root: &Path) -> Server {
        let listener = TcpListener::bind(address).expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (root, kept) = (root.to_owned(), seen.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (root, kept) = (root.clone(), kept.clone());
                std::thread::spawn(move || drop(answer(client, &root, &kept)));
            }
        });
        Server { port, seen }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// The paths requested since the last call.
    pub fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().expect("not poisoned"))
    }
}

fn answer(client: TcpStream, root: &Path, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
    seen.lock().expect("not poisoned").push(target.clone());
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header == "\r\n" {
            break;
        }
    }
    let path = target.split('?').next().unwrap_or("/");
    let mut client = client;
    if path == "/slow" {
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        for _ in 0..3000 {
            client.write_all(b"x")?;
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        return Ok(());
    }
    let file: PathBuf = root.join(path.trim_start_matches('/').replace("..", ""));
    let file = if file.is_dir() { file.join("index.html") } else { file };
    match std::fs::read(&file) {
        Ok(body) => {
            let kind = match file.extension().and_then(|end| end.to_str()) {
                Some("html") => "text/html",
                Some("json") => "application/json",
                _ => "application/octet-stream",
            };
            write!(client, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len())?;
            client.write_all(&body)
        }
        Err(_) => client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    }
}
