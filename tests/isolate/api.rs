//! The library's API for isolation: its configuration, availability, and wrapped commands.

use crate::support::{fresh, has};
use gatekeeper::isolate::{Availability, SandboxConfig, check_availability, check_bwrap, wrap_command};
use std::path::Path;

#[test]
fn availability_is_what_a_try_shows() {
    assert_eq!(check_availability() == Availability::Available, super::available());
    assert_eq!(check_bwrap(Path::new("/nowhere/bwrap")), Availability::NotInstalled);
    assert!(
        matches!(check_bwrap(Path::new("/bin/false")), Availability::NotSupported(why) if why.contains("exit status: 1"))
    );
}

#[test]
fn a_wrapped_command_reads_and_writes_its_directory_and_no_other() {
    if !super::works() {
        return;
    }
    let (dir, other) = (fresh("wrapped"), fresh("wrapped-other"));
    std::fs::write(other.join("secret"), "s").expect("own directory");
    let config = SandboxConfig::for_working_dir(&dir);
    let output = wrap_command(&config, "echo hello > file && cat file && cat ~/.ssh/id_rsa").output().expect("starts");
    assert_eq!((output.stdout.as_slice(), output.status.success()), (&b"hello\n"[..], false));
    assert_eq!(std::fs::read(dir.join("file")).expect("written"), b"hello\n");
    let line = format!("cat {}/secret", other.display());
    let output = wrap_command(&config, &line).output().expect("starts");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No such file or directory"));
}

#[test]
fn a_wrapped_command_has_no_network_unless_it_is_asked_for() {
    if !super::works() || !has("curl") {
        return;
    }
    let dir = fresh("wrapped-network");
    std::fs::write(dir.join("file"), "hello").expect("own directory");
    let server = crate::network::server::Server::of(&dir);
    let line = format!("curl -sS {}", server.url("file"));
    let config = SandboxConfig::for_working_dir(&dir);
    let output = wrap_command(&config, &line).output().expect("starts");
    assert_eq!(output.status.code(), Some(7), "nobody listens in a namespace of its own");
    let config = SandboxConfig { isolate_network: false, ..config };
    assert_eq!(wrap_command(&config, &line).output().expect("starts").stdout, b"hello");
}
