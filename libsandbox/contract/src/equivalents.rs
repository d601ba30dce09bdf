//! Families of syscalls that can replace each other. Denying one and leaving another open denies nothing.

use crate::profiles::FALLBACK;

/// Calls that can each do what the others do.
pub struct Family {
    /// What they do, as the end of "can still ...".
    pub does: &'static str,
    pub calls: &'static [&'static str],
}

/// io_uring performs these operations without a syscall that the filter sees.
pub const IO_URING: &str = "io_uring_setup";

pub const FAMILIES: &[Family] = &[
    Family { does: "open files", calls: &["open", "openat", "openat2", "creat", "open_by_handle_at", IO_URING] },
    Family { does: "start processes", calls: &["fork", "vfork", "clone", "clone3"] },
    Family { does: "execute programs", calls: &["execve", "execveat"] },
    Family { does: "delete files", calls: &["unlink", "unlinkat", IO_URING] },
    Family { does: "delete directories", calls: &["rmdir", "unlinkat", IO_URING] },
    Family { does: "rename files", calls: &["rename", "renameat", "renameat2", IO_URING] },
    Family { does: "make directories", calls: &["mkdir", "mkdirat", IO_URING] },
    Family { does: "make links", calls: &["link", "linkat", IO_URING] },
    Family { does: "make symbolic links", calls: &["symlink", "symlinkat", IO_URING] },
    Family { does: "make special files", calls: &["mknod", "mknodat"] },
    Family { does: "open sockets", calls: &["socket", IO_URING] },
    Family { does: "connect sockets", calls: &["connect", "sendto", "sendmsg", "sendmmsg", IO_URING] },
    Family { does: "accept connections", calls: &["accept", "accept4", IO_URING] },
    Family { does: "change modes", calls: &["chmod", "fchmod", "fchmodat", "fchmodat2"] },
    Family { does: "change owners", calls: &["chown", "fchown", "lchown", "fchownat"] },
    Family { does: "set file times", calls: &["utime", "utimes", "futimesat", "utimensat"] },
    Family { does: "set extended attributes", calls: &["setxattr", "lsetxattr", "fsetxattr", "setxattrat", IO_URING] },
    Family { does: "truncate files", calls: &["truncate", "ftruncate", IO_URING] },
    Family {
        does: "write to descriptors",
        calls: &[
            "write",
            "writev",
            "pwrite64",
            "pwritev",
            "pwritev2",
            "sendfile",
            "splice",
            "copy_file_range",
            IO_URING,
        ],
    },
    Family {
        does: "read from descriptors",
        calls: &["read", "readv", "pread64", "preadv", "preadv2", "mmap", IO_URING],
    },
    Family {
        does: "send signals",
        calls: &["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"],
    },
    Family {
        does: "reach into other processes",
        calls: &["ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd"],
    },
    Family { does: "mount file systems", calls: &["mount", "move_mount", "fsmount", "open_tree", "mount_setattr"] },
    Family { does: "make memory executable", calls: &["mmap", "mprotect", "pkey_mprotect"] },
    Family { does: "change identity", calls: &["setuid", "setreuid", "setresuid", "setfsuid"] },
];

/// Reports each family that is denied only in part: the family, a denied call, an open one.
pub fn holes(
    is_denied: &dyn Fn(&str) -> Option<bool>,
    found: &mut dyn FnMut(&'static Family, &'static str, &'static str),
) {
    for family in FAMILIES {
        // Denying a FALLBACK call makes programs use an older one. It does not mean that the others should be denied.
        let meant = family.calls.iter().find(|call| is_denied(call) == Some(true) && !FALLBACK.contains(call));
        if let (Some(denied), Some(open)) = (meant, family.calls.iter().find(|call| is_denied(call) == Some(false))) {
            found(family, denied, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::{Number, number};
    use std::vec::Vec;

    #[test]
    fn every_call_of_a_family_is_a_known_name() {
        for call in FAMILIES.iter().flat_map(|family| family.calls) {
            assert_ne!(number(call.as_bytes()), Number::Unknown, "{call}");
        }
    }

    #[test]
    fn a_half_denied_family_is_a_hole_and_a_whole_one_is_not() {
        let holes_of = |denied: &[&str]| {
            let mut all = Vec::new();
            holes(&|call| Some(denied.contains(&call)), &mut |family, denied, open| {
                all.push((family.does, denied, open))
            });
            all
        };
        assert_eq!(holes_of(&["execve"]), [("execute programs", "execve", "execveat")]);
        assert_eq!(holes_of(&["execve", "execveat"]), []);
        assert_eq!(holes_of(&[]), []);
        assert_eq!(holes_of(&[IO_URING, "clone3", "openat2"]), []);
    }
}
