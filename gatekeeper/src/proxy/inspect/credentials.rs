//! Puts secrets into a request, in the only place where they belong, and finds placeholders everywhere else.

use crate::policy::Placed;
use crate::proxy::allow::{Allowlist, Host};
use crate::proxy::path::decoded;
use crate::proxy::rules::Refused;
use crate::proxy::secrets::{Secrets, belongs, contains, escaped, replaced};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};
use std::sync::Arc;
use zeroize::Zeroizing;

/// How much of a body is searched for placeholders.
const SEARCHED: usize = 64 * 1024;

/// Where a request goes, as far as secrets are concerned.
pub struct To<'a> {
    pub host: &'a Host,
    pub port: u16,
    /// Over TLS, or to this machine.
    pub safe: bool,
}

/// Replaces the placeholders of a request that belong there. Refuses a request with any other.
pub fn put(
    secrets: &Secrets,
    to: &To<'_>,
    method: &Method,
    uri: &mut Uri,
    headers: &mut HeaderMap,
) -> Result<(), Refused> {
    if secrets.is_empty() {
        return Ok(());
    }
    let mut query = uri.query().map(str::to_owned);
    for one in &secrets.uses {
        let listed = Allowlist::new(std::slice::from_ref(&one.credential.host), &[]).lists(to.host, to.port);
        if !listed || !to.safe {
            continue;
        }
        if ["TRACE", "TRACK"].iter().any(|echo| method.as_str().eq_ignore_ascii_case(echo)) {
            return Err(Refused::always(format!(
                "{method} makes a host send the request back, and with it the secret of {}",
                one.credential.env
            )));
        }
        let (shown, value) = (secrets.placeholder(one.secret), secrets.value(one.secret));
        match &one.credential.placed {
            Placed::Bearer => in_header(headers, &AUTHORIZATION, |text| bearer(text, shown, value)),
            Placed::Basic => in_header(headers, &AUTHORIZATION, |text| basic(text, shown, value)),
            Placed::Header(name) => {
                if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                    in_header(headers, &name, |text| {
                        contains(text, shown.as_bytes())
                            .then(|| Zeroizing::new(replaced(text, shown.as_bytes(), value.as_bytes())))
                    });
                }
            }
            Placed::Query(name) => query = query.map(|query| in_query(&query, name, shown, value)),
        }
    }
    let in_method = || secrets.sent_in_name(method.as_str());
    if let Some(env) = misplaced(secrets, uri.path(), query.as_deref(), headers).or_else(in_method) {
        return Err(refused(secrets, env, to));
    }
    if let Some(query) = query.filter(|query| uri.query() != Some(query.as_str())) {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = format!("{}?{query}", uri.path()).parse().ok();
        *uri = Uri::from_parts(parts).map_err(|error| Refused::always(error.to_string()))?;
    }
    Ok(())
}

/// The variable whose placeholder is in a place where none belongs.
fn misplaced<'s>(secrets: &'s Secrets, path: &str, query: Option<&str>, headers: &HeaderMap) -> Option<&'s str> {
    let in_url = || secrets.sent_in(path.as_bytes()).or_else(|| secrets.sent_in(query.unwrap_or_default().as_bytes()));
    let in_headers = || {
        headers
            .iter()
            .find_map(|(name, value)| secrets.sent_in(value.as_bytes()).or_else(|| secrets.sent_in_name(name.as_str())))
    };
    in_url().or_else(in_headers)
}

fn refused(secrets: &Secrets, env: &str, to: &To<'_>) -> Refused {
    let mut wanted = secrets.uses.iter().filter(|one| one.credential.env == env).peekable();
    let listed = wanted
        .peek()
        .map_or_else(String::new, |one| format!("{} to {}", belongs(&one.credential.placed), one.credential.host));
    let how = if to.safe { "" } else { " over TLS" };
    Refused::always(format!(
        "the placeholder of {env} is sent where its secret does not belong; it belongs {listed}{how}"
    ))
}

/// Changes each value of a header that `change` has another one for.
fn in_header(headers: &mut HeaderMap, name: &HeaderName, change: impl Fn(&[u8]) -> Option<Zeroizing<Vec<u8>>>) {
    if let hyper::header::Entry::Occupied(mut entry) = headers.entry(name) {
        for value in entry.iter_mut() {
            if let Some(mut changed) =
                change(value.as_bytes()).and_then(|changed| HeaderValue::from_bytes(&changed).ok())
            {
                // HTTP/2 keeps it out of the tables of its compression.
                changed.set_sensitive(true);
                *value = changed;
            }
        }
    }
}

/// `Bearer PLACEHOLDER`, and nothing else.
fn bearer(text: &[u8], shown: &str, value: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, token) = std::str::from_utf8(text).ok()?.trim().split_once(' ')?;
    let is_it = scheme.eq_ignore_ascii_case("bearer") && token.trim() == shown;
    is_it.then(|| Zeroizing::new(format!("{scheme} {value}").into_bytes()))
}

/// `Basic BASE64`, of a user or a password or both that are the placeholder.
fn basic(text: &[u8], shown: &str, value: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (scheme, encoded) = std::str::from_utf8(text).ok()?.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let whole = Zeroizing::new(match plain.split_once(':') {
        _ if plain == shown => value.to_owned(),
        Some((user, password)) if user == shown || password == shown => {
            let part = |part: &str| if part == shown { value.to_owned() } else { part.to_owned() };
            format!("{}:{}", part(user), part(password))
        }
        _ => return None,
    });
    Some(Zeroizing::new(format!("{scheme} {}", STANDARD.encode(whole.as_bytes())).into_bytes()))
}

/// The query with the value of one parameter replaced, where it is the placeholder.
fn in_query(query: &str, name: &str, shown: &str, value: &str) -> String {
    let is_shown = |text: &str| decoded(text.as_bytes()).is_ok_and(|text| text == shown.as_bytes());
    let changed = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, text)) if key == name && is_shown(text) => format!("{key}={}", escaped(value)),
        _ => pair.to_owned(),
    });
    changed.collect::<Vec<_>>().join("&")
}

/// Replaces secrets that a host sends back in headers, and removes headers that have one in their name.
pub fn mask(secrets: &Secrets, headers: &mut HeaderMap) {
    if secrets.is_empty() {
        return;
    }
    let named: Vec<HeaderName> = headers.keys().filter(|name| secrets.is_in_name(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(masked) = secrets.masked(value.as_bytes()) {
            *value = HeaderValue::from_bytes(&masked).unwrap_or_else(|_| HeaderValue::from_static("(masked)"));
        }
    }
}

/// Searches the first part of a body for placeholders, block by block.
pub struct Search {
    secrets: Arc<Secrets>,
    /// The end of what was searched, in case a placeholder is cut in two.
    tail: Vec<u8>,
    seen: usize,
}

impl Search {
    pub fn new(secrets: Arc<Secrets>) -> Search {
        Search { secrets, tail: Vec::new(), seen: 0 }
    }

    /// The variable whose placeholder is in the body, if it ends in this block.
    pub fn finds(&mut self, block: &[u8]) -> Option<&str> {
        if self.secrets.is_empty() || self.seen >= SEARCHED {
            return None;
        }
        self.seen += block.len();
        self.tail.extend_from_slice(block);
        if self.secrets.sent_in(&self.tail).is_some() {
            return self.secrets.sent_in(&self.tail);
        }
        let keep = self.tail.len().saturating_sub(self.secrets.longest());
        self.tail.drain(..keep);
        None
    }

    /// The same for trailers.
    pub fn finds_in(&self, trailers: &HeaderMap) -> Option<&str> {
        trailers.iter().find_map(|(name, value)| {
            self.secrets.sent_in(value.as_bytes()).or_else(|| self.secrets.sent_in_name(name.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a text from the placeholder.
    type Written<'a> = &'a dyn Fn(&str) -> String;

    const SECRET: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

    fn sent(
        flag: &str,
        header: Option<(&str, Written<'_>)>,
        uri: &dyn Fn(&str) -> String,
        safe: bool,
    ) -> Result<String, Refused> {
        let secrets =
            Secrets::new(&[flag.parse().expect("sound")], &|_| Ok(Zeroizing::new(SECRET.to_owned()))).expect("sound");
        let shown = secrets.placeholder(0).to_owned();
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                value(&shown).parse().expect("a value"),
            );
        }
        let mut uri: Uri = uri(&shown).parse().expect("a URI");
        let host = Host::parse("a.org").expect("a host");
        put(&secrets, &To { host: &host, port: 443, safe }, &Method::GET, &mut uri, &mut headers)?;
        let all: Vec<String> = headers.values().map(|value| value.to_str().expect("text").to_owned()).collect();
        Ok(format!("{uri} {}", all.join(" ")))
    }

    #[test]
    fn a_secret_is_put_only_where_it_belongs() {
        let root = |_: &str| "/".to_owned();
        let plain = |shown: &str| format!("Bearer {shown}");
        assert_eq!(
            sent("T@a.org", Some(("authorization", &plain)), &root, true).expect("put"),
            format!("/ Bearer {SECRET}")
        );
        let token = |shown: &str| format!("token {shown}");
        let put = sent("T@a.org=header:Authorization", Some(("authorization", &token)), &root, true);
        assert_eq!(put.expect("put"), format!("/ token {SECRET}"));
        let basic = |shown: &str| format!("Basic {}", STANDARD.encode(format!("git:{shown}")));
        let put = sent("T@a.org=basic", Some(("authorization", &basic)), &root, true).expect("put");
        assert_eq!(put, format!("/ Basic {}", STANDARD.encode(format!("git:{SECRET}"))));
        let put = sent("T@a.org=query:key", None, &|shown| format!("/x?a=1&key={shown}&b=2"), true).expect("put");
        assert_eq!(put.trim(), format!("/x?a=1&key={SECRET}&b=2"));

        sent("T@b.org", Some(("authorization", &plain)), &root, true).expect_err("another host");
        sent("T@a.org:8443", Some(("authorization", &plain)), &root, true).expect_err("another port");
        sent("T@a.org", Some(("authorization", &plain)), &root, false).expect_err("without TLS");
        sent("T@a.org", Some(("x-other", &plain)), &root, true).expect_err("another header");
        sent("T@a.org", Some(("cookie", &|shown| format!("a={shown}"))), &root, true).expect_err("a cookie");
        sent("T@a.org", Some(("authorization", &basic)), &root, true).expect_err("another scheme");
        sent("T@a.org=basic", Some(("authorization", &plain)), &root, true).expect_err("another scheme");
        sent("T@a.org", None, &|shown| format!("/{shown}"), true).expect_err("the path");
        sent("T@a.org", None, &|shown| format!("/?x={shown}"), true).expect_err("the query");
        sent("T@a.org=query:key", None, &|shown| format!("/?x={shown}"), true).expect_err("another parameter");
        sent("T@a.org=query:key", None, &|shown| format!("/?key=x{shown}"), true).expect_err("not the whole value");
        let escaped = |shown: &str| shown.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        sent("T@a.org", None, &|shown| format!("/{}", escaped(shown)), true).expect_err("escaped");
    }

    #[test]
    fn a_placeholder_in_a_body_is_found_across_blocks() {
        let secrets = Secrets::new(&["T@a.org".parse().expect("sound")], &|_| Ok(Zeroizing::new(SECRET.to_owned())));
        let secrets = Arc::new(secrets.expect("sound"));
        let shown = secrets.placeholder(0).to_owned();
        let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        for written in [shown.clone(), escaped(&shown), escaped(&escaped(&shown)), STANDARD.encode(&shown)] {
            for size in [1, 5, 1000] {
                let mut search = Search::new(secrets.clone());
                let body = format!("{}{written}", "x".repeat(3000));
                assert!(body.as_bytes().chunks(size).any(|block| search.finds(block).is_some()), "{size} {written}");
            }
        }
    }

    #[test]
    fn a_placeholder_is_found_in_names_methods_and_trailers() {
        let secrets = Secrets::new(&["T@a.org".parse().expect("sound")], &|_| Ok(Zeroizing::new(SECRET.to_owned())));
        let secrets = Arc::new(secrets.expect("sound"));
        let shown = secrets.placeholder(0).to_owned();
        let host = Host::parse("a.org").expect("a host");
        let sent = |method: &str, name: &str| {
            let (mut uri, mut headers) = (Uri::from_static("/"), HeaderMap::new());
            headers.insert(HeaderName::from_bytes(name.as_bytes()).expect("a name"), HeaderValue::from_static("x"));
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            put(&secrets, &To { host: &host, port: 443, safe: true }, &method, &mut uri, &mut headers)
        };
        sent("GET", "x-a").expect("nothing in it");
        for echo in ["TRACE", "trace", "TRACK"] {
            sent(echo, "x-a").expect_err("the answer would hold the secret");
        }
        // HTTP/2 and hyper write names in lower case.
        sent("GET", &format!("x-{shown}")).expect_err("a name");
        sent(&shown, "x-a").expect_err("a method");
        let search = Search::new(secrets.clone());
        let mut trailers = HeaderMap::new();
        trailers.insert(HeaderName::from_bytes(shown.as_bytes()).expect("a name"), HeaderValue::from_static("x"));
        assert_eq!(search.finds_in(&trailers), Some("T"));
        let mut back = HeaderMap::new();
        back.insert("x-sum", HeaderValue::from_static(SECRET));
        mask(&secrets, &mut back);
        assert_eq!(back["x-sum"], shown.as_str());
        let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        for name in [SECRET.to_owned(), hex.clone(), STANDARD.encode(SECRET).replace('=', "")] {
            let mut back = HeaderMap::new();
            back.insert(
                HeaderName::from_bytes(format!("x-{name}").as_bytes()).expect("a name"),
                "1".parse().expect("a value"),
            );
            back.insert("x-other", "1".parse().expect("a value"));
            mask(&secrets, &mut back);
            assert_eq!(back.keys().collect::<Vec<_>>(), ["x-other"], "{name}");
        }
        for hex in [hex.to_ascii_uppercase(), hex] {
            let mut back = HeaderMap::new();
            back.insert("x-sum", hex.parse().expect("a value"));
            mask(&secrets, &mut back);
            assert_eq!(back["x-sum"], "(masked)");
        }
    }
}
