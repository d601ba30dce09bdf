//! What a policy implies for a run: questions that several stages ask, answered in one place.

use crate::policy::{NetworkMode, Policy, Profile, values};
use crate::proxy::allow::{Allowlist, PUBLIC};

impl Policy {
    /// Whether only some programs may be executed.
    pub fn limits_execution(&self) -> bool {
        !self.commands.allow.is_empty() || self.paths.execute.is_some()
    }

    /// Whether the command gets a private /dev/shm, for semaphores and `shm_open`.
    pub fn private_shm(&self) -> bool {
        self.starts_programs()
    }

    /// Whether processes may map their ids in user namespaces that they create, as a browser's sandbox does.
    pub fn maps_ids(&self) -> bool {
        self.profiles.contains(&Profile::Browser)
    }

    /// The network mode in force: the policy's, or else the one of its profiles.
    pub fn network_mode(&self) -> NetworkMode {
        let by_profile = || match self.profiles.iter().any(|profile| {
            matches!(profile, Profile::Network | Profile::Unrestricted | Profile::Browser | Profile::Custom)
        }) {
            true => NetworkMode::Full,
            false => NetworkMode::None,
        };
        match self.network.mode.clone().unwrap_or_else(by_profile) {
            NetworkMode::Full if self.network.deny_private => NetworkMode::Hosts(self.with_rules(self.public_hosts())),
            NetworkMode::Hosts(hosts) => NetworkMode::Hosts(self.with_rules(hosts)),
            _ if self.inspects() => NetworkMode::Hosts(self.with_rules(Vec::new())),
            mode => mode,
        }
    }

    /// Whether only some programs may be executed.
    pub fn limits_programs(&self) -> bool {
        !self.commands.allow.is_empty() || self.paths.execute.is_some()
    }

    /// Whether the proxy has to look into requests.
    pub fn inspects(&self) -> bool {
        !self.network.http.is_empty() || !self.network.credentials.is_empty()
    }

    /// These hosts, and those that a rule or a credential names.
    fn with_rules(&self, mut hosts: Vec<String>) -> Vec<String> {
        let network = &self.network;
        let named = network.http.iter().map(|rule| &rule.host).chain(network.credentials.iter().map(|one| &one.host));
        for host in named {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        hosts
    }

    /// Every public host and the listed ports of this machine, in the form that the proxy's allowlist takes.
    fn public_hosts(&self) -> Vec<String> {
        let local = |port: &u16| ["127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
        std::iter::once(PUBLIC.to_owned()).chain(self.network.local_ports.iter().flat_map(local)).collect()
    }

    /// The hosts that the proxy lets through; empty unless the network mode is `hosts`.
    pub fn allowlist(&self) -> Allowlist {
        match &self.network_mode() {
            NetworkMode::Hosts(hosts) => Allowlist::new(hosts, &self.network.ports),
            _ => Allowlist::default(),
        }
    }

    /// The profiles as `--profile` takes them.
    pub fn profile_name(&self) -> String {
        values::joined(&self.profiles)
    }
}
