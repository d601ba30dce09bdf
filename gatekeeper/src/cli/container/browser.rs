//! `gatekeeper box browser`, and the browser that `up` starts.

use super::super::args::BoxBrowserArgs;
use super::super::output::print;
use super::super::{complain, harmless};
use super::{boxed, identity, load, not_boxed};
use crate::container::{Boxed, Config, Endpoint, Sort};
use std::os::unix::process::CommandExt;

pub fn main(args: &BoxBrowserArgs) -> Result<u8, String> {
    let config = load(&args.up.config, &args.up.whose)?;
    let identity = identity(&args.up.whose)?;
    if args.target == "host" {
        return on_host(&config, args);
    }
    if !args.command.is_empty() {
        return Err("box: a browser to start is for --target host; the image has its own".to_owned());
    }
    if !config.settings.is_boxed(&identity.session) {
        return Err(format!("box: {}; use --target host", not_boxed(&config, &identity)));
    }
    let boxed = boxed(&config, &args.up.whose, true)?.browser()?;
    let endpoint = start(&boxed)?;
    match args.up.json {
        true => {
            let mut document = endpoint.json();
            document["schema"] = 1.into();
            Ok(print(&format!("{document:#}\n")))
        }
        false => {
            let lines = std::iter::once(endpoint.http()).chain(endpoint.no_vnc());
            Ok(print(&lines.map(|line| format!("{}\n", harmless(&line))).collect::<String>()))
        }
    }
}

fn start(boxed: &Boxed) -> Result<Endpoint, String> {
    debug_assert_eq!(boxed.kind, Sort::Browser);
    boxed.browse(&|text| complain(text))
}

/// The browser of `up`, if it starts by itself.
pub fn with_up(main: &Boxed) -> Result<Option<Endpoint>, String> {
    let browser = &main.settings.browser;
    match browser.enabled.value && browser.auto_start.value {
        true => start(&main.browser()?).map(Some),
        false => Ok(None),
    }
}

/// `gatekeeper browser` on this machine: confined, but with the network and the screen of the user.
fn on_host(config: &Config, args: &BoxBrowserArgs) -> Result<u8, String> {
    let browser = &config.settings.browser;
    if !browser.enabled.value || !browser.host_control.value {
        let (key, set) = match browser.enabled.value {
            false => ("browser.enabled", &browser.enabled),
            true => ("browser.allowHostControl", &browser.host_control),
        };
        complain(format_args!("box: --target host is refused: {key} is false ({})", set.decided_by()));
        return Ok(126);
    }
    let own = std::env::current_exe().map_err(|error| format!("cannot find gatekeeper itself: {error}"))?;
    let mut command = std::process::Command::new(own);
    command.arg("browser").arg("--");
    match args.command.is_empty() {
        true => command.arg("chromium"),
        false => command.args(&args.command),
    };
    Err(format!("gatekeeper browser: {}", command.exec()))
}
