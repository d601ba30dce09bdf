//! Files that are not what they seem get a verdict at once: no hang, no side effect.

use super::{chmod, codes, gatekeeper, program, verdict};
use crate::support::{Done, fresh, is_root, probe, run, skip};
use std::path::Path;
use std::process::Command;

/// Asserts that the command ends soon.
#[track_caller]
fn soon(arguments: &[&Path]) -> Done {
    let done = run(Command::new("timeout").arg("120").arg(gatekeeper()).arg("check").args(arguments));
    assert!(matches!(done.code(), Some(0..=2)), "{done}");
    done
}

#[test]
fn kernel_files_get_a_verdict_and_do_not_block() {
    for path in [
        "/proc/self/exe",
        "/proc/self/mem",
        "/proc/self/status",
        "/proc/kmsg",
        "/proc/self/fd/0",
        "/proc/self/root",
        "/dev/zero",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/full",
        "/sys/kernel/notes",
        "/proc/sysrq-trigger",
    ] {
        soon(&[Path::new(path)]);
    }
    soon(&["-r".as_ref(), "/dev".as_ref()]);
    soon(&["-r".as_ref(), "/proc/self".as_ref()]);
}

#[test]
fn a_pipe_without_a_writer_and_a_socket_do_not_block() {
    let dir = fresh("pipes");
    let pipe = dir.join("pipe");
    assert!(Command::new("mkfifo").args(["-m", "777"]).arg(&pipe).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    for name in ["pipe", "socket"] {
        soon(&[&dir.join(name)]).exits(1);
        assert_eq!(codes(&verdict(dir.join(name))), ["not_executable"]);
        let script = program(&dir.join(format!("script-{name}")), format!("#!{}\n", dir.join(name).display()));
        assert_eq!(codes(&verdict(script)), ["not_executable"]);
    }
}

#[test]
fn scripts_that_env_runs_through_themselves_end() {
    let dir = fresh("circles");
    for (name, line) in [
        ("plain", "#!/usr/bin/env SELF\n"),
        ("split", "#!/usr/bin/env -S SELF -x\n"),
        ("sets", "#!/usr/bin/env -S A=1 SELF\n"),
        ("bare", "#!/usr/bin/env\n"),
        ("splits-forever", "#!/usr/bin/env -S -S -S -S\n"),
    ] {
        let path = dir.join(name);
        program(&path, line.replace("SELF", &path.display().to_string()));
        soon(&[&path]);
        let found = verdict(&path);
        assert!(found["chain"].as_array().is_some_and(|chain| chain.len() < 40), "{found}");
    }
    assert_eq!(codes(&verdict(dir.join("plain"))), ["chain_too_deep"]);
    assert_eq!(codes(&verdict(dir.join("bare"))), ["chain_too_deep"]);
    assert_eq!(codes(&verdict(dir.join("sets"))), ["chain_too_deep"]);
}

#[test]
fn a_huge_sparse_file_is_not_read() {
    let path = fresh("sparse").join("huge");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    chmod(&path, 0o755);
    soon(&[&path]).exits(1);
    assert_eq!(codes(&verdict(&path)), ["corrupt"]);
}

#[test]
fn a_file_that_changes_meanwhile_gets_some_verdict() {
    let dir = fresh("changing");
    let path = dir.join("file");
    let bytes = std::fs::read(probe("check_probe", &[])).unwrap();
    program(&path, &bytes);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::fs::write(&path, &bytes[..70]);
                let _ = std::fs::write(&path, &bytes);
            }
        });
        (0..30).for_each(|_| {
            soon(&[&path]);
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Runs a shell line as root of a new mount namespace. `None` if none can be created.
fn in_a_namespace(line: &str) -> Option<Done> {
    let flags: &[&str] = if is_root() { &["-m"] } else { &["-Urm"] };
    let done = run(Command::new("unshare").args(flags).args(["sh", "-ec", line]));
    let impossible = done.stderr().contains("unshare") || done.stderr().contains("mount");
    (!impossible).then_some(done)
}

#[test]
fn noexec_and_nosuid_mounts_count() {
    let dir = fresh("mounts");
    let line = |options: &str| {
        format!(
            "mount -t tmpfs -o {options} none {dir}; cp {probe} {dir}/p; chmod 4755 {dir}/p; {gatekeeper} check --json {dir}/p || :",
            dir = dir.display(),
            probe = probe("check_probe", &[]).display(),
            gatekeeper = gatekeeper().display()
        )
    };
    let Some(noexec) = in_a_namespace(&line("noexec")) else { return skip("no mount namespace can be created here") };
    assert!(noexec.stdout().contains("\"not_executable\""), "{noexec}");
    let nosuid = in_a_namespace(&line("nosuid")).expect("as before");
    assert!(
        nosuid.stdout().contains("\"verdict\": \"preload\"") && nosuid.stdout().contains("nosuid mount"),
        "{nosuid}"
    );
    let plain = in_a_namespace(&line("mode=0755")).expect("as before");
    assert!(plain.stdout().contains("\"setuid\""), "{plain}");
}

#[test]
fn registered_handlers_are_followed() {
    let dir = fresh("handlers");
    let odd = program(&dir.join("file.oddity"), "anything");
    // Since Linux 6.7, a user namespace has its own binfmt_misc handlers.
    let line = format!(
        "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc; echo ':odd:E::oddity::{probe}:' > /proc/sys/fs/binfmt_misc/register; \
         {odd}; {gatekeeper} check --json {odd}",
        probe = probe("check_probe", &[]).display(),
        odd = odd.display(),
        gatekeeper = gatekeeper().display()
    );
    let done = run(Command::new("unshare").args(["-Urm", "sh", "-ec", &line]));
    if !done.stdout().starts_with("unconfined\n") {
        return skip(&format!("binfmt_misc cannot be mounted in a user namespace here: {done}"));
    }
    done.exits(0);
    assert!(done.stdout().contains("\"kind\": \"handler\""), "{done}");
}
