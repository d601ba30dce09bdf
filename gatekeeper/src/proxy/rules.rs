//! The rules for requests: which hosts the proxy has to look into, and what they may be asked for. Opens nothing.

use super::allow::{Allowlist, Host};
use super::path::Readings;
use crate::policy::{Credential, HttpRule};

/// What the policy says about requests.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    http: Vec<(Allowlist, HttpRule)>,
    credentials: Vec<Allowlist>,
}

/// One request, as the server will see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    pub host: &'a Host,
    pub port: u16,
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
}

/// Why a request is refused, and the flag that would allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub why: String,
    pub allow_with: Option<String>,
}

impl Refused {
    /// Refused whatever the rules say.
    pub fn always(why: impl Into<String>) -> Refused {
        Refused { why: why.into(), allow_with: None }
    }
}

impl Rules {
    /// A host without a port stands for all of its ports, whatever `network.ports` allows: a rule that held for some
    /// ports only would leave the others open.
    pub fn new(http: &[HttpRule], credentials: &[Credential]) -> Rules {
        let list = |host: &String| Allowlist::new(std::slice::from_ref(host), &[]);
        Rules {
            http: http.iter().map(|rule| (list(&rule.host), rule.clone())).collect(),
            credentials: credentials.iter().map(|credential| list(&credential.host)).collect(),
        }
    }

    /// Whether requests to this host are looked into.
    pub fn opens(&self, host: &Host, port: u16) -> bool {
        self.is_ruled(host, port) || self.credentials.iter().any(|list| list.lists(host, port))
    }

    /// The names that have rules for this port; `None` for a wildcard, whose names are not known.
    pub fn names(&self, port: u16) -> Vec<Option<&str>> {
        let mut names = Vec::new();
        self.http.iter().for_each(|(list, _)| list.each_name(port, |name| names.push(name)));
        names.sort_unstable();
        names.dedup();
        names
    }

    pub fn is_ruled(&self, host: &Host, port: u16) -> bool {
        self.http.iter().any(|(list, _)| list.lists(host, port))
    }

    /// Decides one request to a host. A host without rules may be asked for everything.
    pub fn decide(&self, asked: &Asked<'_>) -> Result<(), Refused> {
        let Asked { host, port, method, path } = asked;
        let ruled = self.is_ruled(host, *port);
        let readings = match Readings::of(path) {
            Ok(readings) => readings,
            // OPTIONS * asks for the server as a whole, and no pattern matches it.
            Err(_) if !ruled => return Ok(()),
            Err(odd) => return Err(Refused::always(odd.to_string())),
        };
        if !ruled {
            return Ok(());
        }
        let mut methods: Vec<&str> = Vec::new();
        for (_, rule) in self.http.iter().filter(|(list, _)| list.lists(host, *port)) {
            let fits = rule.paths.as_ref().is_none_or(|paths| readings.all_match(paths));
            match &rule.methods {
                _ if !fits => {}
                Some(listed) if !listed.iter().any(|listed| listed == method) => {
                    methods.extend(listed.iter().map(String::as_str));
                }
                _ => return Ok(()),
            }
        }
        methods.dedup();
        let why = match methods.is_empty() {
            true => "no rule allows this path".to_owned(),
            false => format!("this path allows only {}", methods.join(", ")),
        };
        Err(Refused { why, allow_with: flag(asked) })
    }
}

/// The flag that allows exactly this request; `None` if no pattern can name its path.
fn flag(asked: &Asked<'_>) -> Option<String> {
    let decoded = super::path::decoded(asked.path.as_bytes()).ok()?;
    let path = String::from_utf8(decoded).ok()?;
    let plain = |letter: char| letter.is_ascii_graphic() && !"'*".contains(letter);
    let pattern = crate::policy::http::pattern(&path).ok().filter(|_| path.chars().all(plain))?;
    // Not if a server may read another path, which the pattern would not match (/@scope%2fname).
    if !Readings::of(asked.path).ok()?.all_match(&[pattern]) {
        return None;
    }
    let method = crate::policy::http::method(asked.method).ok()?;
    Some(format!("--http '{method} {}:{}{path}'", asked.host, asked.port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(flags: &[&str], credentials: &[&str]) -> Rules {
        let http: Vec<HttpRule> = flags.iter().map(|flag| flag.parse().expect("sound")).collect();
        let credentials: Vec<Credential> = credentials.iter().map(|flag| flag.parse().expect("sound")).collect();
        Rules::new(&http, &credentials)
    }

    fn decide(rules: &Rules, method: &str, host: &str, path: &str) -> Result<(), Refused> {
        let host = Host::parse(host).expect("a host");
        rules.decide(&Asked { host: &host, port: 443, method, path })
    }

    #[test]
    fn only_listed_methods_and_paths_pass() {
        let rules = rules(&["GET,HEAD api.a.org/v1/**", "POST api.a.org/v1/issues"], &[]);
        for (method, path) in [("GET", "/v1/x"), ("HEAD", "/v1/"), ("POST", "/v1/issues")] {
            assert_eq!(decide(&rules, method, "API.a.org.", path), Ok(()), "{method} {path}");
        }
        for (method, path) in
            [("POST", "/v1/x"), ("DELETE", "/v1/issues"), ("GET", "/v2"), ("get", "/v1/x"), ("GET", "*")]
        {
            decide(&rules, method, "api.a.org", path).expect_err(path);
        }
        let refused = decide(&rules, "DELETE", "api.a.org", "/v1/issues").expect_err("not listed");
        assert_eq!(refused.why, "this path allows only GET, HEAD, POST");
        assert_eq!(refused.allow_with.as_deref(), Some("--http 'DELETE api.a.org:443/v1/issues'"));
        let flag = refused.allow_with.expect("a flag");
        let flag: HttpRule = flag.trim_start_matches("--http ").trim_matches('\'').parse().expect("a rule");
        assert_eq!(decide(&Rules::new(&[flag], &[]), "DELETE", "api.a.org", "/v1/issues"), Ok(()));
    }

    #[test]
    fn a_flag_is_named_only_if_it_allows_the_request() {
        let rules = rules(&["GET a.org/v1/**"], &[]);
        for path in ["/@scope%2fname", "/a;b=1/c", "/x%3fy", "/a//b"] {
            assert_eq!(decide(&rules, "GET", "a.org", path).expect_err("not listed").allow_with, None, "{path}");
        }
        let refused = decide(&rules, "GET", "a.org", "/%40scope/name").expect_err("not listed");
        assert_eq!(refused.allow_with.as_deref(), Some("--http 'GET a.org:443/@scope/name'"));
        "GET a.org/a;b".parse::<HttpRule>().expect_err("it can match nothing");
    }

    #[test]
    fn only_hosts_with_rules_or_credentials_are_opened() {
        let rules = rules(&["GET a.org/x"], &["T@b.org"]);
        let opens = |host: &str| rules.opens(&Host::parse(host).expect("a host"), 443);
        assert!(opens("a.org") && opens("B.org") && !opens("c.org") && !opens("x.a.org"));
        assert_eq!(decide(&rules, "DELETE", "b.org", "/any"), Ok(()), "no rule: every request");
        decide(&rules, "DELETE", "a.org", "/x").expect_err("a rule");
    }
}
