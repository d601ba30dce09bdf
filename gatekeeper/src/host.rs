//! Host: what this machine can enforce, asked once and for real. The only prober.

use crate::sys;
use sandbox_contract::bpf::ret;
use std::io;

#[derive(Debug)]
pub struct Host {
    /// The Landlock ABI, or why there is none.
    pub landlock: Result<i32, Missing>,
    pub seccomp: Result<(), Missing>,
    /// Whether a filter can notify; whether its listener is still free shows only when it is taken.
    pub user_notification: bool,
    /// Who the command will be: nothing can change that under no_new_privs.
    pub user: User,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    pub fn of_this_process() -> User {
        User { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }
}

/// Why a layer is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub errno: i32,
    /// For people: the cause, and what would mend it.
    pub cause: String,
    pub fix: String,
}

impl Host {
    pub fn probe() -> Host {
        Host {
            landlock: sys::landlock::abi().map_err(|error| landlock_missing(&error)),
            seccomp: sys::seccomp::probe().map_err(|error| seccomp_missing(&error)),
            user_notification: sys::seccomp::action_available(ret::USER_NOTIF),
            user: User::of_this_process(),
        }
    }
}

/// Whether somebody has put a seccomp filter on this process already.
pub fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn landlock_missing(error: &io::Error) -> Missing {
    let errno = error.raw_os_error().unwrap_or(0);
    let (cause, fix) = match errno {
        libc::EOPNOTSUPP => (
            "Landlock is built into this kernel but not switched on",
            "add landlock to the kernel's lsm= boot parameter",
        ),
        libc::ENOSYS if !is_filtered() => ("this kernel has no Landlock", "use Linux 5.13 or newer"),
        _ => (
            "an outer sandbox refuses Landlock",
            "let it allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self",
        ),
    };
    Missing { errno, cause: cause.to_owned(), fix: fix.to_owned() }
}

fn seccomp_missing(error: &io::Error) -> Missing {
    let errno = error.raw_os_error().unwrap_or(0);
    let (cause, fix) = match errno {
        libc::ENOSYS if !is_filtered() => {
            ("this kernel has no seccomp filters", "use a kernel with CONFIG_SECCOMP_FILTER")
        }
        _ => ("an outer sandbox refuses seccomp", "let it allow the seccomp call"),
    };
    Missing { errno, cause: cause.to_owned(), fix: fix.to_owned() }
}
