//! Runs the console blocks of the documents and compares the output. In a line `...` stands for any text, and on a line
//! of its own for any lines.

use super::{documents, root};
use crate::plumbing::users;
use crate::support::{copy_program, fresh, gatekeeper, libsandbox, run};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The commands of the ```console blocks, which start with `$ `, each with the output below it. A command continues
/// after a backslash, and to the end of its here-document.
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
                (None, Some((command, output))) if output.is_empty() && goes_on(command) => {
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

fn goes_on(command: &str) -> bool {
    command.ends_with('\\') || command.contains("<<'END'") && !command.ends_with("\nEND")
}

/// Whether the output matches the document.
fn shows(shown: &[&str], output: &[&str]) -> bool {
    match (shown, output) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=output.len()).any(|from| shows(rest, &output[from..])),
        ([line, rest @ ..], [told, others @ ..]) => in_line(line, told) && shows(rest, others),
        _ => false,
    }
}

fn in_line(shown: &str, told: &str) -> bool {
    match shown.split_once("...") {
        None => shown == told,
        Some((before, after)) => {
            let rest = told.strip_prefix(before);
            rest.is_some_and(|rest| rest.char_indices().any(|(at, _)| in_line(after, &rest[at..])) || after.is_empty())
        }
    }
}

/// A directory with gatekeeper that every user can enter.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let dir = fresh("programs");
        copy_program(gatekeeper(), &dir.join("gatekeeper"));
        // Some commands only look cargo up. rustup may have installed it where other users cannot reach it.
        let cargo = dir.join("last/cargo");
        std::fs::create_dir(dir.join("last")).expect("a fresh directory");
        std::fs::write(&cargo, "#!/bin/sh\nexit 99\n").expect("a fresh directory");
        std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).expect("own file");
        dir
    })
}

#[track_caller]
fn hold(document: &Path, user: Option<u32>) -> usize {
    let text = std::fs::read_to_string(document).expect("it is there");
    let sessions = sessions(&text);
    let (dir, home) = (fresh("document"), fresh("document-home"));
    std::fs::copy(libsandbox(), dir.join("libsandbox.so")).expect("a fresh directory");
    for path in [&dir, &home] {
        std::os::unix::fs::chown(path, user, user).expect("own, or root's to give");
        // Writable by their owner only, as a home is: `lint` warns of a policy that others could replace.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("just made");
    }
    let path = format!("{0}:{1}:{0}/last", programs().display(), std::env::var("PATH").unwrap_or_default());
    for (command, output) in &sessions {
        // As on a terminal: both streams, and the shell's message about a killed process.
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 2>&1; {command}")]).current_dir(&dir).env("PATH", &path).env("HOME", &home);
        shell.env("LC_ALL", "C").env("SANDBOX", libsandbox());
        for who in ["AUTHOR", "COMMITTER"] {
            shell.env(format!("GIT_{who}_NAME"), "Somebody").env(format!("GIT_{who}_EMAIL"), "somebody@localhost");
        }
        if let Some(user) = user {
            shell.uid(user).gid(user);
        }
        let done = run(&mut shell);
        let told = done.stdout();
        let same = shows(&output.lines().collect::<Vec<_>>(), &told.lines().collect::<Vec<_>>());
        assert!(same, "{} shows to {user:?}\n{output}\n{done}", document.display());
    }
    sessions.len()
}

#[test]
fn every_document_shows_what_happens() {
    let (mut shown, documents) = (Vec::new(), documents());
    let held = |document: &Path| users().into_iter().map(|user| hold(document, user)).sum::<usize>();
    std::thread::scope(|scope| {
        let started: Vec<_> = documents.iter().map(|document| (document, scope.spawn(|| held(document)))).collect();
        for (document, held) in started {
            let count = held.join().unwrap_or_else(|_| panic!("{} is not held", document.display()));
            if count > 0 {
                shown.push(document.file_name().expect("a file").to_string_lossy().into_owned());
            }
        }
    });
    for needed in
        ["README.md", "getting-started.md", "agents.md", "profiles.md", "policy.md", "recipes.md", "troubleshooting.md"]
    {
        assert!(shown.iter().any(|name| name == needed), "{needed} shows no session");
    }
}

/// Commands in other blocks would not be run, and would become outdated.
#[test]
fn commands_are_shown_in_no_other_way() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it is there");
        for line in text.lines().filter(|line| line.starts_with("```")) {
            let kind = line.trim_start_matches('`').trim();
            assert!(!["sh", "bash", "shell", "zsh", "text"].contains(&kind), "{}: {line}", document.display());
        }
    }
}

/// The blocks of one kind.
fn blocks(text: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

#[test]
fn settings_of_other_programs_are_well_formed() {
    let mut services = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it is there");
        for block in blocks(&text, "json") {
            let parsed = serde_json::from_str::<serde_json::Value>(&block);
            assert!(parsed.is_ok(), "{}: {parsed:?} in {block}", document.display());
        }
        // `plan` accepts the command lines of the service files.
        for line in blocks(&text, "ini").iter().flat_map(|block| block.lines()) {
            let Some(line) = line.strip_prefix("ExecStart=/usr/bin/gatekeeper run ") else { continue };
            services += 1;
            let dir = fresh("service");
            run(Command::new(gatekeeper()).arg("plan").args(line.split(' ')).current_dir(&dir)).exits(0);
        }
    }
    assert!(services > 0);
}

/// The name that forges give to a heading in links.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it is there");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            let there =
                if file.is_empty() { document.clone() } else { document.parent().expect("a directory").join(file) };
            assert!(there.exists(), "{}: {target}", document.display());
            let is_there = section.is_empty() || {
                let text = std::fs::read_to_string(&there).expect("a document");
                text.lines().filter_map(|line| line.strip_prefix('#')).any(|heading| anchor(heading) == section)
            };
            assert!(is_there, "{}: {target}: no such section", document.display());
        }
    }
    assert!(root().join("README.md").exists());
}

#[test]
fn a_document_that_is_wrong_is_noticed() {
    assert!(shows(&["a ... c", "...", "z"], &["a b c", "x", "y", "z"]));
    assert!(!shows(&["a ... c"], &["a b d"]));
    assert!(!shows(&["a"], &["a", "b"]));
    assert!(in_line("...", "x") && in_line("x...", "x") && !in_line("y...", "x"));
    let text = "```console\n$ cat <<'END'\none\nEND\none\n$ true \\\n  && echo\n\n```\n";
    assert_eq!(
        sessions(text),
        [("cat <<'END'\none\nEND".to_owned(), "one\n".to_owned()), ("true \\\n  && echo".to_owned(), "\n".to_owned())]
    );
}
