//! Credentials: files that let their reader act as their owner. The tables are data; this file finds what exists.

mod elsewhere;
mod home;

pub(crate) use elsewhere::SYSTEM_CREDENTIALS;
pub use home::CREDENTIALS;

use super::{KERNEL, SYSTEM, Tree};
use elsewhere::{MOVED, NAMED, RUNTIME};
use home::FIRST_STORE;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Directories that may hold many credentials. Each is listed once instead of probing every name in it.
const LISTED: &[&str] = &["", ".config", ".local/share", ".cache", ".var/app"];

/// A credential that exists.
pub struct Credential {
    pub path: PathBuf,
    /// Whether it is the store of a program, which may be large.
    pub store: bool,
}

/// The credentials that exist in a home directory, by their real paths.
pub fn at_home(home: &Path, tree: &dyn Tree) -> Vec<Credential> {
    let mut listed: HashMap<&str, Option<HashSet<OsString>>> = HashMap::new();
    let mut holds = |directory: &'static str, name: &str| {
        let names =
            listed.entry(directory).or_insert_with(|| Some(tree.names(&home.join(directory))?.into_iter().collect()));
        // A home can be searchable but not listable (mode 0711); then probe every name. There are hundreds.
        names.as_ref().is_none_or(|names| names.contains(OsStr::new(name)))
    };
    let mut found = Vec::new();
    let mut store = false;
    for entry in CREDENTIALS {
        store |= *entry == FIRST_STORE;
        let top = entry.split('/').next().unwrap_or(entry);
        let (directory, name) = entry.rsplit_once('/').unwrap_or(("", entry));
        let there = holds("", top)
            && match LISTED.iter().find(|listed| **listed == directory) {
                Some(listed) if !listed.is_empty() => holds(listed, name),
                _ => true,
            };
        if there {
            let path = home.join(entry);
            let real = tree.resolve(&path).or_else(|| tree.shut(&path));
            found.extend(real.map(|path| Credential { path, store }));
        }
    }
    found
}

/// The real paths of credentials that the caller's variables name, relative to `cwd` or to the caller's own directory. Skips
/// devices, the kernel's files, what a relative path means in the system's directories, and what holds the working directory.
pub fn in_environment(
    variable: &dyn Fn(&str) -> Option<OsString>,
    cwd: &Path,
    uid: u32,
    tree: &dyn Tree,
) -> Vec<PathBuf> {
    let (mut named, mut relative): (Vec<PathBuf>, Vec<PathBuf>) = Default::default();
    let from = variable("PWD").map(PathBuf::from).filter(|from| from.is_absolute() && from != cwd);
    for (name, below) in NAMED {
        let Some(value) = variable(name) else { continue };
        // KUBECONFIG is a colon list; KRB5CCNAME has its type before a colon, as in FILE:/tmp/krb5cc_0.
        for path in std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()) {
            let path = if below.is_empty() { path } else { path.join(below) };
            match path.is_absolute() {
                true => named.push(path),
                false => relative.extend(from.iter().map(PathBuf::as_path).chain([cwd]).map(|base| base.join(&path))),
            }
        }
    }
    for (name, part) in MOVED {
        let Some(top) = variable(name).map(PathBuf::from).filter(|top| top.is_absolute()) else { continue };
        let names: Option<HashSet<OsString>> = tree.names(&top).map(|names| names.into_iter().collect());
        let moved = CREDENTIALS.iter().filter_map(|entry| entry.strip_prefix(part));
        let there = |rest: &&str| {
            let first = rest.split('/').next().map(OsStr::new);
            names.as_ref().is_none_or(|names| first.is_some_and(|first| names.contains(first)))
        };
        named.extend(moved.filter(there).map(|rest| top.join(rest)));
    }
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|top| top.is_absolute());
    let runtime = runtime.unwrap_or_else(|| PathBuf::from(format!("/run/user/{uid}")));
    // An earlier command may have taken its own right to enter a directory, and this one would restore it.
    let real = |path: &PathBuf| tree.resolve(path).or_else(|| tree.shut(path));
    if real(&runtime).is_some() {
        named.extend(RUNTIME.iter().map(|name| runtime.join(name)));
    }
    named.extend(by_partial_name(tree));
    let is_systems = |path: &PathBuf| SYSTEM.iter().any(|top| path.starts_with(top));
    let relative = relative.iter().filter_map(real).filter(|path| !is_systems(path));
    let all = named.iter().filter_map(real).chain(relative);
    let cwd = tree.resolve(cwd);
    let usable = |path: &PathBuf| {
        let kernels = KERNEL.iter().any(|top| path.starts_with(top));
        !kernels
            && !cwd.as_ref().is_some_and(|cwd| cwd.starts_with(path))
            && path.components().count() > 2
            && !tree.is_closed(path)
    };
    all.filter(usable).collect()
}

/// Credentials of which only a part of the name is known.
fn by_partial_name(tree: &dyn Tree) -> Vec<PathBuf> {
    let among = |directory: &'static str, wanted: fn(&str) -> bool| {
        let names = tree.names(Path::new(directory)).into_iter().flatten();
        names.filter(move |name| wanted(&name.to_string_lossy())).map(move |name| Path::new(directory).join(name))
    };
    let mut found: Vec<PathBuf> =
        among("/etc/ssh", |name| name.starts_with("ssh_host_") && name.ends_with("_key")).collect();
    // /tmp may hold thousands of files, so list it only on a host with Kerberos.
    if tree.resolve(Path::new("/etc/krb5.conf")).is_some() {
        found.extend(among("/tmp", |name| name.starts_with("krb5cc")));
    }
    found
}
