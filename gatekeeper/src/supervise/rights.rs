//! What a process of the command has given up, and the supervisor must not give back.
//!
//! The supervisor makes calls with its own ids and capabilities. Those of an ordinary user's command are the same for as long as
//! it runs: it has no capabilities and gets none (no_new_privs), and without them a process can only choose among its real,
//! effective and saved ids (credentials(7)), which are all the same. But a command of root can drop capabilities and, if the
//! policy allows that, become another user. For such a thread the supervisor acts on a thread that takes over its rights, so
//! that the kernel judges the call as it would judge the program's own.

use super::status::Status;
use crate::plan::table::Table;
use crate::policy::{OnViolation, Policy};
use crate::sys::capabilities;
use crate::sys::rights::{self, Ids};
use std::io;
use std::os::unix::fs::MetadataExt;

const STACK: usize = 256 * 1024;

/// The calls by which a process gets other ids.
const CHANGES_IDS: [i64; 9] = [
    libc::SYS_setuid,
    libc::SYS_setreuid,
    libc::SYS_setresuid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
];

/// What every process of the command has, unless it gives something up.
pub(super) struct Start {
    /// Whether none can give anything up.
    one_user: bool,
    capabilities: u64,
    namespace: Option<u64>,
    ids: Option<Ids>,
    ids_change: bool,
}

/// The rights of a thread that has given something up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// `None`: those of the supervisor.
    ids: Option<Ids>,
    capabilities: u64,
}

impl Start {
    /// Of a run whose supervisor calls this.
    pub(super) fn of_run(table: &Table, policy: &Policy) -> Start {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let one_user = rights::is_one_ordinary_user();
        let held = capabilities::of(0).map_or(u64::MAX, |held| held.effective);
        Start {
            one_user,
            capabilities: capabilities::left_to_command(held),
            namespace: namespace(own).filter(|_| !one_user),
            ids: if one_user { None } else { ids(own).ok() },
            ids_change: policy.on_violation == OnViolation::Log || changes_ids(table),
        }
    }

    /// The same inside bubblewrap, which has dropped capabilities of its own choice.
    pub(super) fn inside_bubblewrap(self) -> Start {
        Start { capabilities: 0, ..self }
    }

    /// The rights with which calls of this thread have to be made. `None`: those of the supervisor.
    pub(super) fn rights(&self, tid: i32) -> io::Result<Option<Rights>> {
        self.look(tid, self.ids_change)
    }

    /// Whether a thread still has everything that the command started with.
    pub(super) fn has_all(&self, tid: i32) -> bool {
        matches!(self.look(tid, true), Ok(None))
    }

    fn look(&self, tid: i32, ids_change: bool) -> io::Result<Option<Rights>> {
        if self.one_user {
            return Ok(None);
        }
        let held = capabilities::of(tid)?.effective;
        // In a user namespace that it has made, a process has every capability, and none that counts here.
        let capabilities = if self.namespace == namespace(tid) { held } else { 0 };
        let ids = if ids_change { Some(ids(tid)?) } else { None };
        let differ = ids_change && ids != self.ids;
        let gave_up = differ || self.capabilities & !capabilities != 0;
        Ok(gave_up.then(|| Rights { ids: ids.filter(|_| differ), capabilities }))
    }
}

/// Whether a process that has the capabilities for it may get other ids.
fn changes_ids(table: &Table) -> bool {
    // An id that is surely not the user's own.
    let other = u64::from(u32::MAX - 2);
    CHANGES_IDS.iter().any(|call| table.decide(*call as u32, &[other; 6]).passes())
}

fn ids(tid: i32) -> io::Result<Ids> {
    let status = Status::of(tid)?;
    let numbers = |name: &str| -> Option<Vec<u32>> { status.words(name)?.map(|word| word.parse().ok()).collect() };
    let four = |name: &str| numbers(name)?.try_into().ok();
    let read = || Some(Ids { users: four("Uid")?, groups: four("Gid")?, supplementary: numbers("Groups")? });
    read().ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))
}

fn namespace(tid: i32) -> Option<u64> {
    std::fs::metadata(format!("/proc/{tid}/ns/user")).ok().map(|namespace| namespace.ino())
}

/// Acts with these rights, on another thread if they are not those of the supervisor.
pub(super) fn with<T: Send>(rights: Option<&Rights>, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some(rights) = rights else { return act() };
    let taken = || {
        rights::take(rights.ids.as_ref(), rights.capabilities)?;
        act()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, taken)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::EPERM)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;
    use std::os::unix::fs::PermissionsExt;

    fn own() -> Ids {
        ids(gettid().as_raw_nonzero().get()).expect("/proc")
    }

    #[test]
    fn an_ordinary_user_is_not_looked_at() {
        let start = Start { one_user: true, capabilities: u64::MAX, namespace: None, ids: None, ids_change: true };
        assert_eq!(start.rights(i32::MAX).expect("no such thread is looked for"), None);
        assert!(start.has_all(i32::MAX));
    }

    #[test]
    fn a_thread_that_lacks_something_is_found() {
        let tid = gettid().as_raw_nonzero().get();
        let held = capabilities::of(0).expect("own").effective;
        let start = |capabilities: u64, ids: Ids, ids_change: bool| Start {
            one_user: false,
            capabilities,
            namespace: namespace(tid),
            ids: Some(ids),
            ids_change,
        };
        assert_eq!(start(held, own(), true).rights(tid).expect("own"), None);
        assert!(start(held, own(), false).has_all(tid));
        let lacking = start(u64::MAX, own(), true).rights(tid).expect("own").expect("no thread has all of them");
        assert_eq!(lacking, Rights { ids: None, capabilities: held });
        let other = Ids { users: [7; 4], ..own() };
        let changed = start(held, other.clone(), true).rights(tid).expect("own").expect("another user");
        assert_eq!(changed.ids, Some(own()));
        assert!(start(held, other.clone(), false).rights(tid).expect("own").is_none());
        assert!(!start(held, other, false).has_all(tid), "what is approved is made for nobody else");
        let elsewhere = Start { namespace: Some(1), ..start(1, own(), false) };
        assert_eq!(elsewhere.rights(tid).expect("own"), Some(Rights { ids: None, capabilities: 0 }));
    }

    /// Only root can become another user. A thread that cannot take the rights does not act.
    #[test]
    fn a_thread_acts_as_the_user_whose_rights_it_takes_or_not_at_all() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "x").expect("own directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("own directory");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("own file");
        let nobody = Ids { users: [65534; 4], groups: [65534; 4], supplementary: vec![65534] };
        let rights = Rights { ids: Some(nobody.clone()), capabilities: 0 };
        let before = own();
        let read = || std::fs::read(&file);
        assert!(with(None, read).is_ok());
        let seen = with(Some(&rights), || Ok((own(), read().map_err(|error| error.raw_os_error()))));
        match rustix::process::geteuid().is_root() {
            true => assert_eq!(seen.expect("root may"), (nobody, Err(Some(libc::EACCES)))),
            false => assert_eq!(seen.expect_err("no privileges").raw_os_error(), Some(libc::EPERM)),
        }
        assert_eq!(own(), before, "this thread stays what it is");
        assert!(read().is_ok());
    }
}
