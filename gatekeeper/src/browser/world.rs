//! What a browser sees of the machine: lists of paths, and which of them exist.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Programs and libraries.
pub const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// Entries of /etc: name lookup, certificates (in Debian's and Red Hat's directories), fonts, time, libraries, and the
/// browser's own settings. No user names and no private keys: /etc/ssl and /etc/pki contain keys, so only parts are listed.
const ETC: [&str; 40] = [
    "hosts",
    "host.conf",
    "gai.conf",
    "nsswitch.conf",
    "services",
    "protocols",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "ca-certificates",
    "ca-certificates.conf",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/nssdb",
    "crypto-policies",
    "localtime",
    "timezone",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "static",
    "os-release",
    "mime.types",
    "mailcap",
    "locale.alias",
    "locale.conf",
    "drirc",
    "vulkan",
    "glvnd",
    "egl",
    "asound.conf",
    "gtk-3.0",
    "chromium",
    "chromium.d",
    "chromium-browser",
    "opt",
];

/// Where graphics libraries identify the graphics card.
pub const GRAPHICS: [&str; 3] = ["/sys/dev/char", "/sys/devices", "/sys/bus/pci"];

/// The listed entries of /etc that exist.
pub fn etc() -> Vec<PathBuf> {
    ETC.iter().map(|name| Path::new("/etc").join(name)).filter(|path| path.exists()).collect()
}

pub fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
}

/// Resolves a program name to a path, through PATH unless it contains a slash.
pub fn program(name: &OsStr, path: Option<&OsString>) -> Option<PathBuf> {
    let is_file = |file: &PathBuf| file.is_file();
    if name.as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(is_file);
    }
    std::env::split_paths(path?).map(|directory| directory.join(name)).find(is_file)
}

/// The directory of a browser that is installed outside the system directories; the files beside the program belong to it.
pub fn directory_of(program: &Path, home: Option<&Path>) -> Result<Option<PathBuf>, String> {
    let Ok(real) = std::fs::canonicalize(program) else { return Ok(None) };
    let system = |path: &Path| SYSTEM.iter().any(|top| path.starts_with(top));
    if system(&real) {
        return Ok(None);
    }
    let Some(directory) = real.parent() else { return Ok(None) };
    let home = home.and_then(|home| std::fs::canonicalize(home).ok());
    let holds_home = home.is_some_and(|home| home.starts_with(directory));
    if holds_home || directory == Path::new("/") || directory.parent() == Some(Path::new("/")) {
        let why = "the browser would see its whole directory, which holds more than the browser";
        return Err(format!("{}: {why}; install it in a separate directory", real.display()));
    }
    Ok(Some(directory.to_owned()))
}

/// A path with the links of its existing part resolved; empty if the rest contains `..`.
pub fn resolved(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (std::fs::canonicalize(above), path.strip_prefix(above)) {
            // Names that do not exist yet are not links; only `..` could lead out of the resolved part.
            let plain = rest.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            return if plain { real.join(rest) } else { PathBuf::new() };
        }
    }
    PathBuf::new()
}

/// Whether an automation library made this directory for one run: it is below a temporary directory, belongs to this
/// user, and is empty or a browser profile.
pub fn is_temporary_profile(real: &Path, tmp: Option<&OsString>) -> bool {
    let tops = tmp.map(PathBuf::from).into_iter().chain([PathBuf::from("/tmp"), PathBuf::from("/var/tmp")]);
    let below = tops.filter_map(|top| std::fs::canonicalize(top).ok()).any(|top| real != top && real.starts_with(&top));
    let own = std::fs::symlink_metadata(real)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw());
    let names = || std::fs::read_dir(real).into_iter().flatten().flatten().map(|entry| entry.file_name());
    const BROWSERS: [&str; 4] = ["Local State", "Default", "First Run", "DevToolsActivePort"];
    let browsers = names().next().is_none() || names().any(|name| BROWSERS.iter().any(|known| name == *known));
    below && own && browsers
}

/// /etc/passwd and /etc/group for the browser, with only its own user. Root gets another name, as it gets another uid.
pub fn users(uid: u32, gid: u32, home: &Path) -> [(PathBuf, Vec<u8>); 2] {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)? == uid.to_string()).then_some(name)
    };
    let root = rustix::process::geteuid().is_root();
    let name = known.lines().find_map(named).filter(|_| !root).unwrap_or_else(|| "browser".to_owned());
    let passwd = format!("{name}:x:{uid}:{gid}::{}:/usr/sbin/nologin\n", home.display());
    let group = format!("{name}:x:{gid}:\n");
    [("/etc/passwd".into(), passwd.into_bytes()), ("/etc/group".into(), group.into_bytes())]
}
