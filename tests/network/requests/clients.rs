//! Clients that trust the proxy because of the environment alone: an allowed path works, another one fails.

use super::Tls;
use crate::network::users;
use crate::support::{fresh, has, run, skip};
use std::path::Path;
use std::process::Command;

const POLICY: &str =
    "[[network.http]]\nhost = 'HOST'\nmethods = ['GET', 'HEAD', 'POST']\npaths = ['/v1/**', '/repo.git/**']\n";

/// Runs a client for an allowed path and for another one. In `line`, URL stands for the server's address with `/v1/file`.
#[track_caller]
pub fn client(name: &str, program: &str, line: &str, prepare: impl Fn(&Path)) {
    if !has(program) {
        return;
    }
    let files = fresh(&format!("{name}-files"));
    std::fs::create_dir(files.join("v1")).expect("own directory");
    std::fs::write(files.join("v1/file"), "hello").expect("own directory");
    let Some(tls) = Tls::with_files("both", &files) else { return };
    for user in users() {
        let dir = fresh(name);
        prepare(&dir);
        let go = |path: &str| {
            let run = tls.confined(&dir, user, POLICY, &["--profile", "write"]);
            run.args(&["-c", &line.replace("URL", &tls.url(path))]).go()
        };
        let allowed = go("/v1/file");
        assert!(allowed.done.code() == Some(0) && allowed.done.stdout().contains("hello"), "{name}: {}", allowed.done);
        assert!(tls.seen().contains(" /v1/file"), "{name}");
        let denied = go("/v2/file");
        assert!(!denied.done.stdout().contains("hello"), "{name}: {}", denied.done);
        assert_eq!(denied.denial("proxy", &tls.host())["path"], "/v2/file", "{name}");
        assert_eq!(tls.seen(), "", "{name}");
    }
}

pub fn nothing(_: &Path) {}

pub fn file<'a>(name: &'a str, text: &'a str) -> impl Fn(&Path) + 'a {
    move |dir| std::fs::write(dir.join(name), text).expect("own directory")
}

#[test]
fn curl_and_wget() {
    client("curl", "curl", "curl -fsS URL", nothing);
    client("wget", "wget", "wget -qO- URL", nothing);
}

#[test]
fn python() {
    let urllib = "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"URL\").read().decode())'";
    client("urllib", "python3", urllib, nothing);
    if run(Command::new("/usr/bin/python3").args(["-c", "import requests"])).code() == Some(0) {
        let line =
            "/usr/bin/python3 -c 'import requests; r = requests.get(\"URL\"); r.raise_for_status(); print(r.text)'";
        client("requests", "python3", line, nothing);
    } else {
        skip("Python has no requests");
    }
}

#[test]
fn node() {
    // Node 20 has no proxy in its own fetch, so this asks the proxy for a tunnel as every library does.
    let text = r#"
const http = require("http"), https = require("https"), to = new URL(process.argv[2]), proxy = new URL(process.env.HTTPS_PROXY);
http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: to.host }).on("connect", (_, socket) => {
  https.get(to, { socket, agent: false }, (answer) => { answer.pipe(process.stdout); answer.on("end", () => process.exit(answer.statusCode === 200 ? 0 : 1)); });
}).end();
"#;
    client("node", "node", "node get.js URL", file("get.js", text));
}

#[test]
fn undici_and_nodes_fetch() {
    // Node's fetch has a proxy since Node 24. Before, undici's dispatcher gives it one.
    let text = r#"
const { fetch, request, EnvHttpProxyAgent, setGlobalDispatcher } = require(process.env.MODULES + "/node_modules/undici");
setGlobalDispatcher(new EnvHttpProxyAgent());
(async () => {
  const fetched = await fetch(process.argv[2]);
  const { statusCode, body } = await request(process.argv[2]);
  if (fetched.status !== 200 || statusCode !== 200) process.exit(1);
  console.log(await fetched.text(), await body.text());
})();
"#;
    let Some(modules) = crate::support::fetched::node("undici@6") else { return };
    client("undici", "node", &format!("MODULES={} node get.js URL", modules.display()), file("get.js", text));
}

#[test]
fn httpx() {
    let Some(modules) = crate::support::fetched::python("httpx[http2]==0.28.1") else { return };
    let text = "import httpx, sys\nr = httpx.Client(http2=len(sys.argv) > 2).get(sys.argv[1])\nr.raise_for_status()\nprint(r.text, r.http_version)\n";
    for version in ["", " two"] {
        let line = format!("PYTHONPATH={} /usr/bin/python3 get.py URL{version}", modules.display());
        client("httpx", "python3", &line, file("get.py", text));
    }
}

#[test]
fn cargo() {
    let Some(cargo) = std::env::var_os("CARGO") else { return skip("not started by cargo") };
    let files = fresh("cargo-files");
    let index = files.join("v1/index/he/ll");
    std::fs::create_dir_all(&index).expect("own directory");
    let Some(tls) = Tls::with_files("both", &files) else { return };
    std::fs::write(files.join("v1/index/config.json"), format!("{{\"dl\":\"{}\"}}", tls.url("/v1/dl"))).expect("own");
    std::fs::write(index.join("hello-crate"), "").expect("own directory");
    let dir = fresh("cargo");
    std::fs::create_dir_all(dir.join("src")).expect("own directory");
    std::fs::create_dir_all(dir.join("cargo-home")).expect("own directory");
    std::fs::write(dir.join("src/lib.rs"), "").expect("own directory");
    for (path, reached) in [("/v1/index/", true), ("/v2/index/", false)] {
        let manifest = "[package]\nname = 'x'\nversion = '0.0.0'\nedition = '2021'\n[dependencies]\nhello-crate = { version = '1', registry = 'r' }\n";
        std::fs::write(dir.join("Cargo.toml"), manifest).expect("own directory");
        let home = dir.join("cargo-home");
        let rustc = Path::new(&cargo).with_file_name("rustc");
        let flags = [
            "--profile",
            "write",
            "--env",
            &format!("CARGO_HOME={}", home.display()),
            "--env",
            &format!("RUSTC={}", rustc.display()),
        ];
        let line =
            format!("{} fetch --config 'registries.r.index=\"sparse+{}\"'", cargo.to_string_lossy(), tls.url(path));
        let ran = tls.confined(&dir, None, POLICY, &flags).args(&["-c", &line]).go();
        let seen = tls.seen();
        assert_eq!(seen.contains("GET /v1/index/config.json"), reached, "{seen}{}", ran.done);
        if !reached {
            assert_eq!(seen, "");
            assert_eq!(ran.denial("proxy", &tls.host())["path"], "/v2/index/config.json");
        }
    }
}

#[test]
fn go() {
    // Go never uses the proxy of the environment for loopback addresses, so the test names it.
    let text = "package main\nimport (\"fmt\"; \"io\"; \"net/http\"; \"net/url\"; \"os\")\nfunc main() {\n p, _ := url.Parse(os.Getenv(\"HTTPS_PROXY\"))\n c := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(p), ForceAttemptHTTP2: true}}\n r, e := c.Get(os.Args[1]); if e != nil { panic(e) }\n b, _ := io.ReadAll(r.Body); fmt.Println(string(b)); if r.StatusCode != 200 { os.Exit(1) }\n}\n";
    if !has("go") {
        return;
    }
    // Built outside: it is the client that is tested.
    let built = fresh("go-client");
    std::fs::write(built.join("get.go"), text).expect("own directory");
    let home = fresh("go-home");
    let mut build = Command::new("go");
    build
        .args(["build", "-o", "get", "get.go"])
        .current_dir(&built)
        .env("HOME", &home)
        .env("GOFLAGS", "-buildvcs=false");
    run(&mut build).exits(0);
    client("go", "go", &format!("{} URL", built.join("get").display()), nothing);
}

#[test]
fn java() {
    let text = r#"
import java.net.URI;
public class Get {
    public static void main(String[] args) throws Exception {
        var connection = (java.net.HttpURLConnection) URI.create(args[0]).toURL().openConnection();
        System.out.println(new String(connection.getInputStream().readAllBytes()));
    }
}
"#;
    client("java", "java", "java Get.java URL 2>&1", file("Get.java", text));
}

#[test]
fn git_pip_npm_and_cargo() {
    let files = fresh("packages-files");
    if !has("git") || !has("npm") || !has("pip") {
        return;
    }
    let git = |args: &[&str], dir: &Path| {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*"])
            .args(args)
            .current_dir(dir);
        run(command.env("HOME", dir)).exits(0);
    };
    let work = fresh("packages-work");
    git(&["init", "-q", "."], &work);
    std::fs::write(work.join("f"), "hello").expect("own directory");
    git(&["add", "f"], &work);
    git(&["commit", "-qm", "m"], &work);
    git(&["clone", "-q", "--bare", ".", &files.join("repo.git").to_string_lossy()], &work);
    git(&["update-server-info"], &files.join("repo.git"));
    let simple = files.join("v1/simple/hello-pkg");
    std::fs::create_dir_all(&simple).expect("own directory");
    let Some(tls) = Tls::with_files("both", &files) else { return };
    for user in users() {
        let dir = fresh("packages");
        let go = |line: &str| {
            let line = line.replace("URL", &tls.url(""));
            tls.confined(&dir, user, POLICY, &["--profile", "write"]).args(&["-c", &line]).go()
        };
        let cloned = go("git clone -q URL/repo.git c && cat c/f");
        assert_eq!(cloned.done.exits(0).stdout(), "hello", "git: {}", cloned.done);
        let refused = go("git clone -q URL/other.git d");
        assert_ne!(refused.done.code(), Some(0));
        assert_eq!(refused.denial("proxy", &tls.host())["path"], "/other.git/info/refs");
        tls.seen();
        // These reach the server over TLS that they trust; what it answers is no package.
        for (line, path) in [
            ("pip download --no-cache-dir --index-url URL/v1/simple hello-pkg", "/v1/simple/hello-pkg/"),
            ("npm view --registry URL/v1/npm hello-pkg", "/v1/npm/hello-pkg"),
        ] {
            let ran = go(line);
            assert!(tls.seen().contains(path), "{line}: {}", ran.done);
        }
    }
}
