//! The tables around the keys of a sandbox: defaults, the list of agents, and the lists of tools; in the file of an agent
//! system, and in `[box]` of a policy.

use super::keys::{Read, exactly, one, sandbox};
use super::settings::{Settings, name};
use super::tools::{self, Lists};
use crate::policy::{Field, Value, ValueError, nearest, values};

pub const TOP: &[&str] = &["agents", "tools", "browser"];
const AGENTS: &[&str] = &["defaults", "list"];
const DEFAULTS: &[&str] = &["sandbox", "workspace"];
const AGENT: &[&str] = &["id", "sandbox", "tools", "workspace"];
const TOOLS: &[&str] = &["allow", "deny", "sandbox"];
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

/// What a file has besides settings for all agents.
#[derive(Default)]
pub struct Rest<'s> {
    /// The list of agents.
    pub list: Option<Field<'s>>,
    /// The key that switches the browser off for everybody.
    pub browser_off: Option<String>,
}

/// How the entries of a table are read.
type Entries = for<'s> fn(Field<'s>, &'static [&'static str]) -> Read<Vec<Field<'s>>>;

/// The entries of a table of the agent system. A key near to one of ours is an error; other keys are not ours.
fn ours<'s>(table: Field<'s>, known: &'static [&'static str]) -> Read<Vec<Field<'s>>> {
    let entries = table.entries()?;
    let is_known = |field: &&Field<'_>| known.contains(&field.name.as_str());
    if let Some(field) = entries.iter().find(|field| !is_known(field) && nearest(&field.name, known).is_some()) {
        return Err(field.unknown(known, None));
    }
    Ok(entries.into_iter().filter(|field| is_known(&field) && field.node.value != Value::Null).collect())
}

/// The file of an agent system.
pub fn agent_system<'s>(root: Field<'s>, settings: &mut Settings) -> Read<Rest<'s>> {
    let mut rest = Rest::default();
    for field in ours(root, TOP)? {
        match field.name.as_str() {
            "agents" => rest.list = agents(field, settings, ours)?,
            "tools" => lists(field, &mut settings.tools.general, &mut settings.tools.boxed)?,
            _ => {
                for field in field.entries()?.into_iter().filter(|field| field.name == "enabled") {
                    rest.browser_off = (!field.truth()?).then_some(field.decider());
                }
            }
        }
    }
    Ok(rest)
}

/// `[box]` of a policy.
pub fn policy<'s>(root: Field<'s>, settings: &mut Settings) -> Read<Rest<'s>> {
    let mut rest = Rest::default();
    for table in root.entries()?.into_iter().filter(|field| field.name == "box") {
        for field in exactly(table, BOX)? {
            match field.name.as_str() {
                "agents" => rest.list = agents(field, settings, exactly)?,
                "tools" => lists(field, &mut settings.tools.general, &mut settings.tools.boxed)?,
                "workspace" => workspace(&field, settings)?,
                _ => one(field, settings)?,
            }
        }
    }
    Ok(rest)
}

/// `agents`: reads the defaults, and returns the list.
fn agents<'s>(table: Field<'s>, settings: &mut Settings, entries: Entries) -> Read<Option<Field<'s>>> {
    let mut list = None;
    for field in entries(table, AGENTS)? {
        match field.name.as_str() {
            "defaults" => {
                for field in entries(field, DEFAULTS)? {
                    match field.name.as_str() {
                        "sandbox" => sandbox(field, settings)?,
                        _ => workspace(&field, settings)?,
                    }
                }
            }
            _ => list = Some(field),
        }
    }
    Ok(list)
}

fn workspace(field: &Field<'_>, settings: &mut Settings) -> Read<()> {
    settings.workspace.put(Some(field.parsed("a path", values::path)?), &field.decider());
    Ok(())
}

/// `agents.list`: the entry of this agent. All others are read too, for their mistakes.
pub fn of_agent(list: Field<'_>, agent: &str, settings: &mut Settings) -> Read<()> {
    let mut ids = Vec::new();
    for (at, mut entry) in list.list("a list of agents")?.into_iter().enumerate() {
        entry.key = format!("{}[{at}]", entry.key);
        let whole = entry.again();
        let fields = ours(entry, AGENT)?;
        let id = fields.iter().find(|field| field.name == "id").ok_or_else(|| whole.needs("id"));
        let mut other = settings.clone();
        let settings = match &id {
            Ok(field) => {
                let id = field.parsed("the name of an agent", |text| name("agent", text))?;
                if ids.contains(&id) {
                    return Err(field.wrong(ValueError::Conflict("another entry of the list has the same id")));
                }
                ids.push(id.clone());
                if id == agent { &mut *settings } else { &mut other }
            }
            Err(_) => &mut other,
        };
        let has_id = id.map(|_| ());
        for field in fields {
            match field.name.as_str() {
                "id" => {}
                "sandbox" => sandbox(field, settings)?,
                "tools" => lists(field, &mut settings.tools.of_agent, &mut settings.tools.boxed_of_agent)?,
                _ => workspace(&field, settings)?,
            }
        }
        has_id?;
    }
    Ok(())
}

/// `tools` of the file or of an agent: its own lists hold everywhere, those of `sandbox.tools` in a box.
fn lists(table: Field<'_>, general: &mut Lists, boxed: &mut Lists) -> Read<()> {
    for field in ours(table, TOOLS)? {
        match field.name.as_str() {
            "sandbox" => {
                for field in exactly(field, &["tools"])? {
                    exactly(field, LISTS)?.into_iter().try_for_each(|field| one_list(field, boxed))?;
                }
            }
            _ => one_list(field, general)?,
        }
    }
    Ok(())
}

fn one_list(field: Field<'_>, lists: &mut Lists) -> Read<()> {
    let key = field.decider();
    let list = if field.name == "allow" { &mut lists.allow } else { &mut lists.deny };
    list.push((field.each("a list of tools", tools::entry)?, key));
    Ok(())
}
