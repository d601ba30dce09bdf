//! The tool server: the Model Context Protocol over standard input and output, with one tool that runs commands and one
//! resource that tells under which policy. A client says what runs; what is allowed was said by whoever started it.

mod answer;
mod arguments;
mod grants;
mod server;
mod terms;

pub use server::serve;
pub use terms::Terms;
