//! The keys of a sandbox table: mode, scope, workspace, `docker`, `browser` and `prune`, with the grammar of their values.

use super::bind;
use super::settings::{Secret, Set, Settings};
use crate::policy::{Field, PolicyError, Value, ValueError, Word, values};
use std::collections::BTreeMap;

pub type Read<T> = Result<T, PolicyError>;

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

/// The entries of a table in which every key is ours.
pub fn exactly<'s>(table: Field<'s>, known: &'static [&'static str]) -> Read<Vec<Field<'s>>> {
    table.known_entries(known, |_| None)
}

pub fn sandbox(table: Field<'_>, settings: &mut Settings) -> Read<()> {
    exactly(table, SANDBOX)?.into_iter().try_for_each(|field| one(field, settings))
}

/// One key of a sandbox table.
pub fn one(field: Field<'_>, settings: &mut Settings) -> Read<()> {
    let key = field.decider();
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
                target.put(value, &field.decider());
            }
        }
        _ => return Err(field.unknown(SANDBOX, None)),
    }
    Ok(())
}

fn docker(table: Field<'_>, settings: &mut Settings) -> Read<()> {
    let docker = &mut settings.docker;
    for field in exactly(table, DOCKER)? {
        let key = field.decider();
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
                let bind = |text: &str| Ok(Set { value: bind::parse(text)?, key: Some(key.clone()) });
                let more = field.each("a list such as [\"/host:/inside:ro\"]", bind)?;
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
    let key = table.decider();
    for switch in [&mut browser.enabled, &mut browser.host_control] {
        if switch.key.is_none() {
            switch.put(true, &key);
        }
    }
    for field in exactly(table, BROWSER)? {
        let key = field.decider();
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
    let key = field.decider();
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
    let is_transport =
        |first: &str, rest: &str| TRANSPORTS.contains(&first) || first == "docker" && rest.starts_with("//");
    let transport = text.split_once(':').is_some_and(|(first, rest)| is_transport(first, rest));
    match starts && text.len() <= 255 && text.chars().all(fits) {
        _ if transport => {
            Err(ValueError::unusable("image", text, "name an image that is there already, without a transport"))
        }
        true => Ok(text.to_owned()),
        false => Err(ValueError::unusable("image", text, "not the name of an image, as in name:tag")),
    }
}

/// The transports of containers-transports(5), by which podman would load or pull an image whatever it is told. `docker:27` is
/// a name with a tag.
const TRANSPORTS: [&str; 11] = [
    "atomic",
    "containers-storage",
    "dir",
    "docker-archive",
    "docker-daemon",
    "oci",
    "oci-archive",
    "oci-mediatypes",
    "ostree",
    "sif",
    "tarball",
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_without_a_transport() {
        for name in ["debian", "debian:12", "docker:27", "docker:5000/a/b", "localhost/oci:1", "oci", "a@sha256:0f"] {
            assert_eq!(image(name).ok().as_deref(), Some(name));
        }
        for name in [
            "docker-archive:/path/arch.tar",
            "docker-archive:arch.tar:debian",
            "dir:/tmp/x",
            "dir:5000/x",
            "oci:x",
            "oci-archive:x.tar",
            "docker://debian",
            "docker-daemon:debian:12",
            "containers-storage:debian",
            "sif:x",
        ] {
            assert!(image(name).is_err(), "{name}");
        }
    }
}
