//! `docker.binds` and `docker.tmpfs`: the grammar, and the paths of the host that no container gets.

use super::settings::Bind;
use crate::plan::disk::Disk;
use crate::plan::paths::kept;
use crate::policy::ValueError;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// What gives away the host: the kernel's file systems, the system's configuration, sockets of engines and services.
const CLOSED: [&str; 8] = ["/proc", "/sys", "/dev", "/run", "/var/run", "/etc", "/boot", "/root"];

/// Where the container keeps what it needs itself.
const TAKEN: [&str; 4] = ["/proc", "/sys", "/dev", super::PROGRAM];

fn wrong(text: &str, why: &'static str) -> ValueError {
    ValueError::unusable("bind", text, why)
}

/// Whether a path can be in an argument of the engines, which separate their parts with commas and colons.
pub fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains([',', ':', '"', '\\']) && !text.contains(char::is_control))
}

/// `host:inside[:ro|rw]`.
pub fn parse(text: &str) -> Result<Bind, ValueError> {
    let parts: Vec<&str> = text.split(':').collect();
    let (host, inside, mode) = match parts.as_slice() {
        [host, inside] => (host, inside, "rw"),
        [host, inside, mode] => (host, inside, *mode),
        _ => return Err(wrong(text, "write it as /host:/inside:ro or /host:/inside:rw")),
    };
    let writable = match mode {
        "rw" => true,
        "ro" => false,
        _ => return Err(wrong(text, "the mode is ro or rw")),
    };
    if !(host.starts_with('/') || host.starts_with("~/")) {
        return Err(wrong(text, "the path on the host starts with / or ~/"));
    }
    let bind = Bind { host: (*host).into(), inside: inside_path(text, inside)?, writable };
    match is_plain(&bind.host) && is_plain(&bind.inside) {
        true => Ok(bind),
        false => Err(wrong(text, "a path here has no comma, quote, backslash or control character")),
    }
}

/// `/path[:options]`.
pub fn tmpfs(text: &str) -> Result<String, ValueError> {
    let (path, options) = text.split_once(':').unwrap_or((text, ""));
    inside_path(text, path)?;
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "=,_%".contains(letter);
    match is_plain(Path::new(path)) && options.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::unusable("tmpfs", text, "write it as /path or /path:exec,mode=1777")),
    }
}

fn inside_path(text: &str, path: &str) -> Result<PathBuf, ValueError> {
    let path = Path::new(path);
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || path.parent().is_none() || !path.components().all(plain) {
        return Err(wrong(text, "the path inside is absolute, without .., and not /"));
    }
    match TAKEN.iter().any(|taken| path.starts_with(taken)) {
        true => Err(wrong(text, "the container needs this path itself")),
        false => Ok(path.to_owned()),
    }
}

/// What no container gets besides the system's own: homes as a whole, what they keep secret, and gatekeeper's state.
pub struct Kept<'a> {
    pub homes: Vec<PathBuf>,
    pub credentials: BTreeSet<PathBuf>,
    pub state: &'a Path,
}

impl Kept<'_> {
    /// HOME may be wrong, so the system is asked for this user's home as well.
    pub fn here(state: &Path) -> Kept<'_> {
        let (homes, credentials) = kept(super::home(), &Disk);
        Kept { homes, credentials, state }
    }

    /// Why a path of the host may not be in a container. `real` has no links.
    pub fn closed(&self, real: &Path) -> Option<String> {
        let overlaps = |closed: &Path| real.starts_with(closed) || closed.starts_with(real);
        // Below root's own home, root's workspaces are as good as any user's.
        let is_home = |closed: &str| self.homes.iter().any(|home| home == Path::new(closed));
        if let Some(closed) = CLOSED.iter().find(|closed| !is_home(closed) && overlaps(Path::new(closed))) {
            return Some(format!("it is or contains {closed}, which gives the container the host's own"));
        }
        if self.homes.iter().any(|home| home.starts_with(real)) {
            return Some("it contains the home directory, with its credentials; name a directory below it".to_owned());
        }
        if overlaps(self.state) {
            return Some("it holds gatekeeper's own state".to_owned());
        }
        let is_kept = |home: &PathBuf| {
            let first = real.strip_prefix(home).ok()?.components().next()?.as_os_str().to_str()?;
            KEPT.contains(&first).then(|| format!("~/{first} holds credentials"))
        };
        let secret = || self.credentials.iter().find(|path| overlaps(path));
        self.homes.iter().find_map(is_kept).or_else(|| {
            secret().map(|path| match real.starts_with(path) {
                true => format!("{} holds credentials", path.display()),
                false => format!("it contains {}, which holds credentials", path.display()),
            })
        })
    }
}

/// Entries of the home directory that are closed as a whole, whether or not they hold credentials yet.
const KEPT: [&str; 9] = [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pki", ".password-store"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_names_both_paths_and_its_mode() {
        let bind = parse("/srv/data:/data:ro").expect("well formed");
        assert_eq!(bind, Bind { host: "/srv/data".into(), inside: "/data".into(), writable: false });
        assert!(parse("/srv/data:/data").expect("without a mode").writable);
        for text in [
            "/srv",
            "data:/data",
            "/a:/b:rx",
            "/a:b",
            "/a:/",
            "/a:/b/../c",
            "/a:/proc/1",
            "/a,b:/c",
            "/a:/gatekeeper",
            "/a:/b:ro:z",
            "/a:/c,readonly",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_hosts_own_paths_are_closed_by_whatever_name() {
        let credentials = ["/home/u/.config/gh", "/home/u/.claude/.credentials.json", "/home/other/.ssh"];
        let kept = Kept {
            homes: vec!["/home/u".into(), "/srv/home".into()],
            credentials: credentials.map(PathBuf::from).into(),
            state: Path::new("/home/u/.local/state/gatekeeper/box"),
        };
        let closed = |path: &str| kept.closed(Path::new(path));
        for path in [
            "/",
            "/var",
            "/var/run/docker.sock",
            "/run/podman/podman.sock",
            "/etc",
            "/etc/ssl",
            "/proc",
            "/home",
            "/home/u",
            "/home/u/.ssh",
            "/home/u/.ssh/id",
            "/home/u/.local",
            "/home/u/.docker/run/docker.sock",
            "/home/u/.config",
            "/home/u/.config/gh",
            "/home/u/.config/gh/hosts.yml",
            "/home/u/.claude",
            "/home/other",
            "/srv/home/.aws",
        ] {
            assert!(closed(path).is_some(), "{path}");
        }
        for path in [
            "/srv/data",
            "/home/u/work",
            "/home/u/.cache/pip",
            "/var/lib/data",
            "/home/u/.config/nvim",
            "/home/other/work",
        ] {
            assert_eq!(closed(path), None, "{path}");
        }
    }

    #[test]
    fn a_tmpfs_has_a_path_and_options() {
        for text in ["/tmp:exec,mode=1777", "/var/tmp", "/run", "/x:size=10%"] {
            assert_eq!(tmpfs(text).expect(text), text);
        }
        for text in ["tmp", "/", "/tmp:a b", "/tmp:exec;rm", "/proc", "/a/../b"] {
            assert!(tmpfs(text).is_err(), "{text}");
        }
    }
}
