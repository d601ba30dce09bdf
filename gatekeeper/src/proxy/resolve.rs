//! Names into addresses.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};

pub trait Resolve: Send + Sync {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// As this machine resolves names for everybody, whatever its administrator has set up for it: by the C library's own
/// program. A static gatekeeper cannot load the modules that may be asked for, and none of them belongs in a supervisor.
pub struct System;

/// Never looked up in PATH, where a confined program might have put one of its own.
const GETENT: [&str; 2] = ["/usr/bin/getent", "/run/current-system/sw/bin/getent"];

impl Resolve for System {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name is not known");
        if name.starts_with('-') {
            return Err(unknown());
        }
        for getent in GETENT {
            let asked = Command::new(getent)
                .args(["ahosts", name])
                .env_clear()
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output();
            match asked {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
                Ok(answer) if !answer.status.success() => return Err(unknown()),
                Ok(answer) => return Ok(addresses(&String::from_utf8_lossy(&answer.stdout))),
            }
        }
        // Files and DNS, which need no module.
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

/// The first word of each line, each address once: there is a line for every kind of socket.
fn addresses(answer: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for line in answer.lines() {
        // What is local to a link comes with the name of its interface.
        let word = line.split_whitespace().next().and_then(|word| word.split('%').next());
        match word.map(str::parse) {
            Some(Ok(address)) if !addresses.contains(&address) => addresses.push(address),
            _ => {}
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_told_once() {
        let answer =
            "127.0.0.1       STREAM localhost\n127.0.0.1       DGRAM\n::1 STREAM\nfe80::1%eth0 STREAM\nnonsense\n\n";
        let told: Vec<String> = addresses(answer).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["127.0.0.1", "::1", "fe80::1"]);
    }

    #[test]
    fn this_machine_knows_itself_and_nobody_of_no_domain() {
        assert!(System.resolve("localhost").expect("known").iter().all(IpAddr::is_loopback));
        assert_eq!(System.resolve("--help").expect_err("no name").kind(), io::ErrorKind::NotFound);
        assert_eq!(System.resolve("127.1").expect("a number"), [IpAddr::from([127, 0, 0, 1])]);
    }
}
