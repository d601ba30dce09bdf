//! Finds the cause of a failed try: an outer seccomp filter, a security module, a sysctl, or the kernel itself.

use super::Why;
use super::distribution::Distribution;
use crate::sys::probe::Attempt;
use std::io;
use std::path::Path;

/// The sandboxes around this process.
pub struct Surroundings {
    /// Whether this process already has a seccomp filter.
    pub filtered: bool,
    container: Option<&'static str>,
}

impl Surroundings {
    pub fn look() -> Surroundings {
        let here = |path| Path::new(path).exists();
        let container = if here("/.dockerenv") {
            Some("Docker")
        } else if here("/run/.containerenv") {
            Some("Podman")
        } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Some("Kubernetes")
        } else {
            None
        };
        Surroundings { filtered: crate::host::is_filtered(), container }
    }

    /// The outer filter, by a name that its users know.
    pub fn outer(&self) -> &'static str {
        match self.container {
            Some("Docker") => "the seccomp filter of this process (probably Docker's)",
            Some("Podman") => "the seccomp filter of this process (probably Podman's)",
            Some(_) => "the seccomp filter of this process (probably the container runtime's)",
            None => "the seccomp filter of an outer sandbox",
        }
    }

    /// How to allow calls in the outer filter.
    pub fn let_through(&self, calls: &str) -> String {
        match self.container {
            Some("Docker") | Some("Podman") => format!(
                "start the container with --security-opt seccomp=FILE, where FILE is the default profile with {calls} added to the allowed calls"
            ),
            Some(_) => format!(
                "give the pod a securityContext.seccompProfile of type Localhost: the default profile with {calls} added to the allowed calls"
            ),
            None => format!("allow {calls} in the outer sandbox"),
        }
    }

    /// Why a call failed that an outer filter may deny; `kernel` is the cause if there is no such filter.
    pub fn refused(&self, attempt: Attempt, calls: &str, kernel: Why) -> Why {
        match attempt {
            Attempt::Killed(signal) => Why {
                cause: format!("{} kills a process that calls {calls} (signal {signal})", self.outer()),
                fix: self.let_through(calls),
            },
            _ if self.filtered => {
                let errno = errno_of(attempt);
                Why { cause: format!("{} denies {calls} ({errno})", self.outer()), fix: self.let_through(calls) }
            }
            _ => kernel,
        }
    }

    /// Why no user namespace could be created or used; the likeliest cause first.
    pub fn no_user_namespace(&self, attempt: Attempt, distribution: &Distribution) -> Why {
        let setting = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
            text.trim().parse::<i64>().ok()
        };
        let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
        let errno = errno_of(attempt);
        match attempt {
            Attempt::Failed { step: 0, errno: libc::ENOSPC } => {
                let most = setting("user/max_user_namespaces");
                match most {
                    Some(0) => Why {
                        cause: "the sysctl user.max_user_namespaces is 0".to_owned(),
                        fix: distribution.sysctl("user.max_user_namespaces=15000"),
                    },
                    _ => Why {
                        cause: format!(
                            "there are too many user namespaces already, or they are nested too deeply ({errno})"
                        ),
                        fix: "end the processes in them, or raise the sysctl user.max_user_namespaces".to_owned(),
                    },
                }
            }
            Attempt::Failed { step: 0, errno: libc::EPERM }
                if setting("kernel/unprivileged_userns_clone") == Some(0) =>
            {
                Why {
                    cause: "the sysctl kernel.unprivileged_userns_clone is 0".to_owned(),
                    fix: distribution.sysctl("kernel.unprivileged_userns_clone=1"),
                }
            }
            Attempt::Failed { .. } if setting("kernel/apparmor_restrict_unprivileged_userns") == Some(1) => Why {
                cause: format!(
                    "AppArmor denies user namespaces to unprivileged programs (kernel.apparmor_restrict_unprivileged_userns is 1; {errno})"
                ),
                fix: distribution.apparmor_profile(&program),
            },
            Attempt::Failed { step: 0, errno: libc::EPERM } if !self.filtered && is_in_chroot() => Why {
                cause: "this process is in a chroot, where the kernel creates no user namespaces".to_owned(),
                fix: "start gatekeeper outside the chroot, or use pivot_root instead of chroot".to_owned(),
            },
            attempt => self.refused(
                attempt,
                "unshare, clone and mount",
                Why {
                    cause: format!("the kernel or a security module denies user namespaces ({errno})"),
                    fix:
                        "use a kernel with CONFIG_USER_NS, and look for denials of a security module in the kernel log"
                            .to_owned(),
                },
            ),
        }
    }
}

fn is_in_chroot() -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &str| std::fs::metadata(path).map(|stat| (stat.dev(), stat.ino())).ok();
    matches!((id("/"), id("/proc/1/root/.")), (Some(own), Some(first)) if own != first)
}

pub fn errno_of(attempt: Attempt) -> String {
    match attempt {
        Attempt::Works => "it works".to_owned(),
        Attempt::Failed { errno, .. } => io::Error::from_raw_os_error(errno).to_string(),
        Attempt::Killed(signal) => format!("killed by signal {signal}"),
    }
}
