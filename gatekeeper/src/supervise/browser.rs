//! Whether the browser's own sandbox is on: seen in its running processes, not concluded from its arguments.
//!
//! A renderer that is sandboxed is in a PID namespace below the browser's and has more filters than the browser itself.

use super::tree;
use crate::report::{BrowserReport, InnerSandbox};
use std::fs;
use std::time::{Duration, Instant};

/// How often its processes are looked at: often while it starts, seldom where there is nothing to see for long.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
const STARTING: Duration = Duration::from_secs(15);

/// One browser, looked at until it is known.
pub struct Look {
    began: Instant,
    due: Instant,
    renderers: bool,
    own_filter: bool,
    own_namespace: bool,
    /// Why it was started without, if it was.
    without: Option<String>,
}

impl Look {
    pub fn new(without: Option<String>) -> Look {
        let now = Instant::now();
        Look { began: now, due: now + OFTEN, renderers: false, own_filter: false, own_namespace: false, without }
    }

    /// When to look again.
    pub fn due(&self) -> Option<Instant> {
        (!(self.own_filter && self.own_namespace)).then_some(self.due)
    }

    pub fn look(&mut self, guardian: i32, command: i32) {
        let now = Instant::now();
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        self.due = now + if now - self.began < STARTING { OFTEN } else { SELDOM };
        let Some(browser) = Facts::of(command) else { return };
        for pid in tree::sum(guardian).pids {
            if !is_renderer(pid) {
                continue;
            }
            let Some(renderer) = Facts::of(pid) else { continue };
            self.renderers = true;
            self.own_filter |= renderer.filters > browser.filters;
            self.own_namespace |= renderer.namespaces > browser.namespaces;
        }
    }

    pub fn report(self) -> BrowserReport {
        let (inner_sandbox, seen) = match (self.renderers, self.own_namespace, self.own_filter) {
            (false, ..) => (InnerSandbox::Unknown, "no renderer was seen"),
            (_, true, true) => (InnerSandbox::On, "renderers have namespaces and a filter of their own"),
            (_, true, false) => (InnerSandbox::Partial, "renderers have namespaces of their own, and no filter"),
            (_, false, true) => (InnerSandbox::Partial, "renderers have a filter of their own, and no namespaces"),
            (_, false, false) => (InnerSandbox::Off, "renderers have neither namespaces nor a filter of their own"),
        };
        let why = self.without.map(|why| format!("; {why}")).unwrap_or_default();
        BrowserReport { inner_sandbox, detail: format!("{seen}{why}") }
    }
}

fn is_renderer(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // A process forked by the zygote has written all its words into one.
    words.split(|byte| *byte == 0 || *byte == b' ').any(|word| word == b"--type=renderer")
}

struct Facts {
    /// How deep in PID namespaces.
    namespaces: usize,
    filters: u32,
}

impl Facts {
    fn of(pid: i32) -> Option<Facts> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        Some(Facts {
            namespaces: field("NSpid:")?.split_whitespace().count(),
            filters: field("Seccomp_filters:").and_then(|count| count.trim().parse().ok())?,
        })
    }
}
