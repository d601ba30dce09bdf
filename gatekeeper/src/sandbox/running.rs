//! A run on a separate thread, as a future of its report. It needs no particular executor and does not block one.

use super::Sandbox;
use crate::report::Report;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A running command. Await it, or call [`wait`](Running::wait). Dropping it kills the command and every process that it
/// started.
#[must_use = "dropping it kills the command"]
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    cancel: Option<OwnedFd>,
    cancelled: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    report: Option<Report>,
    waker: Option<Waker>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, report: Report) {
        let mut state = self.state();
        state.report = Some(report);
        self.ended.notify_all();
        if let Some(waker) = state.waker.take() {
            // Release the lock first: the woken task may poll immediately.
            drop(state);
            waker.wake();
        }
    }
}

impl Running {
    pub(super) fn start(sandbox: Sandbox) -> Running {
        let shared = Arc::new(Shared::default());
        let failed = |error: &std::io::Error| sandbox.failed(&format!("start: {error}"));
        let (theirs, cancel) = match super::cancel().and_then(|cancel| Ok((cancel.try_clone()?, cancel))) {
            Ok(both) => both,
            Err(error) => {
                shared.finish(failed(&error));
                return Running { shared, cancel: None, cancelled: false };
            }
        };
        let (there, described) = (Arc::clone(&shared), sandbox.clone());
        let thread = std::thread::Builder::new().name("gatekeeper".to_owned());
        if let Err(error) = thread.spawn(move || there.finish(described.run_until(theirs))) {
            shared.finish(failed(&error));
        }
        Running { shared, cancel: Some(cancel), cancelled: false }
    }

    /// Waits until the command and every process that it started have ended. Blocks the calling thread.
    pub fn wait(self) -> Report {
        let mut state = self.shared.state();
        loop {
            match state.report.take() {
                Some(report) => return self.finished(report),
                None => state = self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Kills the command and every process that it started. The report can still be awaited.
    pub fn cancel(&mut self) {
        self.cancelled = true;
        self.end();
    }

    fn end(&self) {
        if let Some(cancel) = &self.cancel {
            let _ = rustix::io::write(cancel, &1u64.to_ne_bytes());
        }
    }

    fn finished(&self, report: Report) -> Report {
        if self.cancelled { super::cancelled(report) } else { report }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Future for Running {
    type Output = Report;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Report> {
        let mut state = self.shared.state();
        match state.report.take() {
            Some(report) => Poll::Ready(self.finished(report)),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
