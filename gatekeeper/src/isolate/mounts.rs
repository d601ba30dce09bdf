//! Derives bubblewrap's mounts from a plan.

use super::config::SandboxConfig;
use crate::browser::world;
use crate::enforce;
use crate::plan::Plan;
use crate::plan::paths::{Access, PathPlan};
use crate::policy::NetworkMode;
use crate::request::Browser;
use crate::sys::keeper::Watched;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The mounts of a run: everything that the plan grants, and nothing else.
pub fn of(plan: &Plan) -> SandboxConfig {
    let config = match &plan.browser {
        Some(browser) => of_browser(plan, browser),
        None => of_command(plan),
    };
    config.without_links()
}

/// A browser sees only the listed parts of the system, and no other users. Root gets another uid, because browsers do not
/// sandbox themselves as root.
fn of_browser(plan: &Plan, browser: &Browser) -> SandboxConfig {
    let real = |path: &PathBuf| plan.real(path);
    let policy = &plan.policy;
    let mut config = SandboxConfig::for_working_dir(&plan.places.cwd);
    config.home = None;
    config.new_session = false;
    config.isolate_network = has_own_network(plan);
    config.blocked_paths = Vec::new();
    config.rw_paths = plan.writable().into_iter().filter(|path| !is_private(plan, path)).collect();
    config.rw_paths.extend(policy.network.unix.iter().filter_map(real));
    config.ro_paths = world::SYSTEM.iter().map(PathBuf::from).chain(browser.etc.iter().cloned()).collect();
    let read = policy.paths.read.iter().flatten().filter_map(real);
    config.ro_paths.extend(read.filter(|path| !path.starts_with("/etc") && !is_private(plan, path)));
    config.protected_paths = plan.protected();
    config.devices = browser.devices.clone();
    let user = plan.user;
    let (uid, gid) = if user.uid == 0 { (BROWSER_ID, BROWSER_ID) } else { (user.uid, user.gid) };
    config.identity = Some((uid, gid));
    let home = browser.profile.clone().unwrap_or_else(|| PathBuf::from("/tmp"));
    config.files = world::users(uid, gid, &home).to_vec();
    config
}

/// Whether bubblewrap makes a private version of this path, so that the host's must not be mounted over it.
fn is_private(plan: &Plan, path: &Path) -> bool {
    plan.places.tmp.as_deref() == Some(path) || path.starts_with("/dev") || path.starts_with("/proc")
}

/// The uid and gid of a browser that root starts.
const BROWSER_ID: u32 = 1000;

fn of_command(plan: &Plan) -> SandboxConfig {
    let mut config = SandboxConfig::for_working_dir(&plan.places.cwd);
    config.home = plan.places.home.clone();
    // The guardian has already started a session, unless the command shares the caller's.
    config.new_session = false;
    config.isolate_network = has_own_network(plan);
    let policy = &plan.policy;
    let real = |path: &PathBuf| plan.real(path);
    config.rw_paths = plan.writable().into_iter().filter(|path| !is_private(plan, path)).collect();
    config.rw_paths.extend(policy.bubblewrap.extra_write.iter().filter_map(real));
    config.rw_paths.extend(policy.network.unix.iter().filter_map(real));
    let read = policy.paths.read.iter().flatten().chain(&policy.paths.also_read).chain(&policy.bubblewrap.extra_read);
    let executed = policy.paths.execute.iter().flatten();
    config.ro_paths.extend(read.chain(executed).filter_map(real).filter(|path| path != Path::new("/")));
    config.ro_paths.push(plan.places.cwd.clone());
    config.ro_paths.extend(policy.libsandbox.clone());
    // The command itself and its interpreters. A symbolic link in a mounted directory is there already, and bubblewrap fails to mount
    // over one that leads to an absolute path, such as /usr/bin/awk on Debian.
    let mounted = config.ro_paths.clone();
    let is_there = |path: &Path| path.is_symlink() && mounted.iter().any(|top| top != path && path.starts_with(top));
    let chain = plan.verdict.chain.iter().map(|link| &link.path).chain([&plan.target.path]);
    config.ro_paths.extend(chain.filter(|path| !is_there(path)).cloned());
    if let Some(landlock) = &plan.landlock {
        let programs = landlock.paths.programs.iter().flat_map(|program| leading_to(program, &landlock.paths));
        // bubblewrap fails to make a link twice.
        let programs: BTreeSet<PathBuf> = programs.filter(|path| !config.ro_paths.contains(path)).collect();
        config.ro_paths.extend(programs);
    }
    let rw = config.rw_paths.clone();
    config.ro_paths.retain(|path| !rw.contains(path));
    if policy.paths.read.is_none() {
        show_tools(plan, &mut config);
    }

    let named: Vec<PathBuf> = policy.paths.also_read.iter().chain(&policy.paths.write).filter_map(real).collect();
    let mut denied: &[PathBuf] = &[];
    if let Some(landlock) = &plan.landlock {
        denied = &landlock.paths.denied;
        config.protected_paths = landlock.paths.protected.clone();
        config.blocked_paths.extend(landlock.paths.hidden.iter().chain(&landlock.paths.covered).cloned());
    }
    let protected = config.protected_paths.clone();
    config.blocked_paths.retain(|path| {
        // Existing hooks stay usable, read-only. A path that the user named is not blocked, unless it is denied too.
        let kept = path.ends_with(".git/hooks") && path.exists() || protected.contains(path);
        !kept && (!named.contains(path) || denied.contains(path))
    });
    config.blocked_paths.sort();
    config.blocked_paths.dedup();
    let hooks = plan.places.cwd.join(".git/hooks");
    if hooks.exists() && !config.protected_paths.contains(&hooks) && !named.contains(&hooks) {
        config.protected_paths.push(hooks);
    }
    config
}

/// As many symbolic links as the kernel follows.
const LINKS: usize = 40;

/// A program of `[commands] allow` in a closed directory, which bubblewrap empties, and the links in such directories that lead to it.
fn leading_to(program: &Path, paths: &PathPlan) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = program.to_owned();
    while let (0..LINKS, Some(Ok(parent)), Some(name)) =
        (found.len(), next.parent().map(Path::canonicalize), next.file_name())
    {
        let at = parent.join(name);
        let target = std::fs::read_link(&at);
        found.push(at);
        match target {
            Ok(target) => next = parent.join(target),
            Err(_) => break,
        }
    }
    let is_closed = |path: &Path| paths.hidden.iter().any(|top| path.starts_with(top));
    let is_granted = |path: &Path| paths.grants.iter().any(|it| it.access == Access::ReadExecute && it.path == path);
    // A link may lead to a secret, which is closed too. To that the plan grants nothing.
    if found.last().is_none_or(|real| is_closed(real) && !is_granted(real)) {
        return Vec::new();
    }
    found.retain(|path| is_closed(path));
    found
}

/// Toolchains below home, which programs in PATH need, relative to it.
const TOOLS: [&str; 4] = [".cargo/bin", ".rustup", ".nvm", ".pyenv"];
const GIT_SETTINGS: &str = ".gitconfig";

/// Shows the toolchains below home read-only, and of git's settings the name and address for commits: the rest may hold
/// credentials and programs to run.
fn show_tools(plan: &Plan, config: &mut SandboxConfig) {
    let Some(home) = plan.places.home.as_ref().and_then(|home| plan.real(home)) else { return };
    let known = config.rw_paths.iter().chain(&config.ro_paths).cloned().collect::<Vec<_>>();
    let is_shown = |path: &Path| known.iter().any(|top| path.starts_with(top));
    // A link could lead anywhere.
    let real = |name: &str| Some(home.join(name)).filter(|path| plan.real(path).as_ref() == Some(path));
    let tools = TOOLS.iter().filter_map(|name| real(name)).filter(|path| path.is_dir() && !is_shown(path));
    config.ro_paths.extend(tools);
    let settings = real(GIT_SETTINGS).filter(|path| !is_shown(path));
    if let Some((path, text)) = settings.and_then(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?))) {
        config.files.push((path, identity(&text).into_bytes()));
    }
}

/// The name and address in git's settings. A value that goes on in the next line is left out.
fn identity(settings: &str) -> String {
    let mut section = String::new();
    let mut kept = String::from("[user]\n");
    for line in settings.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = name.trim().to_ascii_lowercase();
            continue;
        }
        let key = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        if section == "user" && matches!(key.as_str(), "name" | "email") && !line.ends_with('\\') {
            kept.push_str(&format!("\t{line}\n"));
        }
    }
    kept
}

/// Whether the run gets its own network namespace. Without a network, or with the proxy, a loopback interface is enough.
/// The modes `loopback` and `full` need the host's network.
pub fn has_own_network(plan: &Plan) -> bool {
    // A client that drives the browser over a port connects to it on the host's loopback.
    let driven_by_port = plan.browser.as_ref().is_some_and(|browser| browser.port);
    matches!(plan.network, NetworkMode::None | NetworkMode::Own | NetworkMode::Hosts(_)) && !driven_by_port
}

/// The mount points to watch: a mount over a file disappears if a process outside replaces that file.
pub fn held(config: &SandboxConfig) -> io::Result<Option<Watched>> {
    enforce::mounts::watched(config.held().into_iter().zip(0..).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_gits_settings_only_the_identity_is_shown() {
        let settings = "[User]\n name = A B\n email=a@b\n signingkey = X\n[credential]\n helper = store\n[url \"https://t:tok@h/\"]\n \
                        insteadOf = x\n[user]\n\tname = \"C\" \\\n token\n";
        assert_eq!(identity(settings), "[user]\n\tname = A B\n\temail=a@b\n");
    }
}
