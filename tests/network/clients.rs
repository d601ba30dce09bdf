//! Real clients that use the proxy because of the environment alone: an allowed host works, and a denied one fails and
//! is recorded. The tests serve what they fetch.

use super::server::Server;
use super::{confined, users};
use crate::support::{fresh, has, run, skip};
use std::path::Path;
use std::process::Command;

/// Runs a client for a listed host and for one that is not listed. In `line`, URL stands for the server's address.
#[track_caller]
fn client(name: &str, line: &str, prepare: impl Fn(&Path, &str), worked: impl Fn(&Path) -> bool) {
    for user in users() {
        let files = fresh(&format!("{name}-files"));
        let server = Server::of(&files);
        prepare(&files, &server.url(""));
        let flags = ["--profile", "write", "--net", &format!("hosts={}", server.host())];

        let dir = fresh(name);
        let allowed = confined(&dir, user, &flags).args(&["-c", &line.replace("URL/", &server.url(""))]).go();
        allowed.done.exits(0);
        assert!(worked(&dir), "{}", allowed.done);
        assert!(!server.seen().is_empty());
        let proxied: Vec<_> = allowed.denials().iter().filter(|denial| denial["layer"] == "proxy").collect();
        assert!(proxied.is_empty(), "{:#}", allowed.report);

        let dir = fresh(name);
        let denied = confined(&dir, user, &flags).args(&["-c", &line.replace("URL/", "http://denied.test:81/")]).go();
        assert_ne!(denied.done.code(), Some(0), "{}", denied.done);
        assert_eq!(
            denied.denial("proxy", "denied.test:81")["allow_with"],
            format!("--net hosts={},denied.test:81", server.host())
        );
        assert!(server.seen().is_empty());
    }
}

fn hello(files: &Path, _: &str) {
    std::fs::write(files.join("file"), "hello").expect("own directory");
}

fn got_hello(dir: &Path) -> bool {
    std::fs::read(dir.join("out")).is_ok_and(|bytes| bytes == b"hello")
}

#[test]
fn curl() {
    if !has("curl") {
        return;
    }
    client("curl", "curl -fsS -o out URL/file", hello, got_hello);
    client("curl-tunnel", "curl -fsS -p -o out URL/file", hello, got_hello);
    client("curl-socks", "curl -fsS --proxy socks5h://${HTTP_PROXY#http://} -o out URL/file", hello, got_hello);
}

#[test]
fn wget() {
    if !has("wget") {
        return;
    }
    client("wget", "wget -q --tries=1 -O out URL/file", hello, got_hello);
}

#[test]
fn python_urllib() {
    if !has("python3") {
        return;
    }
    let line = "python3 -c 'import urllib.request as r; open(\"out\",\"wb\").write(r.urlopen(\"URL/file\").read())'";
    client("urllib", line, hello, got_hello);
}

#[test]
fn python_requests() {
    if !run(Command::new("/usr/bin/python3").args(["-c", "import requests"])).output.status.success() {
        return skip("requests is not installed for /usr/bin/python3");
    }
    let line = "/usr/bin/python3 -c 'import requests; r = requests.get(\"URL/file\", timeout=20); r.raise_for_status(); \
                open(\"out\", \"wb\").write(r.content)'";
    client("requests", line, hello, got_hello);
}

/// A copy of cargo that every user can execute, and a fake rustc that answers cargo's queries before a fetch.
pub fn cargo() -> Option<(String, String)> {
    let beside = |program: &str| {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        let real = Path::new(String::from_utf8(sysroot.stdout).ok()?.trim()).join("bin").join(program);
        real.is_file().then_some(real)
    };
    let dir = fresh("cargo-program");
    let (cargo, rustc) = (dir.join("cargo"), dir.join("rustc"));
    std::fs::copy(beside("cargo")?, &cargo).ok()?;
    let said = |words: &[&str]| run(Command::new(beside("rustc")?).args(words)).stdout().into();
    let version: Option<String> = said(&["-vV"]);
    let kinds =
        ["bin", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"].map(|kind| ["--crate-type", kind]).concat();
    let asked = ["file-names", "sysroot", "split-debuginfo", "crate-name", "cfg"].map(|what| format!("--print={what}"));
    let words: Vec<&str> = ["-", "--crate-name", "___", &asked[0]].into_iter().chain(kinds).collect();
    let words: Vec<&str> = words.into_iter().chain(asked[1..].iter().map(String::as_str)).collect();
    let target: Option<String> = said(&words);
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n-vV) cat <<'END'\n{}END\n;;\n*) cat <<'END'\n{}END\nesac\n",
        version?, target?
    );
    std::fs::write(&rustc, script).ok()?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&rustc, std::fs::Permissions::from_mode(0o755)).ok()?;
    Some((cargo.display().to_string(), rustc.display().to_string()))
}

#[test]
fn cargo_fetch() {
    let Some((cargo, rustc)) = cargo() else { return skip("cargo is not installed") };
    let prepare = |files: &Path, url: &str| {
        let script = r#"mkdir -p index/ti/ny crates tiny-1.0.0/src && echo > tiny-1.0.0/src/lib.rs &&
            printf '[package]\nname = "tiny"\nversion = "1.0.0"\n' > tiny-1.0.0/Cargo.toml &&
            tar czf crates/tiny.crate tiny-1.0.0 && sha256sum crates/tiny.crate | cut -d' ' -f1"#;
        let sum = run(Command::new("sh").args(["-c", script]).current_dir(files)).exits(0).stdout();
        let line = format!(
            r#"{{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"{}","features":{{}},"yanked":false}}"#,
            sum.trim()
        );
        std::fs::write(files.join("index/ti/ny/tiny"), line + "\n").expect("own directory");
        let config = format!(r#"{{"dl":"{url}crates/{{crate}}.crate"}}"#);
        std::fs::write(files.join("index/config.json"), config).expect("own directory");
    };
    let line = format!(
        "mkdir src && echo > src/lib.rs && printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\n[dependencies]\\n\
         tiny = {{ version = \"1\", registry = \"local\" }}\\n' > Cargo.toml && \
         RUSTC={rustc} CARGO_HOME=$PWD/cargo CARGO_NET_RETRY=0 CARGO_REGISTRIES_LOCAL_INDEX=sparse+URL/index/ {cargo} fetch -q"
    );
    let worked = |dir: &Path| {
        let caches = std::fs::read_dir(dir.join("cargo/registry/cache")).into_iter().flatten().flatten();
        caches.filter(|cache| cache.path().join("tiny-1.0.0.crate").exists()).count() == 1
    };
    client("cargo", &line, prepare, worked);
}

#[test]
fn git_clone_over_http() {
    if !has("git") {
        return;
    }
    let prepare = |files: &Path, _: &str| {
        let script = "git init -q work && cd work && echo hello > out && git add out && \
                      git -c user.name=a -c user.email=a@b commit -qm one && cd .. && \
                      git clone -q --bare work repo.git && cd repo.git && git update-server-info";
        run(Command::new("sh").args(["-c", script]).current_dir(files).env("HOME", files)).exits(0);
    };
    let worked = |dir: &Path| std::fs::read_to_string(dir.join("repo/out")).is_ok_and(|text| text == "hello\n");
    client("git", "git clone -q URL/repo.git repo", prepare, worked);
}

#[test]
fn pip_download() {
    if !has("/usr/bin/python3") {
        return;
    }
    if !run(Command::new("/usr/bin/python3").args(["-m", "pip", "--version"])).output.status.success() {
        return skip("pip is not installed for /usr/bin/python3");
    }
    let prepare = |files: &Path, _: &str| {
        let script = r#"
import os, zipfile
os.makedirs("simple/tiny"); name = "tiny-1.0-py3-none-any.whl"
with zipfile.ZipFile(name, "w") as z:
    z.writestr("tiny.py", "x = 1\n"); d = "tiny-1.0.dist-info/"
    z.writestr(d + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    z.writestr(d + "WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr(d + "RECORD", "")
open("simple/tiny/index.html", "w").write(f'<a href="../../{name}">{name}</a>')
"#;
        run(Command::new("/usr/bin/python3").args(["-c", script]).current_dir(files)).exits(0);
    };
    let worked = |dir: &Path| dir.join("tiny-1.0-py3-none-any.whl").exists();
    let line = "/usr/bin/python3 -m pip download -q --no-cache-dir --disable-pip-version-check --retries 0 --timeout 20 \
                --trusted-host 127.0.0.1 --trusted-host denied.test --no-deps -i URL/simple tiny";
    client("pip", line, prepare, worked);
}

#[test]
fn npm_install() {
    if !has("npm") {
        return;
    }
    let prepare = |files: &Path, url: &str| {
        let script = r#"mkdir package && echo '{"name":"tiny","version":"1.0.0"}' > package/package.json && tar czf tiny.tgz package && sha1sum tiny.tgz | cut -d' ' -f1"#;
        let done = run(Command::new("sh").args(["-c", script]).current_dir(files));
        let sum = done.exits(0).stdout();
        let meta = format!(
            r#"{{"name":"tiny","dist-tags":{{"latest":"1.0.0"}},"versions":{{"1.0.0":{{"name":"tiny","version":"1.0.0","dist":{{"tarball":"{url}tiny.tgz","shasum":"{}"}}}}}}}}"#,
            sum.trim()
        );
        std::fs::create_dir(files.join("tiny")).expect("own directory");
        std::fs::write(files.join("tiny/index.html"), meta).expect("own directory");
    };
    let worked = |dir: &Path| dir.join("node_modules/tiny/package.json").exists();
    let line = "npm install --no-audit --no-fund --no-update-notifier --fetch-retries=0 --cache $TMPDIR/npm --registry URL/ tiny";
    client("npm", line, prepare, worked);
}

#[test]
fn java() {
    if !has("javac") {
        return;
    }
    let line = "cat > Get.java <<'END'\n\
        import java.io.*; import java.net.*; import java.nio.file.*;\n\
        public class Get { public static void main(String[] a) throws Exception {\n\
        try (InputStream in = new URL(a[0]).openStream()) { Files.copy(in, Path.of(\"out\")); } } }\n\
        END\n\
        java -Xint Get.java URL/file";
    client("java", line, hello, got_hello);
}

#[test]
fn node_fetch_goes_through_the_proxy_or_nowhere() {
    if !has("node") {
        return;
    }
    let major = run(Command::new("node").args(["-p", "process.versions.node.split('.')[0]"])).stdout();
    let line = "node -e 'fetch(\"URL/file\").then(r => { if (!r.ok) throw r.status; return r.text() })\
                .then(t => require(\"fs\").writeFileSync(\"out\", t)).catch(e => { console.error(e); process.exit(1) })'";
    if major.trim().parse::<u32>().is_ok_and(|major| major >= 24) {
        return client("node", line, hello, got_hello);
    }
    // Older versions ignore the proxy. Their direct connection is denied and recorded.
    let files = fresh("node-files");
    hello(&files, "");
    let server = Server::of(&files);
    for user in users() {
        let dir = fresh("node");
        let flags = ["--profile", "write", "--net", &format!("hosts={}", server.host())];
        let ran = confined(&dir, user, &flags).args(&["-c", &line.replace("URL/", &server.url(""))]).go();
        ran.done.exits(1);
        ran.denial("seccomp", &server.host());
        assert!(server.seen().is_empty());
    }
}
