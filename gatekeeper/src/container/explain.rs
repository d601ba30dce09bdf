//! `box explain`: the effective settings of a session, and the key that decides each. Shows no value of a variable.

use super::engine::Mount;
use super::settings::{Bind, Set, Settings};
use super::tools::OURS;
use super::workspace::Identity;
use crate::policy::Word;
use serde_json::{Map, Value, json};

/// The settings as JSON: each setting with its value and its key.
pub fn explain(settings: &Settings, identity: &Identity, mounts: &[Mount], name: &str) -> Value {
    let mut out = Map::new();
    let (docker, browser, prune) = (&settings.docker, &settings.browser, &settings.prune);
    fn add<T>(out: &mut Map<String, Value>, name: &str, set: &Set<T>, value: Value) {
        out.insert(name.to_owned(), json!({"value": value, "key": set.decided_by()}));
    }
    let names = |set: &Set<std::collections::BTreeMap<String, super::settings::Secret>>| {
        json!(set.value.keys().collect::<Vec<_>>())
    };
    let bind = |bind: &Set<Bind>| {
        let Bind { host, inside, writable } = &bind.value;
        format!("{}:{}:{}", host.display(), inside.display(), if *writable { "rw" } else { "ro" })
    };
    add(&mut out, "mode", &settings.mode, json!(settings.mode.value.word()));
    add(&mut out, "scope", &settings.scope, json!(settings.scope.value.word()));
    add(&mut out, "workspaceAccess", &settings.access, json!(settings.access.value.word()));
    add(&mut out, "workspaceRoot", &settings.root, json!(settings.root.value));
    add(&mut out, "workspace", &settings.workspace, json!(settings.workspace.value));
    add(&mut out, "docker.image", &docker.image, json!(docker.image.value));
    add(&mut out, "docker.network", &docker.network, json!(docker.network.value));
    add(&mut out, "docker.readOnlyRoot", &docker.read_only_root, json!(docker.read_only_root.value));
    add(&mut out, "docker.tmpfs", &docker.tmpfs, json!(docker.tmpfs.value));
    let (user, group) = settings.user();
    add(&mut out, "docker.user", &docker.user, json!(format!("{user}:{group}")));
    add(&mut out, "docker.capDrop", &docker.cap_drop, json!(docker.cap_drop.value));
    add(&mut out, "docker.memory", &docker.memory, json!(docker.memory.value));
    add(&mut out, "docker.cpus", &docker.cpus, json!(docker.cpus.value));
    add(&mut out, "docker.pidsLimit", &docker.pids, json!(docker.pids.value));
    add(&mut out, "docker.env", &docker.env, names(&docker.env));
    add(&mut out, "docker.binds", &docker.binds, json!(docker.binds.value.iter().map(bind).collect::<Vec<_>>()));
    add(&mut out, "docker.setupCommand", &docker.setup, json!(docker.setup.value.is_some()));
    add(&mut out, "browser.enabled", &browser.enabled, json!(browser.enabled.value));
    add(&mut out, "browser.image", &browser.image, json!(browser.image.value));
    add(&mut out, "browser.autoStart", &browser.auto_start, json!(browser.auto_start.value));
    add(&mut out, "browser.autoStartTimeoutMs", &browser.timeout_ms, json!(browser.timeout_ms.value));
    add(&mut out, "browser.allowHostControl", &browser.host_control, json!(browser.host_control.value));
    add(&mut out, "browser.enableNoVnc", &browser.no_vnc, json!(browser.no_vnc.value));
    add(&mut out, "browser.env", &browser.env, names(&browser.env));
    add(&mut out, "prune.idleHours", &prune.idle_hours, json!(prune.idle_hours.value));
    add(&mut out, "prune.maxAgeDays", &prune.max_age_days, json!(prune.max_age_days.value));
    let tools: Map<String, Value> = OURS
        .iter()
        .map(|tool| {
            let ruling = settings.tool(tool);
            ((*tool).to_owned(), json!({"allowed": ruling.allowed, "key": ruling.key}))
        })
        .collect();
    let mounts: Vec<Value> = mounts
        .iter()
        .map(|mount| json!({"host": mount.host, "inside": mount.inside, "mode": if mount.writable { "rw" } else { "ro" }, "key": mount.key}))
        .collect();
    let boxed = settings.is_boxed(&identity.session);
    json!({
        "schema": 1,
        "agent": identity.agent,
        "session": identity.session,
        "boxed": boxed,
        "container": if boxed { json!(name) } else { Value::Null },
        "settings": out,
        "mounts": if boxed { json!(mounts) } else { json!([]) },
        "tools": tools,
        "warnings": settings.without_workspace().filter(|_| boxed).into_iter().collect::<Vec<_>>(),
    })
}
