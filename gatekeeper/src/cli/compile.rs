//! `gatekeeper compile`: converts a policy to a filter file, a colon list or a container profile.

use super::args::{CompileArgs, CompileForm};
use super::{complain, failed, write_out};
use crate::compile::{Form, compile};
use crate::policy::{self, Document, Policy};

pub fn main(args: &CompileArgs) -> u8 {
    let flags = args.syscalls.document();
    let file = args.syscalls.config.as_ref().map_or(Ok(Document::default()), |path| policy::load(path));
    let policy = match file.and_then(|file| Policy::resolve(flags.over(file))) {
        Ok(policy) => policy,
        Err(error) => return failed(format_args!("policy: {error}")),
    };
    let form = match args.to {
        CompileForm::Filter => Form::Filter,
        CompileForm::List => Form::List,
        CompileForm::Oci => Form::Oci,
    };
    match compile(&policy, form, args.lossy) {
        Ok(compiled) => {
            compiled.notes.iter().for_each(|note| complain(format_args!("note: {note}")));
            write_out(args.output.as_deref(), &compiled.bytes)
        }
        Err(error) => failed(format_args!("compile: {error}")),
    }
}
