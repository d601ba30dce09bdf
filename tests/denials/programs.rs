//! Real programs that the sandbox stops: the first denial is the cause, and its remedy is the right one.

use super::{Violation, place};
use crate::support::has;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// In a directory with `file` and `dir/`, this is the command's first denial, and its remedy makes the command pass.
#[track_caller]
fn mended(flags: &[&str], command: &[&str], make: impl Fn(&Path) -> Value) {
    mended_after(1, flags, command, make);
}

#[track_caller]
fn mended_after(rounds: usize, flags: &[&str], command: &[&str], make: impl Fn(&Path) -> Value) {
    if !has(command[0]) {
        return;
    }
    let dir = place(command[0]);
    fs::write(dir.join("file"), "text\n").expect("own directory");
    fs::create_dir(dir.join("dir")).expect("own directory");
    let denied = Violation::new(flags, command).cwd(&dir).fails();
    denied.record(make(&dir)).passes_after(rounds);
}

fn granted(dir: &Path) -> String {
    format!("--write {}", dir.display())
}

#[test]
fn touch_under_network() {
    mended(&["--profile", "network"], &["touch", "new"], |dir| {
        json!({"layer": "landlock", "syscall": "openat", "comm": "touch", "path": dir.join("new"), "allow_with": granted(dir),
            "args": ["AT_FDCWD", "new", "O_WRONLY|O_CREAT|O_NOCTTY|O_NONBLOCK", "0666"], "rule": "profile network writes nothing"})
    });
}

#[test]
fn file_tools_under_minimal() {
    let seccomp = |call: &'static str, name: &'static str| move |dir: &Path| json!({"layer": "seccomp", "syscall": call, "path": dir.join(name), "allow_with": granted(dir), "errno": "EPERM"});
    let landlock = |name: &'static str| move |dir: &Path| json!({"layer": "landlock", "syscall": "openat", "path": dir.join(name), "allow_with": granted(dir), "errno": "EACCES"});
    mended(&[], &["mkdir", "new"], seccomp("mkdir", "new"));
    mended(&[], &["rm", "file"], seccomp("unlinkat", "file"));
    mended(&[], &["rmdir", "dir"], seccomp("rmdir", "dir"));
    mended(&[], &["mv", "file", "new"], seccomp("renameat2", "file"));
    mended(&[], &["ln", "file", "new"], seccomp("linkat", "file"));
    mended(&[], &["ln", "-s", "file", "new"], seccomp("symlinkat", "new"));
    mended(&[], &["mkfifo", "new"], seccomp("mknodat", "new"));
    mended(&[], &["cp", "file", "new"], landlock("new"));
    mended(&[], &["dd", "if=file", "of=new"], landlock("new"));
    mended(&[], &["sort", "file", "-o", "new"], landlock("new"));
    mended(&[], &["tar", "-cf", "new", "file"], seccomp("creat", "new"));
    mended(&[], &["sh", "-c", "echo x > new"], landlock("new"));
}

#[test]
fn tools_that_change_a_file_in_place() {
    let file = |call: &'static str, layer: &'static str| move |dir: &Path| json!({"layer": layer, "syscall": call, "path": dir.join("file"), "allow_with": granted(&dir.join("file"))});
    mended(&[], &["chmod", "600", "file"], file("fchmodat", "seccomp"));
    mended(&[], &["truncate", "-s", "0", "file"], file("openat", "landlock"));
    mended(&[], &["touch", "file"], file("openat", "landlock"));
    // sed creates a new file beside the old one and renames it.
    if has("sed") {
        let dir = place("sed");
        fs::write(dir.join("file"), "text\n").expect("own directory");
        let denied = Violation::new(&[], &["sed", "-i", "s/text/word/", "file"]).cwd(&dir).fails();
        assert_eq!(denied.denials()[0]["allow_with"], granted(&dir), "{:#?}", denied.denials());
        denied.passes();
        assert_eq!(fs::read_to_string(dir.join("file")).expect("own file"), "word\n");
    }
}

#[test]
fn programs_that_start_programs() {
    // fork, vfork or clone, depending on how the shell was built.
    let shell = Violation::new(&[], &["sh", "-c", "ls; true"]).fails();
    assert_eq!(shell.denials()[0]["allow_with"], "--profile read", "{:#?}", shell.denials());
    shell.passes();
    mended(&[], &["env", "true"], |_| json!({"layer": "seccomp", "syscall": "execve", "allow_with": "--profile read"}));
    mended(
        &[],
        &["nice", "true"],
        |_| json!({"layer": "seccomp", "syscall": "execve", "allow_with": "--profile read"}),
    );
}

#[test]
fn curl_under_minimal() {
    if !has("curl") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let denied = Violation::new(&[], &["curl", "-s", "--noproxy", "*", "--max-time", "20", &url]).exits(7);
    denied
        .record(json!({"layer": "seccomp", "syscall": "socket", "comm": "curl", "rule": "network mode none",
            "args": ["AF_INET", "SOCK_STREAM", "6"], "allow_with": "--profile network"}))
        .passes();
}

#[test]
fn python_opening_a_socket_in_a_thread() {
    if !has("/usr/bin/python3") {
        return;
    }
    let script = "import threading, socket, sys\nfailed = []\n\
        def go():\n    try: socket.socket()\n    except OSError: failed.append(1)\n\
        t = threading.Thread(target=go); t.start(); t.join(); sys.exit(len(failed))";
    Violation::new(&[], &["/usr/bin/python3", "-c", script])
        .exits(1)
        .record(json!({"syscall": "socket", "args": ["AF_INET", "SOCK_STREAM|SOCK_CLOEXEC", "0"], "allow_with": "--profile network"}))
        .passes();
}

#[test]
fn python_that_cannot_keep_its_bytecode_goes_on_in_silence() {
    if !has("/usr/bin/python3") {
        return;
    }
    let dir = place("bytecode");
    fs::write(dir.join("module.py"), "value = 1\n").expect("own directory");
    let words = ["/usr/bin/python3", "-c", "import module; print(module.value)"];
    let denied = Violation::new(&["--env", "PYTHONDONTWRITEBYTECODE="], &words).cwd(&dir).exits(0);
    denied.done.prints("1\n").complains("");
    denied.record(
        json!({"layer": "seccomp", "syscall": "mkdir", "path": dir.join("__pycache__"), "allow_with": granted(&dir)}),
    );
}

#[test]
fn git_commit() {
    if !has("git") {
        return;
    }
    let repo = place("git");
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).current_dir(&repo).output().expect("git starts");
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "-q"]);
    git(&["config", "user.email", "a@b"]);
    git(&["config", "user.name", "a"]);
    fs::write(repo.join("file"), "text").expect("own directory");
    git(&["add", "file"]);
    let denied = Violation::new(&[], &["git", "commit", "-qm", "x"]).cwd(&repo).fails();
    assert!(!denied.denials().is_empty(), "{}", denied.done);
    denied.passes_after(2);
    // In a writable tree the hooks stay protected, and a commit still works.
    fs::write(repo.join("file"), "more").expect("own directory");
    Violation::new(&["--profile", "write"], &["git", "commit", "-qam", "y"]).cwd(&repo).exits(0);
}

#[test]
fn a_static_program_of_go() {
    if !has("go") {
        return;
    }
    let dir = place("go");
    fs::write(
        dir.join("main.go"),
        "package main\nimport \"os\"\nfunc main() { if os.WriteFile(\"new\", nil, 0600) != nil { os.Exit(3) } }\n",
    )
    .expect("own directory");
    let built = Command::new("go")
        .args(["build", "-o", "program", "main.go"])
        .current_dir(&dir)
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", dir.join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .output()
        .expect("go starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = dir.join("program");
    Violation::new(&[], &[&program])
        .cwd(&dir)
        .exits(3)
        .record(json!({"layer": "landlock", "syscall": "openat", "path": dir.join("new"), "exe": program, "allow_with": granted(&dir)}))
        .passes();
}
