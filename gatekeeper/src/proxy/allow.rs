//! The list of allowed hosts, and whether a host matches it. Resolves nothing and opens nothing.
//!
//! Names are normalised and compared label by label. An IP address never matches a name pattern, however it is written.

use super::address::not_public;
use crate::policy::Credential;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// Lower-case ASCII without a trailing dot.
    Name(String),
    Address(IpAddr),
}

/// Why a text is not a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoHost {
    #[error("no host given")]
    Empty,
    #[error("an international name must be written in its ASCII form, xn--...")]
    NotAscii,
    #[error("not a host name")]
    NotAName,
    #[error("an address must be written as four decimal numbers, or as plain IPv6")]
    EncodedAddress,
}

impl Host {
    /// Parses a host from a request; IPv6 with or without brackets.
    pub fn parse(text: &str) -> Result<Host, NoHost> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
            return Ok(Host::Address(IpAddr::V6(address).to_canonical()));
        }
        if bare.is_some() {
            return Err(NoHost::NotAName);
        }
        if !text.is_ascii() {
            return Err(NoHost::NotAscii);
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.is_empty() {
            return Err(NoHost::Empty);
        }
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Ok(Host::Address(IpAddr::V4(address)));
        }
        // inet_aton(3), and with it every resolver, takes 2130706433, 0x7f.1, 0177.0.0.1 and 127.1 for addresses.
        let last = name.rsplit('.').next().unwrap_or_default();
        let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(hex) {
            return Err(NoHost::EncodedAddress);
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(NoHost::NotAName);
        }
        Ok(Host::Name(name))
    }

    /// Whether it is the machine that gatekeeper runs on.
    pub fn is_this_machine(&self) -> bool {
        match self {
            Host::Address(address) => address.is_loopback(),
            // The gate connects to a loopback address only if that is listed as well.
            Host::Name(name) => name == "localhost",
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Exact(Host),
    /// `*.example.org`: this domain with one or more labels in front.
    Below(String),
    /// Every public host. A policy cannot write it in `hosts`; `deny_private` sets it.
    Public,
}

/// The pattern for every public host.
pub const PUBLIC: &str = "*";

/// The allowed hosts of a policy. An empty list allows none.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    patterns: Vec<(Pattern, Option<u16>)>,
    /// The ports for patterns that name none. Empty: all.
    ports: Vec<u16>,
    written: Vec<String>,
}

impl Allowlist {
    /// Takes patterns as `policy::hosts::normal` writes them. Any other text matches nothing.
    ///
    /// ```
    /// use gatekeeper::proxy::allow::{Allowlist, Host};
    /// let list = Allowlist::new(&["*.example.org:443".to_owned()], &[]);
    /// assert!(list.lists(&Host::parse("API.Example.org.").unwrap(), 443));
    /// assert!(!list.lists(&Host::parse("example.org").unwrap(), 443));
    /// assert!(!list.lists(&Host::parse("evilexample.org").unwrap(), 443));
    /// ```
    pub fn new(hosts: &[String], ports: &[u16]) -> Allowlist {
        let patterns = hosts.iter().filter_map(|host| pattern(host)).collect();
        Allowlist { patterns, ports: ports.to_vec(), written: hosts.to_vec() }
    }

    pub fn lists(&self, host: &Host, port: u16) -> bool {
        self.patterns.iter().any(|(pattern, own)| self.fits(pattern, *own, host, port))
    }

    /// Adds a host with one port, which was approved.
    pub fn add(&mut self, host: Host, port: u16) {
        self.patterns.push((Pattern::Exact(host), Some(port)));
    }

    /// Whether this very host is listed with this port.
    pub fn lists_exactly(&self, host: &Host, port: u16) -> bool {
        self.patterns
            .iter()
            .any(|(pattern, own)| *own == Some(port) && matches!(pattern, Pattern::Exact(listed) if listed == host))
    }

    fn fits(&self, pattern: &Pattern, own: Option<u16>, host: &Host, port: u16) -> bool {
        let fits = match (pattern, host) {
            (Pattern::Exact(listed), host) => listed == host,
            (Pattern::Below(domain), Host::Name(name)) => {
                name.strip_suffix(domain.as_str()).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
            }
            (Pattern::Below(_), Host::Address(_)) => false,
            (Pattern::Public, Host::Name(_)) => true,
            (Pattern::Public, Host::Address(address)) => not_public(*address).is_none(),
        };
        fits && own.map_or(self.ports.is_empty() || self.ports.contains(&port), |own| own == port)
    }

    /// Whether an address is listed as an address. Only then may it be private, or belong to this machine.
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        let named = |(pattern, _): &&(Pattern, Option<u16>)| *pattern != Pattern::Public;
        let address = Host::Address(address.to_canonical());
        self.patterns.iter().filter(named).any(|(pattern, own)| self.fits(pattern, *own, &address, port))
    }

    /// Calls `each` with every name that is listed for this port; for a wildcard with `None`, as its names are not known.
    pub fn each_name<'a>(&'a self, port: u16, mut each: impl FnMut(Option<&'a str>)) {
        let on_port =
            |own: Option<u16>| own.map_or(self.ports.is_empty() || self.ports.contains(&port), |own| own == port);
        for (pattern, _) in self.patterns.iter().filter(|(_, own)| on_port(*own)) {
            match pattern {
                Pattern::Exact(Host::Name(name)) => each(Some(name)),
                Pattern::Below(_) | Pattern::Public => each(None),
                Pattern::Exact(Host::Address(_)) => {}
            }
        }
    }

    /// Whether the list contains [`PUBLIC`].
    pub fn is_public(&self) -> bool {
        self.written.iter().any(|written| written == PUBLIC)
    }

    /// Whether a listed host is localhost or a loopback address.
    pub fn lists_this_machine(&self) -> bool {
        self.patterns.iter().any(|(pattern, _)| match pattern {
            Pattern::Exact(Host::Name(name)) | Pattern::Below(name) => {
                name == "localhost" || name.ends_with(".localhost")
            }
            Pattern::Exact(Host::Address(address)) => address.is_loopback(),
            Pattern::Public => false,
        })
    }

    /// The flag that would list this host beside those already listed.
    pub fn with(&self, host: &Host, port: u16) -> Option<String> {
        if self.is_public() {
            let local = matches!(host, Host::Address(address) if address.is_loopback());
            return local.then(|| format!("--local-port {port}"));
        }
        let added = format!("{host}:{port}");
        let all: Vec<&str> = self.written.iter().map(String::as_str).chain([added.as_str()]).collect();
        Some(format!("--net hosts={}", all.join(",")))
    }
}

fn pattern(text: &str) -> Option<(Pattern, Option<u16>)> {
    if text == PUBLIC {
        return Some((Pattern::Public, None));
    }
    let (host, port) = split_port(text);
    let port = match port {
        Some(digits) => Some(digits.parse().ok()?),
        None => None,
    };
    let pattern = match host.strip_prefix("*.") {
        Some(domain) => match Host::parse(domain).ok()? {
            Host::Name(name) => Pattern::Below(name),
            Host::Address(_) => return None,
        },
        None => Pattern::Exact(Host::parse(host).ok()?),
    };
    Some((pattern, port))
}

/// Splits `host:port` at the last colon. Colons inside brackets belong to an IPv6 address.
pub fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') && (!host.contains(':') || host.ends_with(']')) => {
            (host, Some(digits))
        }
        _ => (text, None),
    }
}

/// The ports of this machine for which a run has a credential, which the proxy sends there without TLS. `None`: the credential names no
/// port, so it is for all of them.
pub fn kept_ports(credentials: &[Credential]) -> Vec<Option<u16>> {
    let port = |credential: &Credential| {
        let (host, port) = split_port(&credential.host);
        Host::parse(host).is_ok_and(|host| host.is_this_machine()).then(|| port.and_then(|digits| digits.parse().ok()))
    };
    credentials.iter().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str], ports: &[u16]) -> Allowlist {
        let hosts: Vec<String> =
            hosts.iter().map(|host| crate::policy::hosts::normal(host).expect("a sound pattern")).collect();
        Allowlist::new(&hosts, ports)
    }

    fn lists(allow: &Allowlist, host: &str, port: u16) -> bool {
        Host::parse(host).is_ok_and(|host| allow.lists(&host, port))
    }

    #[test]
    fn an_empty_list_lists_nothing() {
        let empty = list(&[], &[]);
        for host in ["example.org", "localhost", "127.0.0.1", "::1", "8.8.8.8"] {
            assert!(!lists(&empty, host, 80), "{host}");
        }
    }

    #[test]
    fn names_are_compared_in_one_spelling() {
        let allow = list(&["API.GitHub.com"], &[]);
        for host in ["api.github.com", "API.GITHUB.COM", "api.github.com.", "Api.GitHub.com."] {
            assert!(lists(&allow, host, 443), "{host}");
        }
        for host in ["github.com", "xapi.github.com", "x.api.github.com", "api.github.com.evil.org", "api.github.co"] {
            assert!(!lists(&allow, host, 443), "{host}");
        }
    }

    #[test]
    fn wildcards_match_whole_labels() {
        let allow = list(&["*.example.org"], &[]);
        for host in ["a.example.org", "a.b.example.org", "A.EXAMPLE.ORG."] {
            assert!(lists(&allow, host, 443), "{host}");
        }
        for host in ["example.org", "evilexample.org", "a.example.org.evil.net", ".example.org", "a.example.orgx"] {
            assert!(!lists(&allow, host, 443), "{host}");
        }
    }

    #[test]
    fn ports_of_a_pattern_and_of_the_policy() {
        let allow = list(&["a.org:8443", "b.org"], &[443]);
        assert!(lists(&allow, "a.org", 8443), "its own port");
        assert!(!lists(&allow, "a.org", 443), "its own port only");
        assert!(lists(&allow, "b.org", 443), "the policy's port");
        assert!(!lists(&allow, "b.org", 80), "the policy's port only");
        assert!(lists(&list(&["b.org"], &[]), "b.org", 22), "no ports listed: every port");
    }

    #[test]
    fn addresses_are_matched_by_value() {
        let allow = list(&["127.0.0.1", "[fd00::1]:443"], &[]);
        for host in ["127.0.0.1", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "0:0:0:0:0:ffff:7f00:1"] {
            assert!(lists(&allow, host, 80), "{host}");
        }
        assert!(lists(&allow, "[FD00:0::1]", 443));
        assert!(!lists(&allow, "[fd00::1]", 80));
        assert!(!lists(&allow, "127.0.0.2", 80));
    }

    #[test]
    fn encoded_addresses_are_no_names() {
        for text in
            ["2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "017700000001", "1.2.3.0x4", "127.0.0.1.1"]
        {
            assert_eq!(Host::parse(text), Err(NoHost::EncodedAddress), "{text}");
        }
        assert_eq!(Host::parse("bücher.example"), Err(NoHost::NotAscii));
        assert_eq!(Host::parse("."), Err(NoHost::Empty));
        for text in ["a b", "a..b", "a/b", "a@b", "a%00b", "[::1", "[localhost]", "fe80::1%lo", "a\0b"] {
            assert_eq!(Host::parse(text), Err(NoHost::NotAName), "{text}");
        }
    }

    #[test]
    fn hosts_and_ports_are_taken_apart() {
        for (text, host, port) in [
            ("a.org:80", "a.org", Some("80")),
            ("a.org", "a.org", None),
            ("[::1]:80", "[::1]", Some("80")),
            ("[::1]", "[::1]", None),
            ("::1", "::1", None),
        ] {
            assert_eq!(split_port(text), (host, port), "{text}");
        }
    }

    #[test]
    fn the_flag_keeps_what_was_listed() {
        let allow = list(&["a.org", "*.b.org:443"], &[]);
        let host = Host::parse("c.org").expect("a name");
        assert_eq!(allow.with(&host, 443).as_deref(), Some("--net hosts=a.org,*.b.org:443,c.org:443"));
    }

    #[test]
    fn everything_public_is_public_and_no_more() {
        let allow = Allowlist::new(&[PUBLIC.to_owned(), "127.0.0.1:3000".to_owned()], &[]);
        let lists = |host: &str, port| allow.lists(&Host::parse(host).expect("a host"), port);
        assert!(lists("a.org", 443) && lists("8.8.8.8", 53) && lists("127.0.0.1", 3000));
        for private in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[fd00::1]", "[::ffff:10.0.0.1]"] {
            assert!(!lists(private, 80), "{private}");
        }
        assert!(!allow.lists_address("10.0.0.1".parse().expect("an address"), 80));
        let with = |host: &str| allow.with(&Host::parse(host).expect("a host"), 80);
        assert_eq!((with("127.0.0.1").as_deref(), with("10.0.0.1")), (Some("--local-port 80"), None));
    }
}
