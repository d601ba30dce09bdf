//! The command's environment, built from a list of harmless variables. A secret in the caller's environment is dropped
//! unless the policy passes it.

use crate::policy::{Environment, NetworkMode, Policy, Profile, Word};
use sandbox_contract::vars;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Variables that always pass: search paths, locale, terminal, tool settings. None holds a key or names a socket.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TERMINFO",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "LANG",
    "LANGUAGE",
    "TZ",
    "COLUMNS",
    "LINES",
    "PWD",
    "CI",
    "EDITOR",
    "PAGER",
    "DEBIAN_FRONTEND",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "JAVA_HOME",
    "GOPATH",
    "GOROOT",
    "GOFLAGS",
    "GOTOOLCHAIN",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUST_BACKTRACE",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "VIRTUAL_ENV",
    "NVM_DIR",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_TERMINAL_PROMPT",
    "SOURCE_DATE_EPOCH",
    "MAKEFLAGS",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
];

/// Passed only with a full network.
const PROXIES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// The variables that pass, then those that the run and the policy set. The last value of a name wins.
pub fn build(
    caller: &[(OsString, OsString)],
    policy: &Environment,
    network: bool,
    set: Vec<(&str, OsString)>,
) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsString| {
        let bytes = name.as_bytes();
        PASSED.iter().any(|known| known.as_bytes() == bytes)
            || bytes.starts_with(b"LC_")
            || network && PROXIES.iter().any(|known| known.as_bytes() == bytes)
            || policy.pass.iter().any(|known| known.as_bytes() == bytes)
    };
    let mut built: Vec<(OsString, OsString)> = caller.iter().filter(|(name, _)| passes(name)).cloned().collect();
    let given = policy.set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let ours = set.into_iter().map(|(name, value)| (OsString::from(name), value));
    // The policy may override our variables such as TMPDIR. It cannot set GATEKEEPER_*, which `values` reserves.
    for (name, value) in ours.chain(given) {
        built.retain(|(known, _)| *known != name);
        built.push((name, value));
    }
    built
}

/// The variables that make libsandbox.so enforce the policy's list from main on.
pub fn exact_list(policy: &Policy, library: &Path, others: Option<&OsString>) -> Vec<(&'static str, OsString)> {
    let mut preload = library.as_os_str().to_owned();
    // The caller's preloads follow ours, and only if the policy passes LD_PRELOAD.
    if let Some(others) = others.filter(|_| policy.env.pass.iter().any(|name| name == "LD_PRELOAD")) {
        preload.push(":");
        preload.push(others);
    }
    let (name, list) = match policy.syscalls.allow.is_empty() {
        false => (vars::ALLOW, &policy.syscalls.allow),
        true => (vars::DENY, &policy.syscalls.deny),
    };
    vec![
        ("LD_PRELOAD", preload),
        (name, OsString::from(list.join(":"))),
        (vars::ACTION, OsString::from(policy.on_violation.word())),
        (vars::REQUIRED, OsString::from("1")),
    ]
}

/// The environment for a supervised run. The library then loads a filter that denies nothing, which tells the supervisor
/// that main is next. If its filter denied calls itself, the kernel would not notify the supervisor of them.
pub fn announcing(environment: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let list = |name: &OsString| [vars::ALLOW, vars::DENY, vars::ACTION].iter().any(|ours| name == ours);
    let others = environment.iter().filter(|(name, _)| !list(name)).cloned();
    others.chain([(OsString::from(vars::DENY), OsString::new())]).collect()
}

/// Turns LeakSanitizer off where ptrace is denied, by which it looks at its own process: a program without leaks would fail.
pub fn sanitizers(policy: &Policy) -> Option<(&'static str, OsString)> {
    let passed = policy.env.pass.iter().any(|name| name == LEAKS);
    (policy.profiles.contains(&Profile::Write) && !passed && !traces(policy)).then(|| (LEAKS, "detect_leaks=0".into()))
}

pub const LEAKS: &str = "LSAN_OPTIONS";

/// Whether the policy lets processes of the run trace each other.
fn traces(policy: &Policy) -> bool {
    let open = policy.profiles.contains(&Profile::Unrestricted);
    let group = |item: &str| {
        item.strip_prefix('@').and_then(|name| sandbox_contract::groups::names(name.as_bytes())).unwrap_or_default()
    };
    let mut items = policy.syscalls.allow.iter().flat_map(|text| text.split([':', ',']));
    open || items.any(|item| item == "ptrace" || group(item).contains(&"ptrace"))
}

/// Settings for package managers that retry on every errno: npm waits 10 and then 60 seconds, pip 8. Without a network a
/// retry always fails; with listed hosts a few quick retries may help.
const WITHOUT_NETWORK: &[(&str, &str)] =
    &[("npm_config_fetch_retries", "0"), ("PIP_RETRIES", "0"), ("CARGO_NET_RETRY", "0")];
const WITH_HOSTS: &[(&str, &str)] = &[
    ("npm_config_fetch_retry_mintimeout", "100"),
    ("npm_config_fetch_retry_maxtimeout", "1000"),
    ("PIP_RETRIES", "2"),
    ("CARGO_NET_RETRY", "1"),
];

/// The retry settings for a network mode, without the variables that the policy passes from the caller.
pub fn retries(policy: &Environment, network: &NetworkMode) -> Vec<(&'static str, OsString)> {
    let known = match network {
        NetworkMode::None | NetworkMode::Own | NetworkMode::Loopback => WITHOUT_NETWORK,
        NetworkMode::Hosts(_) => WITH_HOSTS,
        NetworkMode::Full => &[],
    };
    let passed = |name: &str| policy.pass.iter().any(|passed| passed == name);
    known.iter().filter(|(name, _)| !passed(name)).map(|(name, value)| (*name, OsString::from(value))).collect()
}
