//! `[[network.http]]` and `[[network.credential]]`: takes the text of a host, methods, path patterns, and the source and
//! place of a secret; gives their normal form. Matches nothing and reads no secret.

use super::error::{PolicyError, ValueError};
use super::field::Field;
use super::{hosts, schema, values};
use std::path::PathBuf;
use std::str::FromStr;

pub(super) const RULE: &[&str] = &["host", "methods", "paths"];
pub(super) const CREDENTIAL: &[&str] = &["env", "from", "host", "as"];

/// What a host may be asked for. Several rules for one host add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRule {
    /// `host`, `*.host` or an address, each with or without `:port`.
    pub host: String,
    /// `None`: every method.
    pub methods: Option<Vec<String>>,
    /// Patterns: `*` stands for anything within a segment, a last `**` for one or more segments, another `**` for any
    /// number. `None`: every path.
    pub paths: Option<Vec<String>>,
}

/// A secret that the proxy puts into requests. The command gets a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The command's variable, which holds the placeholder.
    pub env: String,
    pub from: SecretFrom,
    /// One host, with or without `:port`.
    pub host: String,
    pub placed: Placed,
}

/// Where the secret is read, once, when the run starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretFrom {
    /// A variable of the caller.
    Env(String),
    File(PathBuf),
    /// A file in CREDENTIALS_DIRECTORY, which systemd sets for a service.
    Systemd(String),
}

/// The only place of a request in which the placeholder is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// `Authorization: Bearer SECRET`.
    Bearer,
    /// The user, the password or both in `Authorization: Basic`.
    Basic,
    Header(String),
    /// A parameter of the query.
    Query(String),
}

impl std::fmt::Display for SecretFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SecretFrom::Env(name) => write!(f, "env:{name}"),
            SecretFrom::File(path) => write!(f, "file:{}", path.display()),
            SecretFrom::Systemd(name) => write!(f, "systemd:{name}"),
        }
    }
}

impl FromStr for SecretFrom {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<SecretFrom, ValueError> {
        let wrong = |why| ValueError::unusable("source of a secret", text, why);
        match text.split_once(':') {
            Some(("env", name)) => Ok(SecretFrom::Env(variable(name)?)),
            Some(("file", path)) => Ok(SecretFrom::File(values::path(path)?)),
            Some(("systemd", name)) => {
                let plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
                match plain && !name.is_empty() && !name.starts_with('.') {
                    true => Ok(SecretFrom::Systemd(name.to_owned())),
                    false => Err(wrong("the name of a systemd credential is a plain file name")),
                }
            }
            _ => Err(wrong("write env:NAME, file:PATH or systemd:NAME")),
        }
    }
}

impl std::fmt::Display for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placed::Bearer => f.write_str("bearer"),
            Placed::Basic => f.write_str("basic"),
            Placed::Header(name) => write!(f, "header:{name}"),
            Placed::Query(name) => write!(f, "query:{name}"),
        }
    }
}

/// Headers that say where a request goes or where it ends.
const FRAMING: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "proxy-authorization",
    "expect",
];

impl FromStr for Placed {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Placed, ValueError> {
        let wrong = |why| ValueError::unusable("place of a secret", text, why);
        match (text, text.split_once(':')) {
            ("bearer", _) => Ok(Placed::Bearer),
            ("basic", _) => Ok(Placed::Basic),
            (_, Some(("header", name))) => {
                let name = name.to_ascii_lowercase();
                if !is_token(&name) {
                    return Err(wrong("not the name of a header"));
                }
                match FRAMING.contains(&name.as_str()) {
                    true => Err(wrong("this header says where the request goes or ends, and holds no secret")),
                    false => Ok(Placed::Header(name)),
                }
            }
            (_, Some(("query", name))) => {
                let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~[]".contains(&byte));
                match plain && !name.is_empty() {
                    true => Ok(Placed::Query(name.to_owned())),
                    false => Err(wrong("the name of a parameter has letters, digits and - _ . ~ [ ] only")),
                }
            }
            _ => Err(ValueError::unknown(
                "place of a secret",
                text,
                vec!["bearer", "basic", "header:NAME", "query:NAME"],
            )),
        }
    }
}

/// `GET,HEAD api.example.org/v1/**`, as `--http` takes it. Without methods, or with `*`: every method.
impl FromStr for HttpRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<HttpRule, ValueError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (methods, place) = match words.as_slice() {
            [place] => (None, *place),
            ["*", place] => (None, *place),
            [methods, place] => {
                let methods = methods.split(',').map(method).collect::<Result<Vec<_>, _>>()?;
                (Some(methods), *place)
            }
            _ => {
                let why = "write methods, a space, and a host with a path, as in 'GET,HEAD api.example.org/v1/**'";
                return Err(ValueError::unusable("HTTP rule", text, why));
            }
        };
        if place.contains("://") {
            return Err(ValueError::unusable("HTTP rule", text, "a URL; write only the host and the path"));
        }
        let (host, path) = match place.find('/') {
            Some(at) => (place.get(..at).unwrap_or_default(), place.get(at..)),
            None => (place, None),
        };
        let paths = path.map(|path| Ok(vec![pattern(path)?])).transpose()?;
        Ok(HttpRule { host: hosts::normal(host)?, methods, paths })
    }
}

/// `API_TOKEN@api.example.org[=bearer]`, as `--credential` takes it: the secret is the caller's variable of that name.
impl FromStr for Credential {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Credential, ValueError> {
        let Some((env, rest)) = text.split_once('@') else {
            let why = "write NAME@HOST or NAME@HOST=bearer|basic|header:NAME|query:NAME";
            return Err(ValueError::unusable("credential", text, why));
        };
        let (host, placed) = match rest.split_once('=') {
            Some((host, placed)) => (host, placed.parse()?),
            None => (rest, Placed::Bearer),
        };
        let env = variable(env)?;
        Ok(Credential { from: SecretFrom::Env(env.clone()), env, host: exact_host(host)?, placed })
    }
}

/// The flag that gives this rule.
impl std::fmt::Display for HttpRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let methods = self.methods.as_ref().map_or_else(|| "*".to_owned(), |methods| methods.join(","));
        let paths = self.paths.as_ref().map_or_else(String::new, |paths| paths.join(" "));
        write!(f, "{methods} {}{paths}", self.host)
    }
}

/// A method: a token (RFC 9110, section 9.1), which is case-sensitive.
pub fn method(text: &str) -> Result<String, ValueError> {
    let wrong = |why| Err(ValueError::unusable("method", text, why));
    if !is_token(text) || text.len() > 32 {
        return wrong("not a method such as GET");
    }
    if text == "CONNECT" {
        return wrong("it opens a tunnel, in which nothing can be checked");
    }
    match text.eq_ignore_ascii_case("get") || text.chars().all(|letter| letter.is_ascii_lowercase()) {
        true if text != text.to_ascii_uppercase() => wrong("methods are case-sensitive; write it in upper case"),
        _ => Ok(text.to_owned()),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// The longest pattern, and the most `*` in it: matching takes time for each.
const LONGEST: usize = 1000;
const MOST_STARS: usize = 16;

/// A pattern for paths, as a server sees them after decoding.
pub fn pattern(text: &str) -> Result<String, ValueError> {
    let wrong = |why| Err(ValueError::unusable("path", text, why));
    let Some(inner) = text.strip_prefix('/') else { return wrong("it starts with /") };
    if text.len() > LONGEST || text.bytes().filter(|byte| *byte == b'*').count() > MOST_STARS {
        return wrong("it is too long, or has too many *");
    }
    if text.contains(['?', '#']) {
        return wrong("queries are not matched; write the path only");
    }
    if text.contains(';') {
        return wrong(
            "it can match no request: some servers cut off what follows a ;, and a rule has to hold for them too",
        );
    }
    if text.contains(['\\', '%']) || text.chars().any(char::is_control) {
        return wrong("write it decoded, without % and backslashes");
    }
    let segments: Vec<&str> = inner.split('/').collect();
    if segments.iter().any(|segment| [".", ".."].contains(segment)) {
        return wrong("requests with . or .. segments are always refused");
    }
    if segments.iter().rev().skip(1).any(|segment| segment.is_empty()) {
        return wrong("it has an empty segment");
    }
    if segments.iter().any(|segment| segment.contains("**") && *segment != "**") {
        return wrong("** stands for whole segments, as in /v1/**");
    }
    Ok(text.to_owned())
}

/// The name of the command's variable.
fn variable(name: &str) -> Result<String, ValueError> {
    values::set_variable(name)
}

/// The host of a credential: a wildcard would send the secret to hosts that are not known yet.
pub fn exact_host(text: &str) -> Result<String, ValueError> {
    let host = hosts::normal(text)?;
    match host.starts_with("*.") {
        true => Err(ValueError::unusable("host", text, "a secret goes to one host; name it without a wildcard")),
        false => Ok(host),
    }
}

type Read<T> = Result<T, PolicyError>;

/// Reads one `[[network.http]]`.
pub(super) fn read_rule(table: Field<'_>) -> Read<HttpRule> {
    let whole = table.again();
    let (mut host, mut methods, mut paths) = (None, None, None);
    for field in schema::entries(table, RULE)? {
        match field.name.as_str() {
            "host" => host = Some(field.parsed("a host", hosts::normal)?),
            "methods" => methods = Some(field.each("a list of methods", method)?),
            "paths" => paths = Some(field.each("a list of paths", pattern)?),
            _ => return Err(field.unknown(RULE, None)),
        }
    }
    Ok(HttpRule { host: host.ok_or_else(|| whole.needs("host"))?, methods, paths })
}

/// Reads one `[[network.credential]]`.
pub(super) fn read_credential(table: Field<'_>) -> Read<Credential> {
    let whole = table.again();
    let (mut env, mut from, mut host, mut placed) = (None, None, None, Placed::Bearer);
    for field in schema::entries(table, CREDENTIAL)? {
        match field.name.as_str() {
            "env" => env = Some(field.parsed("the name of a variable", variable)?),
            "from" => from = Some(field.parsed("env:NAME, file:PATH or systemd:NAME", str::parse)?),
            "host" => host = Some(field.parsed("a host", exact_host)?),
            "as" => placed = field.parsed("bearer, basic, header:NAME or query:NAME", str::parse)?,
            _ => return Err(field.unknown(CREDENTIAL, None)),
        }
    }
    let env = env.ok_or_else(|| whole.needs("env"))?;
    let from = from.unwrap_or_else(|| SecretFrom::Env(env.clone()));
    Ok(Credential { from, env, host: host.ok_or_else(|| whole.needs("host"))?, placed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_written_back() {
        let rule: HttpRule = "GET,HEAD API.example.org/v1/**".parse().expect("sound");
        assert_eq!(rule.to_string(), "GET,HEAD api.example.org/v1/**");
        for text in ["* a.org/x", "PUT *.a.org:8443/x/*.json", "* [::1]:80/"] {
            let rule: HttpRule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
        assert_eq!("a.org".parse::<HttpRule>().expect("sound").paths, None);
        for (text, placed) in [
            ("T@a.org", Placed::Bearer),
            ("T@a.org=basic", Placed::Basic),
            ("T@a.org:8443=header:X-Api-Key", Placed::Header("x-api-key".to_owned())),
            ("T@a.org=query:key", Placed::Query("key".to_owned())),
        ] {
            assert_eq!(text.parse::<Credential>().expect(text).placed, placed);
        }
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        for text in [
            "",
            "GET",
            "get a.org/x",
            "GET a.org/../x",
            "GET a.org/a//b",
            "GET a.org/%41",
            "GET a.org/x?y",
            "GET https://a.org/x",
            "GET,CONNECT a.org/x",
            "GET a.org/a**",
            "GET a.org /x",
            "GET a b/x",
        ] {
            // "GET" alone is a host name, and a sound one.
            assert_eq!(text.parse::<HttpRule>().is_err(), text != "GET", "{text}");
        }
        for text in
            ["T", "@a.org", "T@*.a.org", "T@a.org=cookie", "T@a.org=header:Host", "T@a.org=header:a b", "1 T@a.org"]
        {
            text.parse::<Credential>().expect_err(text);
        }
        for text in ["env:", "file:", "systemd:../x", "literal", "pass:x"] {
            text.parse::<SecretFrom>().expect_err(text);
        }
    }
}
