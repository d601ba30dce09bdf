//! What the documents say is what the programs do: console blocks are run, and their output compared.

use crate::support::{gatekeeper, libsandbox, run};
use std::path::Path;
use std::process::Command;

/// The blocks between ```console and ```: commands after `$ `, each with the output that follows it.
fn sessions(text: &str) -> Vec<(String, String)> {
    let mut sessions: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), sessions.last_mut()) {
                (Some(command), _) => sessions.push((command.to_owned(), String::new())),
                (None, Some((command, output))) if command.ends_with('\\') && output.is_empty() => {
                    command.push('\n');
                    command.push_str(line);
                }
                (None, Some((_, output))) => {
                    output.push_str(line);
                    output.push('\n');
                }
                (None, None) => panic!("output before any command: {line}"),
            },
        }
    }
    sessions
}

#[track_caller]
fn hold(document: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join(document)).expect("it is there");
    let sessions = sessions(&text);
    assert!(!sessions.is_empty(), "{document} shows no session");
    let dir = crate::support::fresh("readme");
    std::os::unix::fs::symlink(libsandbox(), dir.join("libsandbox.so")).expect("a fresh directory");
    let path = format!(
        "{}:{}",
        gatekeeper().parent().expect("it is in a directory").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    for (command, output) in sessions {
        // As a person sees it: both streams, and the shell's word about a death.
        let done = run(Command::new("bash")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(&dir)
            .env("PATH", &path)
            .env("LC_ALL", "C")
            .env("SANDBOX", libsandbox()));
        assert_eq!(done.stdout(), output, "{document}: {done}");
    }
}

#[test]
fn the_readme_shows_what_happens() {
    hold("README.md");
}

#[test]
fn the_manual_names_every_variable_and_group() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man/libsandbox.7");
    let manual = std::fs::read_to_string(manual).expect("it is there").replace("\\-", "-");
    for name in sandbox_contract::vars::ALL {
        assert!(manual.contains(name), "{name}");
    }
    for group in sandbox_contract::groups::GROUPS {
        let mut about = group.about.to_owned();
        about[..1].make_ascii_uppercase();
        assert!(manual.contains(&format!(".B @{}\n{about}.\n", group.name)), "@{}", group.name);
    }
}
