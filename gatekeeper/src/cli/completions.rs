//! `gatekeeper completions` and `gatekeeper man`, generated from the definitions of the command line.

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::{failed, output, write_out};
use clap::CommandFactory;
use clap_mangen::Man;
use std::io;
use std::path::Path;

pub fn main(args: &CompletionsArgs) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gatekeeper", &mut text);
    write_out(None, &text)
}

/// Added to the page of the program itself.
const SEE_ALSO: &str = ".SH \"SEE ALSO\"
.BR gatekeeper\\-run (1),
.BR gatekeeper\\-check (1),
.BR gatekeeper\\-policy (5),
.BR libsandbox (7),
.BR bwrap (1),
.BR seccomp (2),
.BR landlock (7)
";

pub fn man(args: &ManArgs) -> u8 {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    match write_pages(&program, SEE_ALSO, &args.directory) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("man: {}: {error}", args.directory.display())),
    }
}

/// Writes the page of a command, ending with `more`, and the pages of its subcommands.
///
/// Not by `clap_mangen::generate_to`, which follows a link that a confined command may have left in the directory.
fn write_pages(command: &clap::Command, more: &str, directory: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend_from_slice(more.as_bytes());
    output::write(&directory.join(page.get_filename()), &text, 0o644)?;
    let mut shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown.try_for_each(|subcommand| write_pages(subcommand, "", directory))
}
