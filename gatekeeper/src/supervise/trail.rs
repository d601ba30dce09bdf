//! Notes the decisions about notified syscalls in the audit trail.

use super::clerk::Desk;
use super::target::Target;
use super::{connect, denials};
use crate::audit::{Entry, Kind};
use crate::report::Denial;
use crate::sys::notify::Call;
use std::io;

impl Desk {
    /// Notes the decision about a call in the audit trail, before the call is answered.
    pub(super) fn note(&self, call: &Call, denial: Option<&Denial>) -> io::Result<()> {
        // Left to the kernel: if the file's own permissions refuse it, nothing was allowed.
        let kernels = self.judge.audit.is_some() && denial.is_none();
        let fails = kernels.then(|| super::fails::fails(call, &Target { tid: call.tid })).flatten();
        self.note_result(call, denial, fails)
    }

    /// The same for a call that the supervisor carries out itself.
    pub(super) fn note_made(&self, call: &Call) -> io::Result<()> {
        self.note_result(call, None, None)
    }

    fn note_result(&self, call: &Call, denial: Option<&Denial>, fails: Option<i32>) -> io::Result<()> {
        let Some(audit) = &self.judge.audit else { return Ok(()) };
        let name = denials::name(call.number);
        let target = Target { tid: call.tid };
        let kind = match name.as_str() {
            "execve" | "execveat" => Kind::Exec,
            "open" | "openat" | "openat2" | "creat" => Kind::Open,
            _ if denial.is_some_and(|denial| denial.host.is_some()) => Kind::Host,
            _ => Kind::Call,
        };
        let allowed = denial.is_none_or(Denial::was_let_through);
        let path = match denial {
            Some(denial) => denial.path.clone(),
            None => denials::first_path(call, &target).map(|path| super::target::shown(&path)),
        };
        let entry = match fails {
            Some(errno) => Entry::attempted(kind).with("errno", crate::sys::errno_name(errno)),
            None => Entry::decided(kind, allowed),
        };
        let entry = entry.with("syscall", name).with("path", path);
        let entry = entry.with("host", denial.and_then(|denial| denial.host.clone()));
        let entry = entry.with("rule", denial.map(|denial| denial.rule.clone()));
        audit.note(entry.with("pid", target.pid().unwrap_or(call.tid)).with("comm", target.comm()))
    }

    /// Notes a connection that is allowed. The proxy notes those that go through it.
    pub(super) fn note_connection(&self, call: &Call, connection: &connect::Connection) -> io::Result<()> {
        let (Some(audit), Some(to)) = (&self.judge.audit, connection.shown()) else { return Ok(()) };
        let target = Target { tid: call.tid };
        let entry = Entry::allowed(Kind::Host).with("syscall", "connect").with("host", to);
        audit.note(entry.with("pid", target.pid().unwrap_or(call.tid)).with("comm", target.comm()))
    }
}
