//! Which hosts, addresses and ports the gate lets through.

use super::*;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Gives another answer at each call, and counts the calls.
struct Table(Vec<Vec<&'static str>>, Arc<AtomicUsize>);

impl Resolve for Table {
    fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let at = self.1.fetch_add(1, Ordering::SeqCst).min(self.0.len() - 1);
        Ok(self.0[at].iter().map(|address| address.parse().expect("an address")).collect())
    }
}

fn gate(hosts: &[&str], answers: &[&[&'static str]]) -> (Gate, Arc<AtomicUsize>) {
    let hosts: Vec<String> =
        hosts.iter().map(|host| crate::policy::hosts::normal(host).expect("a sound pattern")).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let table = Table(answers.iter().map(|list| list.to_vec()).collect(), asked.clone());
    (Gate::new(Allowlist::new(&hosts, &[]), Box::new(table)), asked)
}

fn why(gate: &Gate, host: &str, port: u16) -> String {
    match gate.choose(host, port) {
        Err(NoAddress::Refused(no)) => no.why,
        other => panic!("{host} was not refused: {other:?}"),
    }
}

#[test]
fn a_name_that_is_not_listed_is_never_resolved() {
    let (gate, asked) = gate(&["a.org"], &[&["1.1.1.1"]]);
    assert_eq!(why(&gate, "b.org", 80), "not in the list of allowed hosts");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(gate.choose("a.org", 80), Ok(vec!["1.1.1.1:80".parse().expect("an address")]));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_listed_name_leads_to_no_private_address() {
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
    {
        let (gate, _) = gate(&["a.org"], &[&[address]]);
        assert!(why(&gate, "a.org", 80).starts_with("it resolves to "), "{address}");
    }
}

#[test]
fn a_public_address_of_this_machine_needs_a_listing_of_its_own() {
    let own = |hosts: &[&str]| {
        let mut gate = Gate::new(
            Allowlist::new(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>(), &[]),
            Box::new(Table(vec![vec!["1.2.3.4"]], Arc::default())),
        );
        gate.own = |address| address == IpAddr::from([1, 2, 3, 4]);
        gate
    };
    assert_eq!(why(&own(&["*"]), "1.2.3.4", 80), format!("it is {OWN}, and private addresses are denied"));
    assert!(why(&own(&["*"]), "a.org", 80).contains("1.2.3.4, which is this machine itself"));
    assert!(own(&["a.org"]).choose("a.org", 80).is_ok(), "listed by name");
    assert!(own(&["*"]).choose("1.2.3.5", 80).is_ok());
    assert!(own(&["*", "1.2.3.4:80"]).choose("a.org", 80).is_ok());
    assert!(own(&["1.2.3.4:80"]).choose("1.2.3.4", 80).is_ok());
}

#[test]
fn of_several_addresses_only_the_public_ones_are_tried() {
    let (gate, _) = gate(&["a.org"], &[&["10.0.0.1", "1.1.1.1", "::1"]]);
    assert_eq!(gate.choose("a.org", 443), Ok(vec!["1.1.1.1:443".parse().expect("an address")]));
}

#[test]
fn rebinding_finds_nothing_to_rebind() {
    // One question, one answer: the second answer of a rebinding server is never asked for.
    let (gate, asked) = gate(&["a.org"], &[&["1.1.1.1"], &["127.0.0.1"]]);
    assert_eq!(gate.choose("a.org", 80), Ok(vec!["1.1.1.1:80".parse().expect("an address")]));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(why(&gate, "a.org", 80).contains("127.0.0.1"), "the next request is judged by its own answer");
}

#[test]
fn a_private_address_listed_by_address_is_reached_by_name_too() {
    let (gate, _) = gate(&["db.corp", "10.0.0.5:5432"], &[&["10.0.0.5"]]);
    assert_eq!(gate.choose("db.corp", 5432), Ok(vec!["10.0.0.5:5432".parse().expect("an address")]));
    assert_eq!(gate.choose("10.0.0.5", 5432), Ok(vec!["10.0.0.5:5432".parse().expect("an address")]));
    assert!(why(&gate, "db.corp", 80).contains("a private network"), "its port is part of the listing");
}

#[test]
fn an_address_of_a_host_with_rules_is_reached_only_through_its_rules() {
    let ruled = |hosts: &[&str], rules: &[&str]| {
        let rules: Vec<_> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        let (gate, _) = gate(hosts, &[&["10.0.0.5"]]);
        gate.ruled_by(Rules::new(&rules, &[]))
    };
    let around = ruled(&["api.corp", "alias.corp", "10.0.0.5"], &["GET api.corp/v1/**"]);
    for host in ["10.0.0.5", "::ffff:10.0.0.5", "alias.corp"] {
        let why = why(&around, host, 443);
        assert!(why.contains("an address of api.corp, whose rules would not hold"), "{host}: {why}");
    }
    assert!(around.choose("api.corp", 443).is_ok(), "by its name, where its rules hold");
    let other = ruled(&["api.corp", "10.0.0.5"], &["GET api.corp:8443/v1/**"]);
    assert!(other.choose("10.0.0.5", 443).is_ok(), "the rules are for another port");
    assert!(other.choose("10.0.0.5", 8443).is_err());
    let wild = ruled(&["*.corp", "10.0.0.5", "8.8.8.8"], &["GET *.corp/v1/**"]);
    assert!(why(&wild, "10.0.0.5", 443).contains("wildcard") && wild.choose("8.8.8.8", 443).is_ok());
    let both = ruled(&["api.corp", "10.0.0.5"], &["GET api.corp/v1/**", "GET 10.0.0.5/v1/**"]);
    assert!(both.choose("10.0.0.5", 443).is_ok(), "it has rules itself");
    assert!(ruled(&["10.0.0.5"], &["GET a.org:80/"]).choose("10.0.0.5", 443).is_ok());
}

/// Knows no name, as when there is no process left for getent.
struct Lost;

impl Resolve for Lost {
    fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
}

#[test]
fn an_address_is_refused_while_a_name_with_rules_cannot_be_resolved() {
    let hosts = ["api.corp", "10.0.0.5"].map(str::to_owned);
    let rules = |rule: &str| Rules::new(&[rule.parse().expect("a rule")], &[]);
    let gate = |rule: &str| Gate::new(Allowlist::new(&hosts, &[]), Box::new(Lost)).ruled_by(rules(rule));
    let why = why(&gate("GET api.corp/v1/**"), "10.0.0.5", 443);
    assert!(why.contains("an address of api.corp, as far as can be told ("), "{why}");
    assert!(gate("GET api.corp:8443/v1/**").choose("10.0.0.5", 443).is_ok(), "the rules are for another port");
}

#[test]
fn an_address_needs_a_listing_of_its_own() {
    let (gate, asked) = gate(&["*.org", "localhost"], &[&["127.0.0.1"]]);
    for host in ["1.1.1.1", "127.0.0.1", "[::1]", "::ffff:127.0.0.1"] {
        assert_eq!(why(&gate, host, 80), "not in the list of allowed hosts", "{host}");
    }
    for host in ["2130706433", "0x7f000001", "0177.0.0.1", "127.1"] {
        assert!(why(&gate, host, 80).starts_with("an address must be written"), "{host}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(why(&gate, "localhost", 80).contains("this machine itself"));
}

#[test]
fn refusals_are_counted_and_say_what_would_allow_them() {
    let (gate, _) = gate(&["a.org"], &[&["127.0.0.1"]]);
    for _ in 0..3 {
        assert!(matches!(gate.open("b.org", 443, &Guest::default()), Err(Closed::Refused(_))));
    }
    assert!(matches!(gate.open("a.org", 80, &Guest::default()), Err(Closed::Refused(_))));
    let (list, dropped) = gate.refusals();
    assert_eq!(dropped, 0);
    assert_eq!(
        list.iter().map(|refusal| (refusal.host.as_str(), refusal.count)).collect::<Vec<_>>(),
        [("a.org:80", 1), ("b.org:443", 3)]
    );
    assert_eq!(list[0].allow_with.as_deref(), Some("--net hosts=a.org,127.0.0.1:80"));
    assert_eq!(list[1].allow_with.as_deref(), Some("--net hosts=a.org,b.org:443"));
}
