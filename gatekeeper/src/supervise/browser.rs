//! Whether a browser's own sandbox is on, as observed in its running processes rather than inferred from its arguments.
//!
//! A sandboxed renderer is in a nested PID namespace and has more seccomp filters than the browser process.

use super::status::Status;
use super::tree;
use crate::report::{BrowserReport, Denial, InnerSandbox};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether a denial is one that Chromium causes on every start and does not need: it makes the directory for extensions beside
/// its program. The kernel refuses that by itself, and it is not recorded.
pub fn tries_in_passing(denial: &Denial) -> bool {
    let beside = |path: &str| Path::new(path).parent().map(Path::to_owned);
    let path = denial.path.as_deref().filter(|path| path.ends_with("/extensions"));
    denial.syscall == "mkdir" && path.is_some_and(|path| beside(path) == denial.exe.as_deref().and_then(beside))
}

/// How often to look at its processes: often while it starts, rarely if no renderer has appeared by then.
const OFTEN: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_secs(1);
const STARTING: Duration = Duration::from_secs(15);

/// Observes one browser until the answer is known.
pub struct Look {
    began: Instant,
    due: Instant,
    renderers: bool,
    own_filter: bool,
    own_namespace: bool,
    /// Why the browser was started without its own sandbox, if it was.
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
            (_, true, true) => (InnerSandbox::On, "renderers have their own namespaces and filter"),
            (_, true, false) => (InnerSandbox::Partial, "renderers have their own namespaces, but no filter"),
            (_, false, true) => (InnerSandbox::Partial, "renderers have their own filter, but no namespaces"),
            (_, false, false) => (InnerSandbox::Off, "renderers have neither their own namespaces nor a filter"),
        };
        let why = self.without.map(|why| format!("; {why}")).unwrap_or_default();
        BrowserReport { inner_sandbox, detail: format!("{seen}{why}") }
    }
}

fn is_renderer(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // A process forked by the zygote overwrites its command line with one string, separated by spaces.
    words.split(|byte| *byte == 0 || *byte == b' ').any(|word| word == b"--type=renderer")
}

struct Facts {
    /// The nesting depth of its PID namespace.
    namespaces: usize,
    filters: u32,
}

impl Facts {
    fn of(pid: i32) -> Option<Facts> {
        let status = Status::of(pid).ok()?;
        Some(Facts { namespaces: status.words("NSpid")?.count(), filters: status.number("Seccomp_filters")? })
    }
}
