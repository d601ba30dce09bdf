//! A document as TOML. `parse` reads back an equal document. Absent values are not written.

use super::document::Document;
use super::error::PolicyError;
use super::values::{DURATIONS, SIZES, Word, joined};
use super::{ArgTest, NetworkMode, RuleAction, SecretFrom, rules};
use sandbox_contract::action::errno_name;
use sandbox_contract::bpf::Op;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer lists are written with one item per line.
const WIDTH: usize = 100;

impl Document {
    /// The policy file for this document, without `sources`.
    pub fn to_toml(&self) -> Result<String, PolicyError> {
        let mut top = Table::new("");
        top.one("extends", self.extends.as_deref().map(|path| spelled("extends", path)).transpose()?);
        top.one("profile", self.profile.as_deref().map(|profiles| text(&joined(profiles))));
        top.one("on_violation", self.on_violation.map(|word| text(word.word())));
        top.one("static_binaries", self.static_binaries.map(|word| text(word.word())));
        top.one("require_sandbox", self.require_sandbox.map(|truth| truth.to_string()));
        top.one("timeout", self.timeout.map(duration));
        top.one("libsandbox", self.libsandbox.as_deref().map(|path| spelled("libsandbox", path)).transpose()?);
        let tables = [
            top,
            self.syscalls(),
            self.paths()?,
            self.network()?,
            self.limits(),
            self.environment(),
            self.variables(),
            self.commands(),
            self.bubblewrap()?,
        ];
        let written: Vec<_> = tables.into_iter().filter(|table| !table.lines.is_empty()).map(Table::finish).collect();
        Ok(written.join("\n"))
    }

    fn paths(&self) -> Result<Table, PolicyError> {
        let mut paths = Table::new("paths");
        paths.maybe("read", self.paths.read.as_deref().map(|list| spelled_all("paths.read", list)).transpose()?);
        paths.list("also_read", spelled_all("paths.also_read", &self.paths.also_read)?);
        paths.list("write", spelled_all("paths.write", &self.paths.write)?);
        paths.maybe(
            "execute",
            self.paths.execute.as_deref().map(|list| spelled_all("paths.execute", list)).transpose()?,
        );
        paths.list("deny", spelled_all("paths.deny", &self.paths.deny)?);
        Ok(paths)
    }

    fn network(&self) -> Result<Table, PolicyError> {
        let mut network = Table::new("network");
        network.one("mode", self.network.mode.as_ref().map(|mode| text(mode.word())));
        if let Some(NetworkMode::Hosts(hosts)) = &self.network.mode {
            network.maybe("hosts", Some(texts(hosts)));
        }
        network.list("ports", self.network.ports.iter().map(u16::to_string).collect());
        network.list("unix", spelled_all("network.unix", &self.network.unix)?);
        network.one("deny_private", self.network.deny_private.then(|| "true".to_owned()));
        network.list("local_ports", self.network.local_ports.iter().map(u16::to_string).collect());
        network.list("upstream_ca", spelled_all("network.upstream_ca", &self.network.upstream_ca)?);
        for rule in &self.network.http {
            network.lines.push_str("\n[[network.http]]\n");
            network.one("host", Some(text(&rule.host)));
            network.maybe("methods", rule.methods.as_deref().map(texts));
            network.maybe("paths", rule.paths.as_deref().map(texts));
        }
        for credential in &self.network.credentials {
            network.lines.push_str("\n[[network.credential]]\n");
            network.one("env", Some(text(&credential.env)));
            if let SecretFrom::File(path) = &credential.from {
                spelled("network.credential.from", path)?;
            }
            network.one("from", Some(text(&credential.from.to_string())));
            network.one("host", Some(text(&credential.host)));
            network.one("as", Some(text(&credential.placed.to_string())));
        }
        Ok(network)
    }

    fn limits(&self) -> Table {
        let mut limits = Table::new("limits");
        limits.one("memory", self.limits.memory.map(size));
        limits.one("processes", self.limits.processes.map(|count| count.to_string()));
        limits.one("files", self.limits.files.map(|count| count.to_string()));
        limits.one("cpu", self.limits.cpu.map(duration));
        limits.one("output", self.limits.output.map(size));
        limits.one("disk", self.limits.disk.map(size));
        limits
    }

    fn environment(&self) -> Table {
        let mut env = Table::new("env");
        env.list("pass", texts(&self.env.pass));
        env
    }

    fn variables(&self) -> Table {
        let mut set = Table::new("env.set");
        for (name, value) in &self.env.set {
            set.one(&bare(name), Some(text(value)));
        }
        set
    }

    fn commands(&self) -> Table {
        let mut commands = Table::new("commands");
        commands.list("allow", texts(&self.commands.allow));
        commands.list("block", texts(&self.commands.block));
        commands
    }

    fn bubblewrap(&self) -> Result<Table, PolicyError> {
        let mut bubblewrap = Table::new("bubblewrap");
        bubblewrap.one("mode", self.bubblewrap.mode.map(|word| text(word.word())));
        let path = self.bubblewrap.path.as_deref();
        bubblewrap.one("path", path.map(|path| spelled("bubblewrap.path", path)).transpose()?);
        bubblewrap.list("read", spelled_all("bubblewrap.read", &self.bubblewrap.read)?);
        bubblewrap.list("write", spelled_all("bubblewrap.write", &self.bubblewrap.write)?);
        Ok(bubblewrap)
    }

    fn syscalls(&self) -> Table {
        let mut syscalls = Table::new("syscalls");
        syscalls.one("default", self.syscalls.default.map(|default| text(&action(default))));
        syscalls.list("allow", texts(&self.syscalls.allow));
        syscalls.list("deny", texts(&self.syscalls.deny));
        for rule in &self.syscalls.rules {
            syscalls.lines.push_str("\n[[syscalls.rule]]\n");
            syscalls.one("syscall", Some(text(&rule.syscall)));
            syscalls.one("action", Some(text(&action(rule.action))));
            syscalls.list("args", rule.args.iter().map(argument).collect());
        }
        syscalls
    }
}

struct Table {
    name: &'static str,
    lines: String,
}

impl Table {
    fn new(name: &'static str) -> Table {
        Table { name, lines: String::new() }
    }

    fn one(&mut self, key: &str, value: Option<String>) {
        if let Some(value) = value {
            let _ = writeln!(self.lines, "{key} = {value}");
        }
    }

    /// A list for which empty and absent mean the same.
    fn list(&mut self, key: &str, items: Vec<String>) {
        self.maybe(key, Some(items).filter(|items| !items.is_empty()));
    }

    /// A list for which empty and absent differ.
    fn maybe(&mut self, key: &str, items: Option<Vec<String>>) {
        let short = |items: &Vec<String>| format!("[{}]", items.join(", "));
        self.one(
            key,
            items.map(|items| match short(&items) {
                line if key.len() + line.len() + 3 <= WIDTH => line,
                _ => format!("[\n    {},\n]", items.join(",\n    ")),
            }),
        );
    }

    fn finish(self) -> String {
        match self.name {
            "" => self.lines,
            // Only rules, which have their own headers.
            name if !self.lines.starts_with('\n') => format!("[{name}]\n{}", self.lines),
            _ => self.lines.trim_start_matches('\n').to_owned(),
        }
    }
}

/// A TOML string on one line. JSON's escapes work in TOML too; only DEL needs an additional one.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A key, quoted if necessary.
fn bare(name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if plain && !name.is_empty() { name.to_owned() } else { text(name) }
}

fn texts(items: &[String]) -> Vec<String> {
    items.iter().map(|item| text(item)).collect()
}

fn spelled(key: &'static str, path: &Path) -> Result<String, PolicyError> {
    path.to_str().map(text).ok_or_else(|| PolicyError::Unprintable { key, path: path.to_owned() })
}

fn spelled_all(key: &'static str, paths: &[PathBuf]) -> Result<Vec<String>, PolicyError> {
    paths.iter().map(|path| spelled(key, path)).collect()
}

/// `"1h30m"`.
pub(crate) fn duration(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut spelled = String::new();
    for (unit, nanos) in DURATIONS {
        let count = rest / u128::from(nanos);
        if count > 0 {
            let _ = write!(spelled, "{count}{unit}");
            rest %= u128::from(nanos);
        }
    }
    if spelled.is_empty() { "0".to_owned() } else { text(&spelled) }
}

/// `"512M"`, or bytes if no unit divides it.
pub(crate) fn size(size: u64) -> String {
    match SIZES.iter().find(|(_, scale)| size > 0 && size.is_multiple_of(*scale)) {
        Some((unit, scale)) => text(&format!("{}{unit}", size / scale)),
        None => number(size),
    }
}

/// TOML integers are below 2^63; larger numbers are written as strings.
fn number(number: u64) -> String {
    if i64::try_from(number).is_ok() { number.to_string() } else { text(&number.to_string()) }
}

pub(crate) fn action(action: RuleAction) -> String {
    match action {
        RuleAction::Allow => "allow".to_owned(),
        RuleAction::Deny => "deny".to_owned(),
        RuleAction::Kill => "kill".to_owned(),
        RuleAction::Log => "log".to_owned(),
        RuleAction::Errno(number) => match errno_name(number) {
            Some(name) => format!("errno:{name}"),
            None => format!("errno:{number}"),
        },
    }
}

fn argument(test: &ArgTest) -> String {
    let masked = test.mask != u64::MAX;
    let op = match test.op {
        Op::Eq if masked => "masked_eq",
        op => rules::OPS.iter().find(|(_, known)| *known == op).map_or("eq", |(word, _)| word),
    };
    let mask = if masked { format!(", mask = {}", bits(test.mask)) } else { String::new() };
    format!("{{ index = {}, op = \"{op}\", value = {}{mask} }}", test.index, bits(test.value))
}

fn bits(bits: u64) -> String {
    let hex = format!("{bits:#x}");
    match i64::try_from(bits) {
        Ok(0..=9) => bits.to_string(),
        Ok(_) => hex,
        Err(_) => text(&hex),
    }
}
