//! Host: which layers this machine can enforce, asked of the kernel once per run.
//!
//! Not the only probe: `doctor` tries more, to explain what is missing, and a run finds out by trying whether namespaces
//! and the notification listener are available.

use crate::sys;
use sandbox_contract::bpf::ret;
use std::io;

#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    /// The Landlock ABI, or why there is none.
    pub landlock: Result<i32, Missing>,
    pub seccomp: Result<(), Missing>,
    /// Whether filters can notify. Whether an outer sandbox already has a listener shows only when we create ours.
    pub user_notification: bool,
    /// The command's user, which cannot change under no_new_privs.
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

/// Why a layer is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub errno: i32,
    /// The cause and the fix, for messages.
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

/// The oldest Linux with the features of each layer, for messages, doctor and docs/threat-model.md. Code asks the kernel
/// for the feature and never compares versions.
pub mod floor {
    #[derive(Debug, Clone, Copy)]
    pub struct Floor {
        /// As the table in docs/threat-model.md names it.
        pub needs: &'static str,
        pub kernel: &'static str,
    }

    /// SECCOMP_RET_KILL_PROCESS, and SECCOMP_GET_ACTION_AVAIL to ask for it.
    pub const FILTER: Floor = Floor { needs: "seccomp filters", kernel: "4.14" };
    /// Listeners came with 5.0, SECCOMP_USER_NOTIF_FLAG_CONTINUE with 5.5 and `pidfd_getfd` with 5.6. They are not probed
    /// one by one: a kernel without them lacks `close_range` too, and every run is refused there.
    pub const NOTIFICATION: Floor = Floor { needs: "seccomp with notification, `pidfd_getfd`", kernel: "5.6" };
    /// `close_range` with CLOSE_RANGE_CLOEXEC.
    pub const DESCRIPTORS: Floor = Floor { needs: "`close_range`", kernel: "5.11" };
    pub const LANDLOCK: Floor = Floor { needs: "Landlock", kernel: "5.13" };

    pub const ALL: [Floor; 4] = [FILTER, NOTIFICATION, DESCRIPTORS, LANDLOCK];
}

/// Whether this process already runs under a seccomp filter.
pub fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn landlock_missing(error: &io::Error) -> Missing {
    let errno = error.raw_os_error().unwrap_or(0);
    let (cause, fix) = match errno {
        libc::EOPNOTSUPP => {
            ("Landlock is built into this kernel but not enabled", "add landlock to the kernel's lsm= boot parameter")
        }
        libc::ENOSYS if !is_filtered() => {
            let fix = format!("use Linux {} or newer", floor::LANDLOCK.kernel);
            return Missing { errno, cause: "this kernel has no Landlock".to_owned(), fix };
        }
        _ => (
            "an outer sandbox denies Landlock",
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
        _ => ("an outer sandbox denies seccomp", "let it allow the seccomp call"),
    };
    Missing { errno, cause: cause.to_owned(), fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All messages take the version from `floor`.
    #[test]
    fn the_threat_model_and_the_messages_have_the_same_floors() {
        let document = include_str!("../../docs/threat-model.md");
        for floor in floor::ALL {
            let row = format!("| {} | {} |", floor.needs, floor.kernel);
            assert_eq!(document.matches(&row).count(), 1, "{row}");
        }
        for (file, source) in [
            ("plan/assemble.rs", include_str!("plan/assemble.rs")),
            ("plan/refusal.rs", include_str!("plan/refusal.rs")),
            ("doctor/layers.rs", include_str!("doctor/layers.rs")),
            ("doctor/fault.rs", include_str!("doctor/fault.rs")),
        ] {
            for told in ["or newer", "older than"] {
                for line in source.lines().filter(|line| line.contains(told)) {
                    let version = |word: &str| word.split('.').count() == 2 && word.split('.').all(is_number);
                    let found = line.split(|c: char| !c.is_ascii_digit() && c != '.').any(version);
                    assert!(!found, "{file} spells out a version: {line}");
                }
            }
        }
    }

    fn is_number(text: &str) -> bool {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
    }
}
