//! Reads the configuration of boxes: the JSON5 of an agent system (`agents.defaults.sandbox`, `agents.list[].sandbox`,
//! `tools.sandbox.tools`), or the same keys under `[box]` of a policy. Unknown keys in these tables are errors; other keys
//! of the agent system's file are its own, unless they look like a misspelt one of ours.

use super::keys::{Read, exactly, one, sandbox};
use super::settings::{Settings, name};
use super::tools;
use crate::policy::{self, Document, Field, Source, Value, nearest, values};
use crate::trust::Hostile;
use std::path::{Path, PathBuf};

const TOP: &[&str] = &["agents", "tools", "browser"];
const AGENTS: &[&str] = &["defaults", "list"];
const DEFAULTS: &[&str] = &["sandbox", "workspace"];
const AGENT: &[&str] = &["id", "sandbox", "tools", "workspace"];
const LISTS: &[&str] = &["allow", "deny"];
/// `[box]` of a policy takes the tables of the other file, or the keys of `sandbox` directly.
const BOX: &[&str] = &[
    "mode",
    "scope",
    "workspaceAccess",
    "workspaceRoot",
    "docker",
    "browser",
    "prune",
    "tools",
    "agents",
    "workspace",
];

/// A configuration, read for one agent.
#[derive(Debug)]
pub struct Config {
    pub settings: Settings,
    /// The rest of the policy, for the runs inside.
    pub policy: Document,
    /// The file, by its given name and its real path.
    pub sources: Vec<PathBuf>,
}

/// Reads a configuration for an agent. `home` replaces a leading `~`.
pub fn load(file: &Path, agent: &str, home: Option<&Path>) -> Read<Config> {
    let hostile = Hostile::here();
    let (bytes, found) = policy::read(file, None, &hostile)?;
    let source = Source::new(&bytes, file)?;
    let root = Field::root_json5(&source)?;
    let (mut settings, policy) = match kind(&root) {
        Kind::AgentSystem => (agent_system(root, agent)?, Document::default()),
        Kind::Policy => {
            let policy = Document { boxed: None, ..policy::load_below(file, &hostile)? };
            (in_policy(root, agent)?, policy)
        }
        Kind::Neither => return Err(root.needs("agents (a sandbox for agents) or [box] (in a policy)")),
    };
    let base = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned)).unwrap_or_default();
    settings.make_absolute(&base, home);
    let mut sources: Vec<PathBuf> = std::path::absolute(file).into_iter().collect();
    sources.push(found.real);
    Ok(Config { settings, policy, sources })
}

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
        // A misspelt key gets an error with the right one.
        () if entries.iter().any(|(key, _)| nearest(&key.name, TOP).is_some()) => Kind::AgentSystem,
        () => Kind::Neither,
    }
}

impl Settings {
    fn make_absolute(&mut self, base: &Path, home: Option<&Path>) {
        let absolute = |path: &mut PathBuf| {
            *path = match (path.strip_prefix("~"), home) {
                (Ok(rest), Some(home)) => home.join(rest),
                _ => base.join(&*path),
            };
        };
        absolute(&mut self.root.value);
        self.workspace.value.iter_mut().for_each(absolute);
        self.docker.binds.value.iter_mut().for_each(|bind| absolute(&mut bind.host));
    }
}

/// The entries of a table of the agent system. A key near to one of ours is an error; other keys are not ours.
fn ours<'s>(table: Field<'s>, known: &'static [&'static str]) -> Read<Vec<Field<'s>>> {
    let entries = table.entries()?;
    let is_known = |field: &&Field<'_>| known.contains(&field.name.as_str());
    if let Some(field) = entries.iter().find(|field| !is_known(field) && nearest(&field.name, known).is_some()) {
        return Err(field.unknown(known, None));
    }
    Ok(entries.into_iter().filter(|field| is_known(&field) && field.node.value != Value::Null).collect())
}

/// Reads the whole file, so that a mistake in any agent's table is found; the result is for one agent.
fn agent_system(root: Field<'_>, agent: &str) -> Read<Settings> {
    let mut settings = Settings::default();
    let (mut list, mut browser_off) = (None, None);
    for field in ours(root, TOP)? {
        match field.name.as_str() {
            "agents" => {
                for field in ours(field, AGENTS)? {
                    match field.name.as_str() {
                        "defaults" => {
                            for field in ours(field, DEFAULTS)? {
                                match field.name.as_str() {
                                    "sandbox" => sandbox(field, &mut settings)?,
                                    _ => {
                                        settings.workspace.put(Some(field.parsed("a path", values::path)?), &field.key)
                                    }
                                }
                            }
                        }
                        _ => list = Some(field),
                    }
                }
            }
            "tools" => general_tools(field, &mut settings)?,
            _ => {
                for field in field.entries()?.into_iter().filter(|field| field.name == "enabled") {
                    browser_off = (!field.truth()?).then_some(field.key);
                }
            }
        }
    }
    if let Some(list) = list {
        settings = of_agent(list, agent, settings)?;
    }
    if let Some(key) = browser_off {
        settings.browser.enabled.put(false, &key);
    }
    Ok(settings)
}

/// `agents.list`: the entry of this agent over the defaults. All others are read too, for their mistakes.
fn of_agent(list: Field<'_>, agent: &str, defaults: Settings) -> Read<Settings> {
    let mut result = defaults.clone();
    for (at, mut entry) in list.list("a list of agents")?.into_iter().enumerate() {
        entry.key = format!("{}[{at}]", entry.key);
        let whole = entry.again();
        let mut settings = defaults.clone();
        let mut id = None;
        for field in ours(entry, AGENT)? {
            match field.name.as_str() {
                "id" => id = Some(field.parsed("the name of an agent", |text| name("agent", text))?),
                "sandbox" => sandbox(field, &mut settings)?,
                "tools" => general_tools(field, &mut settings)?,
                _ => settings.workspace.put(Some(field.parsed("a path", values::path)?), &field.key),
            }
        }
        let id = id.ok_or_else(|| whole.needs("id"))?;
        if settings.scope.value == super::settings::Scope::Shared {
            // One container for all agents has one set of settings.
            settings.docker = defaults.docker.clone();
            settings.browser = defaults.browser.clone();
            settings.prune = defaults.prune.clone();
        }
        if id == agent {
            result = settings;
        }
    }
    Ok(result)
}

/// `tools` of the file or of an agent: its own lists hold everywhere, those of `sandbox.tools` in a box.
fn general_tools(field: Field<'_>, settings: &mut Settings) -> Read<()> {
    for field in ours(field, &["allow", "deny", "sandbox"])? {
        match field.name.as_str() {
            "sandbox" => {
                for field in exactly(field, &["tools"])? {
                    lists(field, settings)?;
                }
            }
            _ => one_list(field, settings)?,
        }
    }
    Ok(())
}

fn lists(table: Field<'_>, settings: &mut Settings) -> Read<()> {
    exactly(table, LISTS)?.into_iter().try_for_each(|field| one_list(field, settings))
}

fn one_list(field: Field<'_>, settings: &mut Settings) -> Read<()> {
    let (key, allows) = (field.key.clone(), field.name == "allow");
    let list = field.each("a list of tools", tools::entry)?;
    let lists = if allows { &mut settings.tools.allow } else { &mut settings.tools.deny };
    lists.push((list, key));
    Ok(())
}

fn in_policy(root: Field<'_>, agent: &str) -> Read<Settings> {
    let mut settings = Settings::default();
    let mut list = None;
    for table in root.entries()?.into_iter().filter(|field| field.name == "box") {
        for field in exactly(table, BOX)? {
            match field.name.as_str() {
                "agents" => {
                    for field in exactly(field, AGENTS)? {
                        match field.name.as_str() {
                            "defaults" => {
                                for field in exactly(field, DEFAULTS)? {
                                    match field.name.as_str() {
                                        "sandbox" => sandbox(field, &mut settings)?,
                                        _ => settings
                                            .workspace
                                            .put(Some(field.parsed("a path", values::path)?), &field.key),
                                    }
                                }
                            }
                            _ => list = Some(field),
                        }
                    }
                }
                "tools" => general_tools(field, &mut settings)?,
                "workspace" => settings.workspace.put(Some(field.parsed("a path", values::path)?), &field.key),
                _ => one(field, &mut settings)?,
            }
        }
    }
    list.map_or(Ok(settings.clone()), |list| of_agent(list, agent, settings))
}
