//! The wheel: installed into fresh environments of the oldest and the newest Python here.

use super::{copy_of, packed, top};
use crate::support::{fetched, fresh, has, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The last versions that also run on Python 3.9.
const PYTEST: &str = "pytest==8.4.2 pluggy==1.6.0 iniconfig==2.1.0 packaging==25.0 exceptiongroup==1.3.0 tomli==2.2.1 \
                      typing_extensions==4.15.0";
pub const HATCHLING: &str = "hatchling==1.33.0";
const MYPY: &str = include_str!("../mcp/requirements.txt");

/// The oldest and the newest supported Python of this machine: the system's and those of pyenv.
fn pythons() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv"));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home);
    let versions = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten().flatten();
    let mut candidates: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin/python3")).collect();
    candidates.extend((9..20).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}"))));
    let minor = |python: &PathBuf| {
        let done = Command::new(python).args(["-c", "import sys; print(*sys.version_info[:2])"]).output().ok()?;
        let text = String::from_utf8(done.stdout).ok()?;
        let minor = text.trim().strip_prefix("3 ")?.parse::<u32>().ok()?;
        (minor >= 9).then(|| (minor, python.clone()))
    };
    let mut found: Vec<(u32, PathBuf)> = candidates.iter().filter(|path| path.exists()).filter_map(minor).collect();
    found.sort();
    found.dedup_by_key(|(minor, _)| *minor);
    let (first, last) = (found.first().cloned(), found.last().cloned());
    let mut chosen: Vec<PathBuf> = first.into_iter().chain(last).map(|(_, python)| python).collect();
    chosen.dedup();
    chosen
}

/// A new environment with the wheel and nothing else, made without a network.
fn environment(python: &Path, wheel: &Path) -> PathBuf {
    let venv = fresh("venv");
    // Debian splits ensurepip off; its pip then installs from outside.
    let own_pip = run(Command::new(python).args(["-c", "import ensurepip"])).code() == Some(0);
    let mut make = Command::new(python);
    make.args(["-m", "venv"]).args((!own_pip).then_some("--without-pip")).arg(&venv);
    run(&mut make).exits(0);
    let mut pip = Command::new(if own_pip { venv.join("bin/python") } else { python.to_owned() });
    pip.args(["-m", "pip"]);
    if !own_pip {
        pip.arg("--python").arg(venv.join("bin/python"));
    }
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]).arg(wheel);
    run(pip.env("PIP_ROOT_USER_ACTION", "ignore")).exits(0);
    venv
}

#[test]
fn the_wheel_is_installed_and_tested_in_the_oldest_and_the_newest_python() {
    let (Some(hatchling), Some(pytest)) = (fetched::python(HATCHLING), fetched::python(PYTEST)) else { return };
    let pythons = pythons();
    if pythons.is_empty() {
        return skip("there is no Python 3.9 or newer");
    }
    let Some(wheel) = packed("wheel", Some(&hatchling)) else { return };
    let name = wheel.file_name().expect("a file").to_string_lossy().into_owned();
    let version = env!("CARGO_PKG_VERSION");
    let machine = std::env::consts::ARCH;
    assert!(name.starts_with(&format!("gatekeeper_sandbox-{version}-py3-none-manylinux")), "{name}");
    assert!(name.contains(&format!("manylinux_2_17_{machine}")), "{name}");
    std::thread::scope(|scope| {
        for python in &pythons {
            scope.spawn(|| {
                let venv = environment(python, &wheel);
                // The carried program is on the environment's PATH.
                let mut tour = Command::new(venv.join("bin/gatekeeper"));
                run(tour.args(["run", "--", "echo", "hello"])).exits(0).prints("hello\n");
                let mut tests = Command::new(venv.join("bin/python"));
                tests.args([
                    "-X",
                    "dev",
                    "-W",
                    "error::ResourceWarning",
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "no:cacheprovider",
                    "tests",
                ]);
                tests.current_dir(copy_of("bindings/python")).env("PYTHONPATH", &pytest).env_remove("GATEKEEPER");
                run(tests.env("PYTHONDONTWRITEBYTECODE", "1")).exits(0);
            });
        }
    });
}

#[test]
fn a_program_that_needs_a_loader_does_not_become_a_wheel() {
    let Some(hatchling) = fetched::python(HATCHLING) else { return };
    if !has("python3") {
        return;
    }
    let script = "import hatch_build, sys; print(hatch_build.machine(sys.argv[1]))";
    let refused = |program: &str| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script, program]).current_dir(copy_of("bindings/python"));
        run(command.env("PYTHONPATH", &hatchling))
    };
    let done = refused("/bin/sh");
    done.exits(1);
    assert!(done.stderr().contains("needs a dynamic loader"), "{done}");
    refused("/etc/passwd").exits(1);
}

#[test]
fn the_python_package_and_its_examples_are_typed_throughout() {
    let (Some(mypy), Some(pytest)) = (fetched::python(MYPY), fetched::python(PYTEST)) else { return };
    let work = copy_of("bindings/python");
    for example in ["exec_tool.py", "agent.py"] {
        std::fs::copy(top().join("examples/python").join(example), work.join("src").join(example)).expect("readable");
    }
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "mypy", "--strict", "--python-version", "3.10", "--cache-dir"]).arg(fresh("mypy"));
    command.args(["src", "tests"]).current_dir(work);
    let paths = std::env::join_paths([mypy, pytest]).expect("no colon");
    run(command.env("PYTHONPATH", paths)).exits(0).prints("Success: no issues found in 19 source files\n");
}
