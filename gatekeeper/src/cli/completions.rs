//! `gatekeeper completions` and `gatekeeper man`: generated from the definitions that parse the command line.

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::{failed, output, write_out};
use clap::CommandFactory;
use clap_mangen::Man;
use std::io;
use std::path::Path;

pub fn main(args: &CompletionsArgs) -> u8 {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(Cli::command()), "gatekeeper", &mut text);
    write_out(None, &text)
}

/// The command without its hidden subcommands, which clap_complete would offer.
fn shown(command: clap::Command) -> clap::Command {
    let subcommands: Vec<clap::Command> =
        command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned().collect();
    let mut bare = clap::Command::new("gatekeeper").version(env!("CARGO_PKG_VERSION")).propagate_version(true);
    if let Some(about) = command.get_about() {
        bare = bare.about(about.clone());
    }
    bare.args(command.get_arguments().cloned()).subcommands(subcommands)
}

/// References of gatekeeper(1); clap has no place for them.
const SEE_ALSO: &str = ".SH \"SEE ALSO\"
.BR gatekeeper\\-run (1),
.BR gatekeeper\\-check (1),
.BR gatekeeper\\-policy (5),
.BR libsandbox (7),
.BR bwrap (1),
.BR seccomp (2),
.BR landlock (7)
";

/// References of the pages of subcommands.
const SEE_ALSO_OF_COMMANDS: &str = ".SH \"SEE ALSO\"
.BR gatekeeper (1),
.BR gatekeeper\\-policy (5)
";

pub fn man(args: &ManArgs) -> u8 {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match write_pages(&command, SEE_ALSO, &args.directory) {
        Ok(()) => 0,
        Err(error) => failed(format_args!("man: cannot write to {}: {error}", args.directory.display())),
    }
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &clap::Command, see_also: &str, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, SEE_ALSO_OF_COMMANDS, directory)?;
    }
    let page = Man::new(command.clone()).source(concat!("gatekeeper ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = sections(&String::from_utf8_lossy(&text));
    // Not clap_mangen::generate_to: it would follow a link that a confined command left in the directory.
    output::write(&directory.join(page.get_filename()), (text + see_also).as_bytes(), 0o644)
}

/// Gives the text after the options, which clap_mangen calls EXTRA, the section names of man-pages(7).
fn sections(page: &str) -> String {
    let examples = page.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n");
    match examples.split_once("\n\nExit status: ") {
        Some((before, status)) => format!("{before}\n.fi\n.SH \"EXIT STATUS\"\n{status}"),
        None => examples.replace("\n.SH VERSION\n", "\n.fi\n.SH VERSION\n"),
    }
}
