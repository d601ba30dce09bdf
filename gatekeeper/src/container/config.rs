//! Reads the configuration of boxes: the JSON5 of an agent system (`agents.defaults.sandbox`, `agents.list[].sandbox`,
//! `tools.sandbox.tools`), or the same keys under `[box]` of a policy. Unknown keys in these tables are errors; other keys
//! of the agent system's file are its own, unless they look like a misspelt one of ours.

use super::keys::Read;
use super::settings::{Scope, Set, Settings};
use super::tables::{self, Rest, TOP};
use crate::policy::{self, Document, Field, Source, Value, nearest};
use crate::trust::Hostile;
use std::path::{Path, PathBuf};

/// A configuration, read for one agent.
#[derive(Debug)]
pub struct Config {
    pub settings: Settings,
    /// The rest of the policy, for the runs inside.
    pub policy: Document,
    /// The file and those that it extends, by their given names and their real paths.
    pub sources: Vec<PathBuf>,
}

/// Reads a configuration for an agent. `home` replaces a leading `~`.
pub fn load(file: &Path, agent: &str, home: Option<&Path>) -> Read<Config> {
    let hostile = Hostile::here();
    let (bytes, found) = policy::read(file, None, &hostile)?;
    let source = Source::new(&bytes, file)?;
    let root = Field::root_json5(&source)?;
    let mut sources: Vec<PathBuf> = std::path::absolute(file).into_iter().collect();
    sources.push(found.real);
    match kind(&root) {
        Kind::AgentSystem => {
            let settings = layered(vec![(root, file)], tables::agent_system, agent, home)?;
            Ok(Config { settings, policy: Document::default(), sources })
        }
        Kind::Policy => {
            let (mut policy, files) = policy::load_files(file, &hostile)?;
            if policy.boxed.take().is_none() {
                return Err(root.needs(WANTED));
            }
            let settings = of_policy(&files, agent, home)?;
            sources.extend(policy.sources.iter().cloned());
            Ok(Config { settings, policy, sources })
        }
        Kind::Neither => Err(root.needs(WANTED)),
    }
}

const WANTED: &str = "agents (a sandbox for agents) or [box] (in a policy)";

enum Kind {
    AgentSystem,
    Policy,
    Neither,
}

fn kind(root: &Field<'_>) -> Kind {
    let Value::Table(entries) = &root.node.value else { return Kind::Neither };
    let has = |name: &str| entries.iter().any(|(key, _)| key.name == name);
    match () {
        () if has("box") => Kind::Policy,
        () if has("agents") || has("tools") => Kind::AgentSystem,
        // What it extends may have the table.
        () if has("extends") => Kind::Policy,
        // A misspelt key gets an error with the right one.
        () if entries.iter().any(|(key, _)| nearest(&key.name, TOP).is_some()) => Kind::AgentSystem,
        () => Kind::Neither,
    }
}

/// `[box]` of a policy and of the files that it extends. The first file is the policy itself.
fn of_policy(files: &[(PathBuf, Vec<u8>)], agent: &str, home: Option<&Path>) -> Read<Settings> {
    let mut sources = Vec::new();
    for (at, (file, bytes)) in files.iter().enumerate() {
        sources.push(Source { extended: at > 0, ..Source::new(bytes, file)? });
    }
    let mut roots = Vec::new();
    for source in sources.iter().rev() {
        roots.push((Field::root(source)?, source.file));
    }
    layered(roots, tables::policy, agent, home)
}

/// Reads files over each other, the last one on top: single values of a later file win, lists add up. What is written for
/// the agent alone goes over what all files write for all agents.
fn layered<'s>(
    files: Vec<(Field<'s>, &'s Path)>,
    read: fn(Field<'s>, &mut Settings) -> Read<Rest<'s>>,
    agent: &str,
    home: Option<&Path>,
) -> Read<Settings> {
    let mut settings = Settings::default();
    let (mut lists, mut browser_off) = (Vec::new(), None);
    for (root, file) in files {
        let (below, before) = (Settings::default(), settings.clone());
        let rest = read(root, &mut settings)?;
        settings.add_lists(&before, &below);
        settings.make_absolute(file, home);
        lists.extend(rest.list.map(|list| (list, file)));
        browser_off = rest.browser_off.or(browser_off);
    }
    let defaults = settings.clone();
    for (list, file) in lists {
        let before = settings.clone();
        tables::of_agent(list, agent, &mut settings)?;
        settings.add_lists(&before, &defaults);
        settings.make_absolute(file, home);
    }
    if settings.scope.value == Scope::Shared {
        // One container for all agents has one set of settings.
        settings.access = defaults.access;
        settings.root = defaults.root;
        settings.workspace = defaults.workspace;
        settings.docker = defaults.docker;
        settings.browser = defaults.browser;
        settings.prune = defaults.prune;
    }
    if let Some(key) = browser_off {
        settings.browser.enabled.put(false, &key);
    }
    Ok(settings)
}

impl Settings {
    /// Adds up the lists that an agent's entry replaces: these settings were read from one more file, `before` from the
    /// files before it, and `below` is what they all lie over.
    fn add_lists(&mut self, before: &Settings, below: &Settings) {
        let add = |now: &mut Set<Vec<String>>, before: &Set<Vec<String>>, below: &Set<Vec<String>>| {
            if now.key != before.key && before.key != below.key {
                let part = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
                let named: Vec<String> = now.value.iter().map(|text| part(text)).collect();
                let kept = before.value.iter().filter(|text| !named.contains(&part(text))).cloned();
                now.value.splice(0..0, kept.collect::<Vec<_>>());
            }
        };
        add(&mut self.docker.tmpfs, &before.docker.tmpfs, &below.docker.tmpfs);
        add(&mut self.docker.cap_drop, &before.docker.cap_drop, &below.docker.cap_drop);
    }

    /// Relative paths are meant from the directory of the file in which they are written.
    fn make_absolute(&mut self, file: &Path, home: Option<&Path>) {
        let directory = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned));
        let directory = directory.unwrap_or_default();
        let absolute = |path: &mut PathBuf| {
            *path = match (path.strip_prefix("~"), home) {
                (Ok(rest), Some(home)) => home.join(rest),
                _ => directory.join(&*path),
            };
        };
        absolute(&mut self.root.value);
        self.workspace.value.iter_mut().for_each(absolute);
        self.docker.binds.value.iter_mut().for_each(|bind| absolute(&mut bind.value.host));
    }
}
