//! `gatekeeper serve`: many runs from one process, asked for and answered by JSON lines, on standard input and output or on a
//! UNIX socket.
//!
//! | file | part |
//! |---|---|
//! | `order` | one line: what was asked, or why it is wrong |
//! | `lines` | the lines as they arrive |
//! | `output` | the lines to the client, in their order |
//! | `session` | one client: its runs, its queue, its answers |
//! | `questions` | refused calls that the client decides about |
//! | `stream` | output that is sent while the command runs |
//! | `socket` | the socket file |
//! | `client` | who may connect to it |
//!
//! Each line from the client is an object with an id; each line to it is an object with the same id and one other key that says
//! what it is (`report`, `error`, `stdout`, `stderr`, `ask`). Clients ignore keys that they do not know, so more kinds can follow.

mod client;
mod lines;
pub mod order;
mod output;
mod questions;
mod session;
mod socket;
mod stream;

pub use order::Order;

use crate::request::Request;
use crate::sys::descriptors::duplicate;
use crate::sys::start::was_closed;
use session::Session;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Makes the request of an order. The caller of this module knows the flags of `run`.
pub type Requests = Arc<dyn Fn(&Order) -> Result<Request, String> + Send + Sync>;

/// Serves one client on standard input and output. Returns when the client has closed both, or has closed standard input and
/// everything that it asked for is answered.
pub fn on_stdio(requests: Requests) -> io::Result<()> {
    if was_closed(1) {
        return Err(io::Error::other("standard output is closed, so no answer could be read"));
    }
    let input = File::from(duplicate(0)?);
    let output = File::from(duplicate(1)?);
    Session::new(output, requests).serve(input)
}

/// Serves any number of clients of the same user on a socket file, until the process is killed.
pub fn on_socket(path: &Path, requests: Requests) -> io::Result<()> {
    let listener = socket::listen(path)?;
    socket::accept(&listener, &requests)
}
