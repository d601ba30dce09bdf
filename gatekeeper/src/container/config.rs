//! Reads the configuration of boxes: the JSON5 of an agent system (`agents.defaults.sandbox`, `agents.list[].sandbox`,
//! `tools.sandbox.tools`), or the same keys under `[box]` of a policy. Unknown keys in these tables are errors; other keys
//! of the agent system's file are its own, unless they look like a misspelt one of ours.

use super::bind;
use super::settings::{Secret, Set, Settings, name};
use super::tools;
use crate::policy::{self, Document, Field, PolicyError, Source, Value, ValueError, Word, nearest, values};
use crate::trust::Hostile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Read<T> = Result<T, PolicyError>;

const TOP: &[&str] = &["agents", "tools", "browser"];
const AGENTS: &[&str] = &["defaults", "list"];
const DEFAULTS: &[&str] = &["sandbox", "workspace"];
const AGENT: &[&str] = &["id", "sandbox", "tools", "workspace"];
const SANDBOX: &[&str] = &["mode", "scope", "workspaceAccess", "workspaceRoot", "docker", "browser", "prune"];
const DOCKER: &[&str] = &[
    "image",
    "network",
    "readOnlyRoot",
    "tmpfs",
    "user",
    "capDrop",
    "memory",
    "cpus",
    "pidsLimit",
    "env",
    "binds",
    "setupCommand",
];
const BROWSER: &[&str] =
    &["enabled", "image", "autoStart", "autoStartTimeoutMs", "allowHostControl", "env", "enableNoVnc"];
const PRUNE: &[&str] = &["idleHours", "maxAgeDays"];
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

fn exactly<'s>(table: Field<'s>, known: &'static [&'static str]) -> Read<Vec<Field<'s>>> {
    table.known_entries(known, |_| None)
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

fn sandbox(table: Field<'_>, settings: &mut Settings) -> Read<()> {
    exactly(table, SANDBOX)?.into_iter().try_for_each(|field| one(field, settings))
}

/// One key of a sandbox table.
fn one(field: Field<'_>, settings: &mut Settings) -> Read<()> {
    let key = field.key.clone();
    match field.name.as_str() {
        "mode" => settings.mode.put(field.parsed("off, non-main or all", Word::parse)?, &key),
        "scope" => settings.scope.put(field.parsed("session, agent or shared", Word::parse)?, &key),
        "workspaceAccess" => settings.access.put(field.parsed("none, ro or rw", Word::parse)?, &key),
        "workspaceRoot" => settings.root.put(field.parsed("a path", values::path)?, &key),
        "docker" => return docker(field, settings),
        "browser" => return browser(field, settings),
        "prune" => {
            for field in exactly(field, PRUNE)? {
                let value = field.whole(0, 1_000_000, "a whole number")?;
                let prune = &mut settings.prune;
                let target = if field.name == "idleHours" { &mut prune.idle_hours } else { &mut prune.max_age_days };
                target.put(value, &field.key);
            }
        }
        _ => return Err(field.unknown(SANDBOX, None)),
    }
    Ok(())
}

fn docker(table: Field<'_>, settings: &mut Settings) -> Read<()> {
    let docker = &mut settings.docker;
    for field in exactly(table, DOCKER)? {
        let key = field.key.clone();
        match field.name.as_str() {
            "image" => docker.image.put(field.parsed("the name of an image", image)?, &key),
            "network" => docker.network.put(field.parsed("none, bridge, host or a network's name", network)?, &key),
            "readOnlyRoot" => docker.read_only_root.put(field.truth()?, &key),
            "tmpfs" => docker.tmpfs.put(field.each("a list such as [\"/tmp:exec,mode=1777\"]", bind::tmpfs)?, &key),
            "user" => docker.user.put(Some(field.parsed("a string such as \"501:501\"", user)?), &key),
            "capDrop" => docker.cap_drop.put(field.each("a list such as [\"ALL\"]", capability)?, &key),
            "memory" => docker.memory.put(memory(&field)?, &key),
            "cpus" => docker.cpus.put(cpus(&field)?, &key),
            "pidsLimit" => docker.pids.put(field.whole(1, 4_194_304, "a whole number")?, &key),
            "env" => variables(field, &mut docker.env)?,
            "binds" => {
                let more = field.each("a list such as [\"/host:/inside:ro\"]", bind::parse)?;
                let all = docker.binds.value.drain(..).chain(more).collect();
                docker.binds.put(all, &key);
            }
            "setupCommand" => docker.setup.put(Some(setup(field)?).filter(|line| !line.is_empty()), &key),
            _ => return Err(field.unknown(DOCKER, None)),
        }
    }
    Ok(())
}

fn browser(table: Field<'_>, settings: &mut Settings) -> Read<()> {
    let browser = &mut settings.browser;
    // Writing the table switches the browser on, unless it says otherwise.
    let key = table.key.clone();
    for switch in [&mut browser.enabled, &mut browser.host_control] {
        if switch.key.is_none() {
            switch.put(true, &key);
        }
    }
    for field in exactly(table, BROWSER)? {
        let key = field.key.clone();
        match field.name.as_str() {
            "enabled" => browser.enabled.put(field.truth()?, &key),
            "image" => browser.image.put(field.parsed("the name of an image", image)?, &key),
            "autoStart" => browser.auto_start.put(field.truth()?, &key),
            "autoStartTimeoutMs" => browser.timeout_ms.put(field.whole(1, 3_600_000, "milliseconds")?, &key),
            "allowHostControl" => browser.host_control.put(field.truth()?, &key),
            "enableNoVnc" => browser.no_vnc.put(field.truth()?, &key),
            "env" => variables(field, &mut browser.env)?,
            _ => return Err(field.unknown(BROWSER, None)),
        }
    }
    Ok(())
}

/// Variables; an agent's are added to those of the defaults. No error shows a value.
fn variables(field: Field<'_>, into: &mut Set<BTreeMap<String, Secret>>) -> Read<()> {
    let key = field.key.clone();
    let mut all = std::mem::take(&mut into.value);
    for field in field.entries()? {
        let name = values::set_variable(&field.name).map_err(|error| field.wrong(error))?;
        let value = match &field.node.value {
            Value::Text(text) => text.clone(),
            Value::Whole(number) => number.to_string(),
            Value::Truth(truth) => truth.to_string(),
            _ => return Err(field.must_be("a string")),
        };
        if value.contains('\0') {
            return Err(field.wrong(ValueError::Conflict("a variable cannot hold a NUL")));
        }
        all.insert(name, Secret(value));
    }
    into.put(all, &key);
    Ok(())
}

fn image(text: &str) -> Result<String, ValueError> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    match starts && text.len() <= 255 && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::unusable("image", text, "not the name of an image, as in name:tag")),
    }
}

fn network(text: &str) -> Result<String, ValueError> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    match starts && text.len() <= 64 && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        // container:NAME would join the namespaces of another container.
        false => Err(ValueError::unusable("network", text, "use none, bridge, host or the name of a network")),
    }
}

fn user(text: &str) -> Result<(u32, u32), ValueError> {
    let wrong = || ValueError::unusable("user", text, "write numbers, as in 501:501");
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let number =
        |text: &str| text.parse::<u32>().ok().filter(|id| *id < 65_536 && text.bytes().all(|b| b.is_ascii_digit()));
    Ok((number(user).ok_or_else(wrong)?, number(group).ok_or_else(wrong)?))
}

fn capability(text: &str) -> Result<String, ValueError> {
    match !text.is_empty() && text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_') {
        true => Ok(text.to_ascii_uppercase()),
        false => Err(ValueError::unusable("capability", text, "a name such as ALL or NET_RAW")),
    }
}

/// The engines refuse less than 6 MiB.
const LEAST_MEMORY: u64 = 6 << 20;

fn memory(field: &Field<'_>) -> Read<u64> {
    const EXPECTED: &str = "a size such as \"1g\", or bytes";
    let bytes = match field.node.value {
        Value::Whole(_) => field.whole(0, 1 << 50, EXPECTED)?,
        _ => field.parsed(EXPECTED, values::size)?,
    };
    if bytes < LEAST_MEMORY {
        return Err(field.wrong(ValueError::Bytes { bytes, least: LEAST_MEMORY }));
    }
    Ok(bytes)
}

fn cpus(field: &Field<'_>) -> Read<f64> {
    let cpus = match &field.node.value {
        Value::Whole(number) => *number as f64,
        Value::Fraction(number) => *number,
        _ => return Err(field.must_be("a number of processors")),
    };
    match (0.01..=1024.0).contains(&cpus) {
        true => Ok(cpus),
        false => Err(field.wrong(ValueError::Conflict("not between 0.01 and 1024 processors"))),
    }
}

/// One line for sh, or a list of lines.
fn setup(field: Field<'_>) -> Read<String> {
    let line = |text: &str| match text.contains('\0') {
        true => Err(ValueError::Conflict("a command cannot hold a NUL")),
        false => Ok(vec![text.to_owned()]),
    };
    Ok(field.spread("a command line", line)?.join("\n"))
}
