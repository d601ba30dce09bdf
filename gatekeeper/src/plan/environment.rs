//! The command's environment: rebuilt from a list of what may pass, so that no secret passes by being forgotten.

use crate::policy::{Environment, NetworkMode, OnViolation, Policy};
use sandbox_contract::vars;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What passes unless the policy says otherwise: where things are, how to speak, how to draw. No keys, no sockets.
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

/// Only of use, and only passed, where there is a network.
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

/// The variables that pass, then those that the policy and the run set; the last of a name wins.
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
    // What the policy sets stands over ours: it may move TMPDIR, it cannot remove the marker.
    for (name, value) in ours.chain(given) {
        built.retain(|(known, _)| *known != name);
        built.push((name, value));
    }
    built
}

/// The variables by which libsandbox.so enforces the policy's own list from main on.
pub fn exact_list(policy: &Policy, library: &Path, others: Option<&OsString>) -> Vec<(&'static str, OsString)> {
    let mut preload = library.as_os_str().to_owned();
    // The caller's own preloads come after ours, and only where they were asked for.
    if let Some(others) = others.filter(|_| policy.env.pass.iter().any(|name| name == "LD_PRELOAD")) {
        preload.push(":");
        preload.push(others);
    }
    let action = match policy.on_violation {
        OnViolation::Errno => "errno",
        OnViolation::Kill => "kill",
        OnViolation::Log => "log",
    };
    let (name, list) = match policy.syscalls.allow.is_empty() {
        false => (vars::ALLOW, &policy.syscalls.allow),
        true => (vars::DENY, &policy.syscalls.deny),
    };
    vec![
        ("LD_PRELOAD", preload),
        (name, OsString::from(list.join(":"))),
        (vars::ACTION, OsString::from(action)),
        (vars::REQUIRED, OsString::from("1")),
    ]
}

/// The same where somebody supervises: the library loads a filter that denies nothing, by which the supervisor learns that
/// main is next. A denial of the library's own filter could not be recorded, because the kernel prefers its answer.
pub fn announcing(environment: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let list = |name: &OsString| [vars::ALLOW, vars::DENY, vars::ACTION].iter().any(|ours| name == ours);
    let others = environment.iter().filter(|(name, _)| !list(name)).cloned();
    others.chain([(OsString::from(vars::DENY), OsString::new())]).collect()
}

/// Package managers that try again whatever errno they get: npm waits 10 seconds and then 60, pip 8. Where an address is
/// refused, no try after the first can help; where hosts are listed, a few quick ones still may.
const WITHOUT_NETWORK: &[(&str, &str)] =
    &[("npm_config_fetch_retries", "0"), ("PIP_RETRIES", "0"), ("CARGO_NET_RETRY", "0")];
const WITH_HOSTS: &[(&str, &str)] = &[
    ("npm_config_fetch_retry_mintimeout", "100"),
    ("npm_config_fetch_retry_maxtimeout", "1000"),
    ("PIP_RETRIES", "2"),
    ("CARGO_NET_RETRY", "1"),
];

/// How often those try again under this network; what the policy passes on is the caller's to say.
pub fn retries(policy: &Environment, network: &NetworkMode) -> Vec<(&'static str, OsString)> {
    let known = match network {
        NetworkMode::None | NetworkMode::Loopback => WITHOUT_NETWORK,
        NetworkMode::Hosts(_) => WITH_HOSTS,
        NetworkMode::Full => &[],
    };
    let passed = |name: &str| policy.pass.iter().any(|passed| passed == name);
    known.iter().filter(|(name, _)| !passed(name)).map(|(name, value)| (*name, OsString::from(value))).collect()
}
