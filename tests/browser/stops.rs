//! What the filter of the profile `browser` must stop and what it must allow for the browser's own sandbox.
//! gatekeeper's probe runs instead of the browser, and the kernel's unconfined result is the control.

use super::{Desk, ready};
use crate::plumbing::{gatekeeper, users};
use crate::support::run;
use std::process::Command;

/// Probe, its result, and the call in the denials; `None` if the denial is not recorded.
const STOPPED: &[(&str, &str, Option<&str>)] = &[
    ("ptrace", "EPERM", None),
    ("ptrace-traceme", "EPERM", None),
    ("process-vm-readv", "EPERM", Some("process_vm_readv")),
    ("process-vm-writev", "EPERM", Some("process_vm_writev")),
    ("pidfd-getfd", "EPERM", Some("pidfd_getfd")),
    ("mount", "EPERM", Some("mount")),
    ("umount", "EPERM", Some("umount2")),
    ("pivot-root", "EPERM", Some("pivot_root")),
    ("move-mount", "EPERM", Some("move_mount")),
    ("open-tree", "EPERM", Some("open_tree")),
    ("fsopen", "EPERM", Some("fsopen")),
    ("mount-setattr", "EPERM", Some("mount_setattr")),
    ("setns", "EPERM", Some("setns")),
    ("unshare", "EPERM", Some("unshare")),
    ("clone-new-mount-junk", "EPERM", Some("clone")),
    ("bpf", "EPERM", Some("bpf")),
    ("keyctl", "EPERM", Some("keyctl")),
    ("add-key", "EPERM", Some("add_key")),
    ("userfaultfd", "EPERM", Some("userfaultfd")),
    ("perf-event-open", "EPERM", Some("perf_event_open")),
    ("open-by-handle-at", "EPERM", Some("open_by_handle_at")),
    ("init-module", "EPERM", Some("init_module")),
    ("finit-module", "EPERM", Some("finit_module")),
    ("kexec-load", "EPERM", Some("kexec_load")),
    ("socket-packet", "EPERM", Some("socket")),
    ("socket-vsock", "EPERM", Some("socket")),
    ("socket-alg", "EPERM", Some("socket")),
    ("socket-unix-datagram", "EPERM", Some("socket")),
    ("socket-netlink-audit", "EAFNOSUPPORT", None),
    ("setpriority-other", "EPERM", None),
    ("tiocsti-junk", "EPERM", Some("ioctl")),
    ("io-uring-setup", "ENOSYS", None),
    ("io-uring-enter", "ENOSYS", None),
    ("openat2", "ENOSYS", None),
    ("clone3", "ENOSYS", None),
];

/// Calls of a browser's own sandbox, which the filter allows and the kernel answers.
const LET_THROUGH: &[(&str, &str)] =
    &[("clone-new-user", "EINVAL"), ("clone-new-net", "EINVAL"), ("chroot", "EFAULT"), ("capset", "EFAULT")];

#[test]
fn what_a_browser_does_not_need_is_stopped_and_what_it_needs_is_not() {
    if !ready() {
        return;
    }
    for user in users() {
        let desk = Desk::new(user);
        let names = || STOPPED.iter().map(|(name, ..)| *name).chain(LET_THROUGH.iter().map(|(name, _)| *name));
        let script = |probe: &str| {
            names().map(|name| format!("printf '%s ' {name}; {probe} __probe {name}\n")).collect::<String>()
        };
        // The program that replaces the browser can see its own directory.
        let program = desk.beside().join("gatekeeper");
        std::fs::copy(gatekeeper(), &program).expect("own");
        let done = run(desk.bare(&[]).arg("--").arg(desk.script(&script(program.to_str().expect("text")))));
        let report = desk.report();
        let answers: Vec<(&str, &str)> = STOPPED.iter().map(|(name, answer, _)| (*name, *answer)).collect();
        for (name, answer) in answers.iter().chain(LET_THROUGH) {
            assert!(done.stdout().contains(&format!("{name} {answer}\n")), "{name} {answer}{done}");
        }
        for (name, _, record) in STOPPED {
            let Some(call) = record else { continue };
            let recorded =
                report["denials"].as_array().expect("a list").iter().any(|denial| denial["syscall"] == *call);
            assert!(recorded, "{name}: no record of {call} in {report:#}");
        }
        let outside = run(Command::new("/bin/sh").arg("-c").arg(script(program.to_str().expect("text"))));
        for (name, answer) in &answers {
            let own_to_root = user.is_some() && matches!(*answer, "EPERM");
            let same = outside.stdout().contains(&format!("{name} {answer}\n"));
            assert!(!same || own_to_root, "the control of {name} shows nothing{outside}");
        }
    }
}
