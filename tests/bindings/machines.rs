//! Packages for two machines, as `make dist AARCH64=1` makes them: a program for aarch64 gets a wheel with the tag of its machine, and
//! goes into the same npm package. The program is a small one; `make aarch64` tests gatekeeper itself.

use super::{python, stripped, top};
use crate::support::{Done, fetched, fresh, has, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A static program for aarch64.
fn foreign() -> Option<PathBuf> {
    if !has("aarch64-linux-gnu-gcc") {
        return None;
    }
    let program = fresh("foreign").join("gatekeeper");
    let mut cross = Command::new("aarch64-linux-gnu-gcc");
    cross.args(["-static", "-o"]).arg(&program).arg(top().join("tests/probes/hello.c"));
    run(&mut cross).exits(0);
    Some(program)
}

/// Packs with a program for each machine, and returns the directory with the packages.
fn packed(kind: &str, program: &Path, foreign: &Path, python_path: &Path) -> (Done, PathBuf) {
    let dir = fresh(kind);
    let mut script = Command::new(top().join("scripts/bindings"));
    script.arg(kind).arg(&dir).env("GATEKEEPER", program).env("GATEKEEPER_AARCH64", foreign);
    (run(script.env("PYTHONPATH", python_path)), dir)
}

/// A file of a package, by the tool that lists it on standard output.
fn held(tool: &[&str], package: &Path, name: &str) -> Vec<u8> {
    let mut command = Command::new(tool[0]);
    let done = run(command.args(&tool[1..]).arg(package).arg(name));
    done.exits(0);
    done.output.stdout
}

#[test]
fn each_machine_gets_its_own_program() {
    let (Some(hatchling), Some(foreign)) = (fetched::python(python::HATCHLING), foreign()) else { return };
    if !has("unzip") || !has("npm") || !cfg!(target_arch = "x86_64") {
        return;
    }
    let bytes = |path: &Path| std::fs::read(path).expect("readable");
    let programs = [("x86_64", "x64", stripped()), ("aarch64", "arm64", &foreign)];
    let version = env!("CARGO_PKG_VERSION");

    let (done, wheels) = packed("wheel", stripped(), &foreign, &hatchling);
    done.exits(0);
    for (machine, _, program) in programs {
        let platforms = format!("manylinux2014_{machine}.manylinux_2_17_{machine}.musllinux_1_1_{machine}");
        let wheel = wheels.join(format!("gatekeeper_sandbox-{version}-py3-none-{platforms}.whl"));
        let script = format!("gatekeeper_sandbox-{version}.data/scripts/gatekeeper");
        assert!(held(&["unzip", "-p"], &wheel, &script) == bytes(program), "{machine}: another program");
        let about = held(&["unzip", "-p"], &wheel, &format!("gatekeeper_sandbox-{version}.dist-info/WHEEL"));
        let about = String::from_utf8(about).expect("text");
        for platform in platforms.split('.') {
            assert!(about.contains(&format!("Tag: py3-none-{platform}\n")), "{about}");
        }
        assert_eq!(about.matches("Tag: ").count(), 3, "{about}");
    }
    assert_eq!(std::fs::read_dir(&wheels).expect("own directory").count(), 2);

    let (done, npm) = packed("npm", stripped(), &foreign, &hatchling);
    done.exits(0);
    let package = npm.join(format!("gatekeeper-sandbox-{version}.tgz"));
    // Packages do not depend on when they are made.
    for (kind, first) in [("wheel", &wheels), ("npm", &npm)] {
        let (done, second) = packed(kind, stripped(), &foreign, &hatchling);
        done.exits(0);
        run(Command::new("diff").arg("-r").arg(first).arg(&second)).exits(0);
    }
    for (_, machine, program) in programs {
        let name = format!("package/bin/linux-{machine}/gatekeeper");
        assert!(held(&["tar", "-xzOf"], &package, &name) == bytes(program), "{machine}: another program");
    }
}
