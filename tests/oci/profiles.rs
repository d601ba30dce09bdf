//! Docker's and podman's default profiles keep their meaning for us and for libseccomp when they are imported, exported
//! and imported again, and commands run under them.

use super::support::{fresh, gatekeeper, probe, run};
use super::{docker, oracle, podman, policy, resolve};
use gatekeeper::oci::{Profile, Surroundings, export, import};
use gatekeeper::plan::table::{Table, Verb};
use gatekeeper::policy::Policy;
use sandbox_contract::syscalls::{Number, number};
use std::process::Command;

fn unprivileged() -> Surroundings {
    Surroundings { caps: Vec::new(), kernel: (6, 1) }
}

fn imported(json: &[u8], surroundings: &Surroundings) -> (Policy, Vec<String>) {
    let imported = import(json, surroundings).expect("it imports");
    // Through the policy file that users get.
    let toml = imported.document.to_toml().expect("it can be written");
    let again = policy(&toml);
    assert_eq!(again, resolve(imported.document), "{toml}");
    (again, imported.notes)
}

fn exported(policy: &Policy) -> (Profile, Vec<u8>) {
    let profile = export(&Table::alone(policy), policy.on_violation).expect("it exports");
    let json = serde_json::to_vec(&profile).expect("it is JSON");
    (profile, json)
}

/// The policy survives an export and import, and libseccomp gives the export the same meaning.
fn round_trip(policy: &Policy, what: &str) {
    let (profile, json) = exported(policy);
    let (back, notes) = imported(&json, &unprivileged());
    assert_eq!(notes, Vec::<String>::new(), "{what}");
    let asked = oracle::asked(&[&Table::alone(policy), &Table::alone(&back)], 5000);
    let ours = oracle::ours(policy);
    assert_eq!(oracle::difference(&ours, &oracle::ours(&back), &asked), None, "{what}: imported again");
    assert_eq!(oracle::difference(&ours, &oracle::of_profile(&profile), &asked), None, "{what}: libseccomp");
}

fn verb(policy: &Policy, name: &str, args: &[u64]) -> Verb {
    let Number::Here(nr) = number(name.as_bytes()) else { panic!("{name}") };
    let mut all = [0; 6];
    all.iter_mut().zip(args).for_each(|(to, from)| *to = *from);
    Table::alone(policy).decide(nr.into(), &all)
}

#[test]
fn dockers_profile_comes_back_the_same() {
    let all: Vec<String> =
        ["SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", "SYS_TIME", "SYSLOG", "BPF"].map(|cap| format!("CAP_{cap}")).to_vec();
    for caps in [Vec::new(), all] {
        let (policy, _) = imported(&docker(), &Surroundings { caps, kernel: (6, 1) });
        round_trip(&policy, "docker");
    }
}

#[test]
fn podmans_profile_comes_back_the_same() {
    let Some(json) = podman() else { return };
    for caps in [Vec::new(), vec!["CAP_AUDIT_WRITE".to_owned()], vec!["CAP_SYS_ADMIN".to_owned()]] {
        let (policy, _) = imported(&json, &Surroundings { caps, kernel: (6, 1) });
        round_trip(&policy, "podman");
    }
}

#[test]
fn dockers_conditions_are_those_of_the_surroundings() {
    let (plain, _) = imported(&docker(), &unprivileged());
    assert_eq!(verb(&plain, "mount", &[]), Verb::Deny);
    assert_eq!(verb(&plain, "clone3", &[]), Verb::Errno(38));
    assert_eq!(verb(&plain, "ptrace", &[]), Verb::Allow);
    assert_eq!(verb(&plain, "clone", &[17]), Verb::Allow);
    assert_eq!(verb(&plain, "clone", &[0x1000_0000]), Verb::Deny);
    assert_eq!(verb(&plain, "personality", &[8]), Verb::Allow);
    assert_eq!(verb(&plain, "personality", &[9]), Verb::Deny);
    let (old, _) = imported(&docker(), &Surroundings { caps: Vec::new(), kernel: (4, 7) });
    assert_eq!(verb(&old, "ptrace", &[]), Verb::Deny);
    let caps = vec!["CAP_SYS_ADMIN".to_owned()];
    let (admin, _) = imported(&docker(), &Surroundings { caps, kernel: (6, 1) });
    assert_eq!(verb(&admin, "mount", &[]), Verb::Allow);
    assert_eq!(verb(&admin, "clone3", &[]), Verb::Allow);
    assert_eq!(verb(&admin, "clone", &[0x1000_0000]), Verb::Allow);
}

#[test]
fn podmans_own_errnos_are_kept() {
    let Some(json) = podman() else { return };
    let (policy, notes) = imported(&json, &unprivileged());
    let table = Table::alone(&policy);
    assert_eq!(table.beyond(), Verb::Errno(38));
    assert_eq!(verb(&policy, "bpf", &[]), Verb::Deny);
    assert_eq!(verb(&policy, "socket", &[16, 3, 9]), Verb::Errno(22));
    assert_eq!(verb(&policy, "socket", &[2, 1, 0]), Verb::Allow);
    // Debian's file both allows and denies it without privileges.
    assert_eq!(verb(&policy, "setns", &[]), Verb::Deny);
    assert!(notes.iter().any(|note| note.starts_with("setns: the profile both denies and allows it")), "{notes:?}");
}

#[test]
fn the_built_in_profiles_come_back_the_same() {
    for toml in [
        "",
        "profile = 'network'",
        "profile = 'write'\non_violation = 'kill'",
        "profile = 'write+network'\n[syscalls]\nallow = 'ptrace'\ndeny = '@timers'",
        "profile = 'unrestricted'\n[syscalls]\ndeny = '@network'",
        "profile = 'custom'\non_violation = 'log'\n[syscalls]\ndefault = 'errno:EACCES'\nallow = '@basic'\ndeny = 'dup'",
    ] {
        round_trip(&policy(toml), toml);
    }
}

#[test]
fn rules_that_are_too_many_for_libseccomp_are_refused() {
    let rule = |value: usize| {
        format!(
            "[[syscalls.rule]]\nsyscall = 'ioctl'\naction = 'deny'\nargs = [{{ index = 1, op = 'eq', value = {}, mask = 0xffffffff }}]\n",
            value * 7919
        )
    };
    let rules: String = (1..20).map(rule).collect();
    let policy = policy(&format!("profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = 'ioctl'\n{rules}"));
    let error = export(&Table::alone(&policy), policy.on_violation).expect_err("too many");
    assert_eq!(
        error.to_string(),
        "ioctl: container profiles do not keep the order of rules, and without it this call needs too many rules"
    );
}

#[test]
fn rules_that_depend_on_their_order_come_back_the_same() {
    for toml in [
        // Each rule is an exception to the next.
        "profile = 'custom'\n[syscalls]\ndefault = 'deny'\n
         [[syscalls.rule]]\nsyscall = 'ioctl'\naction = 'errno:EACCES'\nargs = [{ index = 1, op = 'masked_eq', value = 0x5412, mask = 0xffffffff }]
         [[syscalls.rule]]\nsyscall = 'ioctl'\naction = 'allow'\nargs = [{ index = 0, op = 'le', value = 2 }]
         [[syscalls.rule]]\nsyscall = 'ioctl'\naction = 'kill'\nargs = [{ index = 1, op = 'gt', value = 0x5400, mask = 0xffffff00 }]",
        // Two tests of one argument, which runc would combine with `or`.
        "profile = 'custom'\n[syscalls]\ndefault = 'allow'\n
         [[syscalls.rule]]\nsyscall = 'kill'\naction = 'deny'\nargs = [{ index = 1, op = 'ge', value = 8 }, { index = 1, op = 'lt', value = 12 }]",
        // A denial within an allowed call, which libseccomp would drop.
        "profile = 'custom'\n[syscalls]\ndefault = 'deny'\nallow = 'socket'\n
         [[syscalls.rule]]\nsyscall = 'socket'\naction = 'errno:EINVAL'\nargs = [{ index = 0, op = 'eq', value = 16 }, { index = 2, op = 'eq', value = 9 }]",
    ] {
        round_trip(&policy(toml), toml);
    }
}

#[test]
fn commands_run_under_dockers_and_podmans_profiles() {
    let dir = fresh("engines");
    let docker_file = dir.join("docker.json");
    std::fs::write(&docker_file, docker()).expect("own directory");
    let mut profiles = vec![("docker", docker_file)];
    if podman().is_some() {
        profiles.push(("podman", "/usr/share/containers/seccomp.json".into()));
    }
    for (name, json) in profiles {
        let policy = dir.join(format!("{name}.toml"));
        run(Command::new(gatekeeper()).arg("import").arg(&json).arg("-o").arg(&policy)).exits(0).prints("");
        let under = |words: &[&str]| {
            let mut command = Command::new(gatekeeper());
            run(command.args(["run", "--config"]).arg(&policy).arg("--").args(words).current_dir(&dir))
        };
        under(&["echo", "hello"]).exits(0).prints("hello\n");
        under(&["sh", "-c", "printf 'b\\na\\n' | sort | tr -d '\\n'"]).exits(0).prints("ab");
        under(&["sh", "-c", "echo x > made && cat made && rm made && ls | wc -l"]).exits(0);
        under(&["grep", "-c", "root", "/etc/passwd"]).exits(0);
        under(&["sh", "-c", "sleep 0 & wait; exit 7"]).exits(7);
        under(&["find", "/etc/hostname"]).exits(0).prints("/etc/hostname\n");
        // Only allowed with a capability that the command lacks. Without the profile the kernel answers EBADF.
        let calls = probe("calls", &[]);
        under(&[&calls.to_string_lossy(), "setns", "getppid"]).exits(0).prints("setns=1\ngetppid=ok\n");
        run(Command::new(&calls).args(["setns", "getppid"])).exits(0).prints("setns=9\ngetppid=ok\n");
    }
}
