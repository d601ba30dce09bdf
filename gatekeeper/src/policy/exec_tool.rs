//! The exec tool's JSON: an agent's whole configuration, of which `tools.exec` concerns gatekeeper. Gives the same
//! document as gatekeeper's own schema. Keys in `tools.exec` must be known; all others belong to the agent.

use super::document::Document;
use super::error::{PolicyError, ValueError};
use super::field::Field;
use super::node::{Key, Node, Value};
use super::values::{self, Word};
use super::{OnViolation, Profile, StaticBinaries, schema};
use std::path::PathBuf;

pub(super) const EXEC: &[&str] = &["enabled", "sandbox", "allowedCommands", "blockedCommands", "timeout"];
pub(super) const SANDBOX: &[&str] = &[
    "enabled",
    "profile",
    "customAllow",
    "customDeny",
    "logViolations",
    "libsandboxPath",
    "staticBinaryAction",
    "requireSandbox",
];

type Read<T> = Result<T, PolicyError>;

/// Whether this file is such a configuration.
pub(super) fn is_one(root: &Field<'_>) -> bool {
    matches!(&root.node.value, Value::Table(entries) if entries.iter().any(|(key, _)| key.name == "tools"))
}

/// The position of `agents` in a file that configures containers for agents and no exec tool.
pub(super) fn containers(root: &Field<'_>) -> Option<usize> {
    let named = |value: &'_ Value, name: &str| match value {
        Value::Table(entries) => entries.iter().position(|(key, _)| key.name == name),
        _ => None,
    };
    let Value::Table(entries) = &root.node.value else { return None };
    let agents = entries.get(named(&root.node.value, "agents")?)?;
    let tools = named(&root.node.value, "tools").and_then(|at| entries.get(at));
    let exec = tools.is_some_and(|(_, tools)| named(&tools.value, "exec").is_some());
    (!exec).then_some(agents.0.at)
}

pub(super) const CONTAINERS: ValueError = ValueError::Conflict(
    "this configures containers: use `gatekeeper box exec --config`, or `gatekeeper mcp --config` with --agent; to run \
     commands without a container, write a policy with profile, [paths] and [network] (gatekeeper-policy(5)), or let gatekeeper learn write one",
);

/// The name and position of an entry beside `tools` that only a policy has. It would have no effect.
pub(super) fn of_a_policy<'f>(root: &'f Field<'_>) -> Option<(&'f str, usize)> {
    const SETTINGS: &[&str] = &["extends", "on_violation", "static_binaries", "require_sandbox", "libsandbox"];
    let Value::Table(entries) = &root.node.value else { return None };
    let is_policys = |(key, node): &&(Key, Node)| match &node.value {
        Value::Text(text) if key.name == "profile" => values::profiles(text).is_ok(),
        Value::List(all) if key.name == "profile" => {
            let is_profile = |one: &Node| matches!(&one.value, Value::Text(text) if values::profiles(text).is_ok());
            !all.is_empty() && all.iter().all(is_profile)
        }
        Value::Text(_) | Value::Truth(_) => SETTINGS.contains(&key.name.as_str()),
        // An agent's configuration may have a table of this name too, with other keys.
        Value::Table(inner) => {
            let known = schema::TABLES.iter().find(|(table, _)| *table == key.name).map(|(_, known)| *known);
            known.is_some_and(|known| inner.iter().any(|(key, _)| known.contains(&key.name.as_str())))
        }
        _ => false,
    };
    entries.iter().find(is_policys).map(|(key, _)| (key.name.as_str(), key.at))
}

pub(super) const NOT_READ: ValueError = ValueError::Conflict(
    "it has no effect: of a file with the top-level key tools, only tools.exec is read; remove tools, or put this into a policy of \
     its own (gatekeeper-policy(5))",
);

pub(super) fn read(root: Field<'_>) -> Read<Document> {
    let tools = only(root, "tools")?;
    let exec = only(tools, "exec")?;
    let mut document = Document::default();
    let mut sandbox = Sandbox::default();
    for field in exec.known_entries(EXEC, within_sandbox)? {
        match field.name.as_str() {
            "enabled" if !field.truth()? => return Err(PolicyError::ExecDisabled { place: field.place() }),
            "enabled" => {}
            "sandbox" => sandbox = read_sandbox(field)?,
            "allowedCommands" => document.commands.allow = field.each("a list of commands", values::command)?,
            "blockedCommands" => document.commands.block = field.each("a list of commands", values::command)?,
            "timeout" => document.timeout = Some(schema::duration(&field)?),
            _ => return Err(field.unknown(EXEC, None)),
        }
    }
    sandbox.into_document(&mut document);
    Ok(document)
}

/// The entry of this name. A configuration without it is not a policy.
fn only<'s>(table: Field<'s>, name: &'static str) -> Read<Field<'s>> {
    let whole = table.again();
    let found = table.entries()?.into_iter().find(|field| field.name == name);
    found.ok_or_else(|| whole.needs(name))
}

fn within_sandbox(name: &str) -> Option<String> {
    SANDBOX.contains(&name).then(|| format!("tools.exec.sandbox.{name}"))
}

fn within_exec(name: &str) -> Option<String> {
    EXEC.contains(&name).then(|| format!("tools.exec.{name}"))
}

#[derive(Default)]
struct Sandbox {
    off: bool,
    profile: Option<Vec<Profile>>,
    allow: Vec<String>,
    deny: Vec<String>,
    log: bool,
    library: Option<PathBuf>,
    static_binaries: Option<StaticBinaries>,
    require: Option<bool>,
}

fn read_sandbox(table: Field<'_>) -> Read<Sandbox> {
    const LIST: &str = "a string of syscalls with colons between them";
    let mut sandbox = Sandbox::default();
    for field in table.known_entries(SANDBOX, within_exec)? {
        match field.name.as_str() {
            "enabled" => sandbox.off = !field.truth()?,
            "profile" => sandbox.profile = Some(field.parsed("the name of a profile", values::profiles)?),
            "customAllow" => sandbox.allow = field.spread(LIST, values::syscalls)?,
            "customDeny" => sandbox.deny = field.spread(LIST, values::syscalls)?,
            "logViolations" => sandbox.log = field.truth()?,
            "libsandboxPath" => sandbox.library = field.parsed("a path", library)?,
            "staticBinaryAction" => {
                sandbox.static_binaries = Some(field.parsed("block, warn or allow", Word::parse)?);
            }
            "requireSandbox" => sandbox.require = Some(field.truth()?),
            _ => return Err(field.unknown(SANDBOX, None)),
        }
    }
    Ok(sandbox)
}

/// An agent that changes its profile and leaves the list behind must not get more than the profile.
pub(super) const NOT_CUSTOM: &str = "tools.exec.sandbox.customAllow has no effect: it counts only with the profile custom; remove it, or list the \
                          syscalls in a policy of gatekeeper's own";

impl Sandbox {
    fn into_document(self, document: &mut Document) {
        document.libsandbox = self.library;
        // The exec tool documents "requireSandbox: false (default)". Only here a missing layer is a warning by default.
        document.require_sandbox = Some(self.require.unwrap_or(false));
        if self.off {
            // The agent asked for no filter. Its lists were checked above and have no effect without one.
            document.profile = Some(vec![Profile::Unrestricted]);
            document.static_binaries = self.static_binaries;
            return;
        }
        document.static_binaries = Some(self.static_binaries.unwrap_or(StaticBinaries::Block));
        let is_custom = self.profile.as_deref() == Some(&[Profile::Custom]);
        if is_custom {
            document.syscalls.allow = self.allow;
        } else if !self.allow.is_empty() {
            document.warnings.push(NOT_CUSTOM.to_owned());
        }
        document.profile = Some(self.profile.unwrap_or_else(|| vec![Profile::Minimal]));
        document.syscalls.deny = self.deny;
        // The exec tool documents "Blocked syscall -> SIGKILL". Its agents expect that a denied call ends the program.
        document.on_violation = Some(if self.log { OnViolation::Log } else { OnViolation::Kill });
    }
}

/// An empty path means the embedded library.
fn library(path: &str) -> Result<Option<PathBuf>, ValueError> {
    if path.is_empty() { Ok(None) } else { values::path(path).map(Some) }
}
