//! Credentials: files that let their reader act as their owner. The tables are data; this file finds what exists.

mod elsewhere;
mod home;

pub(crate) use elsewhere::SYSTEM_CREDENTIALS;
pub use home::CREDENTIALS;

use super::memory::SHARED_MEMORY;
use super::{KERNEL, Places, SYSTEM, Tree};
use elsewhere::{MOVED, NAMED, RUNTIME, SESSIONS, TOPS};
use home::FIRST_STORE;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
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
        // Directly below `/`, the packages of snap are mounted.
        if home.parent().is_none() && entry.starts_with("snap/") {
            continue;
        }
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

/// The real paths of credentials that the caller's variables name, relative to the working directory or to the caller's own one.
/// Skips devices, the kernel's files, what a relative path means in the system's directories, and what holds the working
/// directory.
pub fn in_environment(
    variable: &dyn Fn(&str) -> Option<OsString>,
    places: &Places,
    uid: u32,
    tree: &dyn Tree,
) -> Vec<PathBuf> {
    let cwd = &places.cwd;
    let from = variable("PWD").map(PathBuf::from).filter(|from| from.is_absolute() && from != cwd);
    let mut named = Named { bases: from.iter().chain([cwd]).collect(), ..Named::default() };
    let homes = || places.homes_with_keys(tree).own;
    for (name, below) in NAMED {
        let Some(value) = variable(name) else { continue };
        for path in paths_in(name, &value) {
            named.add(&if below.is_empty() { path } else { path.join(below) }, &homes);
        }
    }
    for (name, part) in MOVED {
        let Some(top) = variable(name).map(PathBuf::from).filter(|top| !top.as_os_str().is_empty()) else { continue };
        // The XDG Base Directory Specification has relative paths ignored.
        if top.is_absolute() || !name.starts_with("XDG_") {
            let mut tops = Named { bases: named.bases.clone(), ..Named::default() };
            tops.add(&top, &homes);
            named.absolute.extend(tops.absolute.iter().flat_map(|top| moved(top, part, tree)));
            named.relative.extend(tops.relative.iter().flat_map(|top| moved(top, part, tree)));
        }
    }
    named.absolute.extend(of_sessions(variable("XDG_RUNTIME_DIR"), uid, tree));
    named.absolute.extend(by_partial_name(tree));
    let is_systems = |path: &PathBuf| SYSTEM.iter().any(|top| path.starts_with(top));
    // An earlier command may have taken its own right to enter a directory, and this one would restore it.
    let real = |path: &PathBuf| tree.resolve(path).or_else(|| tree.shut(path));
    let relative = named.relative.iter().filter_map(real).filter(|path| !is_systems(path));
    let all = named.absolute.iter().filter_map(real).chain(relative);
    let cwd = tree.resolve(cwd);
    let usable = |path: &PathBuf| {
        let kernels = KERNEL.iter().any(|top| path.starts_with(top)) && !path.starts_with(SHARED_MEMORY);
        let wide = path.parent().is_none() || TOPS.iter().any(|top| path == Path::new(top));
        !kernels && !cwd.as_ref().is_some_and(|cwd| cwd.starts_with(path)) && !wide && !tree.is_closed(path)
    };
    all.filter(usable).collect()
}

/// The paths that variables name.
#[derive(Default)]
struct Named<'a> {
    /// Where relative paths start.
    bases: Vec<&'a PathBuf>,
    absolute: Vec<PathBuf>,
    relative: Vec<PathBuf>,
}

impl Named<'_> {
    fn add(&mut self, path: &Path, homes: &dyn Fn() -> Vec<PathBuf>) {
        if path.is_absolute() {
            return self.absolute.push(path.to_owned());
        }
        // The shell leaves a quoted `~` as it is, and many programs replace it themselves.
        if let Ok(rest) = path.strip_prefix("~") {
            self.absolute.extend(homes().iter().map(|home| home.join(rest)));
        }
        self.relative.extend(self.bases.iter().map(|base| base.join(path)));
    }
}

/// The paths in the value of a variable.
fn paths_in(name: &str, value: &OsStr) -> Vec<PathBuf> {
    let bytes = value.as_bytes();
    let all = match name {
        "KUBECONFIG" => std::env::split_paths(value).collect(),
        // The type of a Kerberos cache or table may precede its path, as in FILE:/tmp/krb5cc_0 and DIR::/run/cc/tkt.
        _ if name.starts_with("KRB5") => {
            let typed = bytes.iter().position(|byte| *byte == b':').filter(|end| !bytes[..*end].contains(&b'/'));
            let path = typed.map_or(bytes, |end| &bytes[end + 1..]);
            vec![PathBuf::from(OsStr::from_bytes(path.strip_prefix(b":").unwrap_or(path)))]
        }
        _ => vec![PathBuf::from(value)],
    };
    all.into_iter().filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The credentials of a part of the home directory that was moved to `top`.
fn moved(top: &Path, part: &str, tree: &dyn Tree) -> Vec<PathBuf> {
    let names: Option<HashSet<OsString>> = tree.names(top).map(|names| names.into_iter().collect());
    let there = |rest: &&str| {
        let first = rest.split('/').next().map(OsStr::new);
        names.as_ref().is_none_or(|names| first.is_some_and(|first| names.contains(first)))
    };
    let all = CREDENTIALS.iter().filter_map(|entry| entry.strip_prefix(part));
    all.filter(there).map(|rest| top.join(rest)).collect()
}

/// The credentials of this user's sessions, in the directory that XDG_RUNTIME_DIR names and in the usual one; for root those of all
/// users.
fn of_sessions(runtime: Option<OsString>, uid: u32, tree: &dyn Tree) -> Vec<PathBuf> {
    let named = runtime.map(PathBuf::from).filter(|top| top.is_absolute());
    let mut tops: BTreeSet<PathBuf> = named.into_iter().chain([Path::new(SESSIONS).join(uid.to_string())]).collect();
    if uid == 0 {
        let all = tree.names(Path::new(SESSIONS)).into_iter().flatten();
        tops.extend(all.map(|user| Path::new(SESSIONS).join(user)));
    }
    let there = tops.into_iter().filter(|top| tree.resolve(top).or_else(|| tree.shut(top)).is_some());
    there.flat_map(|top| RUNTIME.map(|name| top.join(name))).collect()
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
