//! `gatekeeper mcp`: serves commands under the operator's policy. The client can add only what `--grantable` lists.

use super::args::{McpArgs, WhoseArgs};
use super::run::request_for;
use super::{complain, container, failed, setup_failed};
use crate::mcp::{BoxTerms, Terms, serve, serve_box};
use crate::request::{Asked, Request, Staging};
use crate::sys;
use crate::warden;

pub fn main(args: &McpArgs) -> u8 {
    if let Err(error) = sys::process::set_not_dumpable() {
        return setup_failed(format_args!("mcp: cannot protect this process from the commands it runs: {error}"));
    }
    warden::stay_as_it_is();
    if args.agent.is_some() || args.session.is_some() {
        return boxed(args).unwrap_or_else(setup_failed);
    }
    let request = match request_for(&args.policy, Asked::Command(Vec::new()), true) {
        Ok(request) => request,
        Err(error) => return setup_failed(error),
    };
    let stage = args.stage.as_ref().map(|name| Staging {
        name: name.clone(),
        limit: crate::stage::DEFAULT_LIMIT,
        progress: false,
    });
    let audit = match super::output::absolute_audit_file(args.audit.as_ref()) {
        Ok(audit) => audit,
        Err(error) => return setup_failed(error),
    };
    let request = Request { stage, audit, ..request };
    let terms = match Terms::new(request, &args.grantable, args.stage_decides, args.ask) {
        Ok(terms) => terms,
        Err(refusal) => return setup_failed(refusal.message),
    };
    match serve(terms) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("mcp: {error}")),
    }
}

/// The tools of an agent, in its container.
fn boxed(args: &McpArgs) -> Result<u8, String> {
    let named = |name: &Option<String>| name.clone().unwrap_or_else(|| crate::container::MAIN.to_owned());
    let engine =
        super::args::EngineArgs { engine: args.engine.engine.clone(), engine_args: args.engine.engine_args.clone() };
    let (agent, session) = (named(&args.agent), named(&args.session));
    let whose = WhoseArgs { engine, agent, session, workspace: args.workspace.clone() };
    let file = args.policy.syscalls.config.as_ref().ok_or("mcp: --config is required")?;
    let config = container::load(file, &whose)?;
    let identity = container::identity(&whose)?;
    if !config.settings.is_boxed(&identity.session) {
        return Err(format!(
            "mcp: {}; to serve commands without a container, leave out --agent and --session",
            container::not_boxed(&config, &identity)
        ));
    }
    let boxed = container::boxed(&config, &whose, true)?;
    config.settings.without_workspace().into_iter().for_each(complain);
    let audit = super::output::absolute_audit_file(args.audit.as_ref())?;
    let request = Request { audit, ..container::request(&args.policy, &config, Asked::Command(Vec::new())) };
    let (_, using, _) = boxed.ensure(&|text| complain(text))?;
    drop(using);
    serve_box(BoxTerms::new(boxed, request)).map(|()| 0).map_err(|error| format!("mcp: {error}"))
}
