//! The lines to one client. Those of its runs are written as they come, and wait while the client does not read. Those of the thread that
//! reads the client's orders are queued, so that it goes on reading.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many bytes are queued. A client that causes more without reading any has to read before its next order is read.
const MOST: usize = 16 << 20;

pub(super) struct Output {
    file: Mutex<File>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    has_writer: bool,
    /// Nothing more is written.
    closed: bool,
}

/// What becomes of a queued line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// A thread will write it.
    Yes,
    /// The caller has to start that thread.
    WithoutWriter,
}

impl Output {
    pub(super) fn new(file: File) -> Output {
        Output { file: Mutex::new(file), queue: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn copy(&self) -> io::Result<File> {
        locked(&self.file).try_clone()
    }

    /// Writes a line, after what was queued before it.
    pub(super) fn write(&self, mut line: Vec<u8>) -> io::Result<()> {
        let mut file = locked(&self.file);
        self.empty(&mut file)?;
        line.push(b'\n');
        file.write_all(&line)
    }

    /// Writes what is queued.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.empty(&mut locked(&self.file))
    }

    fn empty(&self, file: &mut File) -> io::Result<()> {
        loop {
            let mut queue = locked(&self.queue);
            let Some(line) = queue.lines.pop_front() else { return Ok(()) };
            queue.bytes -= line.len();
            self.changed.notify_all();
            drop(queue);
            file.write_all(&line)?;
        }
    }

    /// Queues a line. Waits while too many are queued.
    pub(super) fn queue(&self, mut line: Vec<u8>) -> Queued {
        line.push(b'\n');
        let mut queue = locked(&self.queue);
        while queue.bytes > MOST && !queue.closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.closed {
            return Queued::Yes;
        }
        queue.bytes += line.len();
        queue.lines.push_back(line);
        self.changed.notify_all();
        if std::mem::replace(&mut queue.has_writer, true) { Queued::Yes } else { Queued::WithoutWriter }
    }

    /// The thread could not be started.
    pub(super) fn has_no_writer(&self) {
        locked(&self.queue).has_writer = false;
    }

    /// Waits until something is queued. `false`: nothing will be.
    pub(super) fn wait(&self) -> bool {
        let mut queue = locked(&self.queue);
        while queue.lines.is_empty() && !queue.closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        !queue.lines.is_empty()
    }

    /// Drops what is queued, now and later: nothing reads it.
    pub(super) fn close(&self) {
        let mut queue = locked(&self.queue);
        queue.closed = true;
        queue.lines.clear();
        queue.bytes = 0;
        self.changed.notify_all();
    }

    /// Writes what is queued, for the last time.
    pub(super) fn finish(&self) -> io::Result<()> {
        let flushed = self.flush();
        self.close();
        flushed
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn queued_lines_come_before_what_is_written_after_them() {
        let (mut read, write) = std::io::pipe().expect("a pipe");
        let output = Output::new(File::from(std::os::fd::OwnedFd::from(write)));
        assert_eq!(output.queue(b"one".to_vec()), Queued::WithoutWriter);
        assert_eq!(output.queue(b"two".to_vec()), Queued::Yes);
        output.write(b"three".to_vec()).expect("the pipe is open");
        output.queue(b"four".to_vec());
        output.finish().expect("the pipe is open");
        assert!(!output.wait());
        output.queue(b"too late".to_vec());
        drop(output);
        let mut text = String::new();
        read.read_to_string(&mut text).expect("the other end is closed");
        assert_eq!(text, "one\ntwo\nthree\nfour\n");
    }
}
