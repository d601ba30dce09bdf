//! MCP on standard input and output: the sessions belong to this process and end with it.

use super::mcp::Server;
use crate::session::Manager;
use crate::vault::Caller;
use rmcp::ServiceExt;
use std::io;

/// Serves one client until it disconnects, then closes its sessions.
pub async fn serve(manager: Manager, caller: Caller) -> io::Result<()> {
    let server = Server { manager: manager.clone(), caller: Some(caller) };
    let served = async {
        let service = server.serve(rmcp::transport::stdio()).await.map_err(io::Error::other)?;
        service.waiting().await.map_err(io::Error::other).map(drop)
    };
    let served = served.await;
    manager.shutdown().await;
    served
}
