//! The modules for Python and Node ask a function of the caller.

use crate::plumbing::Place;
use crate::support::{gatekeeper, has, run};
use std::process::Command;

#[test]
fn a_callback_decides_in_python_and_node() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    let place = Place::new(None);
    let new = place.at("home/new");
    let wants = |decision: &str, command: &mut Command| {
        let _ = std::fs::remove_file(&new);
        let done = run(command.env("GATEKEEPER", gatekeeper()).env("DECISION", decision).current_dir(place.at("work")));
        done.exits(if decision == "once" { 0 } else { 1 });
        assert_eq!(new.exists(), decision == "once", "{done}");
    };
    let path = new.display();
    for decision in ["once", "deny"] {
        if has("python3") {
            let script = format!(
                "import os,sys; sys.path.insert(0,'{examples}/python'); from gatekeeper import Gatekeeper\n\
                 report=Gatekeeper().run(['touch','{path}'],on_ask=lambda question: os.environ['DECISION'])\n\
                 sys.exit(report.exit_code)"
            );
            wants(decision, Command::new("python3").args(["-c", &script]));
        }
        if has("node") {
            let script = format!(
                "import {{ Gatekeeper }} from '{examples}/node/gatekeeper.mjs';\n\
                 const report = await new Gatekeeper().run(['touch', '{path}'], {{ onAsk: async () => process.env.DECISION }});\n\
                 process.exit(report.exit_code);"
            );
            wants(decision, Command::new("node").args(["--input-type=module", "-e", &script]));
        }
    }
}
