//! The environment variables through which clients find the proxy.

use super::allow::Allowlist;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

/// The variables to set. They override the caller's.
///
/// ALL_PROXY names the HTTP side too: Python clients without a SOCKS library fail at start if it is a SOCKS URL. A
/// client that wants SOCKS5 can use the same port.
///
/// `store`: a Java keystore to trust instead of Java's own.
pub fn set(
    proxy: SocketAddr,
    allow: &Allowlist,
    java: Option<&OsString>,
    store: Option<&Path>,
) -> Vec<(&'static str, OsString)> {
    let address = OsString::from(format!("http://{proxy}"));
    // Servers on this machine are reached directly, unless the policy lists this machine as a host.
    let direct = if allow.lists_this_machine() { "" } else { "localhost,127.0.0.1,::1" };
    let mut set: Vec<(&'static str, OsString)> = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
        "FTP_PROXY",
        "ftp_proxy",
        "YARN_HTTP_PROXY",
        "YARN_HTTPS_PROXY",
        "CARGO_HTTP_PROXY",
    ]
    .into_iter()
    .map(|name| (name, address.clone()))
    .collect();
    set.push(("RSYNC_PROXY", OsString::from(proxy.to_string())));
    set.push(("NO_PROXY", OsString::from(direct)));
    set.push(("no_proxy", OsString::from(direct)));
    set.push(("NODE_USE_ENV_PROXY", OsString::from("1")));
    let (host, port) = (proxy.ip(), proxy.port());
    let mut options = java.cloned().unwrap_or_default();
    if !options.is_empty() {
        options.push(" ");
    }
    let hosts = if allow.lists_this_machine() { "" } else { "localhost|127.*|[::1]" };
    options.push(format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} \
         -Dhttp.nonProxyHosts={hosts}"
    ));
    if let Some(store) = store {
        options.push(" -Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStore=");
        options.push(store);
    }
    set.push(("JAVA_TOOL_OPTIONS", options));
    set
}

/// The variables through which clients find the certificates that they trust. Each is read by the clients named beside it.
pub fn trusting(bundle: &Path) -> Vec<(&'static str, OsString)> {
    [
        // OpenSSL and with it wget, Python and Ruby; Go; rustls-native-certs.
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        // Beside the certificates that Node carries; npm and yarn run in Node.
        "NODE_EXTRA_CA_CERTS",
        // A list of npm's own, if it has one, replaces Node's.
        "npm_config_cafile",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "DENO_CERT",
        "UV_NATIVE_TLS_CA_BUNDLE",
        "BUNDLE_SSL_CA_CERT",
        "COMPOSER_CAFILE",
        "HEX_CACERTS_PATH",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "NIX_SSL_CERT_FILE",
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    ]
    .into_iter()
    .map(|name| (name, bundle.as_os_str().to_owned()))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(hosts: &[&str], java: Option<&str>, name: &str) -> String {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let proxy = "127.0.0.1:4000".parse().expect("an address");
        let java = java.map(OsString::from);
        let set = set(proxy, &Allowlist::new(&hosts, &[]), java.as_ref(), None);
        let found = set.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        found.and_then(|value| value.into_string().ok()).unwrap_or_else(|| panic!("{name} is set"))
    }

    #[test]
    fn both_cases_name_the_proxy() {
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(value(&["a.org"], None, name), "http://127.0.0.1:4000");
        }
        assert_eq!(value(&["a.org"], None, "NODE_USE_ENV_PROXY"), "1");
    }

    #[test]
    fn this_machine_goes_through_the_proxy_only_where_it_is_listed() {
        assert_eq!(value(&["a.org"], None, "NO_PROXY"), "localhost,127.0.0.1,::1");
        for listed in ["localhost:80", "127.0.0.1", "[::1]:80"] {
            assert_eq!(value(&[listed], None, "no_proxy"), "", "{listed}");
        }
    }

    #[test]
    fn java_keeps_what_the_caller_passed() {
        assert!(
            value(&["a.org"], Some("-Xmx1g"), "JAVA_TOOL_OPTIONS").starts_with("-Xmx1g -Dhttp.proxyHost=127.0.0.1 ")
        );
    }
}
