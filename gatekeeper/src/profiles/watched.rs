//! Runs a command to its end and records its exit status and output.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A workload that runs longer hangs.
const LONGEST: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);

/// The observable result of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// The exit status as a shell reports it.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Seen {
    /// Replaces the port of the test server, which differs from run to run.
    pub fn without(self, port: &str) -> Seen {
        let clean = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace(port, "PORT").into_bytes();
        Seen { stdout: clean(self.stdout), stderr: clean(self.stderr), ..self }
    }
}

pub fn compare(plain: &Seen, confined: &Seen) -> Option<String> {
    let shown = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let text: String = text.chars().take(400).collect();
        format!("{text:?}")
    };
    if plain.status != confined.status {
        let error = shown(&confined.stderr);
        return Some(format!("exit status {} instead of {}, stderr {error}", confined.status, plain.status));
    }
    let streams = [("stdout", &plain.stdout, &confined.stdout), ("stderr", &plain.stderr, &confined.stderr)];
    let differs = streams.into_iter().find(|(_, plain, confined)| plain != confined);
    differs.map(|(name, plain, confined)| format!("{name} is {} instead of {}", shown(confined), shown(plain)))
}

/// Runs a command until it ends or the time is up, and collects its output.
pub fn watch(command: &mut Command, stdin: &[u8]) -> io::Result<Seen> {
    command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    if let Some(mut input) = input {
        // The command may close its input before it has read everything.
        let _ = input.write_all(stdin);
    }
    let status = wait(&mut child)?;
    let collect = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Seen { status, stdout: collect(stdout), stderr: collect(stderr) })
}

fn drain(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child) -> io::Result<std::process::ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > LONGEST {
            // `watch` started the command in a new process group, so this hits no other process.
            let _ = crate::sys::process::kill(-(child.id() as i32), libc::SIGKILL);
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("still running after {LONGEST:?}")));
        }
        std::thread::sleep(POLL);
    }
}
