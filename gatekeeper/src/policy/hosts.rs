//! Allowed hosts: takes `host`, `*.host` or an address, each with or without `:port`, and gives the normal form that is
//! compared. Resolves nothing.

use super::error::ValueError;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The normal form: lower case, no trailing dot, IPv6 in brackets.
pub fn normal(text: &str) -> Result<String, ValueError> {
    let wrong = |why| ValueError::unusable("host", text, why);
    if text.contains("://") {
        return Err(wrong("a URL; write only the host, and the port after a colon"));
    }
    if text.contains('/') {
        return Err(wrong("neither paths nor networks are matched; write a host or an address"));
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']').ok_or_else(|| wrong("the bracket is not closed"))?;
        let address: Ipv6Addr = address.parse().map_err(|_| wrong("the brackets do not hold an IPv6 address"))?;
        return match rest.strip_prefix(':') {
            Some(digits) => Ok(format!("[{address}]:{}", port(text, digits)?)),
            None if rest.is_empty() => Ok(format!("[{address}]")),
            None => Err(wrong("only :port may follow the bracket")),
        };
    }
    match text.split_once(':') {
        Some((host, digits)) => Ok(format!("{}:{}", name(text, host)?, port(text, digits)?)),
        None => name(text, text),
    }
}

fn port(text: &str, digits: &str) -> Result<u16, ValueError> {
    let number = digits.parse::<u16>().ok().filter(|port| *port > 0 && digits.bytes().all(|b| b.is_ascii_digit()));
    number.ok_or_else(|| ValueError::unusable("host", text, "the port is not a number from 1 to 65535"))
}

fn name(text: &str, host: &str) -> Result<String, ValueError> {
    let wrong = |why| Err(ValueError::unusable("host", text, why));
    if !host.is_ascii() {
        // The client might map the name to ASCII differently, and two different names would be compared.
        return wrong("write an international name in its ASCII form, xn--...");
    }
    let lower = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let (wildcard, labels) = match lower.strip_prefix("*.") {
        Some(rest) => (true, rest),
        None => (false, lower.as_str()),
    };
    if labels.is_empty() {
        return wrong("empty");
    }
    if labels.contains('*') {
        return wrong(
            "a wildcard replaces only whole labels at the start, as in *.example.org; for every host use mode = full",
        );
    }
    if labels.len() > 253 || !labels.split('.').all(is_label) {
        return wrong("not a host name");
    }
    // Clients read 0x7f.1 and 2130706433 as addresses, so these are never names.
    let last = labels.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if number && (wildcard || labels.parse::<Ipv4Addr>().is_err()) {
        return wrong("neither a name nor a plain address; write addresses as four decimal numbers");
    }
    Ok(lower)
}

fn is_label(label: &str) -> bool {
    let letters = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    letters && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_get_one_spelling() {
        for (written, stored) in [
            ("api.github.com", "api.github.com"),
            ("API.GitHub.com.", "api.github.com"),
            ("*.Example.org:443", "*.example.org:443"),
            ("example.org.:80", "example.org:80"),
            ("localhost", "localhost"),
            ("_dmarc.example.org", "_dmarc.example.org"),
            ("10.0.0.1:8080", "10.0.0.1:8080"),
            ("::1", "[::1]"),
            ("[0:0:0:0:0:0:0:1]:443", "[::1]:443"),
            ("[FD00::1]", "[fd00::1]"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(normal(written).as_deref(), Ok(stored), "{written}");
            assert_eq!(normal(stored).as_deref(), Ok(stored), "normal stays normal: {stored}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused_with_the_reason() {
        for (written, why) in [
            ("https://example.org", "a URL; write only the host, and the port after a colon"),
            ("example.org/path", "neither paths nor networks are matched; write a host or an address"),
            ("10.0.0.0/8", "neither paths nor networks are matched; write a host or an address"),
            ("bücher.example", "write an international name in its ASCII form, xn--..."),
            (
                "*",
                "a wildcard replaces only whole labels at the start, as in *.example.org; for every host use mode = full",
            ),
            (
                "*example.org",
                "a wildcard replaces only whole labels at the start, as in *.example.org; for every host use mode = full",
            ),
            (
                "*.*.org",
                "a wildcard replaces only whole labels at the start, as in *.example.org; for every host use mode = full",
            ),
            ("", "empty"),
            (".", "empty"),
            (
                "*.",
                "a wildcard replaces only whole labels at the start, as in *.example.org; for every host use mode = full",
            ),
            (":443", "empty"),
            ("a..b", "not a host name"),
            ("-a.org", "not a host name"),
            ("a b.org", "not a host name"),
            ("a.org\0", "not a host name"),
            ("a.org:", "the port is not a number from 1 to 65535"),
            ("a.org:0", "the port is not a number from 1 to 65535"),
            ("a.org:65536", "the port is not a number from 1 to 65535"),
            ("a.org:+80", "the port is not a number from 1 to 65535"),
            ("a.org:80:80", "the port is not a number from 1 to 65535"),
            ("[::1", "the bracket is not closed"),
            ("[::1]x", "only :port may follow the bracket"),
            ("[fe80::1%eth0]", "the brackets do not hold an IPv6 address"),
            ("2130706433", "neither a name nor a plain address; write addresses as four decimal numbers"),
            ("0x7f.1", "neither a name nor a plain address; write addresses as four decimal numbers"),
            ("127.1", "neither a name nor a plain address; write addresses as four decimal numbers"),
            ("0177.0.0.1", "neither a name nor a plain address; write addresses as four decimal numbers"),
            ("1.2.3.0x4", "neither a name nor a plain address; write addresses as four decimal numbers"),
            ("*.1.2.3.4", "neither a name nor a plain address; write addresses as four decimal numbers"),
        ] {
            assert_eq!(normal(written), Err(ValueError::unusable("host", written, why)), "{written}");
        }
    }
}
