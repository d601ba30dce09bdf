//! The protocol: the tool, the resource, and the end of each call when its client cancels it or goes away.

use super::elicit::Elicit;
use super::terms::Terms;
use super::transport::Stdio;
use super::{answer, arguments, stage};
use crate::sandbox::Sandbox;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, watch};

const EXEC: &str = "exec";
const POLICY: &str = "gatekeeper://policy";
/// How many commands run at the same time; further calls wait.
const AT_ONCE: usize = 16;

/// Serves a client on standard input and output until it disconnects and every command that it started has ended.
pub fn serve(terms: Terms) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let served = runtime.block_on(async {
        let (leaves, gone) = watch::channel(false);
        // Each call holds a sender, so the receiver sees the end of the last call.
        let (busy, mut idle) = mpsc::channel(1);
        // A stage takes one run at a time.
        let at_once = if terms.request.stage.is_some() { 1 } else { AT_ONCE };
        let server = Server { terms: Arc::new(terms), slots: Semaphore::new(at_once), gone, busy };
        let service = server.serve(Stdio::new(leaves)).await.map_err(io::Error::other)?;
        service.waiting().await.map_err(io::Error::other)?;
        idle.recv().await;
        Ok(())
    });
    // Do not wait for tokio's thread, which may still block in a read of standard input.
    runtime.shutdown_background();
    served
}

struct Server {
    terms: Arc<Terms>,
    slots: Semaphore,
    /// True once the client has disconnected.
    gone: watch::Receiver<bool>,
    busy: mpsc::Sender<()>,
}

impl Server {
    fn tool(&self) -> Tool {
        let about = "Runs a command in a sandbox, and reports what was denied and which grant would allow it. ";
        let limits = format!("{about}The limits of this sandbox:\n{}", self.terms.summary);
        let hints = ToolAnnotations::new().open_world(true).destructive(true);
        Tool::new(EXEC, limits, arguments::schema(&self.terms))
            .with_title("Run a command in the sandbox")
            .with_raw_output_schema(Arc::new(answer::schema()))
            .with_annotations(hints)
    }

    async fn exec(&self, given: Option<JsonObject>, context: &RequestContext<RoleServer>) -> CallToolResult {
        let _busy = self.busy.clone();
        let (request, input) = match arguments::request(&self.terms, given) {
            Ok(asked) => asked,
            Err(error) => return answer::wrong(error),
        };
        let mut gone = self.gone.clone();
        let ended = async {
            tokio::select! {
                () = context.ct.cancelled() => {}
                _ = gone.wait_for(|gone| *gone) => {}
            }
        };
        tokio::pin!(ended);
        let slot = tokio::select! {
            slot = self.slots.acquire() => slot,
            () = &mut ended => return answer::wrong("cancelled before it started".to_owned()),
        };
        let sandbox = Sandbox::of(request, input);
        let mut running = match Elicit::new(&context.peer).filter(|_| self.terms.asks) {
            Some(elicit) => sandbox.asking(Arc::new(elicit)).spawn(),
            None => sandbox.spawn(),
        };
        let report = tokio::select! {
            report = &mut running => report,
            () = &mut ended => {
                running.cancel();
                running.await
            }
        };
        drop(slot);
        answer::answer(&self.terms, &report)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("gatekeeper", env!("CARGO_PKG_VERSION")))
            .with_instructions(format!("Commands run in a sandbox; the resource {POLICY} describes its limits."))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items([vec![self.tool()], stage::tools(&self.terms)].concat()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools = std::iter::once_with(|| self.tool()).chain(stage::tools(&self.terms));
        tools.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if stage::tools(&self.terms).iter().any(|tool| tool.name == request.name) {
            let (terms, name) = (Arc::clone(&self.terms), request.name.to_string());
            let _busy = self.busy.clone();
            return Ok(stage::call(&terms, &name, request.arguments).into());
        }
        if request.name != EXEC {
            return Err(ErrorData::invalid_params(format!("unknown tool {:?}", request.name), None));
        }
        Ok(self.exec(request.arguments, &context).await.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let policy = Resource::new(POLICY, "policy")
            .with_title("The policy of the sandbox")
            .with_description("What commands may do: as a summary, and as a policy file")
            .with_mime_type("text/plain");
        Ok(ListResourcesResult::with_all_items(vec![policy]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != POLICY {
            return Err(ErrorData::resource_not_found(format!("unknown resource {:?}", request.uri), None));
        }
        let words = ResourceContents::text(&self.terms.summary, POLICY);
        let file = ResourceContents::text(&self.terms.toml, POLICY).with_mime_type("application/toml");
        Ok(ReadResourceResult::new(vec![words, file]).into())
    }
}
