//! The exec tools in examples/, one per language, behave the same: they run a line, stream its output, ask about
//! denials, end it on timeout, and run nothing if gatekeeper is missing.

mod agent;

use crate::embed::rust::example;
use crate::plumbing::users;
use crate::support::{Done, fresh, gatekeeper, has, libsandbox, run};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The command that starts a tool, from a directory that every user can read, and a PYTHONPATH.
struct Tool(Vec<PathBuf>, Option<PathBuf>);

/// A copy of the examples and the binding of a language, side by side as in the source tree.
fn sources(language: &str) -> PathBuf {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let dir = fresh(language);
    for part in ["examples", "bindings"] {
        let to = dir.join(part).join(language);
        std::fs::create_dir_all(&to).expect("a fresh directory");
        run(Command::new("cp").arg("-rL").arg(top.join(part).join(language).join(".")).arg(&to)).exits(0);
    }
    dir
}

/// An interpreter. The one in /usr/bin comes first, because others may be readable by their owner only.
fn interpreter(name: &str) -> Option<PathBuf> {
    let system = Path::new("/usr/bin").join(name);
    if system.exists() { Some(system) } else { has(name).then(|| PathBuf::from(name)) }
}

impl Tool {
    fn command(&self, user: Option<u32>, cwd: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).args(words).current_dir(cwd).env("LC_ALL", "C");
        command.env("GATEKEEPER", gatekeeper()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(self.1.as_ref().map(|path| ("PYTHONPATH", path)));
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command
    }

    fn run(&self, user: Option<u32>, cwd: &Path, words: &[&str]) -> Done {
        run(&mut self.command(user, cwd, words))
    }

    fn hold(&self, yes: &str, timeout: &str) {
        for user in users() {
            // A name that careless splitting of a grant would turn into flags.
            let cwd = fresh("cwd").join("a b' --profile unrestricted");
            std::fs::create_dir(&cwd).expect("a fresh directory");
            let cwd = cwd.canonicalize().expect("a fresh directory");
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&cwd, std::fs::Permissions::from_mode(0o777)).expect("own directory");

            self.run(user, &cwd, &["echo hello; exit 3"]).exits(3).prints("| hello\nexited 3\n");
            let quoted = cwd.display().to_string().replace('\'', r"'\''");
            let asked = format!("denied; to be granted: --write '{quoted}'\n");
            self.run(user, &cwd, &["touch new"]).exits(1).prints(&format!("{asked}exited 1\n"));
            assert!(!cwd.join("new").exists());
            self.run(user, &cwd, &[yes, "touch new"]).exits(0).prints(&format!("{asked}exited 0\n"));
            assert!(cwd.join("new").exists());
            self.run(user, &cwd, &[timeout, "0.3", "sleep 60"]).exits(124).prints("timeout 124\n");

            self.streams(user, &cwd);
        }
    }

    /// Asserts that changes wait in a stage, are shown, and applied only after a yes.
    fn stages(&self, flag: &str, yes: &str) {
        let (cwd, state) = (fresh("cwd"), fresh("state"));
        let run = |words: &[&str], printed: &str| {
            run(self.command(None, &cwd, words).env("XDG_STATE_HOME", &state)).exits(0).prints(printed);
        };
        let shown = "diff --git a/file b/file\nnew file mode 100644\n--- /dev/null\n+++ b/file\n@@ -0,0 +1 @@\n+new\n";
        run(&[flag, "tool", "echo new > file"], &format!("{shown}exited 0\n"));
        assert!(!cwd.join("file").exists());
        run(&[yes, flag, "tool", "true"], &format!("{shown}applied\nexited 0\n"));
        assert_eq!(std::fs::read_to_string(cwd.join("file")).expect("applied"), "new\n");
    }

    /// Asserts that a refused call waits for the answer, and that the line runs once.
    fn asks(&self, flag: &str, yes: &str) {
        let (cwd, other) = (fresh("cwd"), fresh("other").canonicalize().expect("a fresh directory"));
        let new = other.join("new");
        let line = format!("echo once; echo x > {}", new.display());
        let printed = |run: Done| (run.stdout().contains("wants to write"), run.stdout().matches("| once\n").count());
        assert_eq!(printed(self.run(None, &cwd, &[flag, &line])), (true, 1));
        assert!(!new.exists());
        assert_eq!(printed(self.run(None, &cwd, &[yes, flag, &line])), (true, 1));
        assert!(new.exists());
    }

    /// Asserts that nothing runs without gatekeeper.
    fn stops(&self) {
        let mut missing = self.command(None, &fresh("cwd"), &["echo unconfined"]);
        let done = run(missing.env("GATEKEEPER", "/nonexistent/gatekeeper"));
        assert!(done.code().is_some_and(|code| code != 0), "{done}");
        done.prints("");
    }

    /// The line continues only after the test has seen its first output.
    fn streams(&self, user: Option<u32>, cwd: &Path) {
        let line = "echo first; until [ -e go ]; do sleep 0.05; done; echo last";
        let mut child = self.command(user, cwd, &[line]).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("a line comes");
        std::fs::write(cwd.join("go"), "").expect("own directory");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("it ends");
        let until = Instant::now() + Duration::from_secs(60);
        while child.try_wait().expect("own child").is_none() {
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!((first.as_str(), rest.as_str()), ("| first\n", "| last\nexited 0\n"));
    }
}

#[test]
fn the_rust_example_streams_asks_and_times_out() {
    let Some(example) = example("exec_tool") else { return };
    let tool = Tool(vec![example], None);
    tool.hold("--yes", "--timeout");
    tool.asks("--ask", "--yes");
}

#[test]
fn the_python_example_streams_asks_and_times_out() {
    let Some(python) = interpreter("python3") else { return };
    let dir = sources("python");
    let tool = Tool(vec![python, dir.join("examples/python/exec_tool.py")], Some(dir.join("bindings/python/src")));
    tool.hold("--yes", "--timeout");
    tool.stages("--stage", "--yes");
    tool.asks("--ask", "--yes");
    tool.stops();
}

#[test]
fn the_node_example_streams_asks_and_times_out() {
    let Some(node) = interpreter("node") else { return };
    let dir = sources("node");
    let modules = dir.join("examples/node/node_modules");
    std::fs::create_dir(&modules).expect("own directory");
    std::os::unix::fs::symlink("../../../bindings/node", modules.join("gatekeeper-sandbox")).expect("own directory");
    let tool = Tool(vec![node, dir.join("examples/node/exec_tool.mjs")], None);
    tool.hold("--yes", "--timeout");
    tool.stages("--stage", "--yes");
    tool.asks("--ask", "--yes");
    tool.stops();
}

#[test]
fn the_go_example_streams_asks_times_out_and_carries_the_library() {
    let Some(go) = interpreter("go") else { return };
    let dir = sources("go").join("examples/go");
    run(Command::new("cp").arg(libsandbox()).arg(dir.join("carried/libsandbox.so"))).exits(0);
    let tool = dir.join("exec_tool");
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&tool).arg("./cmd/exec_tool").current_dir(&dir).env("GOPROXY", "off");
    build.env("GOFLAGS", "").env("CGO_ENABLED", "0").env("GOCACHE", dir.join("cache")).env("HOME", &dir);
    // Not with `run`, whose time limit may be too short for a compiler with an empty cache.
    let built = build.output().expect("go starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let tool = Tool(vec![tool], None);
    tool.hold("-yes", "-timeout");
    tool.stages("-stage", "-yes");
    tool.asks("-ask", "-yes");
    tool.stops();

    // The embedded library, as a private file, confines the program before main.
    let base = fresh("runtime").canonicalize().expect("a fresh directory");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o700)).expect("own directory");
    let preload = |base: &Path| {
        let mut command = tool.command(None, &dir, &["-preload", "sh", "-c", "echo ${SECCOMP_SYSCALL_DENY-loaded}"]);
        command.env("SECCOMP_SYSCALL_DENY", "ptrace").env("XDG_RUNTIME_DIR", base);
        run(command.env_remove("XDG_CACHE_HOME").env_remove("HOME"))
    };
    preload(&base).exits(0).prints("loaded\n").complains("");
    preload(&base).exits(0).prints("loaded\n").complains("");
    assert_eq!(std::fs::read_dir(base.join("libsandbox")).expect("it was made").count(), 1);
    std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o777)).expect("own directory");
    let done = preload(&base);
    done.exits(125).prints("");
    assert!(done.stderr().contains("not this user's alone"), "{done}");
    let below = base.join("below");
    std::fs::create_dir(&below).expect("own directory");
    std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o700)).expect("own directory");
    let done = preload(&below);
    done.exits(125).prints("");
    assert!(done.stderr().contains("others may replace"), "{done}");

    // An existing link or a file with other bytes is replaced and never followed.
    let base = fresh("runtime").canonicalize().expect("a fresh directory");
    std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o700)).expect("own directory");
    preload(&base).exits(0).prints("loaded\n");
    let placed = std::fs::read_dir(base.join("libsandbox")).expect("it was made").flatten().next();
    let placed = placed.expect("one file").path();
    let good = std::fs::read(&placed).expect("it is there");
    let elsewhere = base.join("elsewhere");
    for harm in [&|| std::fs::write(&placed, b"planted"), &|| std::os::unix::fs::symlink(&elsewhere, &placed)]
        as [&dyn Fn() -> std::io::Result<()>; 2]
    {
        std::fs::write(&elsewhere, b"untouched").expect("own directory");
        std::fs::remove_file(&placed).expect("own file");
        harm().expect("own directory");
        preload(&base).exits(0).prints("loaded\n").complains("");
        assert_eq!(std::fs::read(&placed).expect("it is there"), good);
        assert_eq!(std::fs::read(&elsewhere).expect("own file"), b"untouched");
    }
    let at_once: Vec<_> = {
        let base = fresh("runtime").canonicalize().expect("a fresh directory");
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o700)).expect("own directory");
        let start = |_| {
            let mut command =
                tool.command(None, &dir, &["-preload", "sh", "-c", "echo ${SECCOMP_SYSCALL_DENY-loaded}"]);
            command.env("SECCOMP_SYSCALL_DENY", "ptrace").env("XDG_RUNTIME_DIR", &base);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        (0..100).map(start).collect()
    };
    for child in at_once {
        let output = child.wait_with_output().expect("own child");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "loaded\n", "{output:?}");
    }
}
