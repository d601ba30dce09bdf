//! MCP over streamable HTTP, with the same tokens as the rest.

use super::tools;
use crate::session::Manager;
use crate::vault::Caller;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler};
use std::sync::Arc;

/// One client of MCP.
#[derive(Clone)]
pub struct Server {
    pub manager: Manager,
    /// Who the client is, on stdio. Over HTTP each request carries its own caller.
    pub caller: Option<Caller>,
}

impl Server {
    /// The caller of this very request: a later request of the same MCP session may carry another token.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        let of_request = context.extensions.get::<axum::http::request::Parts>();
        let caller = of_request.and_then(|parts| parts.extensions.get::<Caller>()).or(self.caller.as_ref());
        caller.cloned().ok_or_else(|| ErrorData::invalid_request("no token", None))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("gatekeeperd", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "A confined browser per session. Open one with browser_open_session, act on it, and close it with \
                 browser_close_session. Private addresses are denied.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context)?;
        let done = tokio::select! {
            done = tools::call(&self.manager, &caller, &request.name, request.arguments) => done,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        let done = done.ok_or_else(|| ErrorData::invalid_params(format!("unknown tool {:?}", request.name), None))?;
        Ok(done.into())
    }
}

/// The service at /mcp. [`super::guard`] has checked host, origin and token.
pub fn service(manager: Manager) -> StreamableHttpService<Server, LocalSessionManager> {
    // Without sessions of MCP: each request stands alone, so no other token can take over a session.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts();
    let server = Server { manager, caller: None };
    StreamableHttpService::new(move || Ok(server.clone()), Arc::new(LocalSessionManager::default()), config)
}
