//! The protocol: which calls there are, and that each ends with whoever asked for it.

use super::terms::Terms;
use super::{answer, arguments};
use crate::sandbox::Sandbox;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf, Stdin};
use tokio::sync::{Semaphore, mpsc, watch};

const EXEC: &str = "exec";
const POLICY: &str = "gatekeeper://policy";
/// Commands at once; more of them wait.
const AT_ONCE: usize = 16;

/// Serves a client on standard input and output until it is gone, and everything that it started with it.
pub fn serve(terms: Terms) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let served = runtime.block_on(async {
        let (leaves, gone) = watch::channel(false);
        // Closed when the last call has let go of it.
        let (busy, mut idle) = mpsc::channel(1);
        let server = Server { terms: Arc::new(terms), slots: Semaphore::new(AT_ONCE), gone, busy };
        let reader = Reader { stdin: tokio::io::stdin(), leaves };
        let service = server.serve((reader, tokio::io::stdout())).await.map_err(io::Error::other)?;
        service.waiting().await.map_err(io::Error::other)?;
        idle.recv().await;
        Ok(())
    });
    // A thread may still wait for standard input.
    runtime.shutdown_background();
    served
}

struct Server {
    terms: Arc<Terms>,
    slots: Semaphore,
    /// Whether the client is.
    gone: watch::Receiver<bool>,
    busy: mpsc::Sender<()>,
}

impl Server {
    fn tool(&self) -> Tool {
        let about = "Runs a command confined, and tells what was denied and what would allow it. ";
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
            () = &mut ended => return answer::wrong("cancelled before it was run".to_owned()),
        };
        let mut running = Sandbox::of(request, input).spawn();
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
            .with_instructions(format!("Commands run in a sandbox; {POLICY} tells its limits."))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![self.tool()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == EXEC).then(|| self.tool())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
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
            .with_description("What commands may do: in words, and as a policy file")
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

/// Standard input, whose end is told at once: what is under way is ended then, not waited for.
struct Reader {
    stdin: Stdin,
    leaves: watch::Sender<bool>,
}

impl AsyncRead for Reader {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let read = std::task::ready!(Pin::new(&mut self.stdin).poll_read(context, into));
        if read.is_err() || room > 0 && into.remaining() == room {
            self.leaves.send_replace(true);
        }
        Poll::Ready(read)
    }
}
