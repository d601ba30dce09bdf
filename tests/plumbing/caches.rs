//! Package managers whose caches are in a home that the command may not write: either they do without, or the flag that
//! gatekeeper prints makes the same command work.

use super::{Place, users};
use crate::network;
use crate::support::{self, Done, fetched, on_path, skip};
use std::path::Path;

struct Tool {
    name: &'static str,
    /// The file or command without which it cannot be tried.
    program: String,
    line: String,
    /// Whether it goes on without a writable cache.
    does_without: bool,
}

/// What the tools install: a package of npm, a wheel, a Go module in a proxy's directory, a crate in a git repository.
const PREPARE: &str = r#"
mkdir package && echo '{"name":"tiny","version":"1.0.0"}' > package/package.json && tar czf tiny.tgz package
echo '{"name":"app","version":"1.0.0"}' > package.json
mkdir -p app/src crate/src proxy/example.test/tiny/@v go
printf '[package]\nname = "tiny"\nversion = "1.0.0"\n' > crate/Cargo.toml; echo > crate/src/lib.rs
git -C crate init -q && git -C crate add . && git -C crate -c user.name=a -c user.email=a@b.test commit -qm first
printf '[package]\nname = "app"\nversion = "0.1.0"\n[dependencies]\ntiny = { git = "file://%s/crate" }\n' "$PWD" > app/Cargo.toml; echo > app/src/lib.rs
printf 'module app\n\ngo 1.19\n\nrequire example.test/tiny v1.0.0\n' > go/go.mod
printf 'package main\nimport "example.test/tiny"\nfunc main() { println(tiny.X) }\n' > go/main.go
python3 - <<'END'
import zipfile
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as z:
    z.writestr("tiny.py", "x = 1\n"); d = "tiny-1.0.dist-info/"
    z.writestr(d + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    z.writestr(d + "WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"); z.writestr(d + "RECORD", "")
v = "proxy/example.test/tiny/@v/v1.0.0"
open(v + ".mod", "w").write("module example.test/tiny\n"); open(v + ".info", "w").write('{"Version":"v1.0.0"}')
with zipfile.ZipFile(v + ".zip", "w") as z:
    z.writestr("example.test/tiny@v1.0.0/go.mod", "module example.test/tiny\n")
    z.writestr("example.test/tiny@v1.0.0/tiny.go", "package tiny\nconst X = 7\n")
END
"#;

fn tools() -> Vec<Tool> {
    let tool = |name, program: &str, does_without, line: String| Tool {
        name,
        program: program.to_owned(),
        line,
        does_without,
    };
    let wheel = "--no-index --target out ./tiny-1.0-py3-none-any.whl && test -f out/tiny.py";
    let mut tools = vec![
        tool("npm", "npm", false, "npm install --no-audit --no-fund ./tiny.tgz && test -d node_modules/tiny".into()),
        tool("pip", "python3", true, format!("/usr/bin/python3 -m pip install -q {wheel}")),
        tool(
            "go",
            "go",
            false,
            "cd go && GOFLAGS=-mod=mod GOSUMDB=off GOPROXY=file://$PWD/../proxy go build -o ../out . && ../out".into(),
        ),
    ];
    if let Some(node) = fetched::node("yarn@1.22.22 pnpm@9.15.0") {
        let bin = |name: &str| node.join("node_modules").join(name).join("bin").display().to_string();
        tools.push(tool(
            "yarn",
            "node",
            true,
            format!("node {}/yarn.js add ./tiny.tgz && test -d node_modules/tiny", bin("yarn")),
        ));
        tools.push(tool(
            "pnpm",
            "node",
            true,
            format!("node {}/pnpm.cjs add --offline ./tiny.tgz && test -d node_modules/tiny", bin("pnpm")),
        ));
    }
    if let Some(python) = fetched::python("uv==0.9.9") {
        let uv = python.join("bin/uv").display().to_string();
        tools.push(tool("uv", &uv, false, format!("{uv} pip install -q --python /usr/bin/python3 {wheel}")));
    }
    match network::clients::cargo() {
        Some((cargo, rustc)) => {
            tools.push(tool(
                "cargo",
                &cargo,
                false,
                format!("cd app && RUSTC={rustc} {cargo} fetch -q && test -f Cargo.lock"),
            ));
        }
        None => skip("cargo is not installed"),
    }
    tools
}

/// The one flag that the message names for caches.
fn remedy(done: &Done) -> Option<String> {
    let told = done.stderr();
    let told = told.lines().find(|line| line.starts_with("gatekeeper: "))?.to_owned();
    let (_, place) = told.split_once("; --cache ")?;
    Some(place.split_once(" would allow")?.0.to_owned())
}

#[test]
fn package_managers_do_without_their_cache_or_work_with_the_flag_that_is_named() {
    for tool in tools() {
        if !on_path(&tool.program) && !Path::new(&tool.program).exists() {
            skip(&format!("{} is not installed", tool.program));
            continue;
        }
        for user in users() {
            let place = Place::new(user);
            support::run(&mut place.any(Path::new("/bin/sh"), &["-ec", PREPARE])).exits(0);
            let home = || std::fs::read_dir(place.at("home")).expect("own directory").count();
            let first = place.run(&["run", "-p", "write", "-c", &tool.line]);
            assert_eq!(first.code() == Some(0), tool.does_without, "{}: {first}", tool.name);
            assert_eq!(home(), 0, "{}: nothing is written in the home", tool.name);
            if tool.does_without {
                continue;
            }
            let cache = remedy(&first).unwrap_or_else(|| panic!("{}: no --cache in {first}", tool.name));
            let second = place.run(&["run", "-p", "write", "--cache", &cache, "-c", &tool.line]);
            assert_eq!(second.code(), Some(0), "{}: {second}", tool.name);
            // Below the directory that was named, and nowhere else.
            assert!(
                Path::new(&cache).read_dir().is_ok_and(|mut made| made.next().is_some()),
                "{}: {second}",
                tool.name
            );
            assert_eq!(home(), 1, "{}: only .cache", tool.name);
        }
    }
}

/// Maven 3.9 and newer reads the one variable, every Maven the other.
#[test]
fn mavens_repository_is_moved() {
    let place = Place::new(None);
    let done = place.run(&["run", "-p", "write", "--cache", "kept", "-c", "echo $MAVEN_ARGS; echo $MAVEN_OPTS"]);
    let moved = format!("-Dmaven.repo.local={}/kept/maven\n", place.at("work").display());
    done.exits(0).prints(&moved.repeat(2));
}
