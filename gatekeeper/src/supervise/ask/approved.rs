//! What was approved for the rest of the run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a call needs, and what an answer of `run` approves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A real path, and everything below it.
    Read(PathBuf),
    /// The same for writing, which includes reading.
    Write(PathBuf),
    /// A UNIX socket, or a directory of sockets.
    Socket(PathBuf),
    /// `host:port`.
    Host(String),
    /// The address of a listening socket.
    Listen(String),
    /// An HTTP request: method, `host:port` and path.
    Request(String),
}

#[derive(Default)]
pub struct Approved {
    reads: BTreeSet<PathBuf>,
    writes: BTreeSet<PathBuf>,
    sockets: BTreeSet<PathBuf>,
    hosts: BTreeSet<String>,
    listens: BTreeSet<String>,
    requests: BTreeSet<String>,
}

impl Approved {
    pub fn add(&mut self, subject: &Subject) {
        match subject {
            Subject::Read(path) => self.reads.insert(path.clone()),
            Subject::Write(path) => self.writes.insert(path.clone()),
            Subject::Socket(path) => self.sockets.insert(path.clone()),
            Subject::Host(host) => self.hosts.insert(host.clone()),
            Subject::Listen(host) => self.listens.insert(host.clone()),
            Subject::Request(request) => self.requests.insert(request.clone()),
        };
    }

    /// `closed` returns the closed place (credentials and the like) around a path. A directory above such a place that was
    /// approved does not open it: like a policy, an approval has to name the place itself or something in it.
    pub fn covers(&self, subject: &Subject, closed: &dyn Fn(&Path) -> Option<PathBuf>) -> bool {
        let below = |path: &Path, set: &BTreeSet<PathBuf>| {
            let around = closed(path);
            let named = |above: &&Path| around.as_ref().is_none_or(|place| above.starts_with(place));
            path.ancestors().filter(named).any(|above| set.contains(above))
        };
        match subject {
            Subject::Read(path) => below(path, &self.reads) || below(path, &self.writes),
            Subject::Write(path) => below(path, &self.writes),
            Subject::Socket(path) => below(path, &self.sockets),
            Subject::Host(host) => self.hosts.contains(host),
            Subject::Listen(host) => self.listens.contains(host),
            Subject::Request(request) => self.requests.contains(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_holds_for_the_path_and_below_and_opens_no_closed_place() {
        let mut approved = Approved::default();
        approved.add(&Subject::Write("/h/out".into()));
        approved.add(&Subject::Read("/h".into()));
        let closed = |path: &Path| path.starts_with("/h/.ssh").then(|| PathBuf::from("/h/.ssh"));
        let read = |path: &str| approved.covers(&Subject::Read(path.into()), &closed);
        let write = |path: &str| approved.covers(&Subject::Write(path.into()), &closed);
        assert!(read("/h") && read("/h/a/b") && read("/h/out/x") && write("/h/out") && write("/h/out/x"));
        assert!(!write("/h/a") && !write("/h/output") && !read("/x"));
        assert!(!read("/h/.ssh/id") && !read("/h/.ssh"));
        approved.add(&Subject::Read("/h/.ssh/id".into()));
        let read = |path: &str| approved.covers(&Subject::Read(path.into()), &closed);
        assert!(read("/h/.ssh/id") && !read("/h/.ssh/other"));
    }

    #[test]
    fn a_host_is_approved_with_its_port_only() {
        let mut approved = Approved::default();
        approved.add(&Subject::Host("a.org:443".to_owned()));
        let covers = |subject| approved.covers(&subject, &|_| None);
        assert!(covers(Subject::Host("a.org:443".to_owned())));
        assert!(!covers(Subject::Host("a.org:80".to_owned())) && !covers(Subject::Listen("a.org:443".to_owned())));
    }
}
