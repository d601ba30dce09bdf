//! Findings about paths, as they are now in the file system of the machine and for the user that runs lint.

use super::{Findings, Scene, codes};
use crate::plan;
use crate::plan::disk::Disk;
use crate::plan::paths::{CREDENTIALS, SYSTEM_CREDENTIALS};
use crate::policy::pattern::Denied;
use crate::policy::{Policy, Profile};
use crate::trust::{Hostile, Untrusted, walk};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directories that no confined program needs to write as a whole.
const SYSTEM: &[&str] =
    &["/", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/var", "/home", "/root", "/opt"];

/// Sockets of services that act outside the sandbox for any client.
const ESCAPES: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/snapd.socket",
    "/run/libvirt/libvirt-sock",
    "/var/lib/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
    "/tmp/.X11-unix",
];
/// The same below XDG_RUNTIME_DIR.
const SESSION_ESCAPES: &[&str] =
    &["bus", "docker.sock", "podman/podman.sock", "systemd/private", "gnupg/S.gpg-agent", "wayland-0", "keyring/ssh"];

pub fn look(policy: &Policy, scene: &Scene, findings: &mut Findings) {
    let writable = writable(policy, scene);
    let mut hostile = Hostile::working_directory(&scene.places.cwd);
    writable.iter().chain(&scene.places.also_written).for_each(|tree| hostile.add(tree));
    for (key, path) in named(policy) {
        if key == "paths.deny" && matches!(Denied::parse(path), Ok(Denied::Pattern(_))) {
            continue;
        }
        existence(key, &scene.places.absolute(path), &hostile, findings);
    }
    credentials(policy, scene, &writable, findings);
    for tree in &writable {
        let home = scene.places.home.as_deref().and_then(|home| home.canonicalize().ok());
        if SYSTEM.iter().any(|system| Path::new(system) == tree) || home.as_ref() == Some(tree) {
            findings.put(&codes::WRITE_BROAD, shown(tree), "all of it is writable");
        }
    }
    for tree in policy.paths.execute.iter().flatten().filter_map(|path| real(scene, path)) {
        if let Some(written) = writable.iter().find(|top| tree.starts_with(top) || top.starts_with(&tree)) {
            let reason = format!("{} may be executed, and {} may be written", tree.display(), written.display());
            findings.put(&codes::WRITE_EXEC_PATH, shown(&tree), reason);
        }
    }
    search_path(policy, scene, &writable, findings);
    sources(policy, &writable, findings);
    sockets(policy, scene, &writable, findings);
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn real(scene: &Scene, path: &Path) -> Option<PathBuf> {
    scene.places.absolute(path).canonicalize().ok()
}

/// Every path that the policy names, with its key.
fn named(policy: &Policy) -> Vec<(&'static str, &PathBuf)> {
    let paths = &policy.paths;
    let lists = [
        ("paths.read", paths.read.as_deref().unwrap_or_default()),
        ("paths.also_read", &paths.also_read),
        ("paths.write", &paths.write),
        ("paths.execute", paths.execute.as_deref().unwrap_or_default()),
        ("paths.deny", &paths.deny),
        ("network.unix", &policy.network.unix),
        ("bubblewrap.read", &policy.bubblewrap.extra_read),
        ("bubblewrap.write", &policy.bubblewrap.extra_write),
    ];
    lists.into_iter().flat_map(|(key, list)| list.iter().map(move |path| (key, path))).collect()
}

/// The real paths of the trees that the command may write, without its private TMPDIR.
fn writable(policy: &Policy, scene: &Scene) -> Vec<PathBuf> {
    let listed = policy.paths.write.iter().chain(&policy.bubblewrap.extra_write);
    let mut trees: Vec<PathBuf> = listed.filter_map(|path| real(scene, path)).collect();
    if policy.profiles.contains(&Profile::Write) {
        trees.extend(scene.places.cwd.canonicalize());
    }
    trees
}

/// Finds paths that do not exist, and those that a link leads out of their directory.
fn existence(key: &str, path: &Path, hostile: &Hostile, findings: &mut Findings) {
    let Ok(target) = path.canonicalize() else {
        return findings.put(&codes::PATH_MISSING, shown(path), format!("{key} lists it, but it does not exist"));
    };
    let links = path.ancestors().filter(|at| fs::symlink_metadata(at).is_ok_and(|kind| kind.is_symlink()));
    for link in links {
        let parent = link.parent().and_then(|parent| parent.canonicalize().ok());
        let leads = link.canonicalize().unwrap_or_default();
        if parent.is_some_and(|parent| !leads.starts_with(parent)) {
            let reason = match walk(path, hostile) {
                Err(Untrusted::Link { link, .. }) => format!(
                    "{key} lists it, and gatekeeper refuses to run: {} is a symbolic link in a tree that commands may write",
                    link.display()
                ),
                _ => format!("{key} lists it, and the link {} leads to {}", link.display(), target.display()),
            };
            return findings.put(&codes::PATH_SYMLINK_OUT, shown(path), reason);
        }
    }
}

fn credentials(policy: &Policy, scene: &Scene, writable: &[PathBuf], findings: &mut Findings) {
    let at_home = scene.places.home.iter().flat_map(|home| CREDENTIALS.iter().map(move |name| home.join(name)));
    let known = at_home.chain(SYSTEM_CREDENTIALS.iter().map(PathBuf::from));
    let known: BTreeSet<PathBuf> = known.filter_map(|path| path.canonicalize().ok()).collect();
    // Those that a run closes: also by their names in the working directory, and by links in the others.
    let closed: BTreeSet<PathBuf> = plan::paths::credentials(&scene.places, &Disk).union(&known).cloned().collect();
    let denied: Vec<PathBuf> = policy.paths.deny.iter().filter_map(|path| real(scene, path)).collect();
    let granted = policy.paths.read.iter().flatten().chain(&policy.paths.also_read);
    let granted = granted.chain(policy.paths.execute.iter().flatten()).filter_map(|path| real(scene, path));
    let trees = granted.map(|tree| (tree, false)).chain(writable.iter().map(|tree| (tree.clone(), true)));
    for (tree, writes) in trees {
        for secret in closed.iter().filter(|secret| !denied.iter().any(|denied| secret.starts_with(denied))) {
            if tree.starts_with(secret) {
                findings.put(&codes::PATH_CREDENTIAL, shown(&tree), "it is granted, and it is a credential");
            } else if writes && known.contains(secret) && secret.starts_with(&tree) {
                let reason = format!("it is writable, and it contains {}", secret.display());
                findings.put(&codes::PATH_CREDENTIAL, shown(&tree), reason);
            }
        }
    }
}

fn search_path(policy: &Policy, scene: &Scene, writable: &[PathBuf], findings: &mut Findings) {
    let set = policy.env.set.get("PATH").map(std::ffi::OsString::from);
    for path in [scene.path.clone(), set].into_iter().flatten() {
        for directory in std::env::split_paths(&path) {
            // An empty or relative entry depends on the working directory of the shell.
            if !directory.is_absolute() && !writable.is_empty() {
                let reason = "PATH contains a relative directory, which is in a writable tree if the shell is";
                findings.put(&codes::WRITABLE_ON_PATH, shown(&directory), reason);
                continue;
            }
            let Ok(directory) = directory.canonicalize() else { continue };
            if let Some(tree) = writable.iter().find(|tree| directory.starts_with(tree)) {
                let reason = format!("it is in PATH and in the writable tree {}", tree.display());
                findings.put(&codes::WRITABLE_ON_PATH, shown(&directory), reason);
            }
        }
    }
}

fn sources(policy: &Policy, writable: &[PathBuf], findings: &mut Findings) {
    const GROUP_OR_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    for source in policy.sources.iter().chain(&policy.libsandbox) {
        let put = |findings: &mut Findings, reason: String| {
            findings.put(&codes::WRITABLE_POLICY, shown(source), reason);
        };
        if let Some(tree) = writable.iter().find(|tree| source.starts_with(tree)) {
            put(findings, format!("it is in the writable tree {}", tree.display()));
        }
        if fs::metadata(source).is_ok_and(|file| file.mode() & GROUP_OR_OTHERS != 0) {
            put(findings, "its group or all users may write to it".to_owned());
        }
        // A user who may write to a directory can replace the files in it, unless the directory is sticky.
        let loose = |directory: &Path| {
            let Ok(directory) = fs::metadata(directory) else { return false };
            directory.mode() & GROUP_OR_OTHERS != 0 && directory.mode() & STICKY == 0
        };
        if let Some(directory) = source.ancestors().skip(1).find(|directory| loose(directory)) {
            put(findings, format!("other users may replace it, because they may write to {}", directory.display()));
        }
    }
}

fn sockets(policy: &Policy, scene: &Scene, writable: &[PathBuf], findings: &mut Findings) {
    let known = escapes(scene);
    let listed: Vec<PathBuf> = policy.network.unix.iter().map(|path| scene.places.absolute(path)).collect();
    for path in &listed {
        let target = path.canonicalize().unwrap_or_else(|_| path.clone());
        let same = |escape: &&PathBuf| {
            let real = escape.canonicalize().unwrap_or_else(|_| (*escape).clone());
            real.starts_with(&target) || target.starts_with(&real) || escape.starts_with(path)
        };
        if let Some(escape) = known.iter().find(same) {
            let reason = format!(
                "network.unix grants {}, whose service acts outside the sandbox for any client",
                escape.display()
            );
            findings.put(&codes::ESCAPE_SOCKET, shown(path), reason);
        }
    }
    for socket in escape_sockets(scene) {
        if let Some(tree) = writable.iter().find(|tree| socket.starts_with(tree)) {
            let reason = format!("it is in the writable tree {}", tree.display());
            findings.put(&codes::ESCAPE_SOCKET, shown(&socket), reason);
        }
    }
}

fn escapes(scene: &Scene) -> Vec<PathBuf> {
    let session = scene.runtime.iter().flat_map(|runtime| SESSION_ESCAPES.iter().map(move |name| runtime.join(name)));
    let agents = scene.places.home.iter().map(|home| home.join(".gnupg/S.gpg-agent"));
    ESCAPES.iter().map(PathBuf::from).chain(session).chain(agents).chain(scene.ssh_agent.clone()).collect()
}

/// Those that exist, by their real paths.
pub fn escape_sockets(scene: &Scene) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in escapes(scene).iter().filter_map(|path| path.canonicalize().ok()) {
        let is_one = fs::metadata(&path).is_ok_and(|kind| kind.file_type().is_socket() || kind.is_dir());
        if is_one && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}
