//! gatekeeper's policy schema: takes the tree of a file, gives a document. An unknown key is an error, because a misspelt
//! denial would deny nothing.

use super::document::{Document, Namespaces};
use super::error::{PolicyError, ValueError};
use super::field::Field;
use super::node::Value;
use super::values::{self, Word};
use super::{Commands, Environment, Limits, Network, NetworkMode, Paths, Syscalls, hosts, http, rules};
use std::time::Duration;

/// Each table and its keys; `""` is the top level.
pub(super) const TABLES: [(&str, &[&str]); 12] = [
    ("", TOP),
    ("syscalls", SYSCALLS),
    ("syscalls.rule", rules::RULE),
    ("syscalls.rule.args", rules::ARG),
    ("paths", PATHS),
    ("network", NETWORK),
    ("network.http", http::RULE),
    ("network.credential", http::CREDENTIAL),
    ("limits", LIMITS),
    ("env", ENV),
    ("commands", COMMANDS),
    ("bubblewrap", BUBBLEWRAP),
];
pub(super) const TOP: &[&str] = &[
    "extends",
    "profile",
    "on_violation",
    "static_binaries",
    "require_sandbox",
    "timeout",
    "libsandbox",
    "syscalls",
    "paths",
    "network",
    "limits",
    "env",
    "commands",
    "bubblewrap",
    "box",
];
const SYSCALLS: &[&str] = &["default", "allow", "deny", "rule"];
const PATHS: &[&str] = &["read", "also_read", "write", "execute", "deny"];
const NETWORK: &[&str] =
    &["mode", "hosts", "ports", "unix", "deny_private", "local_ports", "upstream_ca", "http", "credential"];
const LIMITS: &[&str] = &["memory", "processes", "files", "cpu", "output", "disk"];
const ENV: &[&str] = &["pass", "set"];
const COMMANDS: &[&str] = &["allow", "block"];
const BUBBLEWRAP: &[&str] = &["mode", "path", "read", "write"];

/// Keys of other tools, and the corresponding key here.
const FOREIGN: [(&str, &str); 8] = [
    ("sandbox", "bubblewrap"),
    ("isolate_network", "network.mode"),
    ("extra_rw_paths", "bubblewrap.write"),
    ("extra_ro_paths", "bubblewrap.read"),
    ("blocked_paths", "paths.deny"),
    ("env_passthrough", "env.pass"),
    ("allowed_hosts", "network.hosts"),
    ("allowedDomains", "network.hosts"),
];

type Read<T> = Result<T, PolicyError>;

/// The full key that the author of a misplaced or foreign key may have meant.
pub(super) fn elsewhere(name: &str) -> Option<String> {
    if let Some((_, ours)) = FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
        return Some((*ours).to_owned());
    }
    let mut holders = TABLES.iter().filter(|(_, keys)| keys.contains(&name));
    match (holders.next(), holders.next()) {
        (Some(("", _)), None) => Some(name.to_owned()),
        (Some((table, _)), None) => Some(format!("{table}.{name}")),
        _ => None,
    }
}

pub(super) fn entries<'s>(table: Field<'s>, known: &'static [&'static str]) -> Read<Vec<Field<'s>>> {
    table.known_entries(known, elsewhere)
}

pub(super) fn read(root: Field<'_>) -> Read<Document> {
    let mut document = Document::default();
    for field in entries(root, TOP)? {
        match field.name.as_str() {
            "extends" => document.extends = Some(field.parsed("the path of a policy file", plain_path)?),
            "profile" => document.profile = Some(profiles(field)?),
            "on_violation" => document.on_violation = Some(field.parsed("errno, kill or log", Word::parse)?),
            "static_binaries" => {
                document.static_binaries = Some(field.parsed("enforce, block, warn or allow", Word::parse)?);
            }
            "require_sandbox" => document.require_sandbox = Some(field.truth()?),
            "timeout" => document.timeout = Some(duration(&field)?),
            "libsandbox" => document.libsandbox = Some(field.parsed("a path", values::path)?),
            "syscalls" => document.syscalls = syscalls(field)?,
            "paths" => document.paths = paths(field)?,
            "network" => document.network = network(field)?,
            "limits" => document.limits = limits(field)?,
            "env" => document.env = environment(field)?,
            "commands" => document.commands = commands(field)?,
            "bubblewrap" => document.bubblewrap = namespaces(field)?,
            // Read by `container`, for `gatekeeper box`.
            "box" => {
                document.boxed = Some(field.place());
                field.entries()?;
            }
            _ => return Err(field.unknown(TOP, None)),
        }
    }
    Ok(document)
}

fn plain_path(text: &str) -> Result<std::path::PathBuf, ValueError> {
    if text.is_empty() || text.contains('\0') {
        return Err(ValueError::unusable("path", text, "not the path of a file"));
    }
    Ok(text.into())
}

fn profiles(field: Field<'_>) -> Read<Vec<super::Profile>> {
    let whole = field.again();
    let named = field.spread("a profile such as \"write+network\", or a list of them", values::profiles)?;
    values::combined(named).map_err(|error| whole.wrong(error))
}

/// A duration, also as whole seconds.
pub(super) fn duration(field: &Field<'_>) -> Read<Duration> {
    const EXPECTED: &str = "a duration such as \"30s\", or whole seconds";
    match field.node.value {
        Value::Whole(_) => Ok(Duration::from_secs(field.whole(0, values::MAX_DURATION.as_secs(), EXPECTED)?)),
        _ => field.parsed(EXPECTED, values::duration),
    }
}

fn size(field: &Field<'_>, least: u64) -> Read<u64> {
    const EXPECTED: &str = "a size such as \"512M\", or bytes";
    let size = match field.node.value {
        Value::Whole(_) => field.whole(0, u64::MAX, EXPECTED)?,
        _ => field.parsed(EXPECTED, values::size)?,
    };
    at_least(field, size, least)
}

fn at_least(field: &Field<'_>, value: u64, least: u64) -> Read<u64> {
    if value < least {
        return Err(field.wrong(ValueError::OutOfRange { value: value.into(), least, most: u64::MAX }));
    }
    Ok(value)
}

fn syscalls(table: Field<'_>) -> Read<Syscalls> {
    const EXPECTED: &str = "a list of syscalls, or one string with colons between them";
    let mut syscalls = Syscalls::default();
    for field in entries(table, SYSCALLS)? {
        match field.name.as_str() {
            "default" => {
                syscalls.default = Some(field.parsed("allow, deny, errno, kill or log", values::rule_action)?);
            }
            "allow" => syscalls.allow = field.spread(EXPECTED, values::syscalls)?,
            "deny" => syscalls.deny = field.spread(EXPECTED, values::syscalls)?,
            "rule" => {
                syscalls.rules = field.list("a list of tables")?.into_iter().map(rules::read).collect::<Read<_>>()?
            }
            _ => return Err(field.unknown(SYSCALLS, None)),
        }
    }
    Ok(syscalls)
}

fn paths(table: Field<'_>) -> Read<Paths> {
    const EXPECTED: &str = "a list of paths";
    let mut paths = Paths::default();
    for field in entries(table, PATHS)? {
        match field.name.as_str() {
            "read" => paths.read = Some(field.each(EXPECTED, values::path)?),
            "also_read" => paths.also_read = field.each(EXPECTED, values::path)?,
            "write" => paths.write = field.each(EXPECTED, values::path)?,
            "execute" => paths.execute = Some(field.each(EXPECTED, values::path)?),
            "deny" => paths.deny = field.each(EXPECTED, values::denied_path)?,
            _ => return Err(field.unknown(PATHS, None)),
        }
    }
    Ok(paths)
}

fn network(table: Field<'_>) -> Read<Network> {
    let mut network = Network::default();
    let (mut mode, mut listed) = (None, None);
    for field in entries(table, NETWORK)? {
        match field.name.as_str() {
            "mode" => mode = Some(field.parsed("none, loopback, full or hosts", network_mode)?),
            "hosts" => listed = Some((field.again(), field.each("a list of hosts", hosts::normal)?)),
            "ports" => network.ports = ports(field)?,
            "deny_private" => network.deny_private = field.truth()?,
            "local_ports" => network.local_ports = ports(field)?,
            "unix" => network.unix = field.each("a list of paths", values::path)?,
            "upstream_ca" => network.upstream_ca = field.each("a list of paths", values::path)?,
            "http" => network.http = each_table(field, http::read_rule)?,
            "credential" => network.credentials = each_table(field, http::read_credential)?,
            _ => return Err(field.unknown(NETWORK, None)),
        }
    }
    network.mode = match (mode, listed) {
        (Some(NetworkMode::Hosts(_)) | None, Some((_, hosts))) => Some(NetworkMode::Hosts(hosts)),
        // The author of a list of hosts expects that all others are out of reach.
        (Some(_), Some((field, hosts))) if !hosts.is_empty() => {
            return Err(field.wrong(ValueError::Conflict("a list of hosts needs mode = \"hosts\"")));
        }
        (mode, _) => mode,
    };
    Ok(network)
}

fn each_table<'s, T>(field: Field<'s>, read: impl Fn(Field<'s>) -> Read<T>) -> Read<Vec<T>> {
    field.list("a list of tables")?.into_iter().map(read).collect()
}

fn ports(field: Field<'_>) -> Read<Vec<u16>> {
    let port = |field: Field<'_>| field.whole(1, 65535, "a port").map(|port| port as u16);
    field.list("a list of ports")?.into_iter().map(port).collect()
}

fn network_mode(text: &str) -> Result<NetworkMode, ValueError> {
    match text {
        // The hosts are in their own key.
        "hosts" => Ok(NetworkMode::Hosts(Vec::new())),
        _ if values::NETWORK_MODES.contains(&text) => text.parse(),
        _ => Err(ValueError::unknown("network mode", text, values::NETWORK_MODES.to_vec())),
    }
}

fn limits(table: Field<'_>) -> Read<Limits> {
    const COUNT: &str = "a whole number";
    let mut limits = Limits::default();
    for field in entries(table, LIMITS)? {
        match field.name.as_str() {
            "memory" => {
                let memory = size(&field, 0)?;
                limits.memory = Some(values::memory(memory).map_err(|error| field.wrong(error))?);
            }
            "processes" => limits.processes = Some(field.whole(1, u64::MAX, COUNT)?),
            "files" => limits.files = Some(field.whole(values::LEAST_FILES, u64::MAX, COUNT)?),
            "cpu" => {
                let cpu = duration(&field)?;
                values::cpu(cpu).map_err(|error| field.wrong(error))?;
                limits.cpu = Some(cpu);
            }
            "output" => {
                let output = size(&field, 0)?;
                limits.output = Some(values::output(output).map_err(|error| field.wrong(error))?);
            }
            "disk" => {
                let disk = size(&field, 0)?;
                limits.disk = Some(values::disk(disk).map_err(|error| field.wrong(error))?);
            }
            _ => return Err(field.unknown(LIMITS, None)),
        }
    }
    Ok(limits)
}

fn environment(table: Field<'_>) -> Read<Environment> {
    let mut environment = Environment::default();
    for field in entries(table, ENV)? {
        match field.name.as_str() {
            "pass" => environment.pass = field.each("a list of variables", values::passed_variable)?,
            "set" => {
                for variable in field.entries()? {
                    let name = values::set_variable(&variable.name).map_err(|error| variable.wrong(error))?;
                    environment.set.insert(name, variable.parsed("a string", values::variable_value)?);
                }
            }
            _ => return Err(field.unknown(ENV, None)),
        }
    }
    Ok(environment)
}

fn commands(table: Field<'_>) -> Read<Commands> {
    let mut commands = Commands::default();
    for field in entries(table, COMMANDS)? {
        match field.name.as_str() {
            "allow" => commands.allow = field.each("a list of commands", values::command)?,
            "block" => commands.block = field.each("a list of commands", values::command)?,
            _ => return Err(field.unknown(COMMANDS, None)),
        }
    }
    Ok(commands)
}

fn namespaces(table: Field<'_>) -> Read<Namespaces> {
    let mut namespaces = Namespaces::default();
    for field in entries(table, BUBBLEWRAP)? {
        match field.name.as_str() {
            "mode" => namespaces.mode = Some(field.parsed("required, preferred or disabled", Word::parse)?),
            "path" => namespaces.path = Some(field.parsed("a path", values::path)?),
            "read" => namespaces.read = field.each("a list of paths", values::path)?,
            "write" => namespaces.write = field.each("a list of paths", values::path)?,
            _ => return Err(field.unknown(BUBBLEWRAP, None)),
        }
    }
    Ok(namespaces)
}
