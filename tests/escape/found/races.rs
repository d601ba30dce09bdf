//! What happens between the supervisor's look and what it does.

use super::{Hole, Severity};
use crate::run::{Gate, User, become_user, users};
use crate::support::{fresh, gatekeeper, has, is_root, probe, run, skip};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Medium,
        attack: "call listen while a connection of the same socket fails or is shut down, which unbinds the socket",
        reached: "a socket that listened on every address of the machine, under `--net loopback` and `hosts`",
        held_by: &["a_failing_connection_does_not_listen_everywhere"],
    },
    Hole {
        severity: Severity::Low,
        attack: "bind a socket to another address of the machine and connect it to 0.0.0.0, under `--net loopback`",
        reached: "services that listen only on that address",
        held_by: &["any_address_is_the_loopback"],
    },
    Hole {
        severity: Severity::Low,
        attack: "read a covered file in a loop while a process outside keeps saving it",
        reached: "its contents until it was covered again; the report counted those reads as denied",
        held_by: &["a_replaced_secret_is_not_read_in_between"],
    },
];

fn racer() -> PathBuf {
    probe("races", &["-lpthread"])
}

#[test]
fn a_failing_connection_does_not_listen_everywhere() {
    let program = racer();
    let program = program.to_str().expect("text");
    for user in users() {
        // The control: under a profile that does not check addresses it listens at once.
        let gate = Gate::profile(*user, "read").flags(["--net", "full"]);
        gate.run([program, "everywhere", "4"]).exits(0).prints("0.0.0.0\n");
        gate.run([program, "local"]).exits(0).prints("0 \n");
        let gate = Gate::profile(*user, "read").flags(["--net", "loopback"]);
        gate.run([program, "everywhere", "4"]).exits(0).prints("none\n");
        // The race above may never be won. Whatever address the socket ends up with, only this machine can reach it.
        gate.run([program, "local"]).exits(0).prints("0 lo\n");
    }
}

/// A network namespace with a second address, and a server that listens on all addresses or only on that one.
const TWO_ADDRESSES: &str = r#"
set -e
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
for bind in 0.0.0.0 192.0.2.1; do
  python3 -m http.server --bind $bind 8000 >/dev/null 2>&1 & server=$!
  while ! "$RACER" any 192.0.2.1 8000 | grep -q 192; do sleep 0.05; done
  printf '%s free ' $bind; "$RACER" any 192.0.2.1 8000
  printf '%s held ' $bind; "$GATEKEEPER" run -q -p read --net loopback -- "$RACER" any 192.0.2.1 8000
  kill $server; wait $server 2>/dev/null || true
done
"#;

#[test]
fn any_address_is_the_loopback() {
    for tool in ["unshare", "ip", "python3"] {
        if !has(tool) {
            return;
        }
    }
    for user in users() {
        let dir = fresh("two-addresses");
        let mut command = Command::new("unshare");
        command.args(["-rn", "sh", "-c", TWO_ADDRESSES]).current_dir(&dir).env("GATEKEEPER", gatekeeper());
        command.env("RACER", racer()).env("HOME", &dir).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        become_user(&mut command, *user);
        let done = run(&mut command);
        if done.stderr().contains("unshare failed") {
            return skip("no user and network namespace can be made here");
        }
        let refused = libc::ECONNREFUSED;
        done.exits(0).prints(&format!(
            "0.0.0.0 free 192.0.2.1\n0.0.0.0 held 127.0.0.1\n192.0.2.1 free 192.0.2.1\n192.0.2.1 held {refused}\n"
        ));
    }
}

#[test]
fn a_replaced_secret_is_not_read_in_between() {
    let program = racer();
    let program = program.to_str().expect("text");
    // Root may open the cover, an empty file, so its open succeeds while the cover is in place.
    let root = |user: &&User| **user == User::Own && is_root();
    for user in users().iter().filter(|user| !root(user)) {
        for granted in [false, true] {
            let gate = Gate::profile(*user, "write");
            gate.file(".env", "SECRET=0\n");
            // Each of these is checked before the first is covered again.
            (0..50).for_each(|at| drop(gate.file(&format!("sub{at}/.env"), "SECRET=0\n")));
            let gate = if granted { gate.flags(["--read", ".env"]) } else { gate };
            let mut command = gate.command([program, "read", "3", ".env"]);
            command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
            let mut child = command.spawn().expect("gatekeeper starts");
            let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
            let mut line = String::new();
            stdout.read_line(&mut line).expect("readable");
            assert_eq!(line, "reading\n");
            for _ in 0..100 {
                // Save as editors do, with a rename.
                let new = gate.file(".env.new", "SECRET=1\n");
                fs::rename(new, gate.dir.join(".env")).expect("own directory");
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut counts = String::new();
            stdout.read_to_string(&mut counts).expect("readable");
            assert!(child.wait().expect("own child").success());
            let read: u64 = counts.split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
            assert_eq!(read > 0, granted, "{user:?} read it {read} times: {counts}");
        }
    }
}
