//! The official Python client, with the handshake of the versions before 2026 and with the newest one.

use crate::support::{fetched, fresh, gatekeeper, run};
use std::path::Path;
use std::process::Command;

#[test]
fn the_official_python_client_is_served() {
    let Some(packages) = fetched::python(include_str!("requirements.txt")) else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/mcp/client.py");
    for mode in ["legacy", "auto"] {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(&script).arg(gatekeeper()).arg(mode).env("PYTHONPATH", &packages);
        command.current_dir(fresh("mcp").canonicalize().expect("a fresh directory"));
        run(&mut command).exits(0).prints("ok\n");
    }
}
