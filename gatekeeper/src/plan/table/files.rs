//! What every profile denies on files, as far as the arguments of a call show it: leases, and set-id files; on old kernels, truncation.

use super::{Decision, Table, Verb, Why};
use sandbox_contract::bpf::{Op, Test};

/// A lease, which takes only read access, makes each writer of the file wait up to /proc/sys/fs/lease-break-time seconds.
/// Only file servers use leases.
pub const F_SETLEASE: u32 = 1024;
/// The newer command for the same.
pub const F_SETDELEG: u32 = 1024 + 16;

const SET_IDS: [u32; 2] = [0o4000, 0o2000];
const CREATES: [u32; 2] = [libc::O_CREAT as u32, libc::O_TMPFILE as u32];

impl Table {
    pub(super) fn guard_files(&mut self) {
        for command in [F_SETLEASE, F_SETDELEG] {
            self.refuse("fcntl", [Test::low(1, Op::Eq, command)], Why::Lease);
        }
        // A file created setuid or setgid would give its owner's rights to everyone who runs it. The supervisor checks
        // chmod.
        for bit in SET_IDS {
            for (call, mode) in [("creat", 1), ("mknod", 1), ("mknodat", 2)] {
                self.refuse(call, [Test::bits(mode, bit, bit)], Why::SetIds);
            }
            for (call, flags) in [("open", 1), ("openat", 2)] {
                for create in CREATES {
                    let tests = [Test::bits(flags, create, create), Test::bits(flags + 1, bit, bit)];
                    self.refuse(call, tests, Why::SetIds);
                }
            }
        }
    }

    /// Before ABI 3, Landlock does not restrict truncation, and files outside the granted paths can be emptied by truncate(2) and by
    /// opens that truncate without write access (access mode 3 asks for neither reading nor writing). All other ways need a
    /// descriptor that was opened for writing.
    pub fn covering_truncation(mut self, supervised: bool) -> Table {
        let (mode, truncates) = (libc::O_ACCMODE as u32, libc::O_TRUNC as u32);
        for (call, flags) in [("open", 1), ("openat", 2)] {
            for without_writing in [libc::O_RDONLY as u32, mode] {
                let tests = [Test::bits(flags, mode | truncates, truncates | without_writing)];
                let verb = Verb::Refuse(libc::EACCES as u16);
                self.answer(call, tests, Decision { verb, why: Why::Truncation });
            }
        }
        if self.granted("truncate").is_some() {
            let verb = if supervised { Verb::Supervise } else { Verb::Deny };
            self.set_all(&["truncate"], Decision { verb, why: Why::Metadata });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Document, NetworkMode, Policy, Profile};

    #[test]
    fn leases_and_set_ids_are_refused_and_nothing_else_of_those_calls() {
        let document = Document { profile: Some(vec![Profile::Write]), ..Document::default() };
        let policy = Policy::resolve(document).expect("a plain policy");
        let table = Table::new(&policy, &NetworkMode::None, true, true);
        let decide = |call: i64, args: [u64; 6]| table.decide(call as u32, &args);
        let junk = 0xdead_0000_0000_0000;
        assert_eq!(decide(libc::SYS_fcntl, [3, 1024 | junk, 0, 0, 0, 0]), Verb::Deny);
        assert_eq!(decide(libc::SYS_fcntl, [3, 1040, 0, 0, 0, 0]), Verb::Deny);
        for command in [0, 1, 2, 3, 4, 5, 6, 7, 1025, 1030, 1033] {
            assert_eq!(decide(libc::SYS_fcntl, [3, command, 0, 0, 0, 0]), Verb::Allow, "{command}");
        }
        let create = libc::O_CREAT as u64 | libc::O_WRONLY as u64;
        for (mode, verb) in [(0o644, Verb::Allow), (0o1777, Verb::Allow), (0o4755, Verb::Deny), (0o2755, Verb::Deny)] {
            assert_eq!(decide(libc::SYS_openat, [0, 0, create, mode, 0, 0]), verb, "{mode:o}");
            assert_eq!(decide(libc::SYS_openat, [0, 0, libc::O_TMPFILE as u64 | 2, mode, 0, 0]), verb, "{mode:o}");
            assert_eq!(decide(libc::SYS_mknodat, [0, 0, 0o100_000 | mode, 0, 0, 0]), verb, "{mode:o}");
        }
        // If open creates no file, the mode argument is not passed and holds any value.
        assert_eq!(decide(libc::SYS_openat, [0, 0, 0, 0o6777, 0, 0]), Verb::Allow);
    }

    #[test]
    fn truncation_without_write_access_is_refused_on_old_kernels_only() {
        let document = Document { profile: Some(vec![Profile::Write]), ..Document::default() };
        let policy = Policy::resolve(document).expect("a plain policy");
        let new = Table::new(&policy, &NetworkMode::None, true, true);
        let (old, alone) = (new.clone().covering_truncation(true), new.clone().covering_truncation(false));
        let opens = |flags: i32| [0, 0, flags as u64, 0, 0, 0];
        let refused = Verb::Refuse(libc::EACCES as u16);
        for (flags, verb) in [
            (libc::O_TRUNC, refused),
            (libc::O_TRUNC | libc::O_CREAT, refused),
            (libc::O_TRUNC | 3, refused),
            (libc::O_TRUNC | libc::O_WRONLY, Verb::Allow),
            (libc::O_TRUNC | libc::O_RDWR, Verb::Allow),
            (libc::O_RDONLY, Verb::Allow),
            (3, Verb::Allow),
        ] {
            assert_eq!(old.decide(libc::SYS_openat as u32, &opens(flags)), verb, "{flags:o}");
            assert_eq!(new.decide(libc::SYS_openat as u32, &opens(flags)), Verb::Allow, "{flags:o}");
        }
        let truncate = libc::SYS_truncate as u32;
        assert_eq!(old.decide(truncate, &[0; 6]), Verb::Supervise);
        assert_eq!(alone.decide(truncate, &[0; 6]), Verb::Deny);
        assert_eq!(new.decide(truncate, &[0; 6]), Verb::Allow);
        // What no profile grants stays denied.
        let minimal = Policy::resolve(Document::default()).expect("a plain policy");
        let minimal = Table::new(&minimal, &NetworkMode::None, false, true).covering_truncation(true);
        assert_eq!(minimal.decide(truncate, &[0; 6]), Verb::Deny);
    }
}
