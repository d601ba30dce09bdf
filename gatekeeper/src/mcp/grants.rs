//! The grants that a client may use: the operator's list, and nothing else. A client asks in the words of a denial and
//! gets the operator's entry that covers it. So gatekeeper never opens a path that the client wrote, and a link that a
//! command plants below such a path has no effect.

use crate::policy::{Document, NetworkMode, Policy, Profile, grants};
use std::path::{Component, Path, PathBuf};

pub struct Grantable {
    texts: Vec<String>,
    items: Vec<Item>,
    root: PathBuf,
}

/// One permission.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    Profile(Profile),
    Allow(String),
    Read(PathBuf),
    Write(PathBuf),
    Unix(PathBuf),
    Host(String),
    /// Any mode except hosts.
    Net(NetworkMode),
    Port(u16),
}

impl Grantable {
    /// Parses flags of `run`, such as `--write /srv/data`. Relative paths start at `root`.
    pub fn new(texts: &[String], root: &Path) -> Result<Grantable, String> {
        let mut items = Vec::new();
        for text in texts {
            items.extend(parse(text, root).map_err(|error| format!("{text:?}: {error}"))?);
        }
        Ok(Grantable { texts: texts.to_vec(), items, root: root.to_owned() })
    }

    /// The trees that a grant makes writable.
    pub fn written(&self) -> Vec<PathBuf> {
        let written = |item: &Item| if let Item::Write(path) = item { Some(path.clone()) } else { None };
        self.items.iter().filter_map(written).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// The entries that cover `asked`, as a policy to merge over the operator's. An error if any part is not covered.
    pub fn grant(&self, asked: &str, policy: &Policy) -> Result<Document, String> {
        let mut granted = Vec::new();
        for item in parse(asked, &self.root).map_err(|error| format!("grant {asked:?}: {error}"))? {
            if has(policy, &item) {
                continue;
            }
            let covering = self.items.iter().find(|offered| offered.covers(&item));
            granted.push(covering.ok_or_else(|| {
                format!("grant {asked:?}: this server does not offer it; only its operator can add it")
            })?);
        }
        Ok(document(&granted, policy))
    }
}

impl Item {
    fn covers(&self, asked: &Item) -> bool {
        match (self, asked) {
            (Item::Read(tree), Item::Read(path))
            | (Item::Write(tree), Item::Write(path))
            | (Item::Unix(tree), Item::Unix(path)) => path.starts_with(tree),
            (Item::Net(NetworkMode::Full), Item::Net(_) | Item::Host(_)) => true,
            (offered, asked) => offered == asked,
        }
    }
}

/// Whether the policy already grants the item. A denial's remedy repeats it, because flags replace the policy's value.
fn has(policy: &Policy, item: &Item) -> bool {
    match item {
        Item::Profile(profile) => policy.profiles.contains(profile),
        Item::Host(host) => matches!(&policy.network.mode, Some(NetworkMode::Hosts(hosts)) if hosts.contains(host)),
        _ => false,
    }
}

fn parse(text: &str, root: &Path) -> Result<Vec<Item>, String> {
    let grant = grants::parse(text)?;
    if !grant.network.http.is_empty() {
        return Err("--http cannot be granted here; the operator's policy has the rules for requests".to_owned());
    }
    let path = |path: &PathBuf| {
        let path = root.join(path);
        match path.components().any(|part| part == Component::ParentDir) {
            true => Err(format!("{} contains ..", path.display())),
            false => Ok(path),
        }
    };
    let mut items: Vec<Item> = grant.profile.iter().flatten().map(|profile| Item::Profile(*profile)).collect();
    items.extend(grant.syscalls.allow.into_iter().map(Item::Allow));
    for (paths, kind) in [
        (&grant.paths.also_read, Item::Read as fn(PathBuf) -> Item),
        (&grant.paths.write, Item::Write),
        (&grant.network.unix, Item::Unix),
    ] {
        for given in paths {
            items.push(kind(path(given)?));
        }
    }
    match grant.network.mode {
        Some(NetworkMode::Hosts(hosts)) => items.extend(hosts.into_iter().map(Item::Host)),
        Some(mode) => items.push(Item::Net(mode)),
        None => {}
    }
    items.extend(grant.network.ports.into_iter().map(Item::Port));
    if items.is_empty() { Err("it grants nothing".to_owned()) } else { Ok(items) }
}

fn document(granted: &[&Item], policy: &Policy) -> Document {
    let mut document = Document::default();
    let mut hosts = Vec::new();
    for item in granted {
        match item {
            Item::Profile(profile) => {
                let profiles = document.profile.get_or_insert_with(|| policy.profiles.clone());
                profiles.retain(|known| *known != Profile::Minimal);
                profiles.push(*profile);
            }
            Item::Allow(name) => document.syscalls.allow.push(name.clone()),
            Item::Read(path) => document.paths.also_read.push(path.clone()),
            Item::Write(path) => document.paths.write.push(path.clone()),
            Item::Unix(path) => document.network.unix.push(path.clone()),
            Item::Host(host) => hosts.push(host.clone()),
            Item::Net(mode) => document.network.mode = Some(mode.clone()),
            Item::Port(port) => document.network.ports.push(*port),
        }
    }
    if !hosts.is_empty() && document.network.mode.is_none() {
        document.network.mode = Some(NetworkMode::Hosts(hosts));
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(toml: &str) -> Policy {
        let document = crate::policy::parse(toml.as_bytes(), Path::new("test.toml")).expect("a policy");
        Policy::resolve(document).expect("a policy")
    }

    fn offered(texts: &[&str]) -> Grantable {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Grantable::new(&texts, Path::new("/home/project")).expect("grants")
    }

    #[test]
    fn what_is_granted_is_the_operators_entry() {
        let own = policy("profile = \"write\"");
        let grantable = offered(&["--write /srv/data", "--profile network", "--net hosts=a.org", "--read 'my keys'"]);
        let granted = |asked: &str| grantable.grant(asked, &own).expect("covered");
        assert_eq!(granted("--write /srv/data/deep/er").paths.write, [Path::new("/srv/data")]);
        assert_eq!(granted("--read '/home/project/my keys/one'").paths.also_read, [Path::new("/home/project/my keys")]);
        assert_eq!(granted("--profile write+network").profile, Some(vec![Profile::Write, Profile::Network]));
        assert_eq!(granted("--net hosts=a.org").network.mode, Some(NetworkMode::Hosts(vec!["a.org".into()])));
        assert_eq!(granted("--profile write"), Document::default(), "it has it");
    }

    #[test]
    fn what_is_not_listed_is_not_granted() {
        let own = policy("profile = \"minimal\"");
        let grantable = offered(&["--write /srv/data", "--allow mkdir", "--net loopback", "--port 80"]);
        for asked in [
            "--write /srv",
            "--write /srv/data2",
            "--write /srv/data/../other",
            "--write /",
            "--read /srv/data",
            "--write /srv/data --write /etc",
            "--profile write",
            "--profile unrestricted",
            "--allow ptrace",
            "--allow mkdir:ptrace",
            "--allow @file-write",
            "--net full",
            "--net hosts=a.org",
            "--port 81",
            "--unix /srv/data",
            "--timeout 1h",
            "--require-sandbox=false",
            "--static allow",
            "--config /srv/data/policy",
            "--isolate disabled",
            "",
            "--",
            "-- sh",
        ] {
            assert!(grantable.grant(asked, &own).is_err(), "{asked}");
        }
        assert!(grantable.grant("--write /srv/data --allow mkdir", &own).is_ok(), "the positive control");
        assert!(offered(&[]).grant("--write /srv/data", &own).is_err());
    }

    #[test]
    fn a_full_network_covers_every_other() {
        let own = policy("profile = \"minimal\"");
        let grantable = offered(&["--net full"]);
        for asked in ["--net full", "--net loopback", "--net hosts=a.org,b.org:443"] {
            assert_eq!(grantable.grant(asked, &own).expect("covered").network.mode, Some(NetworkMode::Full), "{asked}");
        }
    }

    #[test]
    fn what_is_no_grant_cannot_be_offered() {
        for text in ["--timeout 1h", "write /x", "--write", "--static allow", "--write '/x", "--write ../x"] {
            assert!(Grantable::new(&[text.to_owned()], Path::new("/home/project")).is_err(), "{text}");
        }
    }
}
