//! The gate: takes a host and a port, returns a connection or a refusal. HTTP, CONNECT and SOCKS requests all go
//! through it.
//!
//! The order matters: match the name before resolving it, check every address that it resolves to, and connect to an
//! address that was checked. Names are never resolved twice, so DNS rebinding gains nothing.

use super::address::{OWN, is_own, not_public};
use super::allow::{Allowlist, Host};
use super::listens::Listens;
use super::resolve::Resolve;
use super::rules::Rules;
use crate::audit::{Audit, Entry, Kind};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long to try one address.
const PATIENCE: Duration = Duration::from_secs(15);

/// The most distinct refusals that are kept; later ones are only counted.
const MOST: usize = 1000;

/// The process that made a request; empty if unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Guest {
    pub pid: i32,
    pub comm: String,
}

/// A host that was refused, with a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `host:port` as the client wrote it.
    pub host: String,
    pub why: String,
    /// The flag that would allow it.
    pub allow_with: Option<String>,
    pub guest: Guest,
    pub count: u64,
    /// Method and path, if the host is allowed and a request to it was refused.
    pub request: Option<(String, String)>,
}

/// Why a connection was not made.
#[derive(Debug)]
pub enum Closed {
    /// The policy does not allow it, for this reason.
    Refused(String),
    /// It is allowed, but resolving or connecting failed.
    Failed(String),
}

/// A refusal that is not recorded yet.
#[derive(Debug, PartialEq, Eq)]
pub struct No {
    pub why: String,
    pub allow_with: Option<String>,
    /// The host or address that would have to be listed; `None` if the text is no host.
    pub host: Option<Host>,
}

/// Why a host has no address to connect to.
#[derive(Debug, PartialEq, Eq)]
pub enum NoAddress {
    /// The policy does not allow it.
    Refused(No),
    /// The name does not resolve, for this reason.
    Unresolved(String),
}

/// Called with each refusal when it happens; the count is 1.
pub type Witness = Box<dyn Fn(Refusal) + Send + Sync>;

/// Decides about a host that the list refuses.
pub trait Ask: Send + Sync {
    /// Whether to connect all the same. Blocks until that is decided.
    fn ask(&self, host: &str, no: &No, guest: &Guest) -> bool;

    /// The same for one request to a host that is allowed.
    fn ask_request(&self, request: &Requested, guest: &Guest) -> bool;
}

/// A request that no rule allows, and whose client waits.
pub struct Requested {
    /// `host:port`.
    pub host: String,
    pub method: String,
    /// Without the query.
    pub path: String,
    pub why: String,
    pub allow_with: Option<String>,
    /// Set once the client has gone away.
    pub left: Arc<AtomicBool>,
}

/// By host, reason, guest and request.
type Refusals = HashMap<(String, String, Guest, Option<(String, String)>), Refusal>;

pub struct Gate {
    allow: Allowlist,
    resolver: Box<dyn Resolve>,
    /// The hosts whose requests are looked into.
    rules: Option<Rules>,
    /// The addresses that names with rules have led to in this run.
    ruled: Mutex<HashSet<SocketAddr>>,
    /// Whether an address belongs to this machine. Replaced in tests.
    own: fn(IpAddr) -> bool,
    ask: Option<Box<dyn Ask>>,
    /// The listen calls of the command, where it shares the loopback with the services of this machine.
    listens: Listens,
    refusals: Mutex<(Refusals, u64)>,
    audit: Option<Arc<Audit>>,
    witness: Option<Witness>,
}

impl Gate {
    pub fn new(allow: Allowlist, resolver: Box<dyn Resolve>) -> Gate {
        Gate {
            allow,
            resolver,
            rules: None,
            ruled: Mutex::default(),
            own: is_own,
            ask: None,
            listens: Listens::default(),
            refusals: Mutex::default(),
            audit: None,
            witness: None,
        }
    }

    /// Asks about refused hosts before it refuses them.
    pub fn asking(self, ask: Box<dyn Ask>) -> Gate {
        Gate { ask: Some(ask), ..self }
    }

    /// Uses no connection to this machine that was made while the command listened.
    pub fn apart_from(self, listens: Listens) -> Gate {
        Gate { listens, ..self }
    }

    /// Keeps requests from going around these rules, by an address that a host with rules has.
    pub fn ruled_by(self, rules: Rules) -> Gate {
        Gate { rules: Some(rules), ..self }
    }

    /// Notes every decision in an audit trail.
    pub fn audited(mut self, audit: Option<Arc<Audit>>) -> Gate {
        self.audit = audit;
        self
    }

    /// The same gate, which also tells a witness of each refusal.
    pub fn with_witness(self, witness: Option<Witness>) -> Gate {
        Gate { witness, ..self }
    }

    /// Why an address needs an entry of its own in the list: it is not public or, if the list is "everything public",
    /// it is an address of this machine. A host that is listed by name may be this machine.
    fn guarded(&self, address: IpAddr) -> Option<&'static str> {
        not_public(address).or_else(|| (self.allow.is_public() && (self.own)(address)).then_some(OWN))
    }

    /// The addresses to try for this host, in the resolver's order.
    pub fn choose(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, NoAddress> {
        self.choose_by(&self.allow, host, port)
    }

    /// Why a tunnel that is looked into is refused before its first request. What can be asked about is asked when that
    /// request is allowed and the connection is made.
    pub fn refuses_at_once(&self, host: &str, port: u16) -> Option<No> {
        match self.choose(host, port) {
            Err(NoAddress::Refused(no)) if !self.asks() || no.allow_with.is_none() => Some(no),
            _ => None,
        }
    }

    /// The same, by a list to which approved hosts were added.
    fn choose_by(&self, allow: &Allowlist, host: &str, port: u16) -> Result<Vec<SocketAddr>, NoAddress> {
        let no = |why: String, allow_with, host: Option<Host>| Err(NoAddress::Refused(No { why, allow_with, host }));
        let unresolved = NoAddress::Unresolved;
        let host = match Host::parse(host) {
            Ok(host) => host,
            Err(wrong) => return no(wrong.to_string(), None, None),
        };
        if !allow.lists(&host, port) {
            let why = match &host {
                Host::Address(address) if allow.is_public() => {
                    format!("it is {}, and private addresses are denied", not_public(*address).unwrap_or("not listed"))
                }
                _ => "not in the list of allowed hosts".to_owned(),
            };
            return no(why, allow.with(&host, port), Some(host));
        }
        let name = match &host {
            Host::Address(address) if !allow.lists_address(*address, port) && self.guarded(*address).is_some() => {
                let why = format!("it is {OWN}, and private addresses are denied");
                return no(why, allow.with(&host, port), Some(host));
            }
            // Listed as an address, which may be a private one.
            Host::Address(address) => {
                return match self.goes_around(&host, *address, port) {
                    Some(why) => no(why, None, Some(host)),
                    None => Ok(vec![SocketAddr::new(*address, port)]),
                };
            }
            Host::Name(name) => name,
        };
        let found =
            self.resolver.resolve(name).map_err(|error| unresolved(format!("{name} cannot be resolved: {error}")))?;
        let mut allowed = Vec::new();
        let mut refused = None;
        let mut around = None;
        for address in found {
            match self.guarded(address) {
                Some(what) if !allow.lists_address(address, port) => refused = Some((address, what)),
                // Many public hosts share an address; a private one is listed for the host that it belongs to.
                Some(_) if around.is_none() => match self.goes_around(&host, address, port) {
                    Some(why) => around = Some(why),
                    None => allowed.push(SocketAddr::new(address, port)),
                },
                _ => allowed.push(SocketAddr::new(address, port)),
            }
        }
        if let Some(why) = around {
            return no(why, None, Some(host));
        }
        match refused {
            Some((address, what)) if allowed.is_empty() => {
                let private = Host::Address(address.to_canonical());
                let listed = allow.with(&private, port);
                let why = format!("it resolves to {address}, which is {what}, and that is not listed by address");
                no(why, listed, Some(private))
            }
            _ if allowed.is_empty() => Err(unresolved(format!("{name} has no address"))),
            _ => Ok(allowed),
        }
    }

    /// Why a connection to this address, which is not looked into, would go around the rules of another host.
    fn goes_around(&self, host: &Host, address: IpAddr, port: u16) -> Option<String> {
        let rules = self.rules.as_ref()?;
        if rules.is_ruled(host, port) {
            self.ruled().insert(SocketAddr::new(address.to_canonical(), port));
            return None;
        }
        let address = address.to_canonical();
        let leads = |name: &str| match self.resolver.resolve(name) {
            Ok(found) => {
                self.ruled().extend(found.iter().map(|found| SocketAddr::new(found.to_canonical(), port)));
                found.iter().any(|found| found.to_canonical() == address).then(|| name.to_owned())
            }
            // The command can bring this about, by leaving no process for getent.
            Err(error) => Some(format!("{name}, as far as can be told ({error})")),
        };
        // A wildcard may name any private address; which public ones it names cannot be told.
        let named = rules.names(port).into_iter().find_map(|name| match name {
            Some(name) => leads(name),
            None => self.guarded(address).map(|_| "a host with rules, as far as its wildcard tells".to_owned()),
        });
        let known = || self.ruled().contains(&SocketAddr::new(address, port)).then(|| "a host with rules".to_owned());
        let whose = named.or_else(known)?;
        Some(format!(
            "it leads to {address}, an address of {whose}, whose rules would not hold; use that host by its name, or give {host} \
             rules as well (--http '{host}:{port}/**')"
        ))
    }

    fn ruled(&self) -> MutexGuard<'_, HashSet<SocketAddr>> {
        self.ruled.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The same, after questions: about the host, and about a private address that it resolves to.
    fn choose_asking(&self, host: &str, port: u16, guest: &Guest) -> Result<Vec<SocketAddr>, NoAddress> {
        let mut allow = self.allow.clone();
        loop {
            let no = match (self.choose_by(&allow, host, port), &self.ask) {
                (Err(NoAddress::Refused(no)), Some(_)) => no,
                (chosen, _) => return chosen,
            };
            let Some(refused) = no.host.clone() else { return Err(NoAddress::Refused(no)) };
            let asked = self
                .ask
                .as_ref()
                .is_some_and(|ask| no.allow_with.is_some() && ask.ask(&format!("{refused}:{port}"), &no, guest));
            // Each turn adds an entry, so the same host is not refused twice.
            if !asked || allow.lists_exactly(&refused, port) {
                return Err(NoAddress::Refused(no));
            }
            allow.add(refused, port);
        }
    }

    /// Connects to a host, if the list allows it.
    pub fn open(&self, host: &str, port: u16, guest: &Guest) -> Result<TcpStream, Closed> {
        let addresses = match self.choose_asking(host, port, guest) {
            Ok(addresses) => addresses,
            Err(NoAddress::Refused(no)) => {
                return Err(Closed::Refused(self.refuse(host, port, guest, &no)));
            }
            Err(NoAddress::Unresolved(why)) => return Err(Closed::Failed(why)),
        };
        let mut last = None;
        for address in addresses {
            self.note(&format!("{host}:{port}"), guest, Ok(&address))
                .map_err(|error| Closed::Failed(error.to_string()))?;
            let connect = || TcpStream::connect_timeout(&address, PATIENCE);
            let ip = address.ip().to_canonical();
            let local = ip.is_loopback() || ip.is_unspecified();
            match if local { self.listens.apart(connect) } else { connect() } {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(format!("{host}:{port} ({address}): {error}")),
            }
        }
        Err(Closed::Failed(last.unwrap_or_else(|| format!("{host} has no address"))))
    }

    /// Whether refused requests are asked about.
    pub fn asks(&self) -> bool {
        self.ask.is_some()
    }

    /// Asks about a refused request. Blocks until that is decided.
    pub fn ask_request(&self, request: &Requested, guest: &Guest) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.ask_request(request, guest))
    }

    /// Records a refused host. Returns the reason with its name.
    pub fn refuse(&self, host: &str, port: u16, guest: &Guest, no: &No) -> String {
        let named = format!("{host}:{port}");
        self.record(&named, no, guest, None);
        // Refused whether or not that can be noted; a trail that broke is reported at the end of the run.
        let _ = self.note(&named, guest, Err(no));
        format!("{named}: {}", no.why)
    }

    fn note(&self, named: &str, guest: &Guest, decided: Result<&SocketAddr, &No>) -> std::io::Result<()> {
        let Some(audit) = &self.audit else { return Ok(()) };
        let entry = Entry::decided(Kind::Host, decided.is_ok()).with("host", named);
        let entry = match decided {
            Ok(address) => entry.with("address", address.ip().to_string()),
            Err(no) => entry.with("rule", no.why.as_str()).with("allow_with", no.allow_with.clone()),
        };
        audit.note(entry.with("pid", guest.pid).with("comm", guest.comm.as_str()))
    }

    /// Records a refused request to an allowed host.
    pub fn record_request(&self, host: &str, no: &No, guest: &Guest, method: &str, path: &str) {
        let short = |text: &str| text.chars().take(1000).collect::<String>();
        self.record(host, no, guest, Some((short(method), short(path))));
    }

    fn record(&self, host: &str, no: &No, guest: &Guest, request: Option<(String, String)>) {
        // The client chooses the length of the name: keep the report small.
        let host: String = host.chars().take(300).collect();
        // Before the client gets its answer, so that a caller who sees the failed request also knows the reason.
        if let Some(witness) = &self.witness {
            let (why, allow_with) = (no.why.clone(), no.allow_with.clone());
            let request = request.clone();
            witness(Refusal { host: host.clone(), why, allow_with, guest: guest.clone(), request, count: 1 });
        }
        let mut refusals = self.refusals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let key = (host.clone(), no.why.clone(), guest.clone(), request.clone());
        if let Some(known) = refusals.0.get_mut(&key) {
            known.count += 1;
        } else if refusals.0.len() < MOST {
            let (why, allow_with) = (no.why.clone(), no.allow_with.clone());
            refusals.0.insert(key, Refusal { host, why, allow_with, guest: guest.clone(), count: 1, request });
        } else {
            refusals.1 += 1;
        }
    }

    /// The refusals so far, and how many more were only counted.
    pub fn refusals(&self) -> (Vec<Refusal>, u64) {
        let refusals = self.refusals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut list: Vec<Refusal> = refusals.0.values().cloned().collect();
        list.sort_by(|one, other| one.host.cmp(&other.host).then(one.guest.pid.cmp(&other.guest.pid)));
        (list, refusals.1)
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
