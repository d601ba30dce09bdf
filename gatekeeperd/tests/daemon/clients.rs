//! MCP by the official clients for Python and TypeScript, on stdio and over HTTP.

use crate::support::{Daemon, echo, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory for PYTHONPATH with the client. `None`, with a printed skip, if it cannot be installed.
fn python() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-mcp-2.3.0");
    if !directory.join(".complete").exists() {
        let _ = std::fs::remove_dir_all(&directory);
        let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target"];
        let done = Command::new("/usr/bin/python3").args(words).arg(&directory).arg("mcp==2.3.0").output();
        if !done.as_ref().is_ok_and(|done| done.status.success()) {
            skip(&format!("the MCP client cannot be installed: {done:?}"));
            return None;
        }
        std::fs::write(directory.join(".complete"), "").expect("own directory");
    }
    Some(directory)
}

#[test]
fn the_official_python_client_is_served_on_stdio_and_over_http() {
    let Some(packages) = python() else { return };
    drive("/usr/bin/python3", "client.py", ("PYTHONPATH", &packages));
}

#[test]
fn the_official_typescript_client_is_served_on_stdio_and_over_http() {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/node/node_modules");
    if !modules.join("@modelcontextprotocol/sdk").is_dir() {
        return skip("@modelcontextprotocol/sdk is not in target/node/node_modules; `make test` installs it");
    }
    drive("node", "client.mjs", ("MODULES", &modules.canonicalize().expect("exists")));
}

/// Runs a script of this directory over HTTP and on stdio. It prints ok at its end.
fn drive(interpreter: &str, script: &str, packages: (&str, &Path)) {
    let port = echo();
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let token = daemon.token("alice", false);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon").join(script);
    let page = format!("http://127.0.0.1:{port}/");
    let state = tempfile::TempDir::new().expect("a temporary directory");
    let flags = [
        env!("CARGO_BIN_EXE_gatekeeperd"),
        "mcp",
        "--state",
        &state.path().display().to_string(),
        "--local-port",
        &port.to_string(),
    ];
    let stdio = [&["stdio", &page][..], &flags].concat();
    let url = format!("{}/mcp", daemon.url);
    for words in [&["http", &page, &url, &token][..], &stdio] {
        let done =
            Command::new(interpreter).arg(&script).args(words).env(packages.0, packages.1).output().expect("runs");
        let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success() && done.stdout == b"ok\n", "{}: {text}", words[0]);
    }
}
