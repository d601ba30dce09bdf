//! The tool server: the Model Context Protocol over standard input and output, with one tool that runs commands and one
//! resource that describes the policy. The client chooses what to run; the operator who started the server has already
//! decided what is allowed.

mod answer;
mod arguments;
mod boxed;
mod browser;
mod catalogue;
mod elicit;
mod grants;
mod host;
mod jobs;
mod server;
mod stage;
mod terms;
mod transport;

pub use boxed::{BoxTerms, serve_box};
pub use server::serve;
pub use terms::Terms;
