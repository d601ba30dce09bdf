//! Calls that every profile grants only with some arguments.

use super::{Clause, Decision, NEW_NAMESPACES, Table, Verb, Why};
use crate::policy::Policy;
use sandbox_contract::bpf::{Op, Test};

const CLONE_THREAD: u32 = 0x0001_0000;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
/// The type bytes of file system ioctls: ext4 and the generic ones, XFS, btrfs, f2fs, FAT. Many of these change a file or
/// a directory through a descriptor opened for reading, and Landlock does not check them.
const FILE_SYSTEM_LETTERS: [u32; 6] = [0x66, 0x76, 0x58, 0x94, 0xf5, 0x72];
const LETTER: u32 = 0xff00;
/// Those of them that only read, or that need a descriptor opened for writing.
const HARMLESS: [u32; 13] = [
    0x8008_6601, // FS_IOC_GETFLAGS
    0x8004_6601, // FS_IOC32_GETFLAGS
    0xc020_660b, // FS_IOC_FIEMAP
    0xc009_6616, // FS_IOC_GET_ENCRYPTION_POLICY_EX
    0x400c_6615, // FS_IOC_GET_ENCRYPTION_POLICY
    0xc004_6686, // FS_IOC_MEASURE_VERITY
    0x8008_7601, // FS_IOC_GETVERSION
    0x801c_581f, // FS_IOC_FSGETXATTR
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0xc018_9436, // FIDEDUPERANGE
    0x8100_9431, // FS_IOC_GETFSLABEL
    F2FS_IOC_GET_FEATURES,
];
/// SQLite asks this on every database.
pub(super) const F2FS_IOC_GET_FEATURES: u32 = 0x8004_f50c;
const MFD_NOEXEC_SEAL: u32 = 8;
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;
/// The scheduling policies without real-time priority: SCHED_OTHER, SCHED_BATCH and SCHED_IDLE (sched(7)).
const ORDINARY_POLICIES: [u32; 3] = [0, 3, 5];
const SCHED_RESET_ON_FORK: u32 = 0x4000_0000;
const PERSONALITY_QUERY: u32 = u32::MAX;

impl Table {
    /// `programs`: whether the command may start processes.
    pub(super) fn guard_arguments(&mut self, programs: bool) {
        self.refuse("ioctl", [Test::low(1, Op::Eq, TIOCSTI)], Why::Terminal);
        self.refuse("ioctl", [Test::low(1, Op::Eq, TIOCLINUX)], Why::Terminal);
        for request in HARMLESS {
            self.answer("ioctl", [Test::low(1, Op::Eq, request)], Verb::Allow);
        }
        for letter in FILE_SYSTEM_LETTERS {
            self.refuse("ioctl", [Test::bits(1, LETTER, letter << 8)], Why::FileSystem);
        }
        self.guard_files();
        // Only for the calling process; these calls take any process of the same user.
        for (call, process) in [("setpriority", PRIO_PROCESS), ("ioprio_set", IOPRIO_WHO_PROCESS)] {
            self.only(call, [vec![Test::low(0, Op::Eq, process), Test::low(1, Op::Eq, 0)]], Why::Others);
        }
        self.only("sched_setaffinity", [vec![Test::low(0, Op::Eq, 0)]], Why::Others);
        let (mask, wanted) = if programs { (NEW_NAMESPACES, 0) } else { (NEW_NAMESPACES | CLONE_THREAD, CLONE_THREAD) };
        self.only("clone", [vec![Test::bits(0, mask, wanted)]], Why::Process);
        // Only for the calling process.
        self.only("prlimit64", [vec![Test::low(0, Op::Eq, 0)]], Why::Others);
        // Programs query the personality and set the default one.
        let personality = |value| vec![Test::low(0, Op::Eq, value)];
        self.only("personality", [personality(0), personality(PERSONALITY_QUERY)], Why::Arguments(0));
    }

    /// A process may choose another ordinary scheduling policy for itself. Not in an exact list, which says what it grants.
    pub(super) fn guard_scheduler(&mut self) {
        self.only("sched_setscheduler", [vec![Test::low(0, Op::Eq, 0)]], Why::Others);
        let other = |policy| Test { op: Op::Ne, ..Test::bits(1, !SCHED_RESET_ON_FORK, policy) };
        let real_time = ORDINARY_POLICIES.map(other).to_vec();
        self.answer_first("sched_setscheduler", real_time, Decision::deny(Why::Profile));
    }

    /// If only some programs may be executed, memory files must not be: Landlock does not check them. The kernel never
    /// executes a memory file created with MFD_NOEXEC_SEAL.
    pub(super) fn guard_execution(&mut self, policy: &Policy) {
        if policy.limits_execution()
            && let Some(entry) = self.granted("memfd_create")
        {
            entry.clauses = vec![Clause::new([Test::bits(1, MFD_NOEXEC_SEAL, MFD_NOEXEC_SEAL)], Verb::Allow)];
            entry.otherwise = Decision { verb: Verb::Refuse(libc::ENOSYS as u16), why: Why::Memory };
        }
    }
}
