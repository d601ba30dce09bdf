//! The command line.

mod args;
mod manage;
mod output;
mod serve;

use args::{Args, Command};
use std::ffi::OsString;
use std::io::{self, Write};

/// An error for people: what failed, and why.
pub struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Runs a command and returns the exit code: 0, 1 if it failed, 2 if the command line is wrong.
pub fn main(words: &[OsString]) -> u8 {
    let args = match Args::read(words) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Failure(format!("cannot start: {error}"))),
    };
    let done = runtime.block_on(run(args));
    // Do not wait for a thread that blocks in a read of standard input.
    runtime.shutdown_background();
    match done {
        Ok(()) => 0,
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> u8 {
    let _ = writeln!(io::stderr(), "gatekeeperd: {}", failure.0);
    1
}

async fn run(args: Args) -> Result<(), Failure> {
    protect_memory()?;
    match args.command {
        Command::Serve(serve) => serve::serve(&args.common, serve).await,
        Command::Mcp(mcp) => serve::mcp(&args.common, mcp).await,
        Command::Token(token) => manage::token(&args.common, token).await,
        Command::Grant(grant) => manage::grant(&args.common, grant).await,
        Command::Credential(credential) => manage::credential(&args.common, credential).await,
        Command::Session(session) => manage::session(&args.common, session).await,
    }
}

/// Cookies and keys pass through this process: no core dump, and no other process of this user may read its memory.
fn protect_memory() -> Result<(), Failure> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let done = setrlimit(Resource::Core, none).and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    done.map_err(|errno| Failure(format!("cannot switch off core dumps: {}", io::Error::from(errno))))
}
