//! What a browser sees of the machine: lists of places, and looks at which of them are there.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Programs and libraries.
pub const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

/// Of /etc: names, certificates (Debian's and Red Hat's places), fonts, time, libraries, and the browser's own settings.
/// Neither users nor private keys: /etc/ssl and /etc/pki hold those as well, so their parts are named.
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

/// Where libraries look up what a graphics card is.
pub const GRAPHICS: [&str; 3] = ["/sys/dev/char", "/sys/devices", "/sys/bus/pci"];

/// The parts of /etc that are there.
pub fn etc() -> Vec<PathBuf> {
    ETC.iter().map(|name| Path::new("/etc").join(name)).filter(|path| path.exists()).collect()
}

pub fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).filter(|path| path.exists()).collect()
}

/// The program that a name stands for, as a path.
pub fn program(name: &OsStr, path: Option<&OsString>) -> Option<PathBuf> {
    let is_file = |file: &PathBuf| file.is_file();
    if name.as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(is_file);
    }
    std::env::split_paths(path?).map(|directory| directory.join(name)).find(is_file)
}

/// The directory of a browser that is no part of the system: everything beside the program belongs to it.
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
        let why = "its whole directory would be visible, and that is not a browser's own";
        return Err(format!("{}: {why}; put it into a directory of its own", real.display()));
    }
    Ok(Some(directory.to_owned()))
}

/// A path with everything of it followed that is there.
pub fn resolved(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (std::fs::canonicalize(above), path.strip_prefix(above)) {
            // A name that is not there yet cannot lead out again, unless it says so.
            let plain = rest.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            return if plain { real.join(rest) } else { PathBuf::new() };
        }
    }
    PathBuf::new()
}

/// Whether this is a directory that an automation library has made for one run: below the temporary directory, this
/// user's own, and empty or a browser's.
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

/// The browser's own users and groups: this user, and nobody else. Root has another name in there, as it has other ids.
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
