//! The smallest grant that allows a denied call, as command-line flags and as a line of a policy file.

use crate::plan::Plan;
use crate::policy::grants;
use crate::policy::{Policy, Profile, Word};
use std::path::{Path, PathBuf};

/// A change to a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// A profile in addition to those in force.
    Profile(Profile),
    /// A syscall or a group.
    Allow(String),
    /// Calls of a syscall whose arguments have these values under these masks: (index, value, mask). Mostly only a policy
    /// file can express it; a flag would grant the whole syscall.
    Rule {
        call: &'static str,
        args: Vec<(u8, u64, u64)>,
    },
    Write(Vec<PathBuf>),
    /// Private caches for package managers in this directory.
    Cache(PathBuf),
    Read(PathBuf),
    Unix(PathBuf),
    /// Network mode own.
    OwnNetwork,
    /// Network mode full; with a port if the policy lists ports.
    Network(Option<u16>),
    Port(u16),
    /// An entry in the policy's list of programs. No flag does that.
    Execute(PathBuf),
    /// No grant helps, or the policy denies it explicitly.
    Nothing,
}

impl Remedy {
    /// The paths to grant.
    fn paths(&self) -> &[PathBuf] {
        match self {
            Remedy::Write(paths) => paths,
            Remedy::Cache(path) | Remedy::Read(path) | Remedy::Unix(path) | Remedy::Execute(path) => {
                std::slice::from_ref(path)
            }
            _ => &[],
        }
    }

    /// Whether it opens a path, a host or a socket, which can be approved for one call.
    pub fn is_access(&self, plan: &Plan) -> bool {
        use Remedy::{Cache, Network, OwnNetwork, Port, Read, Unix, Write};
        match self {
            Write(_) | Read(_) => true,
            Cache(_) | Unix(_) | OwnNetwork | Network(_) | Port(_) => !plan.policy.profiles.contains(&Profile::Custom),
            _ => false,
        }
    }

    /// The flags to add to the command line. `None` also where a path cannot be typed: its directory would be too much.
    pub fn flag(&self, plan: &Plan) -> Option<String> {
        if !self.paths().iter().all(|path| is_typeable(path)) {
            return None;
        }
        let path = |flag: &str, path: &Path| format!("{flag} {}", quoted(path));
        let port = |port: &u16| format!("--port {port}");
        Some(match self {
            // The flag replaces the profile of a policy file, but adds to other --profile flags.
            Remedy::Profile(added) if !plan.policy.sources.is_empty() => {
                format!("--profile {}", with(&plan.policy, *added))
            }
            Remedy::Profile(added) => format!("--profile {}", added.word()),
            Remedy::Allow(name) => format!("--allow {name}"),
            Remedy::Write(paths) => paths.iter().map(|place| path("--write", place)).collect::<Vec<_>>().join(" "),
            Remedy::Cache(place) => path("--cache", place),
            Remedy::Read(place) => path("--read", place),
            Remedy::Unix(place) => path("--unix", place),
            Remedy::OwnNetwork => "--net own".to_owned(),
            Remedy::Network(None) => "--net full".to_owned(),
            Remedy::Network(Some(added)) => format!("--net full {}", port(added)),
            Remedy::Port(added) => port(added),
            // Every socketpair is one of UNIX sockets, so the whole syscall is hardly more than the rule.
            Remedy::Rule { call: call @ "socketpair", .. } => format!("--allow {call}"),
            Remedy::Rule { .. } | Remedy::Execute(_) | Remedy::Nothing => return None,
        })
        // An exact syscall list cannot be combined with a profile, only extended.
        .filter(|_| {
            let adds = matches!(self, Remedy::Write(_) | Remedy::Read(_) | Remedy::Allow(_));
            !plan.policy.profiles.contains(&Profile::Custom) || adds
        })
    }

    /// The line to add to a policy file.
    pub fn line(&self, policy: &Policy) -> Option<String> {
        if !self.paths().iter().all(|path| is_typeable(path)) {
            return None;
        }
        let list = |key: &str, items: &[&str]| {
            let items: Vec<_> = items.iter().map(|item| toml::Value::from(*item).to_string()).collect();
            format!("{key} = [{}]", items.join(", "))
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Some(match self {
            Remedy::Profile(added) => format!("profile = \"{}\"", with(policy, *added)),
            Remedy::Allow(name) => list("syscalls.allow", &[name]),
            Remedy::Rule { call, args } => rule(call, args),
            Remedy::Write(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| text(path)).collect();
                list("paths.write", &paths.iter().map(String::as_str).collect::<Vec<_>>())
            }
            // A read list closes everything that it does not name, so a new one has to name `/` as well.
            Remedy::Read(path) if policy.paths.read.is_none() => list("paths.read", &["/", &text(path)]),
            Remedy::Read(path) => list("paths.read", &[&text(path)]),
            Remedy::Unix(path) => list("network.unix", &[&text(path)]),
            Remedy::OwnNetwork => "network.mode = \"own\"".to_owned(),
            Remedy::Network(None) => "network.mode = \"full\"".to_owned(),
            Remedy::Port(added) => ports(policy, *added),
            // These would take two lines.
            Remedy::Network(Some(_)) | Remedy::Cache(_) => return None,
            Remedy::Execute(_) if policy.paths.execute.is_some() && !policy.commands.allow.is_empty() => return None,
            Remedy::Execute(path) if policy.commands.allow.is_empty() => list("paths.execute", &[&text(path)]),
            Remedy::Execute(path) => list("commands.allow", &[&text(path)]),
            Remedy::Nothing => return None,
        })
    }
}

fn with(policy: &Policy, added: Profile) -> String {
    let kept = policy.profiles.iter().filter(|profile| **profile != Profile::Minimal && **profile != added);
    kept.chain([&added]).map(|profile| profile.word()).collect::<Vec<_>>().join("+")
}

fn ports(policy: &Policy, added: u16) -> String {
    let all = policy.network.ports.iter().copied().chain([added]).map(|port| port.to_string());
    format!("network.ports = [{}]", all.collect::<Vec<_>>().join(", "))
}

fn rule(call: &str, args: &[(u8, u64, u64)]) -> String {
    let tests = args.iter().map(|(index, value, mask)| {
        format!("{{ index = {index}, op = \"masked_eq\", value = {value:#x}, mask = {mask:#x} }}")
    });
    let tests = tests.collect::<Vec<_>>().join(", ");
    format!("syscalls.rule = [{{ syscall = \"{call}\", action = \"allow\", args = [{tests}] }}]")
}

fn quoted(path: &Path) -> String {
    grants::quoted(&[path])
}

/// Whether flags and policies can name a path: valid UTF-8 without control characters and `*`.
pub fn is_typeable(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.chars().any(|letter| letter.is_control() || letter == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Document, parse};
    use std::os::unix::ffi::OsStrExt;

    fn policy(profiles: &[Profile]) -> Policy {
        Policy::resolve(Document { profile: Some(profiles.to_vec()), ..Document::default() }).expect("a plain policy")
    }

    #[test]
    fn every_line_is_a_policy_by_itself() {
        let path = PathBuf::from("/a \"b\"/c");
        for remedy in [
            Remedy::Profile(Profile::Network),
            Remedy::Allow("@process".to_owned()),
            Remedy::Profile(Profile::Read),
            Remedy::Rule { call: "socket", args: vec![(0, 1, 0xffff_ffff), (1, 2, 0xf)] },
            Remedy::Write(vec![path.clone(), PathBuf::from("/x")]),
            Remedy::Read(path.clone()),
            Remedy::Unix(path.clone()),
            Remedy::OwnNetwork,
            Remedy::Network(None),
            Remedy::Port(443),
            Remedy::Execute(path),
        ] {
            let line = remedy.line(&policy(&[Profile::Minimal])).expect("a line");
            let document =
                parse(line.as_bytes(), Path::new("x.toml")).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_ne!(document, Document::default(), "{line}");
        }
    }

    #[test]
    fn profiles_are_added_to_those_in_force() {
        let line = |profiles: &[Profile]| Remedy::Profile(Profile::Network).line(&policy(profiles));
        assert_eq!(line(&[Profile::Minimal]).as_deref(), Some("profile = \"network\""));
        assert_eq!(line(&[Profile::Write]).as_deref(), Some("profile = \"write+network\""));
    }

    #[test]
    fn a_path_that_cannot_be_typed_has_no_line() {
        let policy = policy(&[Profile::Minimal]);
        for name in [&b"\xff\xfe"[..], b"a*b", b"\xc2\x85", b"a\nb"] {
            let path = Path::new("/tmp/a b").join(std::ffi::OsStr::from_bytes(name));
            assert!(!is_typeable(&path) && is_typeable(Path::new("/tmp/a b")), "{path:?}");
            let fine = PathBuf::from("/tmp/fine");
            for (odd, control) in [
                (Remedy::Write(vec![fine.clone(), path.clone()]), Remedy::Write(vec![fine.clone()])),
                (Remedy::Read(path.clone()), Remedy::Read(fine.clone())),
                (Remedy::Unix(path.clone()), Remedy::Unix(fine.clone())),
                (Remedy::Execute(path.clone()), Remedy::Execute(fine)),
            ] {
                assert_eq!(odd.line(&policy), None, "{odd:?}");
                assert!(control.line(&policy).is_some(), "{control:?}");
            }
        }
    }
}
