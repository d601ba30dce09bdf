//! `gatekeeperd serve` and `gatekeeperd mcp`.

use super::Failure;
use super::args::{Browsers, Common, Mcp, ModelArgs, Serve};
use super::output::print;
use crate::api::{Listener, router, serve_stdio};
use crate::session::{Limits, Manager, Settings};
use crate::store::{Address, Store};
use crate::task::Model;
use crate::vault::{Caller, KeyFile, Vault, check_tenant};
use serde_json::json;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub async fn serve(common: &Common, serve: Box<Serve>) -> Result<(), Failure> {
    let manager = manager(common, &serve.browsers).await?;
    let listener = Listener::bind(&serve.listen).await;
    let listener = listener.map_err(|error| Failure(format!("cannot listen on {}: {error}", serve.listen)))?;
    let address = listener.address()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(listener.serve(router(manager.clone(), &address), stopped));
    let words = format!("gatekeeperd listens on {address}");
    print(common.json, &json!({ "listen": address.to_string() }), &[words])?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    stop.send_replace(true);
    manager.shutdown().await;
    let _ = serving.await;
    manager.vault().store().close().await;
    Ok(())
}

pub async fn mcp(common: &Common, mcp: Box<Mcp>) -> Result<(), Failure> {
    check_tenant(&mcp.tenant)?;
    let manager = manager(common, &mcp.browsers).await?;
    // The user of this program owns the store, so no token is needed. A grant still is.
    let caller = Caller { id: "mcp".to_owned(), tenant: mcp.tenant.clone(), operator: false };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        served = serve_stdio(manager.clone(), caller) => served?,
        _ = terminate.recv() => manager.shutdown().await,
        _ = interrupt.recv() => manager.shutdown().await,
    }
    manager.vault().store().close().await;
    Ok(())
}

async fn manager(common: &Common, browsers: &Browsers) -> Result<Manager, Failure> {
    let vault = vault(common).await?;
    let settings = Settings {
        limits: Limits {
            sessions: browsers.max_sessions,
            per_tenant: browsers.max_sessions_per_tenant,
            memory: Some(browsers.memory),
            files: Some(browsers.files),
            deadline: browsers.deadline,
            idle: browsers.idle,
            action: browsers.action_timeout,
        },
        local_ports: browsers.local_port.clone(),
        chromium: browsers.chromium.clone(),
        viewport: browsers.viewport,
        retention: browsers.retention,
        quota: browsers.quota,
        model: model(&browsers.model)?,
        ..settings(common)?
    };
    Ok(Manager::start(vault, settings).await?)
}

fn model(args: &ModelArgs) -> Result<Option<Model>, Failure> {
    let Some(url) = &args.url else { return Ok(None) };
    let model = Model::new(url, &args.name, args.key_file.as_deref(), args.coordinates);
    model.map(Some).map_err(|error| Failure(error.to_string()))
}

/// The store and its keys.
pub async fn vault(common: &Common) -> Result<Vault, Failure> {
    let state = state(common)?;
    let given =
        common.store.clone().or_else(|| std::env::var("GATEKEEPERD_STORE").ok().filter(|text| !text.is_empty()));
    let address = match given {
        Some(text) => text.parse()?,
        None => Address::Sqlite(state.join("gatekeeperd.db")),
    };
    let store = Store::open(&address).await?;
    Ok(Vault::new(store, KeyFile::choose(common.key_file.as_deref(), &state)))
}

/// The settings that every command has.
pub fn settings(common: &Common) -> Result<Settings, Failure> {
    let state = state(common)?;
    let recordings = common.recordings.clone().unwrap_or_else(|| state.join("recordings"));
    Ok(Settings { recordings: std::path::absolute(recordings)?, state, ..Settings::default() })
}

fn state(common: &Common) -> Result<PathBuf, Failure> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd lists several directories with colons between them; the unit names one.
    let directory = common.state.clone().or_else(|| from("STATE_DIRECTORY"));
    let directory = directory.or_else(|| from("XDG_STATE_HOME").map(|state| state.join("gatekeeperd")));
    let directory = directory.or_else(|| from("HOME").map(|home| home.join(".local/state/gatekeeperd")));
    let directory = directory.ok_or_else(|| Failure("HOME is not set; name a directory with --state".to_owned()))?;
    Ok(std::path::absolute(directory)?)
}
