//! Output that is sent while the command runs.
//!
//! A thread reads the command's pipes, sends what it reads, and keeps what the report shows of it. If the client does not read,
//! the thread waits, then the pipe fills, then the command waits. The supervisor waits for none of them, so limits hold.

use crate::report::Report;
use crate::run::{captured, output_limits};
use crate::sandbox::Sandbox;
use crate::supervise::capture::{DEFAULT_KEPT, Stream};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Map, Value};
use std::os::fd::OwnedFd;

const NAMES: [&str; 2] = ["stdout", "stderr"];

/// Runs the command, and calls `send` with `{"stdout": text}` and `{"stderr": text}` for what it prints.
pub(super) fn run(sandbox: Sandbox, cancel: OwnedFd, send: &(dyn Fn(Value) + Sync)) -> Report {
    let limits = output_limits(sandbox.asked());
    let stream = || Stream::new(limits.output.unwrap_or(DEFAULT_KEPT), None);
    let (mut streams, ends) = match stream().and_then(|first| Ok((first, stream()?))) {
        Ok(((stdout, stdout_end), (stderr, stderr_end))) => ([stdout, stderr], [stdout_end, stderr_end]),
        Err(error) => return sandbox.failed(&format!("standard streams: {error}")),
    };
    let mut report = std::thread::scope(|scope| {
        let pump = std::thread::Builder::new().spawn_scoped(scope, || pump(&mut streams, send));
        // Dropping the sandbox closes the last write ends, which ends the pump.
        let report = match &pump {
            Ok(_) => sandbox.printing_to(ends).run_until(cancel),
            Err(error) => sandbox.failed(&format!("start: {error}")),
        };
        drop(pump.map(|pump| pump.join()));
        report
    });
    let (captured, exceeded) = captured(Some(streams), &limits);
    report.captured = captured;
    report.limit = report.limit.or(exceeded);
    report
}

fn pump(streams: &mut [Stream; 2], send: &dyn Fn(Value)) {
    let mut texts = [Text::default(), Text::default()];
    loop {
        let open: Vec<usize> = (0..2).filter(|at| streams[*at].pipe().is_some()).collect();
        if open.is_empty() {
            break;
        }
        let pipes: Vec<_> = streams.iter().filter_map(Stream::pipe).collect();
        let mut polled: Vec<PollFd<'_>> = pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        if !matches!(poll(&mut polled, None), Ok(_) | Err(rustix::io::Errno::INTR)) {
            break;
        }
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        for (at, _) in open.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            streams[at].drain_to(&mut |bytes| {
                if let Some(event) = texts[at].event(NAMES[at], bytes) {
                    send(event);
                }
            });
        }
    }
    for (text, name) in texts.iter_mut().zip(NAMES) {
        if let Some(event) = text.rest(name) {
            send(event);
        }
    }
}

/// Splits a stream between characters, not inside of one.
#[derive(Default)]
struct Text {
    /// The start of a character whose end has not been read.
    begun: Vec<u8>,
}

impl Text {
    fn event(&mut self, name: &str, bytes: &[u8]) -> Option<Value> {
        let mut whole = std::mem::take(&mut self.begun);
        whole.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&whole)
            && error.error_len().is_none()
        {
            self.begun = whole.split_off(error.valid_up_to());
        }
        event(name, &whole)
    }

    fn rest(&mut self, name: &str) -> Option<Value> {
        event(name, &std::mem::take(&mut self.begun))
    }
}

/// What is no UTF-8 is sent as base64, too.
fn event(name: &str, bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    let mut event = Map::new();
    event.insert(name.to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        event.insert(format!("{name}_base64"), BASE64_STANDARD.encode(bytes).into());
    }
    Some(Value::Object(event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_character_is_not_split_and_what_is_no_text_comes_as_base64() {
        let mut text = Text::default();
        assert_eq!(
            text.event("stdout", "a\u{e4}".as_bytes().split_last().expect("3 bytes").1),
            Some(json!({"stdout": "a"}))
        );
        assert_eq!(text.event("stdout", &[0xa4]), Some(json!({"stdout": "\u{e4}"})));
        assert_eq!(text.event("stdout", &[0xff, b'b']), Some(json!({"stdout": "\u{fffd}b", "stdout_base64": "/2I="})));
        assert_eq!(text.event("stdout", &[0xc3]), None);
        assert_eq!(text.rest("stdout"), Some(json!({"stdout": "\u{fffd}", "stdout_base64": "ww=="})));
    }
}
