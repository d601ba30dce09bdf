//! What bubblewrap is to mount and to unshare: a value, and from it the list of arguments. Nothing is started here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Read-only wherever it is there; a link is made as a link, so that /bin stays what it is on a merged /usr.
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

/// The few files of /etc by which programs find users, libraries, certificates and the time. No secrets are among them.
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

/// By which root of this machine changes the machine, whatever namespaces it is in.
const KERNEL_SETTINGS: [&str; 7] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"];

/// Relative to the home directory: what a shell runs, and what lets whoever reads it be somebody.
const BLOCKED_AT_HOME: [&str; 4] = [".bashrc", ".bash_profile", ".ssh", ".gnupg"];
const BLOCKED_AT_WORK: [&str; 1] = [".git/hooks"];

/// How one command is isolated.
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
    /// A network namespace with nothing but its own loopback.
    pub isolate_network: bool,
    pub isolate_pids: bool,
    /// A session of its own: no terminal to write into. Not where job control is to go on.
    pub new_session: bool,
    pub working_dir: PathBuf,
    /// Made empty, unless it is among the paths that are mounted.
    pub home: Option<PathBuf>,
    /// Mounted read-write, those that are there.
    pub rw_paths: Vec<PathBuf>,
    /// Mounted read-only, those that are there.
    pub ro_paths: Vec<PathBuf>,
    /// Inside of those: empty and read-only, whether they are there or not.
    pub blocked_paths: Vec<PathBuf>,
    /// Inside of those: as they are, but read-only.
    pub protected_paths: Vec<PathBuf>,
    /// Variables that `wrap_command` passes on.
    pub env_passthrough: Vec<String>,
    /// Mounted with the right to use them, those that are there.
    pub devices: Vec<PathBuf>,
    /// Files with these contents, in place of whatever has their names. `wrap_command` leaves them out.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The user and group to be in there, in a user namespace also for root.
    pub identity: Option<(u32, u32)>,
}

/// Nothing is mounted and nothing is shared, in an empty directory /.
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
    /// The working directory read-write, the system read-only, no network, the paths of shells and keys blocked.
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

    /// Everything behind the word `bwrap`, for a line of the shell.
    pub fn build_args(&self, command: &str) -> Vec<OsString> {
        self.program_args(&["sh".into(), "-c".into(), command.into()])
    }

    /// Everything behind the word `bwrap`, for a program and its arguments.
    pub fn program_args(&self, words: &[OsString]) -> Vec<OsString> {
        let mut args = self.options();
        args.push("--".into());
        args.extend_from_slice(words);
        args
    }

    /// The options alone.
    pub fn options(&self) -> Vec<OsString> {
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
        // Root keeps its own without this.
        args.0.extend(["--cap-drop".into(), "ALL".into()]);
        let network: &[&str] = if self.isolate_network { &[] } else { &["/etc/resolv.conf"] };
        for path in network.iter().map(Path::new).chain(self.ro_paths.iter().map(PathBuf::as_path)) {
            args.system(path, &self.rw_paths);
        }
        args.two("--dev", Path::new("/dev"));
        self.devices.iter().for_each(|device| args.three("--dev-bind-try", device, device));
        args.two("--proc", Path::new("/proc"));
        // For root of this machine its settings are writable in every namespace. bubblewrap looks whether the directories
        // are, which they never are, and leaves the files in them as they are.
        if rustix::process::geteuid().is_root() {
            let settings = KERNEL_SETTINGS.iter().map(Path::new).filter(|path| path.exists());
            settings.for_each(|path| args.three("--ro-bind", path, path));
        }
        args.two("--tmpfs", Path::new("/tmp"));
        // Empty, and there: many programs do not start without it.
        self.home.iter().for_each(|home| args.two("--dir", home));
        self.granted(&mut args);
        args.two("--chdir", &self.working_dir);
        args.0
    }

    /// Outer before inner, so that what lies inside is not covered by what is around it.
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
                Kind::Read => args.three("--ro-bind-try", path, path),
                Kind::Blocked if path.is_dir() || !path.exists() && is_directory_by_name(path) => {
                    args.two("--tmpfs", path);
                    closed.push(path);
                }
                Kind::Blocked => args.three("--ro-bind", Path::new("/dev/null"), path),
            }
        }
        // Last: what was granted by name inside of them is mounted by now.
        closed.into_iter().for_each(|path| args.two("--remount-ro", path));
    }

    /// Blocked paths inside of what is mounted; elsewhere there is nothing to block. What is not there is only blocked
    /// where it could be made.
    fn blocked(&self) -> Vec<&Path> {
        let wanted = |path: &&Path| match self.is_writable(path) {
            Some(writable) => {
                path.parent().is_some_and(Path::is_dir) && !path.is_symlink() && (writable || path.exists())
            }
            None => false,
        };
        self.blocked_paths.iter().map(PathBuf::as_path).filter(wanted).collect()
    }

    /// Directories between a writable tree's top and what is closed in it: a mount point cannot be renamed away, its
    /// parent could.
    fn pinned<'a>(&self, path: &'a Path) -> impl Iterator<Item = &'a Path> {
        let is_top = |above: &&Path| self.rw_paths.iter().any(|top| top == above);
        let writable = move |above: &&Path| self.is_writable(above) == Some(true) && !is_top(above);
        path.ancestors().skip(1).filter(writable)
    }

    /// Whether a path could be written by what is mounted around it; `None` where nothing is.
    fn is_writable(&self, path: &Path) -> Option<bool> {
        let writable = self.rw_paths.iter().map(|top| (top, true));
        let others = self.ro_paths.iter().chain(&self.protected_paths).map(|top| (top, false));
        let around = others.chain(writable).filter(|(top, _)| path.starts_with(top));
        around.max_by_key(|(top, _)| top.components().count()).map(|(_, writable)| writable)
    }

    /// What is there, and closed or read-only inside of what is writable, by a mount over it.
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

    /// Blocked paths that are not there: bubblewrap makes a mount point for each, which has to be removed afterwards.
    pub fn stubs(&self) -> Vec<PathBuf> {
        self.blocked().into_iter().filter(|path| !path.exists()).map(Path::to_owned).collect()
    }
}

/// What is blocked although it is not there is blocked as what it would be.
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

    /// A part of the system: as a link where it is one, unless it is granted for writing anyway.
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

/// Debian keeps the configuration of each Java in /etc, and Java does not start without it.
fn java() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("java"));
    named.map(|entry| entry.path()).collect()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
