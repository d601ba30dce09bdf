//! Remedies in rounds: an unprepared tool passes after all remedies of its report have been appended at most twice.
//! Every attempt starts from an empty home, so that none uses what another left behind.

use super::{applied, remedies};
use crate::run::{User, become_user, gatekeeper, users};
use crate::support::{Done, fresh, has, run, skip};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOST_ROUNDS: usize = 2;
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A tool and its task, in a directory beside an empty home.
struct Tool<'a> {
    name: &'a str,
    flags: Vec<String>,
    path: String,
    line: &'a str,
    files: &'a [(&'a str, &'a str)],
    /// A file that exists when the task is done.
    made: &'a str,
}

impl Tool<'_> {
    fn new<'a>(name: &'a str, line: &'a str, files: &'a [(&'a str, &'a str)], made: &'a str) -> Tool<'a> {
        Tool { name, flags: vec!["--profile".into(), "write".into()], path: PATH.into(), line, files, made }
    }

    fn prepare(&self, top: &Path, user: User) {
        for name in ["work", "home"] {
            let _ = fs::remove_dir_all(top.join(name));
            fs::create_dir(top.join(name)).expect("own directory");
        }
        for (name, text) in self.files {
            let file = top.join("work").join(name);
            fs::create_dir_all(file.parent().expect("below work")).expect("own directory");
            fs::write(file, text).expect("own directory");
        }
        if user == User::Nobody {
            run(Command::new("chown").args(["-R", "65534:65534"]).arg(top)).exits(0);
        }
    }

    fn attempt(&self, top: &Path, user: User, flags: &[OsString]) -> (Done, Vec<Value>) {
        self.prepare(top, user);
        let report = fresh("report").join("report.json");
        let mut command = Command::new(gatekeeper());
        command.args(["run", "--quiet", "--timeout", "2m", "--report"]).arg(&report).args(flags);
        command.args(["--", "sh", "-ec", self.line]).current_dir(top.join("work"));
        command.env_clear().env("PATH", &self.path).env("HOME", top.join("home")).env("LC_ALL", "C");
        become_user(&mut command, user);
        let done = run(&mut command);
        let text = fs::read(&report).unwrap_or_else(|error| panic!("{}: no report ({error}){done}", self.name));
        let report: Value = serde_json::from_slice(&text).expect("a report is JSON");
        (done, report["denials"].as_array().cloned().unwrap_or_default())
    }

    /// Asserts that the tool passes in at most two rounds, and needs at least `least`.
    #[track_caller]
    fn passes(&self, user: User, least: usize) {
        let top = fresh(self.name).canonicalize().expect("just made");
        let mut flags: Vec<OsString> = self.flags.iter().map(OsString::from).collect();
        for round in 0..=MOST_ROUNDS {
            let (done, denials) = self.attempt(&top, user, &flags);
            match remedies(&denials) {
                None => {
                    assert_eq!(done.code(), Some(0), "{} as {user:?}, {flags:?}: {denials:#?}{done}", self.name);
                    assert!(top.join("work").join(self.made).exists() || top.join(self.made).exists(), "{done}");
                    assert!(round >= least, "{} as {user:?} was refused nothing", self.name);
                    return;
                }
                Some(remedy) => flags = applied(&flags, &remedy),
            }
            assert!(round < MOST_ROUNDS, "{} as {user:?} after {round} rounds: {denials:#?}{done}", self.name);
        }
    }
}

#[test]
fn npm_without_a_cache() {
    if !has("npm") {
        return;
    }
    let files = [
        ("dep/package.json", r#"{"name": "dep", "version": "1.0.0"}"#),
        ("dep/index.js", "module.exports = 1\n"),
        ("app/package.json", r#"{"name": "app", "version": "1.0.0", "dependencies": {"dep": "file:../dep"}}"#),
    ];
    // The first installs a link, the second uses the cache.
    let linked = "cd app; npm install --offline --no-audit --no-fund";
    let packed = "npm pack ./dep; cd app; npm install --offline --no-audit --no-fund ../dep-1.0.0.tgz";
    for user in users() {
        for line in [linked, packed] {
            Tool::new("npm", line, &files, "app/node_modules/dep/index.js").passes(*user, 1);
        }
    }
}

#[test]
fn cargo_with_a_cold_home() {
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]));
    let programs = PathBuf::from(sysroot.exits(0).stdout().trim()).join("bin");
    if !programs.join("cargo").is_file() {
        return skip("cargo is not installed beside rustc");
    }
    let files = [
        ("Cargo.toml", "[package]\nname = 'small'\nversion = '0.1.0'\nedition = '2021'\n"),
        ("src/main.rs", "fn main() {}\n"),
    ];
    // As the current user only: the toolchain is often in a home that other users cannot enter.
    let tool = Tool::new("cargo", "cargo build --offline", &files, "target/debug/small");
    Tool { path: format!("{}:{PATH}", programs.display()), ..tool }.passes(User::Own, 1);
}

#[test]
fn pip_and_venv_without_a_cache() {
    let pip = Command::new("/usr/bin/python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|pip| pip.status.success()) {
        return skip("pip is not installed for /usr/bin/python3");
    }
    let wheel = "import zipfile\n\
        info = 'small-1.0.dist-info/'\n\
        with zipfile.ZipFile('small-1.0-py3-none-any.whl', 'w') as wheel:\n\
        \x20   wheel.writestr('small.py', 'x = 1\\n')\n\
        \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n')\n\
        \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \x20   wheel.writestr(info + 'RECORD', 'small.py,,\\n' + info + 'RECORD,,\\n')\n";
    let files = [("wheel.py", wheel)];
    let user_site = "/usr/bin/python3 wheel.py; /usr/bin/python3 -m pip install --no-index --user ./small-*.whl";
    let target = "/usr/bin/python3 wheel.py; /usr/bin/python3 -m pip install --no-index --target t ./small-*.whl";
    for user in users() {
        let tool = Tool::new("pip", user_site, &files, "home/.local/lib");
        let marked = ["--profile", "write", "--env", "PIP_BREAK_SYSTEM_PACKAGES=1"].map(str::to_owned).into();
        Tool { flags: marked, ..tool }.passes(*user, 1);
        Tool::new("pip-target", target, &files, "t/small.py").passes(*user, 0);
        let venv = "/usr/bin/python3 -m venv --without-pip v; v/bin/python -c 1";
        Tool::new("venv", venv, &[], "v/bin/python").passes(*user, 0);
    }
}

/// PostgreSQL uses several System V shared memory calls, each of which is denied. This script makes the same calls and
/// needs no PostgreSQL.
#[test]
fn shared_memory_as_a_database_uses_it() {
    if !has("/usr/bin/python3") {
        return;
    }
    let script = "import ctypes, sys\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        libc.shmat.restype = ctypes.c_void_p\n\
        def held(answer):\n\
        \x20   if answer in (-1, ctypes.c_void_p(-1).value): sys.exit('errno %d' % ctypes.get_errno())\n\
        \x20   return answer\n\
        memory = held(libc.shmget(0, 4096, 0o1600))\n\
        held(libc.shmat(memory, None, 0))\n\
        held(libc.shmctl(memory, 0, None))\n\
        semaphores = held(libc.semget(0, 1, 0o1600))\n\
        held(libc.semctl(semaphores, 0, 0))\n\
        open('done', 'w')\n";
    for user in users() {
        Tool::new("shared-memory", "/usr/bin/python3 share.py", &[("share.py", script)], "done").passes(*user, 1);
    }
}

/// PostgreSQL itself, which does not run as root.
#[test]
fn postgres_from_initdb_to_a_query() {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let Some(programs) = versions.map(|version| version.path().join("bin")).find(|bin| bin.join("initdb").exists())
    else {
        skip("PostgreSQL is not installed");
        return;
    };
    let line = "initdb -D data -A trust --no-sync\n\
        pg_ctl -D data -w -o \"-k $PWD -c listen_addresses=\" -l log start\n\
        psql -h \"$PWD\" -d postgres -Atc 'select 41 + 1' > answer || failed=1\n\
        pg_ctl -D data -w -m fast stop\n\
        test -z \"$failed\"; test \"$(cat answer)\" = 42";
    let user = *users().last().expect("there is always one");
    let tool = Tool::new("pg", line, &[], "answer");
    Tool { path: format!("{}:{PATH}", programs.display()), ..tool }.passes(user, 1);
}
