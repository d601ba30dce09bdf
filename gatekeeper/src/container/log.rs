//! What a browser and its helpers write, of which errors show the end.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// How many lines an error shows.
const LINES: usize = 12;

/// The last lines of a log.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub fn shown(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.is_empty() {
            true => "it wrote no log".to_owned(),
            false => format!("the last lines of its log: {}", lines.iter().cloned().collect::<Vec<_>>().join(" | ")),
        }
    }

    pub fn follow(&self, from: impl Read + Send + 'static) {
        let log = self.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(from);
            loop {
                // A line without an end must not fill the memory.
                let mut line = Vec::new();
                match (&mut reader).take(4096).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => log.add(String::from_utf8_lossy(&line).trim().chars().take(300).collect()),
                }
            }
        });
    }
}
