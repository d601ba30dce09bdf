//! Findings about rules for requests, and about credentials.

use super::{Findings, codes};
use crate::policy::{HttpRule, Policy, SecretFrom};
use crate::proxy::allow::{Allowlist, Host, split_port};

pub fn look(policy: &Policy, findings: &mut Findings) {
    let rules = &policy.network.http;
    for (at, rule) in rules.iter().enumerate() {
        let wider = rules.iter().enumerate().find(|(other, wide)| *other != at && covers(wide, rule, *other < at));
        if let Some((_, wide)) = wider {
            findings.put(&codes::HTTP_SHADOWED, rule.to_string(), format!("'{wide}' already allows all of it"));
        }
        if rule.methods.as_ref().is_some_and(Vec::is_empty) || rule.paths.as_ref().is_some_and(Vec::is_empty) {
            findings.put(&codes::HTTP_SHADOWED, rule.to_string(), "its list is empty, so it allows nothing");
        }
    }
    for credential in &policy.network.credentials {
        let (name, port) = split_port(&credential.host);
        if port == Some("80") && !matches!(Host::parse(name), Ok(Host::Address(address)) if address.is_loopback()) {
            let reason = format!("{} is the port of plain HTTP; the secret is sent over TLS only", credential.host);
            findings.put(&codes::CREDENTIAL_PLAIN, credential.env.clone(), reason);
        }
        let open = |rule: &&HttpRule| {
            same_host(&rule.host, &credential.host)
                && rule.paths.as_ref().is_none_or(|paths| paths.iter().any(|path| path == "/**"))
        };
        let ruled = rules.iter().any(|rule| same_host(&rule.host, &credential.host));
        if !ruled || rules.iter().any(|rule| open(&rule)) {
            let reason = format!("every path of {} can be asked for with the secret", credential.host);
            findings.put(&codes::CREDENTIAL_WIDE, credential.env.clone(), reason);
        }
        if let SecretFrom::File(path) = &credential.from
            && policy.paths.also_read.iter().chain(policy.paths.read.iter().flatten()).any(|read| read == path)
        {
            findings.put(
                &codes::CREDENTIAL_READABLE,
                credential.env.clone(),
                format!("{} is readable", path.display()),
            );
        }
    }
}

/// Whether a pattern for hosts covers this host.
fn same_host(pattern: &str, host: &str) -> bool {
    let (name, port) = split_port(host);
    let port = port.and_then(|digits| digits.parse().ok()).unwrap_or(443);
    Host::parse(name).is_ok_and(|host| Allowlist::new(&[pattern.to_owned()], &[]).lists(&host, port))
}

/// Whether one rule allows everything that another one allows. Of two equal ones, the later is superfluous.
fn covers(wide: &HttpRule, rule: &HttpRule, earlier: bool) -> bool {
    let methods = match (&wide.methods, &rule.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(own)) => own.iter().all(|method| wide.contains(method)),
    };
    let below = |wide: &String, path: &String| {
        wide == path || wide.strip_suffix("**").is_some_and(|front| path.starts_with(front) && path.len() > front.len())
    };
    let paths = match (&wide.paths, &rule.paths) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(own)) => own.iter().all(|path| wide.iter().any(|wide| below(wide, path))),
    };
    let hosts = wide.host == rule.host || !rule.host.starts_with("*.") && same_host(&wide.host, &rule.host);
    hosts && methods && paths && (wide != rule || earlier)
}
