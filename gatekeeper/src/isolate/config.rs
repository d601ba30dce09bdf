//! What bubblewrap mounts and unshares, and the arguments that tell it so. Starts nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Mounted read-only if present. A symbolic link stays one, as /bin is on a merged /usr.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/run/current-system",
    "/etc/static",
    "/snap",
];

/// The entries of /etc with which programs look up users, libraries, certificates and the time zone. None holds secrets.
const ETC: [&str; 30] = [
    "passwd",
    "group",
    "nsswitch.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "hosts",
    "host.conf",
    "hostname",
    "services",
    "protocols",
    "localtime",
    "timezone",
    "locale.alias",
    "locale.conf",
    "default/locale",
    "os-release",
    "debian_version",
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "pki",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "mime.types",
    "magic",
    "terminfo",
    "gitconfig",
    "bash.bashrc",
];

/// Kernel interfaces that root can write in every namespace.
const KERNEL_SETTINGS: [&str; 7] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"];

/// Shell startup files and credentials, relative to $HOME.
const BLOCKED_AT_HOME: [&str; 4] = [".bashrc", ".bash_profile", ".ssh", ".gnupg"];
const BLOCKED_AT_WORK: [&str; 1] = [".git/hooks"];

/// How to isolate one command.
///
/// ```
/// use gatekeeper::isolate::SandboxConfig;
/// use std::path::{Path, PathBuf};
///
/// let config = SandboxConfig::for_working_dir(Path::new("/home/user/project"));
/// assert!(config.rw_paths.contains(&PathBuf::from("/home/user/project")));
/// assert!(config.ro_paths.contains(&PathBuf::from("/usr")));
/// assert!(config.build_args("echo hello").contains(&"--unshare-net".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Use a network namespace that contains only a loopback interface.
    pub isolate_network: bool,
    pub isolate_pids: bool,
    /// Start a new session, without a controlling terminal. Turn it off to keep job control.
    pub new_session: bool,
    pub working_dir: PathBuf,
    /// Created as an empty directory unless a mounted path provides it.
    pub home: Option<PathBuf>,
    /// Mounted read-write, if present.
    pub rw_paths: Vec<PathBuf>,
    /// Mounted read-only, if present.
    pub ro_paths: Vec<PathBuf>,
    /// Below the mounted paths: replaced by something empty and read-only, even if missing.
    pub blocked_paths: Vec<PathBuf>,
    /// Below the mounted paths: visible, but read-only.
    pub protected_paths: Vec<PathBuf>,
    /// Environment variables that `wrap_command` passes to the command.
    pub env_passthrough: Vec<String>,
    /// Devices to mount as usable, if present.
    pub devices: Vec<PathBuf>,
    /// Files to mount over these paths, with their contents. `wrap_command` ignores them.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// User and group ID inside. Setting it makes a user namespace for root too.
    pub identity: Option<(u32, u32)>,
}

/// Mounts nothing, unshares everything, and starts in an empty /.
///
/// ```
/// use gatekeeper::isolate::SandboxConfig;
/// let config = SandboxConfig { isolate_network: false, ..SandboxConfig::default() };
/// let args = config.build_args("echo hello");
/// assert!(args.contains(&"--unshare-pid".into()) && !args.contains(&"--unshare-net".into()));
/// ```
impl Default for SandboxConfig {
    fn default() -> SandboxConfig {
        SandboxConfig {
            isolate_network: true,
            isolate_pids: true,
            new_session: true,
            working_dir: PathBuf::from("/"),
            home: None,
            rw_paths: Vec::new(),
            ro_paths: Vec::new(),
            blocked_paths: Vec::new(),
            protected_paths: Vec::new(),
            env_passthrough: Vec::new(),
            devices: Vec::new(),
            files: Vec::new(),
            identity: None,
        }
    }
}

impl SandboxConfig {
    /// The working directory read-write, the system read-only, no network, and shell startup files and keys blocked.
    pub fn for_working_dir(working_dir: &Path) -> SandboxConfig {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
        let at_home: Vec<PathBuf> = home.iter().flat_map(|home| BLOCKED_AT_HOME.map(|name| home.join(name))).collect();
        let at_work = BLOCKED_AT_WORK.map(|name| working_dir.join(name));
        SandboxConfig {
            working_dir: working_dir.to_owned(),
            home,
            rw_paths: vec![working_dir.to_owned()],
            ro_paths: SYSTEM.iter().map(PathBuf::from).chain(etc).chain(java()).collect(),
            blocked_paths: at_home.into_iter().chain(at_work).chain([PathBuf::from("/etc/shadow")]).collect(),
            env_passthrough: ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "TZ"].map(str::to_owned).to_vec(),
            ..SandboxConfig::default()
        }
    }

    /// bubblewrap's arguments for a shell command line.
    pub fn build_args(&self, command: &str) -> Vec<OsString> {
        self.program_args(&["sh".into(), "-c".into(), command.into()])
    }

    /// bubblewrap's arguments for a program and its arguments.
    pub fn program_args(&self, words: &[OsString]) -> Vec<OsString> {
        let mut args = self.options();
        args.push("--".into());
        args.extend_from_slice(words);
        args
    }

    /// bubblewrap's options, without a command.
    pub fn options(&self) -> Vec<OsString> {
        self.clone().without_links().options_with(&[])
    }

    /// The same with real paths in the place of closed and protected ones that lead through symbolic links: bubblewrap fails to
    /// mount over an absolute link, and a confined command may have made one. What is not mounted is not visible either.
    pub(crate) fn without_links(mut self) -> SandboxConfig {
        // A closed path that is a link itself is not mounted at all.
        let above = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        self.blocked_paths = self.resolved(&self.blocked_paths, &above);
        self.protected_paths = self.resolved(&self.protected_paths, &|path| path.canonicalize().ok());
        self
    }

    fn resolved(&self, paths: &[PathBuf], real: &dyn Fn(&Path) -> Option<PathBuf>) -> Vec<PathBuf> {
        let is_mounted = |path: &Path| self.rw_paths.iter().chain(&self.ro_paths).any(|top| path.starts_with(top));
        let mut known = BTreeSet::new();
        let resolve = |path: &PathBuf| match real(path) {
            Some(real) if real == *path || is_mounted(&real) => Some(real),
            Some(_) => None,
            // Nothing is there, so nothing is mounted.
            None => Some(path.clone()),
        };
        paths.iter().filter_map(resolve).filter(|path| known.insert(path.clone())).collect()
    }

    /// The same. Instead of mounting these files of /etc, bubblewrap copies them from open descriptors to a file system in memory,
    /// which the caller makes read-only at the end. It reads the list of all mounts again after each mount, so some thirty of
    /// them take longer than everything else that it does.
    pub(crate) fn options_with(&self, copied: &[(PathBuf, OsString)]) -> Vec<OsString> {
        let mut args = Args(Vec::new());
        for option in ["--unshare-ipc", "--unshare-uts", "--die-with-parent"] {
            args.flag(option);
        }
        args.0.extend(self.isolate_pids.then(|| "--unshare-pid".into()));
        args.0.extend(self.isolate_network.then(|| "--unshare-net".into()));
        args.0.extend(self.new_session.then(|| "--new-session".into()));
        if let Some((uid, gid)) = self.identity {
            args.0.extend(["--unshare-user".into(), "--uid".into(), uid.to_string().into()]);
            args.0.extend(["--gid".into(), gid.to_string().into()]);
        }
        // Without this, root keeps its capabilities.
        args.0.extend(["--cap-drop".into(), "ALL".into()]);
        if !copied.is_empty() {
            args.two("--tmpfs", Path::new("/etc"));
        }
        let mut written = BTreeSet::new();
        let network: &[&str] = if self.isolate_network { &[] } else { &["/etc/resolv.conf"] };
        for path in network.iter().map(Path::new).chain(self.ro_paths.iter().map(PathBuf::as_path)) {
            match copied.iter().find(|(file, _)| file == path) {
                // A path can be listed twice, but a descriptor can be read once.
                Some((_, descriptor)) if written.insert(path) => args.three("--file", Path::new(descriptor), path),
                Some(_) => {}
                None => args.system(path, &self.rw_paths),
            }
        }
        args.two("--dev", Path::new("/dev"));
        self.devices.iter().for_each(|device| args.three("--dev-bind-try", device, device));
        args.two("--proc", Path::new("/proc"));
        // Root can write these in every namespace. bubblewrap protects only the entries that access(2) reports as writable;
        // these directories never are, but the files below them are.
        if rustix::process::geteuid().is_root() {
            let settings = KERNEL_SETTINGS.iter().map(Path::new).filter(|path| path.exists());
            settings.for_each(|path| args.three("--ro-bind", path, path));
        }
        args.two("--tmpfs", Path::new("/tmp"));
        // Many programs do not start without a home directory.
        self.home.iter().for_each(|home| args.two("--dir", home));
        self.granted(&mut args);
        args.two("--chdir", &self.working_dir);
        args.0
    }

    /// The paths below /etc that are mounted by themselves: not below another mount.
    pub(crate) fn system_files(&self) -> impl Iterator<Item = &PathBuf> {
        let mounted = |path: &Path| self.rw_paths.iter().chain(&self.ro_paths).any(|top| top == path);
        let alone = move |path: &&PathBuf| !self.rw_paths.contains(path) && !path.ancestors().skip(1).any(mounted);
        self.ro_paths.iter().filter(|path| path.starts_with("/etc")).filter(alone)
    }

    /// Mounts parents before children, so that a parent does not hide a child.
    fn granted(&self, args: &mut Args) {
        let mut all: Vec<(&Path, Kind)> = Vec::new();
        let system = |path: &Path| SYSTEM.iter().any(|known| Path::new(known) == path) || path.starts_with("/etc");
        all.extend(
            self.ro_paths.iter().map(PathBuf::as_path).filter(|path| !system(path)).map(|path| (path, Kind::Read)),
        );
        all.extend(self.rw_paths.iter().map(|path| (path.as_path(), Kind::Write)));
        all.extend(self.protected_paths.iter().map(|path| (path.as_path(), Kind::Read)));
        all.extend(self.blocked().into_iter().map(|path| (path, Kind::Blocked)));
        let inner: Vec<&Path> = all.iter().filter(|(_, kind)| *kind != Kind::Write).map(|(path, _)| *path).collect();
        all.extend(inner.into_iter().flat_map(|path| self.pinned(path)).map(|path| (path, Kind::Write)));
        all.sort_by_key(|(path, kind)| (path.components().count(), *kind));
        all.dedup_by(|one, other| one.0 == other.0 && one.1 == other.1);
        let mut closed = Vec::new();
        for (path, kind) in all {
            match kind {
                Kind::Write => args.three("--bind-try", path, path),
                Kind::Read => match self.link_to_make(path) {
                    Some(target) => args.three("--symlink", &target, path),
                    None => args.three("--ro-bind-try", path, path),
                },
                Kind::Blocked if path.is_dir() || !path.exists() && is_directory_by_name(path) => {
                    args.two("--tmpfs", path);
                    closed.push(path);
                }
                Kind::Blocked => args.three("--ro-bind", Path::new("/dev/null"), path),
            }
        }
        // Make them read-only last: mount points for grants below them had to be created first.
        closed.into_iter().for_each(|path| args.two("--remount-ro", path));
    }

    /// The target of a link in a directory that is emptied, if what it leads to is visible. A program may look for its files beside
    /// that, so the link has to stay one.
    fn link_to_make(&self, path: &Path) -> Option<PathBuf> {
        let target = std::fs::read_link(path).ok()?;
        let blocked = self.blocked();
        let emptied = blocked.iter().any(|top| path != *top && path.starts_with(top));
        let real = path.canonicalize().ok().filter(|_| emptied)?;
        let granted = self.rw_paths.iter().chain(&self.ro_paths).chain(&self.protected_paths).map(PathBuf::as_path);
        let tops = blocked.iter().map(|top| (*top, false)).chain(granted.map(|top| (top, true)));
        let around = tops.filter(|(top, _)| real.starts_with(top));
        around.max_by_key(|(top, _)| top.components().count()).is_some_and(|(_, shown)| shown).then_some(target)
    }

    /// The blocked paths below mounted ones; others are not visible anyway. A missing path needs blocking only where the
    /// command could create it.
    fn blocked(&self) -> Vec<&Path> {
        let wanted = |path: &&Path| match self.is_writable(path) {
            Some(writable) => {
                path.parent().is_some_and(Path::is_dir) && !path.is_symlink() && (writable || path.exists())
            }
            None => false,
        };
        self.blocked_paths.iter().map(PathBuf::as_path).filter(wanted).collect()
    }

    /// The directories between the top of a writable tree and a protected path in it. They become mount points as well: a
    /// mount point cannot be renamed, but its parent could be.
    fn pinned<'a>(&self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        let is_top = |above: &&Path| self.rw_paths.iter().any(|top| top == above);
        let writable = move |above: &&Path| self.is_writable(above) == Some(true) && !is_top(above);
        path.ancestors().skip(1).filter(writable)
    }

    /// Whether the mounts make a path writable; `None` if no mount covers it.
    fn is_writable(&self, path: &Path) -> Option<bool> {
        let writable = self.rw_paths.iter().map(|top| (top, true));
        let others = self.ro_paths.iter().chain(&self.protected_paths).map(|top| (top, false));
        let around = others.chain(writable).filter(|(top, _)| path.starts_with(top));
        around.max_by_key(|(top, _)| top.components().count()).map(|(_, writable)| writable)
    }

    /// The existing paths in writable trees that a mount keeps closed or read-only.
    pub(crate) fn held(&self) -> Vec<PathBuf> {
        let inside = |path: &&Path| {
            path.exists() && self.pinned(path).chain(path.parent()).any(|above| self.is_writable(above) == Some(true))
        };
        let closed = self.protected_paths.iter().map(PathBuf::as_path).chain(self.blocked()).filter(inside);
        let mut held: Vec<&Path> = closed.collect();
        let pinned: Vec<&Path> = held.iter().flat_map(|path| self.pinned(path)).collect();
        held.extend(pinned);
        held.sort();
        held.dedup();
        held.into_iter().map(Path::to_owned).collect()
    }

    /// Blocked paths that do not exist. bubblewrap creates a mount point for each, which must be removed afterwards.
    pub fn stubs(&self) -> Vec<PathBuf> {
        self.blocked().into_iter().filter(|path| !path.exists()).map(Path::to_owned).collect()
    }
}

/// Whether a missing path would be a directory, so that the block has the right type.
fn is_directory_by_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| [".ssh", ".gnupg", "hooks"].iter().any(|known| name == *known))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Write,
    Read,
    Blocked,
}

struct Args(Vec<OsString>);

impl Args {
    fn flag(&mut self, option: &str) {
        self.0.push(option.into());
    }

    fn two(&mut self, option: &str, path: &Path) {
        self.0.extend([option.into(), path.into()]);
    }

    fn three(&mut self, option: &str, from: &Path, to: &Path) {
        self.0.extend([option.into(), from.into(), to.into()]);
    }

    /// Mounts a system path read-only, or recreates it as a link, unless it is granted for writing.
    fn system(&mut self, path: &Path, writable: &[PathBuf]) {
        let known = SYSTEM.iter().any(|known| Path::new(known) == path) || path.starts_with("/etc");
        if !known || writable.iter().any(|top| path.starts_with(top)) {
            return;
        }
        match std::fs::read_link(path) {
            Ok(target) if path.parent() == Some(Path::new("/")) => self.three("--symlink", &target, path),
            _ => self.three("--ro-bind-try", path, path),
        }
    }
}

/// Debian keeps the configuration of each Java version in /etc, and Java does not start without it.
fn java() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("java"));
    named.map(|entry| entry.path()).collect()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
