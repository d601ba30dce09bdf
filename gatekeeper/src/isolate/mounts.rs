//! From a plan to the mounts of its isolation.

use super::config::SandboxConfig;
use crate::browser::world;
use crate::enforce;
use crate::plan::Plan;
use crate::policy::NetworkMode;
use crate::request::Browser;
use crate::sys::keeper::Watched;
use std::io;
use std::path::{Path, PathBuf};

/// The mounts of a run. Everything that the plan grants is there, and of the rest nothing.
pub fn of(plan: &Plan) -> SandboxConfig {
    match &plan.browser {
        Some(browser) => of_browser(plan, browser),
        None => of_command(plan),
    }
}

/// A browser sees of the system what its lists name, and is alone among its users. Root is somebody else in there:
/// browsers refuse to be sandboxed as root.
fn of_browser(plan: &Plan, browser: &Browser) -> SandboxConfig {
    let real = |path: &PathBuf| plan.real(path);
    let made_anew = |path: &PathBuf| {
        plan.places.tmp.as_ref() == Some(path) || ["/dev", "/proc"].iter().any(|top| path.starts_with(top))
    };
    let policy = &plan.policy;
    let mut config = SandboxConfig::for_working_dir(&plan.places.cwd);
    config.home = None;
    config.new_session = false;
    config.isolate_network = has_own_network(plan);
    config.blocked_paths = Vec::new();
    config.rw_paths = plan.writable().into_iter().filter(|path| !made_anew(path)).collect();
    config.rw_paths.extend(policy.network.unix.iter().filter_map(real));
    config.ro_paths = world::SYSTEM.iter().map(PathBuf::from).chain(browser.etc.iter().cloned()).collect();
    let read = policy.paths.read.iter().flatten().filter_map(real);
    config.ro_paths.extend(read.filter(|path| !path.starts_with("/etc") && !made_anew(path)));
    config.protected_paths = plan.protected();
    config.devices = browser.devices.clone();
    let user = plan.user;
    let (uid, gid) = if user.uid == 0 { (BROWSER_ID, BROWSER_ID) } else { (user.uid, user.gid) };
    config.identity = Some((uid, gid));
    let home = browser.profile.clone().unwrap_or_else(|| PathBuf::from("/tmp"));
    config.files = world::users(uid, gid, &home).to_vec();
    config
}

/// Whom root becomes in there.
const BROWSER_ID: u32 = 1000;

fn of_command(plan: &Plan) -> SandboxConfig {
    let mut config = SandboxConfig::for_working_dir(&plan.places.cwd);
    config.home = plan.places.home.clone();
    // The guardian gave the command a session of its own, or it is to share the caller's.
    config.new_session = false;
    config.isolate_network = has_own_network(plan);
    let policy = &plan.policy;
    let real = |path: &PathBuf| plan.real(path);
    // What bubblewrap makes anew is not taken from the host.
    let made_anew = |path: &PathBuf| {
        plan.places.tmp.as_ref() == Some(path) || path.starts_with("/dev") || path.starts_with("/proc")
    };
    config.rw_paths = plan.writable().into_iter().filter(|path| !made_anew(path)).collect();
    config.rw_paths.extend(policy.bubblewrap.extra_write.iter().filter_map(real));
    config.rw_paths.extend(policy.network.unix.iter().filter_map(real));
    let read = policy.paths.read.iter().flatten().chain(&policy.paths.also_read).chain(&policy.bubblewrap.extra_read);
    let executed = policy.paths.execute.iter().flatten();
    config.ro_paths.extend(read.chain(executed).filter_map(real).filter(|path| path != Path::new("/")));
    config.ro_paths.push(plan.places.cwd.clone());
    config.ro_paths.extend(policy.libsandbox.clone());
    // The command itself, wherever it is.
    config.ro_paths.extend(plan.verdict.chain.iter().map(|link| link.path.clone()));
    config.ro_paths.push(plan.target.path.clone());
    let rw = config.rw_paths.clone();
    config.ro_paths.retain(|path| !rw.contains(path));

    let named: Vec<PathBuf> = policy.paths.also_read.iter().chain(&policy.paths.write).filter_map(real).collect();
    if let Some(landlock) = &plan.landlock {
        config.protected_paths = landlock.paths.protected.clone();
        config.blocked_paths.extend(landlock.paths.hidden.iter().chain(&landlock.paths.covered).cloned());
    }
    let protected = config.protected_paths.clone();
    config.blocked_paths.retain(|path| {
        // Hooks that are there are read-only and go on working; asked for by name is asked for.
        let kept = path.ends_with(".git/hooks") && path.exists() || protected.contains(path);
        !kept && !named.contains(path)
    });
    config.blocked_paths.sort();
    config.blocked_paths.dedup();
    let hooks = plan.places.cwd.join(".git/hooks");
    if hooks.exists() && !config.protected_paths.contains(&hooks) && !named.contains(&hooks) {
        config.protected_paths.push(hooks);
    }
    config
}

/// A loopback of its own is all that a command without a network, or with a proxy, needs. The loopback of this machine
/// and the full network are outside.
pub fn has_own_network(plan: &Plan) -> bool {
    // A port by which a browser is driven is looked for on this machine's loopback.
    let driven_by_port = plan.browser.as_ref().is_some_and(|browser| browser.port);
    matches!(plan.network, NetworkMode::None | NetworkMode::Hosts(_)) && !driven_by_port
}

/// What is to be watched: bubblewrap mounts over files, and such a mount is gone when somebody outside replaces the file.
pub fn held(config: &SandboxConfig) -> io::Result<Option<Watched>> {
    enforce::mounts::watched(config.held().into_iter().zip(0..).collect())
}
