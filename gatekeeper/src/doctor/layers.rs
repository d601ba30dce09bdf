//! One function per layer, which tries it and returns a finding.

use super::distribution::Distribution;
use super::fault::{Surroundings, errno_of};
use super::{Finding, Status, Why};
use crate::enforce::cgroup::{Cgroup, NoCgroup};
use crate::enforce::landlock;
use crate::host::floor::{self, Floor};
use crate::policy::Limits;
use crate::sys::probe::{self, Attempt};
use crate::sys::{landlock as kernel, seccomp as actions_of};
use crate::trust::Hostile;
use crate::trust::program::{self, NoProgram};
use sandbox_contract::bpf::ret;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A try that could not be started counts as one whose first step failed.
fn tried(attempt: std::io::Result<Attempt>) -> Attempt {
    attempt.unwrap_or_else(|error| Attempt::Failed { step: 0, errno: error.raw_os_error().unwrap_or(libc::EIO) })
}

fn newer(floor: Floor) -> String {
    format!("use Linux {} or newer", floor.kernel)
}

pub fn seccomp(around: &Surroundings) -> Finding {
    const LOST: &str = "everything: without a filter no profile can be enforced, and gatekeeper refuses to run";
    let attempt = tried(probe::filter(false));
    if attempt.works() {
        return Finding::available("seccomp", "filters can be installed");
    }
    let kernel = Why {
        cause: format!("this kernel has no seccomp filters ({})", errno_of(attempt)),
        fix: "use a kernel with CONFIG_SECCOMP_FILTER".to_owned(),
    };
    let why = around.refused(attempt, "seccomp and prctl", kernel);
    Finding::lacking("seccomp", Status::Unavailable, errno_of(attempt), why, LOST)
}

pub fn actions(around: &Surroundings) -> Finding {
    const ACTIONS: [(&str, u32); 4] =
        [("errno", ret::errno(0)), ("kill", ret::KILL_PROCESS), ("trap", ret::TRAP), ("log", ret::LOG)];
    let (has, lacks): (Vec<_>, Vec<_>) = ACTIONS.iter().partition(|(_, action)| actions_of::action_available(*action));
    let names = |list: &[&(&str, u32)]| list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ");
    if lacks.is_empty() {
        return Finding::available("seccomp actions", names(&has));
    }
    let kernel = Why { cause: "this kernel is too old".to_owned(), fix: newer(floor::FILTER) };
    let why = around.refused(Attempt::Failed { step: 0, errno: libc::EPERM }, "seccomp", kernel);
    Finding::lacking(
        "seccomp actions",
        Status::Unavailable,
        format!("lacks {}", names(&lacks)),
        why,
        "these actions for on_violation",
    )
}

pub fn user_notification(around: &Surroundings) -> Finding {
    const LOST: &str = "single denials are not reported, and chmod, chown, utimes and connect are denied instead of checked by path or address";
    let attempt = tried(probe::filter(true));
    let why = match attempt {
        Attempt::Works => return Finding::available("user notification", "filters can have a listener"),
        Attempt::Failed { errno: libc::EBUSY, .. } => Why {
            cause: "an outer sandbox already has a listener, and the kernel allows only one per process".to_owned(),
            fix: "start gatekeeper outside that sandbox; there is no fix from inside".to_owned(),
        },
        Attempt::Failed { errno: libc::EINVAL, .. } if !actions_of::action_available(ret::USER_NOTIF) => {
            Why { cause: "this kernel is too old".to_owned(), fix: newer(floor::NOTIFICATION) }
        }
        attempt => {
            let kernel = Why {
                cause: format!("the kernel returns no listener ({})", errno_of(attempt)),
                fix: newer(floor::NOTIFICATION),
            };
            around.refused(attempt, "seccomp with SECCOMP_FILTER_FLAG_NEW_LISTENER", kernel)
        }
    };
    Finding::lacking("user notification", Status::Unavailable, errno_of(attempt), why, LOST)
}

pub fn landlock(around: &Surroundings, distribution: &Distribution) -> Finding {
    const LOST: &str = "paths are not confined: gatekeeper refuses to run, unless --require-sandbox=false";
    const CALLS: &str = "landlock_create_ruleset, landlock_add_rule and landlock_restrict_self";
    let missing = |attempt: Attempt| {
        let lsm = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
        let kernel = match attempt {
            Attempt::Failed { errno: libc::EOPNOTSUPP, .. } => Why {
                cause: "Landlock is built into this kernel but not enabled".to_owned(),
                fix: distribution.boot_parameter(format!("lsm=landlock,{}", lsm.trim()).trim_end_matches(',')),
            },
            Attempt::Failed { errno: libc::E2BIG, .. } => Why {
                cause: "this process already has 16 Landlock rulesets, which is the maximum".to_owned(),
                fix: "nest fewer sandboxes".to_owned(),
            },
            _ => Why {
                cause: format!("this kernel has no Landlock ({})", errno_of(attempt)),
                fix: format!("{} with CONFIG_SECURITY_LANDLOCK", newer(floor::LANDLOCK)),
            },
        };
        let own_fault = matches!(attempt, Attempt::Failed { errno: libc::EOPNOTSUPP | libc::E2BIG, .. });
        let why = if own_fault { kernel } else { around.refused(attempt, CALLS, kernel) };
        Finding::lacking("landlock", Status::Unavailable, errno_of(attempt), why, LOST)
    };
    let failed = |error: Option<i32>| Attempt::Failed { step: 0, errno: error.unwrap_or(libc::EIO) };
    let abi = match kernel::abi() {
        Ok(abi) => abi,
        Err(error) => return missing(failed(error.raw_os_error())),
    };
    let attempt = match landlock::build(abi, &[], None, &[], None, None) {
        Ok(rules) => tried(probe::landlock(rules.ruleset.as_fd())),
        // An outer sandbox may allow the version query and deny the rest.
        Err(_) => failed(Some(libc::EPERM)),
    };
    if !attempt.works() {
        return missing(attempt);
    }
    let lost: Vec<&str> = landlock::GAINS.iter().filter(|(since, _)| abi < *since).map(|(_, what)| *what).collect();
    if lost.is_empty() {
        return Finding::available("landlock", format!("ABI {abi}"));
    }
    let why = Why {
        cause: format!("this kernel's Landlock has ABI {abi}"),
        fix: "use a newer kernel: 5.19 for renames, 6.2 for truncation, 6.7 for TCP ports, 6.10 for devices, 6.12 for signals".to_owned(),
    };
    let detail = format!("ABI {abi}, without {}", lost.join(", "));
    Finding::lacking("landlock", Status::Partial, detail, why, "Landlock does not confine what the detail lists")
}

pub fn user_namespaces(around: &Surroundings, distribution: &Distribution) -> Finding {
    const LOST: &str = "protected files inside writable trees (.git/hooks and the like) stay writable, and --isolate has no namespaces";
    let attempt = tried(probe::user_namespace());
    if attempt.works() {
        return Finding::available("user namespaces", "created, mapped and used for mounts");
    }
    let step = match attempt {
        Attempt::Failed { step: 0, .. } => "cannot be created",
        Attempt::Failed { step: 1, .. } => "created, but this user cannot be mapped into it",
        Attempt::Failed { .. } => "created, but mounts are denied in it",
        _ => "the try was killed",
    };
    let why = around.no_user_namespace(attempt, distribution);
    Finding::lacking("user namespaces", Status::Unavailable, format!("{step}: {}", errno_of(attempt)), why, LOST)
}

pub fn mount_namespaces(around: &Surroundings, distribution: &Distribution) -> Finding {
    const LOST: &str = "protected files inside writable trees stay writable";
    let root = rustix::process::geteuid().is_root();
    let attempt = tried(if root { probe::mount_namespace() } else { probe::user_namespace() });
    if attempt.works() {
        let how = if root { "created as root" } else { "created in a user namespace" };
        return Finding::available("mount namespaces", how);
    }
    let why = if root {
        let kernel = Why {
            cause: format!("root may not mount here ({}), as in a container without CAP_SYS_ADMIN", errno_of(attempt)),
            fix: "give the container CAP_SYS_ADMIN, or run gatekeeper as a user who may create user namespaces"
                .to_owned(),
        };
        around.refused(attempt, "unshare and mount", kernel)
    } else {
        around.no_user_namespace(attempt, distribution)
    };
    Finding::lacking("mount namespaces", Status::Unavailable, errno_of(attempt), why, LOST)
}

pub fn bubblewrap(around: &Surroundings, distribution: &Distribution) -> Finding {
    const LOST: &str = "--isolate: a private view of files, processes and network above the other layers";
    let path = std::env::var_os("PATH");
    let found = |name: &str| program::find(name.as_ref(), path.as_deref(), &Hostile::here());
    let (bwrap, quiet) = match (found("bwrap"), found("true")) {
        (Ok(bwrap), Ok(quiet)) => (bwrap, quiet),
        (Err(NoProgram::NotFound), _) => {
            let cause = "bwrap is not in a system directory such as /usr/bin".to_owned();
            let why = Why { cause, fix: distribution.install("bubblewrap") };
            return Finding::lacking("bubblewrap", Status::Unavailable, "not installed", why, LOST);
        }
        (Err(error), _) | (_, Err(error)) => {
            let why = Why { cause: error.to_string(), fix: distribution.install("bubblewrap") };
            return Finding::lacking("bubblewrap", Status::Unavailable, "found, but not safe to execute", why, LOST);
        }
    };
    let mut command = Command::new(bwrap);
    command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--unshare-all", "--die-with-parent"]).arg(quiet).env_clear();
    match bounded(&mut command) {
        Ok((true, _)) => Finding::available("bubblewrap", "bwrap runs"),
        Err(error) => {
            let why =
                Why { cause: format!("bwrap cannot be started: {error}"), fix: distribution.install("bubblewrap") };
            Finding::lacking("bubblewrap", Status::Unavailable, error.to_string(), why, LOST)
        }
        Ok((false, error)) => {
            let attempt = tried(probe::user_namespace());
            let why = if attempt.works() {
                let kernel = Why {
                    cause: format!("bwrap failed: {error}"),
                    fix: "see its message; user namespaces themselves work here".to_owned(),
                };
                around.refused(Attempt::Failed { step: 0, errno: libc::EPERM }, "the calls that bwrap makes", kernel)
            } else {
                around.no_user_namespace(attempt, distribution)
            };
            Finding::lacking("bubblewrap", Status::Unavailable, error, why, LOST)
        }
    }
}

pub fn cgroups(around: &Surroundings, distribution: &Distribution) -> Finding {
    const LOST: &str = "the kernel does not enforce --memory, --processes and --cpu for the tree; the supervisor measures it instead, every 5 to 100 ms";
    const ASKED: Limits =
        Limits { memory: Some(1 << 50), processes: Some(1 << 20), files: None, cpu: None, output: None, disk: None };
    let unified = || distribution.boot_parameter("systemd.unified_cgroup_hierarchy=1");
    let delegate = || {
        match std::path::Path::new("/run/systemd/system").exists() {
        true => "start gatekeeper with systemd-run --user --scope -p Delegate=yes gatekeeper ...".to_owned(),
        false => {
            "delegate a cgroup v2 directory with the memory and pids controllers to this user, and start gatekeeper in it"
                .to_owned()
        }
    }
    };
    // Check this first: a controller that cgroup v1 uses is not available in v2 (cgroups(7)).
    let why_not = |cause: String| match bound_to_v1() {
        true => {
            Why { cause: "cgroup v1 uses the memory or pids controller on this machine".to_owned(), fix: unified() }
        }
        false => Why { cause, fix: delegate() },
    };
    let cgroup = match Cgroup::new(&ASKED) {
        Ok(cgroup) => cgroup,
        Err(error @ (NoCgroup::NotMounted | NoCgroup::NotAsked)) => {
            let why = Why { cause: error.to_string(), fix: unified() };
            return Finding::lacking("cgroups", Status::Unavailable, "none", why, LOST);
        }
        Err(error) => {
            return Finding::lacking(
                "cgroups",
                Status::Unavailable,
                error.to_string(),
                why_not(error.to_string()),
                LOST,
            );
        }
    };
    let joined = cgroup.joined().map_or(Attempt::Failed { step: 0, errno: libc::EACCES }, |joined| {
        tried(probe::join(joined.procs.as_raw_fd()))
    });
    match (joined, cgroup.memory && cgroup.processes) {
        (Attempt::Works, true) => Finding::available("cgroups", "version 2, with memory and pids"),
        (Attempt::Works, false) => {
            let why = why_not("the parent cgroup enables no controllers for this one".to_owned());
            let detail = "version 2, without controllers: only to kill a tree and to measure its CPU time";
            Finding::lacking("cgroups", Status::Partial, detail, why, LOST)
        }
        (attempt, _) => {
            let kernel = why_not(format!("no process may be moved into the cgroup ({})", errno_of(attempt)));
            let why = around.refused(attempt, "write", kernel);
            Finding::lacking("cgroups", Status::Unavailable, "cannot be entered", why, LOST)
        }
    }
}

/// Whether cgroup v1 uses one of the controllers that we need.
fn bound_to_v1() -> bool {
    let text = std::fs::read_to_string("/proc/cgroups").unwrap_or_default();
    // The first two columns are the controller and its hierarchy; 0 is cgroup v2.
    let mut lines = text.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>());
    lines.any(|words| matches!(words.as_slice(), ["memory" | "pids", id] if *id != "0"))
}

/// Runs a command for at most five seconds. Returns whether it succeeded, and its first line on stderr.
pub(super) fn bounded(command: &mut Command) -> std::io::Result<(bool, String)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let until = Instant::now() + Duration::from_secs(5);
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() >= until => {
                child.kill()?;
                break child.wait()?;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let mut bytes = [0u8; 4096];
        let read = stderr.read(&mut bytes)?;
        message = String::from_utf8_lossy(&bytes[..read]).lines().next().unwrap_or_default().to_owned();
    }
    Ok((status.success(), message))
}
