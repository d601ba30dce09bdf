//! A command run to its end, and what could be seen of it.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No workload takes this long unless it hangs.
const LONGEST: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);

/// What a command did, as far as anybody can tell.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// As a shell would say it.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Seen {
    /// The port of the run's own server is another one every time.
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
        return Some(format!("ends with {} and not {}, saying {error}", confined.status, plain.status));
    }
    let streams = [("stdout", &plain.stdout, &confined.stdout), ("stderr", &plain.stderr, &confined.stderr)];
    let differs = streams.into_iter().find(|(_, plain, confined)| plain != confined);
    differs.map(|(name, plain, confined)| format!("{name} is {} and not {}", shown(confined), shown(plain)))
}

/// Runs a command to its end, or to the end of the time, with everything that it prints.
pub fn watch(command: &mut Command, stdin: &[u8]) -> io::Result<Seen> {
    command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let input = child.stdin.take();
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    if let Some(mut input) = input {
        // A command that has read enough closes it.
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
            // Its own group, made for it above: nobody else is in there.
            let _ = crate::sys::process::kill(-(child.id() as i32), libc::SIGKILL);
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("still running after {LONGEST:?}")));
        }
        std::thread::sleep(POLL);
    }
}
