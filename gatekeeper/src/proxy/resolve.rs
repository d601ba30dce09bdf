//! Name resolution.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};

pub trait Resolve: Send + Sync {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// Resolves names as the rest of this machine does, through getent(1). A static gatekeeper cannot load the NSS modules
/// that nsswitch.conf(5) may name, and third-party modules do not belong in a supervisor.
pub struct System;

/// By absolute path: a confined program may have put a getent of its own into a directory on PATH.
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
        // Without getent: /etc/hosts and DNS, which need no NSS module.
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

/// The addresses in the output of `getent ahosts`, each once. It prints a line for every socket type.
fn addresses(answer: &str) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for line in answer.lines() {
        // A link-local address has the name of its interface after a %.
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
    fn each_address_is_returned_once() {
        let answer =
            "127.0.0.1       STREAM localhost\n127.0.0.1       DGRAM\n::1 STREAM\nfe80::1%eth0 STREAM\nnonsense\n\n";
        let found: Vec<String> = addresses(answer).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1", "::1", "fe80::1"]);
    }

    #[test]
    fn localhost_is_known_and_a_flag_is_no_name() {
        assert!(System.resolve("localhost").expect("known").iter().all(IpAddr::is_loopback));
        assert_eq!(System.resolve("--help").expect_err("no name").kind(), io::ErrorKind::NotFound);
        assert_eq!(System.resolve("127.1").expect("a number"), [IpAddr::from([127, 0, 0, 1])]);
    }
}
