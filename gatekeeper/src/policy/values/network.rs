//! Network modes as text: `none`, `own`, `loopback`, `full` or `hosts=a,b:443`.

use crate::policy::error::ValueError;
use crate::policy::{NetworkMode, hosts};
use std::fmt;
use std::str::FromStr;

pub(in crate::policy) const NETWORK_MODES: [&str; 5] = ["none", "own", "loopback", "full", "hosts"];

const NO_HOST: &str = "name at least one host, as in hosts=example.org,*.example.net:443, or write none";

impl NetworkMode {
    /// The mode without its hosts, as in `network.mode`.
    pub fn word(&self) -> &'static str {
        match self {
            NetworkMode::None => "none",
            NetworkMode::Own => "own",
            NetworkMode::Loopback => "loopback",
            NetworkMode::Full => "full",
            NetworkMode::Hosts(_) => "hosts",
        }
    }

    /// What the command can reach, in a few words for people.
    pub fn describe(&self) -> &'static str {
        match self {
            NetworkMode::None => "no network",
            NetworkMode::Own => "a private loopback only",
            NetworkMode::Loopback => "loopback only",
            NetworkMode::Full => "full network",
            NetworkMode::Hosts(_) => "listed hosts only",
        }
    }
}

/// As `--net` takes it.
impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            NetworkMode::Hosts(hosts) => write!(f, "={}", hosts.join(",")),
            _ => Ok(()),
        }
    }
}

/// `none`, `own`, `loopback`, `full` or `hosts=a,b:443`.
impl FromStr for NetworkMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<NetworkMode, ValueError> {
        match (text, text.strip_prefix("hosts=")) {
            ("none", _) => Ok(NetworkMode::None),
            ("own", _) => Ok(NetworkMode::Own),
            ("loopback", _) => Ok(NetworkMode::Loopback),
            ("full", _) => Ok(NetworkMode::Full),
            // A file may have an empty list of hosts. On the command line the list was forgotten.
            ("hosts", _) => Err(ValueError::unusable("network mode", text, NO_HOST)),
            (_, Some(list)) => {
                let items = list.split(',').filter(|host| !host.is_empty());
                let hosts = items.map(hosts::normal).collect::<Result<Vec<_>, _>>()?;
                match hosts.is_empty() {
                    true => Err(ValueError::unusable("network mode", text, NO_HOST)),
                    false => Ok(NetworkMode::Hosts(hosts)),
                }
            }
            _ if hosts::normal(text.trim_start_matches("host=")).is_ok() && text.contains(['.', ':', ',']) => {
                Err(ValueError::Host(text.trim_start_matches("host=").to_owned()))
            }
            _ => Err(ValueError::unknown("network mode", text, NETWORK_MODES.to_vec())),
        }
    }
}
