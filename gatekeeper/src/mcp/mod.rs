//! The tool server: the Model Context Protocol over standard input and output, with one tool that runs commands and one
//! resource that describes the policy. The client chooses what to run; the operator who started the server has already
//! decided what is allowed.

mod answer;
mod arguments;
mod grants;
mod server;
mod terms;
mod transport;

pub use server::serve;
pub use terms::Terms;
