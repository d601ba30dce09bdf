//! `gatekeeper compile`: a policy in, the filter file, the colon list or a container profile out.

use super::args::{CompileArgs, CompileForm, List};
use super::{complain, failed, write_out};
use crate::compile::{Form, compile};
use crate::policy::{self, Document, Policy, Syscalls};

pub fn main(args: &CompileArgs) -> u8 {
    let names = |lists: &[List]| lists.iter().flat_map(|list| list.0.clone()).collect();
    let flags = Document {
        profile: super::args::union(&args.profile),
        on_violation: args.on_violation,
        syscalls: Syscalls { allow: names(&args.allow), deny: names(&args.deny), ..Syscalls::default() },
        ..Document::default()
    };
    let file = args.config.as_ref().map_or(Ok(Document::default()), |path| policy::load(path));
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
