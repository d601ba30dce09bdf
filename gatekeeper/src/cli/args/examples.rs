//! The examples and exit codes at the end of every `--help`. A test parses each example.

macro_rules! help {
    ($($line:literal)+; $($exits:literal)+) => {
        concat!("Examples:\n", $("  gatekeeper ", $line, "\n",)+ "\nExit status: ", $($exits),+)
    };
}

pub const ALL: &str = "Examples:
  gatekeeper run -- ls                    read files and compute, nothing else
  gatekeeper run -p read -c 'ls | wc -l'  also start programs, change nothing
  gatekeeper run -p write -- make         also write in this directory
  gatekeeper plan -p write -- make        print the steps, take none
  gatekeeper doctor                       test what this machine can enforce

Run `gatekeeper COMMAND --help` for more examples.";

pub const RUN: &str = help!(
    "run -- wc -l README.md"
    "run -p read -c 'grep -r TODO . | sort | head'"
    "run -p write --timeout 10m -- make"
    "run -p write --net 'hosts=crates.io,*.crates.io' -- cargo fetch"
    "run -p read --http 'GET,HEAD api.example.org/v1/**' --credential API_TOKEN@api.example.org -- ./agent"
    "run --json -p write -- ./test.sh | jq .denials"
    "run -p write --stage try1 -- make"
    "run --config policy.toml -- ./service";
    "the command's own, or\n"
    "  124    timeout\n"
    "  125    sandbox could not be set up, or report could not be written\n"
    "  126    refused by the policy or the verdict\n"
    "  127    command not found\n"
    "  128+n  killed by signal n (159: SIGSYS, for a denied call)\n"
    "  137    also: a limit was exceeded (outcome \"limit\" in the report)"
);

pub const PLAN: &str = help!(
    "plan -- git status"
    "plan -p write --net hosts=example.org -- curl https://example.org"
    "plan --json --config policy.toml -- ./service";
    "0; or 125, 126 or 127 if `run` would not start the command and exit with this code."
);

pub const BROWSER: &str = help!(
    "browser -- chromium --headless --dump-dom https://example.org"
    "browser --profile-dir ~/agent/browser --workspace ~/agent/work -- chromium"
    "browser --deny-private --wrapper ~/bin/confined-chromium -- chromium";
    "as for `gatekeeper run`."
);

pub const CHECK: &str = help!(
    "check ls /usr/bin/env"
    "check -r --blocked /usr/local/bin"
    "check --json -c 'make && ./a.out'";
    "0 LD_PRELOAD can confine all of them, 1 some are blocked, 2 error."
);

pub const PROFILES: &str = help!(
    "profiles"
    "profiles show read"
    "profiles test write --only git";
    "0; 1 if a test failed; 2 error."
);

pub const PROFILES_SHOW: &str =
    help!("profiles show minimal" "profiles show --json write+network"; "0 shown, 2 error.");

pub const PROFILES_TEST: &str = help!(
    "profiles test"
    "profiles test read --only python"
    "profiles test write --corpus mine.toml --json";
    "0 all passed, 1 some failed, 2 error. Commands that are not installed are skipped and listed."
);

pub const DOCTOR: &str = help!("doctor" "doctor --json | jq ."; "0 every layer is available, 1 at least one is not.");

pub const EXTRACT: &str = help!("extract" "extract /opt/agent/libsandbox.so"; "0 written, 2 error.");

pub const LEARN: &str = help!(
    "learn -o policy.toml -- ./service --once"
    "learn -o wider.toml --merge policy.toml -c 'make test'"
    "learn -o wider.toml --merge policy.toml --from-denials report.json";
    "the command's own, or 0 with --from-denials; 2 or 125 on error."
);

pub const SERVE: &str = help!(
    "serve"
    "serve --socket ~/agent/gatekeeper.sock";
    "0 the client has left, 2 error, 125 the sandbox could not be set up."
);

#[cfg(feature = "mcp")]
pub const MCP: &str = help!(
    "mcp -p read --cwd ~/project"
    "mcp -p write --cwd ~/project --timeout 10m --grantable '--net hosts=crates.io'";
    "0 the client disconnected, 2 protocol error, 125 the sandbox could not be set up."
);

pub const WHY: &str = help!(
    "why report.json"
    "why report.json 2"
    "why -- touch /usr/new";
    "0 explained, 2 error."
);

pub const AUDIT: &str = help!(
    "audit verify ~/audit.jsonl"
    "audit show ~/audit.jsonl --decision denied --since 1h";
    "0; 1 if a line was changed or removed; 2 error."
);

pub const AUDIT_VERIFY: &str = help!(
    "audit verify audit.jsonl"
    "audit verify --json audit.jsonl.1 audit.jsonl";
    "0 intact, 1 a line was changed or removed, 2 error."
);

pub const AUDIT_SHOW: &str = help!(
    "audit show audit.jsonl"
    "audit show audit.jsonl --kind http --host api.example.org"
    "audit show audit.jsonl --json --decision denied | jq .path";
    "0 shown, 2 error."
);

pub const LINT: &str =
    help!("lint policy.toml" "lint --json policy.toml"; "0 no findings, 1 findings, 2 the policy is invalid.");

pub const COMPILE: &str = help!(
    "compile -p minimal --to list --lossy"
    "compile --config policy.toml --to filter -o policy.bpf"
    "compile -p write+network --to oci --lossy -o seccomp.json";
    "0 written, 2 error."
);

pub const IMPORT: &str =
    help!("import seccomp.json -o policy.toml" "import --cap CAP_NET_RAW config.json"; "0 written, 2 error.");

pub const DIFF: &str = help!("diff read write" "diff minimal policy.toml" "diff --json old.toml new.toml"; "0 equivalent, 1 different, 2 error, or too intricate to compare.");

pub const STAGE: &str = help!(
    "stage list"
    "stage diff try1"
    "stage apply try1"
    "stage discard try1";
    "0; diff: 0 no changes, 1 changes; apply: 1 conflicts; 2 error."
);

pub const STAGE_LIST: &str = help!("stage list" "stage list --json | jq ."; "0 listed, 2 error.");

pub const STAGE_DIFF: &str = help!(
    "stage diff try1"
    "stage diff --stat try1"
    "stage diff --json try1 | jq .";
    "0 no changes, 1 changes, 2 error."
);

pub const STAGE_APPLY: &str = help!(
    "stage apply try1"
    "stage apply try1 src README.md"
    "stage apply try1 --protected skip";
    "0 applied; 1 files changed meanwhile, nothing was applied; 2 error."
);

pub const STAGE_DISCARD: &str = help!("stage discard try1"; "0 gone, 2 error.");

pub const STAGE_PRUNE: &str = help!("stage prune --older 7d"; "0, 2 error.");

pub const SCHEMA: &str = help!("schema policy > policy.schema.json" "schema report"; "0 printed, 2 error.");

pub const COMPLETIONS: &str = help!(
    "completions bash > ~/.local/share/bash-completion/completions/gatekeeper"
    "completions zsh";
    "0 printed, 2 error."
);

pub const BOX: &str = help!(
    "box exec --config openclaw.json --agent a1 --session s7 -- ls"
    "box explain --config openclaw.json --agent a1"
    "box list"
    "box prune --config openclaw.json"
    "box rm --agent a1";
    "as for `gatekeeper run` (exec, up); 0, or 2 error (others)."
);

pub const BOX_EXEC: &str = help!(
    "box exec --config openclaw.json --agent a1 --session s7 -- ls"
    "box exec --config openclaw.json --workspace ~/work -p write -- make"
    "box exec --config policy.toml --engine docker --json -c 'id; uname -r'";
    "as for `gatekeeper run`; 125 also if the engine cannot start the container."
);

pub const BOX_UP: &str = help!(
    "box up --config openclaw.json --agent a1 --session s7"
    "box up --config policy.toml --json";
    "0 there is a container, 125 the engine cannot make it."
);

pub const BOX_BROWSER: &str = help!(
    "box browser --config openclaw.json --agent a1"
    "box browser --config openclaw.json --json | jq -r .webSocket"
    "box browser --config openclaw.json --target host -- chromium";
    "0 it answers, 125 it does not; with --target host, that of the browser."
);

pub const BOX_LIST: &str = help!("box list" "box list --json | jq ."; "0, 2 error.");

pub const BOX_PRUNE: &str = help!("box prune" "box prune --config openclaw.json"; "0, 2 error.");

pub const BOX_RM: &str = help!("box rm --agent a1 --session s7" "box rm --all --force"; "0 gone, 2 error.");

pub const BOX_EXPLAIN: &str = help!("box explain --config openclaw.json --agent a1"; "0, 2 error.");

/// The first example of a command, to print when an argument is missing.
pub fn first(command: &str) -> Option<&'static str> {
    let all = [RUN, PLAN, BROWSER, STAGE, CHECK, LEARN, WHY, LINT, COMPILE, IMPORT, DIFF, SCHEMA, COMPLETIONS];
    let lines = all.into_iter().filter_map(|text| text.lines().nth(1)).map(str::trim);
    lines.into_iter().find(|line| line.split(' ').nth(1) == Some(command))
}

#[cfg(test)]
mod tests {
    use crate::cli::args::Cli;
    use crate::policy::grants;
    use clap::{Command, CommandFactory, Parser};

    /// The command lines between `Examples:` and the next blank line, without comments, redirections and pipes to jq.
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
            // The shell would expand the tilde.
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
