//! Examples for every `--help`, each a command line that a test parses; and the exit codes beside them.

macro_rules! help {
    ($($line:literal)+; $($exits:literal)+) => {
        concat!("Examples:\n", $("  gatekeeper ", $line, "\n",)+ "\nExit status: ", $($exits),+)
    };
}

pub const ALL: &str = "Examples:
  gatekeeper run -- ls                    read and compute, and nothing else
  gatekeeper run -p read -c 'ls | wc -l'  start programs as well, and change nothing
  gatekeeper run -p write -- make         write in this directory, no network
  gatekeeper plan -p write -- make        what would be done, without doing it
  gatekeeper doctor                       what this machine can enforce

gatekeeper COMMAND --help has examples of each.";

pub const RUN: &str = help!(
    "run -- wc -l README.md"
    "run -p read -c 'grep -r TODO . | sort | head'"
    "run -p write --timeout 10m -- make"
    "run -p write --net 'hosts=crates.io,*.crates.io' -- cargo fetch"
    "run --json -p write -- ./test.sh | jq .denials"
    "run --config policy.toml -- ./service";
    "the command's own; 128+n if it died by signal n (159: killed for a denied call); "
    "124 timeout; 137 a limit was reached (the report says outcome limit); 125 the sandbox could not be set up, or the "
    "report not be written; 126 refused by policy or verdict; 127 not found."
);

pub const PLAN: &str = help!(
    "plan -- git status"
    "plan -p write --net hosts=example.org -- curl https://example.org"
    "plan --json --config policy.toml -- ./service";
    "0, or that of `run` where it would not start the command: 125, 126, 127."
);

pub const BROWSER: &str = help!(
    "browser -- chromium --headless --dump-dom https://example.org"
    "browser --profile-dir ~/agent/browser --workspace ~/agent/work -- chromium"
    "browser --deny-private --wrapper ~/bin/confined-chromium -- chromium";
    "as of run."
);

pub const CHECK: &str = help!(
    "check ls /usr/bin/env"
    "check -r --blocked /usr/local/bin"
    "check --json -c 'make && ./a.out'";
    "0 all preloadable, 1 some blocked, 2 error."
);

pub const PROFILES: &str = help!(
    "profiles"
    "profiles show read"
    "profiles test write --only git";
    "0, or of `test` 1 where something is not as it should be; 2 error."
);

pub const PROFILES_SHOW: &str = help!("profiles show minimal" "profiles show --json write+network"; "0, 2 error.");

pub const PROFILES_TEST: &str = help!(
    "profiles test"
    "profiles test read --only python"
    "profiles test write --corpus mine.toml --json";
    "0 all as it should be, 1 some not, 2 error. What is not installed is skipped, and said."
);

pub const DOCTOR: &str = help!("doctor" "doctor --json | jq ."; "0 all there, 1 something lacks.");

pub const EXTRACT: &str = help!("extract" "extract /opt/agent/libsandbox.so"; "0 written, 2 error.");

pub const LEARN: &str = help!(
    "learn -o policy.toml -- ./service --once"
    "learn -o wider.toml --merge policy.toml -c 'make test'"
    "learn -o wider.toml --merge policy.toml --from-denials report.json";
    "the command's own; 0 with --from-denials; 2 or 125 where nothing was run."
);

#[cfg(feature = "mcp")]
pub const MCP: &str = help!(
    "mcp -p read --cwd ~/project"
    "mcp -p write --cwd ~/project --timeout 10m --grantable '--net hosts=crates.io'";
    "0 the client is gone, 2 it did not speak the protocol, 125 no command could be run."
);

pub const WHY: &str = help!(
    "why report.json"
    "why report.json 2"
    "why -- touch /usr/new";
    "0 told, 2 error."
);

pub const LINT: &str =
    help!("lint policy.toml" "lint --json policy.toml"; "0 nothing found, 1 findings, 2 the policy cannot be used.");

pub const COMPILE: &str = help!(
    "compile -p minimal --to list --lossy"
    "compile --config policy.toml --to filter -o policy.bpf"
    "compile -p write+network --to oci --lossy -o seccomp.json";
    "0 written, 2 error."
);

pub const IMPORT: &str =
    help!("import seccomp.json -o policy.toml" "import --cap CAP_NET_RAW config.json"; "0 written, 2 error.");

pub const DIFF: &str = help!("diff read write" "diff minimal policy.toml" "diff --json old.toml new.toml"; "0 the same, 1 different, 2 error.");

pub const SCHEMA: &str = help!("schema policy > policy.schema.json" "schema report"; "0, 2 error.");

pub const COMPLETIONS: &str = help!(
    "completions bash > ~/.local/share/bash-completion/completions/gatekeeper"
    "completions zsh";
    "0, 2 error."
);

/// The first example of a command, for an error that needs one.
pub fn first(command: &str) -> Option<&'static str> {
    let all = [RUN, PLAN, BROWSER, CHECK, LEARN, WHY, LINT, COMPILE, IMPORT, DIFF, SCHEMA, COMPLETIONS];
    let lines = all.into_iter().filter_map(|text| text.lines().nth(1)).map(str::trim);
    lines.into_iter().find(|line| line.split(' ').nth(1) == Some(command))
}

#[cfg(test)]
mod tests {
    use crate::cli::args::Cli;
    use crate::policy::grants;
    use clap::{Command, CommandFactory, Parser};

    /// The command lines between `Examples:` and the next blank line, without comments and what a shell does with them.
    fn examples(help: &str) -> Vec<String> {
        let section = help.split("Examples:\n").nth(1).unwrap_or_default();
        let lines = section.lines().take_while(|line| !line.is_empty());
        let cut = |line: &str| {
            let line = line.trim().split("  ").next().unwrap_or_default();
            line.split(" > ").next().unwrap_or_default().split(" | jq").next().unwrap_or_default().to_owned()
        };
        lines.map(cut).collect()
    }

    fn hold(command: &mut Command, counted: &mut usize) {
        let help = command.render_long_help().to_string();
        let name = command.get_name().to_owned();
        let shown = examples(&help);
        assert!(!shown.is_empty(), "no example in the help of {name}:\n{help}");
        for line in shown {
            // What the shell makes of a leading tilde.
            let line = line.replace("~/", "/home/user/");
            let words = grants::split(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(words.contains(&name), "an example of another command in {name}: {line}");
            let parsed = Cli::try_parse_from(&words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.err().map(|error| error.to_string()).unwrap_or_default());
            *counted += 1;
        }
        let visible = |command: &&mut Command| !command.is_hide_set() && command.get_name() != "help";
        command.get_subcommands_mut().filter(visible).for_each(|command| hold(command, counted));
    }

    #[test]
    fn every_help_has_examples_that_parse() {
        let mut counted = 0;
        let mut command = Cli::command();
        command.build();
        hold(&mut command, &mut counted);
        assert!(counted >= 40, "{counted} examples");
    }
}
