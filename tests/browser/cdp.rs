//! Drives a browser with the DevTools protocol over its pipe: NUL-terminated JSON messages on descriptors 3 and 4.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

pub struct Browser {
    pub child: Child,
    to: File,
    from: File,
    unread: Vec<u8>,
    events: VecDeque<Value>,
    last: u64,
}

/// One tab.
#[derive(Clone)]
pub struct Page {
    pub target: String,
    pub session: String,
}

impl Browser {
    /// Starts a command whose browser gets `--remote-debugging-pipe`.
    pub fn start(command: &mut Command) -> Browser {
        let (theirs_in, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let (from, theirs_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
        let numbers = [theirs_in.as_raw_fd(), theirs_out.as_raw_fd()];
        // SAFETY: dup2 and fcntl are async-signal-safe. Move both descriptors above 3 and 4 first, then onto them.
        unsafe {
            command.pre_exec(move || {
                let away = numbers.map(|fd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10));
                for (fd, number) in away.into_iter().zip([3, 4]) {
                    if fd < 0 || libc::dup2(fd, number) != number {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            })
        };
        let child = command.spawn().expect("it starts");
        drop((theirs_in, theirs_out));
        let file = |fd: OwnedFd| File::from(fd);
        Browser { child, to: file(to), from: file(from), unread: Vec::new(), events: VecDeque::new(), last: 0 }
    }

    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params, None).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    #[track_caller]
    pub fn call_in(&mut self, page: &Page, method: &str, params: Value) -> Value {
        self.try_call(method, params, Some(page)).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command and returns its result or error.
    #[track_caller]
    pub fn try_call(&mut self, method: &str, params: Value, page: Option<&Page>) -> Result<Value, Value> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(page) = page {
            message["sessionId"] = json!(page.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap_or_else(|error| panic!("{method}: {error}"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut message = self.receive(deadline).unwrap_or_else(|| panic!("{method}: the browser is gone"));
            if message["id"] == id {
                return match message.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(message["result"].take()),
                };
            }
            self.events.push_back(message);
        }
    }

    /// Sends a command that gets no answer.
    pub fn post(&mut self, method: &str, session: &str) {
        self.last += 1;
        let mut bytes = json!({"id": self.last, "method": method, "sessionId": session}).to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("a pipe");
    }

    /// Waits for the next event of this name that fulfils a condition.
    #[track_caller]
    pub fn event(&mut self, method: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.next(method, |message| holds(&message["params"]))
    }

    /// Waits for the next event of this name whose message fulfils a condition.
    #[track_caller]
    fn next(&mut self, method: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let wanted = |message: &Value| message["method"] == method && holds(message);
        if let Some(at) = self.events.iter().position(wanted) {
            return self.events.remove(at).expect("just found");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.receive(deadline).unwrap_or_else(|| panic!("{method}: the browser is gone"));
            if wanted(&message) {
                return message;
            }
            self.events.push_back(message);
        }
    }

    /// The next message, or `None` if the pipe is closed.
    fn receive(&mut self, deadline: Instant) -> Option<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(serde_json::from_slice(&message[..end]).expect("JSON"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = rustix::event::Timespec { tv_sec: left.as_secs() as i64 + 1, tv_nsec: 0 };
            let mut polled = [rustix::event::PollFd::new(&self.from, rustix::event::PollFlags::IN)];
            let ready = rustix::event::poll(&mut polled, Some(&wait)).expect("poll");
            assert!(ready > 0 || !left.is_zero(), "the browser said nothing for {PATIENCE:?}");
            let mut more = [0u8; 65536];
            match self.from.read(&mut more).expect("a pipe") {
                0 => return None,
                read => self.unread.extend_from_slice(&more[..read]),
            }
        }
    }

    /// A new tab that has loaded an address, successfully or not.
    #[track_caller]
    pub fn open(&mut self, url: &str) -> Page {
        let page = self.tab("about:blank");
        self.go(&page, url);
        page
    }

    #[track_caller]
    pub fn tab(&mut self, url: &str) -> Page {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let target = text(&self.call("Target.createTarget", json!({"url": url}))["targetId"]);
        let attached = self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        let page = Page { target, session: text(&attached["sessionId"]) };
        self.call_in(&page, "Page.enable", json!({}));
        self.call_in(&page, "Page.setLifecycleEventsEnabled", json!({"enabled": true}));
        page
    }

    /// Loads an address in a tab and returns the network error, or an empty string.
    #[track_caller]
    pub fn go(&mut self, page: &Page, url: &str) -> String {
        let answer = self.call_in(page, "Page.navigate", json!({"url": url}));
        let error = answer["errorText"].as_str().unwrap_or_default().to_owned();
        if error.is_empty() {
            // Only the event of this load: the error page of an earlier one may load at any time.
            let loads = |event: &Value| event["name"] == "load" && event["loaderId"] == answer["loaderId"];
            self.event("Page.lifecycleEvent", loads);
        }
        error
    }

    #[track_caller]
    pub fn event_of(&mut self, page: &Page, method: &str) -> Value {
        self.next(method, |message| message["sessionId"] == page.session)
    }

    /// The value of an expression. Awaits promises, and returns an exception as a string that begins with `threw`.
    #[track_caller]
    pub fn eval(&mut self, page: &Page, expression: &str) -> Value {
        let params =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true});
        // Right after a navigation the page may not have its context yet.
        let until = Instant::now() + Duration::from_secs(10);
        let mut answer = loop {
            match self.try_call("Runtime.evaluate", params.clone(), Some(page)) {
                Ok(answer) => break answer,
                Err(error) if error["message"] == "Cannot find default execution context" && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("Runtime.evaluate: {error}"),
            }
        };
        match answer.get("exceptionDetails") {
            Some(thrown) => json!(format!("threw {}", thrown["exception"]["description"])),
            None => answer["result"]["value"].take(),
        }
    }

    /// Closes the browser and waits for its exit.
    #[track_caller]
    pub fn close(mut self) -> ExitStatus {
        self.call("Browser.close", json!({}));
        self.wait()
    }

    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("own child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A failed test must leave nothing behind. When gatekeeper ends, so does the browser.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
