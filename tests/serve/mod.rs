//! `gatekeeper serve`: one line in, one line out, many at once, and nothing left behind.

mod asking;
mod ending;
mod lines;
mod plans;
mod socket;

use crate::plumbing::{PATIENCE, Place, users};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// A server on standard input and output, and its client.
pub struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    early: Vec<Value>,
    /// Closing it ends the thread that reads stdout, as the end of a client would.
    reading: Option<std::process::ChildStdout>,
}

/// The lines of a stream, as they arrive. A line that is not JSON arrives as a string, and no test waits for one.
fn values(stream: impl Read + Send + 'static) -> Receiver<Value> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if send.send(serde_json::from_str(&line).unwrap_or(Value::String(line))).is_err() {
                break;
            }
        }
    });
    lines
}

impl Server {
    fn start(place: &Place) -> Server {
        let mut command = place.command(&["serve"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gatekeeper starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Server { child, stdin, lines: values(stdout), early: Vec::new(), reading: None }
    }

    /// A server whose answers nothing reads.
    fn unread(place: &Place) -> Server {
        let mut command = place.command(&["serve"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gatekeeper starts");
        let (stdin, reading) = (child.stdin.take(), child.stdout.take());
        Server { child, stdin, lines: channel().1, early: Vec::new(), reading }
    }

    /// Closes both pipes at once, as the end of a client does, and waits for the server.
    fn leave_without_reading(&mut self) -> Option<i32> {
        self.reading = None;
        self.leave()
    }

    fn ask(&mut self, order: Value) {
        self.say(order.to_string().as_bytes());
    }

    fn say(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("not closed yet");
        stdin.write_all(line).and_then(|()| stdin.write_all(b"\n")).expect("the server reads");
    }

    /// The next line with this id, whatever comes before it.
    #[track_caller]
    fn next(&mut self, id: &Value) -> Value {
        if let Some(at) = self.early.iter().position(|line| line["id"] == *id) {
            return self.early.remove(at);
        }
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the server answers");
            assert!(line.is_object(), "not a line of the protocol: {line}");
            if line["id"] == *id {
                return line;
            }
            self.early.push(line);
        }
    }

    #[track_caller]
    fn report(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        let line = self.next(&id);
        assert!(line["report"].is_object(), "no report: {line}");
        line["report"].clone()
    }

    #[track_caller]
    fn run(&mut self, order: Value) -> Value {
        let id = order["id"].clone();
        self.ask(order);
        self.report(id)
    }

    #[track_caller]
    fn error(&mut self, id: impl Into<Value>) -> String {
        let line = self.next(&id.into());
        line["error"].as_str().unwrap_or_else(|| panic!("no error: {line}")).to_owned()
    }

    /// Closes standard input, and waits for the server's exit code.
    fn leave(&mut self) -> Option<i32> {
        self.stdin = None;
        self.child.wait().expect("own child").code()
    }

    fn says_nothing_more(&mut self) {
        assert!(matches!(self.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected)));
        assert_eq!(self.early, Vec::<Value>::new());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_line_is_run_as_run_would() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let report = server.run(json!({"id": 1, "argv": ["wc", "-l"], "stdin": "a\nb\n"}));
        assert_eq!((&report["outcome"], &report["stdout"]), (&json!("exited"), &json!("2\n")), "{report}");
        // The working directory is the anchor of the policy, as with --cwd.
        let work = place.at("work");
        let order = json!({"id": "two", "line": "echo $A > new; pwd; touch ../beside", "flags": ["-p", "write"],
                           "cwd": work, "env": {"A": "b"}});
        let report = server.run(order);
        assert_eq!(report["stdout"], format!("{}\n", work.display()), "{report}");
        assert_eq!(std::fs::read_to_string(work.join("new")).expect("written"), "b\n");
        assert_eq!(report["denials"][0]["path"], format!("{}", place.at("beside").display()), "{report}");
        assert!(!place.at("beside").exists());
        // What the report says is what a run of its own says.
        let alone = place.run(&["run", "--json", "-p", "read", "--", "cat", "/etc/shadow"]);
        let alone: Value = serde_json::from_str(&alone.stdout()).expect("a report");
        let served = server.run(json!({"id": 3, "argv": ["cat", "/etc/shadow"], "flags": ["-p", "read"]}));
        for key in ["outcome", "exit_code", "verdict", "layers", "stderr"] {
            assert_eq!(served[key], alone[key], "{key}");
        }
        // A command that is not there, one that is refused, and the exit code of one that fails.
        assert_eq!(server.run(json!({"id": 4, "argv": ["no-such-command"]}))["exit_code"], 127);
        assert_eq!(
            server.run(json!({"id": 5, "argv": ["sh", "-c", "exit 7"], "flags": ["-p", "read"]}))["exit_code"],
            7
        );
        assert_eq!(
            server.run(json!({"id": 6, "argv": ["true"], "flags": ["--config", "none.toml"]}))["exit_code"],
            125
        );
        assert_eq!(server.leave(), Some(0));
        server.says_nothing_more();
    }
}

#[test]
fn bytes_that_are_no_text_are_in_the_report_as_base64() {
    let place = Place::new(users()[0]);
    let mut server = Server::start(&place);
    let line = "printf 'a\\377'; printf ok >&2";
    let report = server.run(json!({"id": 1, "line": line, "flags": ["-p", "read"]}));
    assert_eq!((&report["stdout"], &report["stdout_base64"]), (&json!("a\u{fffd}"), &json!("Yf8=")), "{report}");
    assert_eq!((&report["stderr"], report.get("stderr_base64")), (&json!("ok"), None), "{report}");
}

#[test]
fn output_is_streamed_in_order_and_then_reported() {
    for user in users() {
        let place = Place::new(user);
        let mut server = Server::start(&place);
        let line = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; echo end >&2; read stop";
        let order = json!({"id": 1, "line": line, "flags": ["-p", "read"], "stream": true, "stdin": "\n"});
        server.ask(order);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let report = loop {
            let event = server.next(&json!(1));
            match (event["stdout"].as_str(), event["stderr"].as_str(), event.get("report")) {
                (Some(text), None, None) => stdout.push_str(text),
                (None, Some(text), None) => stderr.push_str(text),
                (None, None, Some(report)) => break report.clone(),
                _ => panic!("{event}"),
            }
        };
        let expected: String = (0..300).map(|at| format!("line {at}\n")).collect();
        assert_eq!((stdout.as_str(), stderr.as_str()), (expected.as_str(), "end\n"));
        assert_eq!((&report["stdout"], &report["stderr"]), (&json!(expected), &json!("end\n")), "{report}");

        // It arrives while the command runs: this one waits until it is cancelled.
        server.ask(json!({"id": 2, "line": "echo begun; exec sleep 3600", "flags": ["-p", "read"], "stream": true}));
        assert_eq!(server.next(&json!(2))["stdout"], "begun\n");
        server.ask(json!({"id": 2, "cancel": true}));
        assert_eq!(server.report(2)["error"], "cancelled by the caller");
    }
}

#[test]
fn two_hundred_run_at_once() {
    let place = Place::new(users().pop().expect("a user"));
    let mut server = Server::start(&place);
    // Each waits until all have begun: a FIFO that only the last one's order opens for writing.
    let work = place.at("work");
    rustix::fs::mknodat(rustix::fs::CWD, work.join("gate"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("a new name");
    std::os::unix::fs::chown(work.join("gate"), place.user, place.user).expect("own, or root's to give");
    for id in 0..200 {
        server.ask(json!({"id": id, "line": "echo up; read line < gate", "flags": ["-p", "read"], "stream": true}));
    }
    for id in 0..200 {
        assert_eq!(server.next(&json!(id))["stdout"], "up\n", "run {id} has not begun while the others wait");
    }
    // Opened for both, it never blocks; closing it ends every read.
    drop(std::fs::OpenOptions::new().read(true).write(true).open(work.join("gate")).map(|mut gate| {
        gate.write_all("go\n".repeat(200).as_bytes()).expect("room in the pipe");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }));
    for id in 0..200 {
        let report = server.report(id);
        assert_eq!(report["outcome"], "exited", "{report}");
    }
    assert_eq!(server.leave(), Some(0));
}
