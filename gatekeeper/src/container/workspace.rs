//! The directories that a box sees: its own workspace below `workspaceRoot`, the agent's workspace, and binds.

use super::bind::{self, Kept};
use super::engine::{About, Kind, Mount};
use super::settings::{Access, Scope, Set, Settings};
use crate::trust::{self, Hostile};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use std::cell::LazyCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where the workspace is inside.
pub const INSIDE: &str = "/workspace";
/// Where the agent's own workspace is inside, if it is read-only.
pub const AGENT: &str = "/agent";

/// Who asks: an agent, and one of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub agent: String,
    pub session: String,
}

impl Identity {
    /// The directory of the box's own workspace, below workspaceRoot. No two agents or sessions have the same one.
    fn directory(&self, scope: Scope) -> PathBuf {
        let agent = match self.agent.as_str() {
            SHARED => "%73hared".to_owned(),
            agent => plain(agent),
        };
        match scope {
            Scope::Shared => PathBuf::from(SHARED),
            Scope::Agent => PathBuf::from(agent),
            Scope::Session => Path::new(&agent).join(plain(&self.session)),
        }
    }
}

/// The workspace of everybody. The one of an agent with this name is spelt otherwise.
const SHARED: &str = "shared";

/// A name with only such letters as mount options may have. Different names stay different.
fn plain(name: &str) -> String {
    let spelt = |letter: char| match letter {
        ':' | '#' | '=' | '%' => format!("%{:02X}", u32::from(letter)),
        _ => letter.to_string(),
    };
    name.chars().map(spelt).collect()
}

/// A directory or file of the host, and which one it was.
struct Place {
    path: PathBuf,
    id: Option<(u64, u64)>,
}

impl Place {
    fn of(found: trust::Found) -> Place {
        Place { id: Some((found.stat.st_dev, found.stat.st_ino)), path: found.real }
    }
}

/// The mounts of a box. Makes its own workspace, 0700, if it needs one; changes nothing with `for_real` false.
pub fn mounts(settings: &Settings, identity: &Identity, state: &Path, for_real: bool) -> Result<Vec<Mount>, String> {
    let kept = LazyCell::new(|| Kept::here(state));
    let agents = settings.workspace.value.as_ref().map(|path| existing("workspace", path, &kept)).transpose()?;
    let at = |place: Place, inside: &str, writable, key: &str| Mount {
        host: place.path,
        inside: inside.into(),
        writable,
        id: place.id,
        key: key.to_owned(),
    };
    let key = settings.workspace.decided_by();
    let mut mounts = match (settings.access.value, agents) {
        (Access::Rw, Some(agents)) => vec![at(agents, INSIDE, true, key)],
        (access, agents) => {
            let own = own(settings, identity, for_real)?;
            let mut mounts = vec![at(own, INSIDE, true, settings.root.decided_by())];
            mounts.extend(agents.filter(|_| access == Access::Ro).map(|agents| at(agents, AGENT, false, key)));
            mounts
        }
    };
    for Set { value: wanted, key } in &settings.docker.binds.value {
        let place = existing("bind", &wanted.host, &kept)?;
        if mounts.iter().any(|mount| mount.inside.starts_with(&wanted.inside) || wanted.inside == mount.inside) {
            return Err(format!("bind {}: {} is taken", wanted.host.display(), wanted.inside.display()));
        }
        let (inside, writable) = (wanted.inside.clone(), wanted.writable);
        mounts.push(Mount { host: place.path, inside, writable, id: place.id, key: key.clone().unwrap_or_default() });
    }
    Ok(mounts)
}

/// A directory or file of the host that a container may see, by its real path.
fn existing(what: &str, path: &Path, kept: &Kept<'_>) -> Result<Place, String> {
    let wrong = |why: String| format!("{what} {}: {why}", path.display());
    let found = trust::walk(path, &Hostile::here()).map_err(|error| wrong(error.to_string()))?;
    if !matches!(FileType::from_raw_mode(found.stat.st_mode), FileType::Directory | FileType::RegularFile) {
        return Err(wrong("only directories and regular files can be in a container".to_owned()));
    }
    if let Some(why) = kept.closed(&found.real) {
        return Err(wrong(format!("refused: {why}")));
    }
    match bind::is_plain(&found.real) {
        true => Ok(Place::of(found)),
        false => Err(wrong(ODD.to_owned())),
    }
}

const ODD: &str = "the engines take no path with a comma, colon, quote or backslash";

/// The box's own workspace. A link in place of any directory below workspaceRoot is an error: a command may have made it.
fn own(settings: &Settings, identity: &Identity, for_real: bool) -> Result<Place, String> {
    let root = &settings.root.value;
    let rest = identity.directory(settings.scope.value);
    let odd = |path: &Path| format!("workspaceRoot {}: {ODD}", path.display());
    if !bind::is_plain(root) {
        return Err(odd(root));
    }
    if !for_real {
        return Ok(Place { path: root.join(rest), id: None });
    }
    let wrong = |error: trust::Untrusted| format!("workspaceRoot: {error}");
    let top = trust::make_directory(root, &Hostile::here(), Mode::RWXU).map_err(wrong)?;
    let mut hostile = Hostile::here();
    hostile.add(&top.real);
    if !bind::is_plain(&top.real) {
        return Err(odd(&top.real));
    }
    let found = trust::make_directory(&top.real.join(&rest), &hostile, Mode::RWXU).map_err(wrong)?;
    let owner = found.stat.st_uid;
    let is_ours = owner == rustix::process::geteuid().as_raw() || owner == settings.user().0;
    if !is_ours {
        return Err(format!("workspaceRoot: {} belongs to user {owner}", found.real.display()));
    }
    Ok(Place::of(found))
}

/// Lets the container's user write the workspace. podman without root maps that user to the caller. Under root, the
/// workspace is given to that user; root outside can still do everything with it.
pub fn hand_over(mounts: &[Mount], user: (u32, u32), kind: Kind, about: &About) -> Result<Option<String>, String> {
    let Some(workspace) = mounts.iter().find(|mount| mount.inside == Path::new(INSIDE)) else { return Ok(None) };
    let path = &workspace.host;
    let stat = rustix::fs::lstat(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let caller = rustix::process::geteuid();
    if about.rootless || (stat.st_uid, stat.st_gid) == user {
        return Ok(None);
    }
    if !caller.is_root() {
        let (own, group) = (caller.as_raw(), rustix::process::getegid().as_raw());
        let name = kind.name();
        return Err(format!(
            "workspace {}: {name} runs as root here, so files of user {} would not be yours; set docker.user to \"{own}:{group}\"",
            path.display(),
            user.0
        ));
    }
    if stat.st_uid != 0 {
        return Err(format!(
            "workspace {}: it belongs to user {}, and the container runs as {}; set docker.user to \"{}:{}\", or chown it",
            path.display(),
            stat.st_uid,
            user.0,
            stat.st_uid,
            stat.st_gid
        ));
    }
    let top =
        rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut count = 0;
    give(&top, stat.st_dev, user, &mut count, 0)
        .map_err(|error| format!("workspace {}: chown: {error}", path.display()))?;
    let told = format!(
        "{} belonged to root; it and {} entries below it now belong to user {}, who is the container's",
        path.display(),
        count,
        user.0
    );
    Ok(Some(told).filter(|_| count > 0))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Deeper trees are left as they are.
const DEEPEST: usize = 128;

/// Gives root's entries to the user. Follows no link, leaves the file system, and skips files with a second name, which may
/// be outside.
fn give(directory: &OwnedFd, device: u64, user: (u32, u32), count: &mut u64, depth: usize) -> std::io::Result<()> {
    let owner = (Some(Uid::from_raw(user.0)), Some(Gid::from_raw(user.1)));
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let shared = !kind.is_dir() && stat.st_nlink > 1;
        if stat.st_dev != device || stat.st_uid != 0 || shared || depth >= DEEPEST {
            continue;
        }
        if kind.is_dir() {
            let below = rustix::fs::openat(directory, name, DIRECTORY, Mode::empty())?;
            give(&below, device, user, count, depth + 1)?;
        } else {
            rustix::fs::chownat(directory, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        *count += 1;
    }
    Ok(rustix::fs::fchown(directory, owner.0, owner.1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_agent_and_session_has_a_directory_of_its_own() {
        let of = |scope, agent: &str, session: &str| {
            Identity { agent: agent.to_owned(), session: session.to_owned() }.directory(scope)
        };
        let names = ["x:1", "x#1", "x=1", "x_1", "x", "1", "x%3A1"];
        let all: BTreeSet<PathBuf> = names.iter().map(|name| of(Scope::Session, "a1", name)).collect();
        assert_eq!(all.len(), names.len());
        assert!(all.iter().all(|path| bind::is_plain(path) && path.components().count() == 2), "{all:?}");
        assert_eq!(of(Scope::Session, "a1", "agent:main"), Path::new("a1/agent%3Amain"));
        assert_eq!(of(Scope::Session, "a.1", "s_7@+-"), Path::new("a.1/s_7@+-"));
        assert_eq!(of(Scope::Shared, "a1", "s"), Path::new("shared"));
        assert_eq!(of(Scope::Agent, "shared", "s"), Path::new("%73hared"));
        assert_eq!(of(Scope::Session, "shared", "s"), Path::new("%73hared/s"));
        assert_eq!(of(Scope::Agent, "sshared", "s"), Path::new("sshared"));
    }
}
