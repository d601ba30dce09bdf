//! `SANDBOX_FS_READ` and `SANDBOX_FS_WRITE`: what the two lists allow, and what is refused.

use super::{DENY, plain, preloaded, refused};
use crate::support::{Done, fresh, has, probe, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const READ: &str = "SANDBOX_FS_READ";
const WRITE: &str = "SANDBOX_FS_WRITE";

/// Three directories, each with a file and a copy of a program.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let root = fresh(name);
        for dir in ["read", "write", "other"] {
            fs::create_dir(root.join(dir)).expect("a fresh directory");
            fs::write(root.join(dir).join("file"), "content").expect("a fresh directory");
            // Static, so that it needs no library from another directory.
            fs::copy(probe("hello", &["-static"]), root.join(dir).join("program")).expect("a fresh directory");
        }
        Tree(root)
    }

    fn path(&self, rest: &str) -> String {
        self.0.join(rest).to_str().expect("a plain path").to_owned()
    }

    /// Runs the probe `files` with these acts, in which `{}` stands for the root of the tree.
    fn run(&self, command: &mut Command, acts: &[&str]) -> Done {
        let root = self.path("");
        run(command.args(acts.iter().map(|act| act.replace("{}/", &root))))
    }

    fn acts(&self, variables: &[(&str, &str)], acts: &[&str]) -> Done {
        self.run(preloaded(&files()).envs(variables.iter().copied()), acts)
    }
}

fn files() -> PathBuf {
    probe("files", &[])
}

const EVERYWHERE: [&str; 8] = [
    "read:{}/read/file",
    "write:{}/read/file",
    "read:{}/write/file",
    "write:{}/write/file",
    "create:{}/write/new",
    "read:{}/other/file",
    "write:{}/other/file",
    "create:{}/other/new",
];

#[test]
fn without_the_variables_every_path_is_open() {
    let tree = Tree::new("open");
    let open = "read=ok\nwrite=ok\nread=ok\nwrite=ok\ncreate=ok\nread=ok\nwrite=ok\ncreate=ok\n";
    tree.run(&mut plain(&files()), &EVERYWHERE).exits(0).prints(open);
    ["write/new", "other/new"].iter().for_each(|new| fs::remove_file(tree.path(new)).expect("it was created"));
    tree.acts(&[], &EVERYWHERE).exits(0).prints(open);
}

#[test]
fn both_lists_confine_reading_to_both_and_writing_to_one() {
    let tree = Tree::new("both");
    tree.acts(&[(READ, &tree.path("read")), (WRITE, &tree.path("write"))], &EVERYWHERE)
        .exits(0)
        .complains("")
        .prints("read=ok\nwrite=13\nread=ok\nwrite=ok\ncreate=ok\nread=13\nwrite=13\ncreate=13\n");
}

#[test]
fn read_alone_leaves_nothing_to_write() {
    let tree = Tree::new("read-alone");
    let lists = format!("{}:{}", tree.path("read"), tree.path("write"));
    tree.acts(&[(READ, &lists)], &EVERYWHERE)
        .exits(0)
        .prints("read=ok\nwrite=13\nread=ok\nwrite=13\ncreate=13\nread=13\nwrite=13\ncreate=13\n");
}

#[test]
fn write_alone_leaves_reading_open() {
    let tree = Tree::new("write-alone");
    tree.acts(&[(WRITE, &tree.path("write"))], &EVERYWHERE)
        .exits(0)
        .prints("read=ok\nwrite=13\nread=ok\nwrite=ok\ncreate=ok\nread=ok\nwrite=13\ncreate=13\n");
    tree.acts(&[(WRITE, &tree.path("write"))], &["exec:{}/other/program", "list:{}/other"])
        .exits(0)
        .prints("exec=ok\nlist=ok\n");
}

#[test]
fn empty_lists_open_nothing() {
    let tree = Tree::new("empty");
    tree.acts(
        &[(READ, ""), (WRITE, "")],
        &["read:{}/read/file", "list:{}/read", "write:{}/write/file", "stat:{}/read"],
    )
    .exits(0)
    .prints("read=13\nlist=13\nwrite=13\nstat=ok\n");
}

#[test]
fn executing_and_listing_follow_the_read_list() {
    let tree = Tree::new("exec");
    tree.acts(
        &[(READ, &tree.path("read")), (WRITE, &tree.path("write"))],
        &["exec:{}/read/program", "exec:{}/write/program", "exec:{}/other/program", "list:{}/read", "list:{}/other"],
    )
    .exits(0)
    .prints("exec=ok\nexec=ok\nexec=13\nlist=ok\nlist=13\n");
}

#[test]
fn truncating_is_writing() {
    let tree = Tree::new("truncate");
    let acts = ["truncate:{}/other/file", "open-truncate:{}/other/file", "truncate:{}/write/file"];
    tree.acts(&[(WRITE, &tree.path("write"))], &acts).exits(0).prints("truncate=13\nopen-truncate=13\ntruncate=ok\n");
    assert_eq!(fs::read_to_string(tree.path("other/file")).expect("it is there"), "content");
}

#[test]
fn making_removing_and_moving_is_writing() {
    let tree = Tree::new("change");
    let acts = [
        "mkdir:{}/write/new",
        "rename:{}/write/file>{}/write/new/file",
        "rename:{}/write/new/file>{}/other/file",
        "unlink:{}/write/new/file",
        "mkdir:{}/other/new",
        "unlink:{}/other/file",
    ];
    tree.acts(&[(WRITE, &tree.path("write"))], &acts)
        .exits(0)
        .prints("mkdir=ok\nrename=ok\nrename=13\nunlink=ok\nmkdir=13\nunlink=13\n");
}

#[test]
fn a_single_file_can_be_granted() {
    let tree = Tree::new("single");
    let acts = ["read:{}/read/file", "write:{}/write/file", "read:{}/read/program", "create:{}/write/new"];
    tree.acts(&[(READ, &tree.path("read/file")), (WRITE, &tree.path("write/file"))], &acts)
        .exits(0)
        .prints("read=ok\nwrite=ok\nread=13\ncreate=13\n");
}

#[test]
fn a_link_grants_what_it_leads_to_and_a_relative_path_starts_here() {
    let tree = Tree::new("link");
    std::os::unix::fs::symlink("read", tree.path("link")).expect("a fresh directory");
    let mut command = preloaded(&files());
    command.env(READ, "link").current_dir(&tree.0);
    tree.run(&mut command, &["read:{}/read/file", "read:{}/link/file", "read:{}/other/file"])
        .exits(0)
        .prints("read=ok\nread=ok\nread=13\n");
}

#[test]
fn dev_null_can_always_be_written_and_its_neighbours_cannot() {
    let tree = Tree::new("null");
    let lists = [(READ, tree.path("read")), (WRITE, tree.path("write"))];
    let lists: Vec<(&str, &str)> = lists.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let acts = ["write:/dev/null", "read:/dev/null", "open-truncate:/dev/null", "write:/dev/zero"];
    tree.acts(&lists, &acts).exits(0).prints("write=ok\nread=ok\nopen-truncate=ok\nwrite=13\n");
}

#[test]
fn paths_hold_beside_a_filter_and_in_children() {
    let tree = Tree::new("beside");
    let mut outer = preloaded("/usr/bin/env".as_ref());
    // `env` has to read the loader's files and the probe.
    outer.envs([
        (READ, "/usr:/lib:/lib64:/etc:/tmp".to_owned()),
        (WRITE, tree.path("write")),
        (DENY, "mkdir".to_owned()),
    ]);
    outer.env("SECCOMP_DEFAULT_ACTION", "errno:EPROTO").arg(files());
    tree.run(&mut outer, &["read:/proc/self/status", "write:{}/other/file", "mkdir:{}/write/new"])
        .exits(0)
        .prints("read=13\nwrite=13\nmkdir=71\n");
}

#[test]
fn a_path_that_cannot_be_granted_stops_the_program() {
    refused(&[(READ, "/:/no/such/dir")], "SANDBOX_FS_READ: cannot open '/no/such/dir': ENOENT");
    refused(&[(WRITE, "/no/such/dir")], "SANDBOX_FS_WRITE: cannot open '/no/such/dir': ENOENT");
    let long = format!("/{}", "x".repeat(5_000));
    refused(&[(WRITE, &long)], &format!("SANDBOX_FS_WRITE: path is too long: '/{}...'", "x".repeat(126)));
}

#[test]
fn without_landlock_the_program_does_not_start() {
    // The outer filter disables Landlock, as an older kernel or a container would.
    let run_without = |errno: &str| {
        let mut outer = preloaded(Path::new("/usr/bin/env"));
        outer.env(DENY, "landlock_create_ruleset").env("SECCOMP_DEFAULT_ACTION", format!("errno:{errno}"));
        run(outer.arg("SANDBOX_FS_READ=/").arg(files()).arg("read:/dev/null"))
    };
    for errno in ["ENOSYS", "EOPNOTSUPP"] {
        let line = format!("libsandbox: Landlock is not available in this kernel: {errno}\n");
        run_without(errno).exits(1).prints("").complains(&line);
    }
}

/// Runs the probe under strace, which injects results for some calls, with strace itself under a deny list.
fn injected(inject: &[&str], denied: &str) -> Option<Done> {
    if !has("strace") {
        return None;
    }
    let log = fresh("inject").join("log");
    let mut command = preloaded("strace".as_ref());
    command.env(DENY, denied).env("SECCOMP_DEFAULT_ACTION", "errno:EPERM").arg("-q").arg("-o").arg(&log).args(inject);
    command.args(["-E", "SANDBOX_FS_READ=/"]).arg(files()).args(["read:/dev/null", "write:/dev/zero"]);
    let done = run(&mut command);
    let log = fs::read_to_string(log).expect("strace wrote it");
    assert!(log.contains("(INJECTED)"), "{log}\n{done}");
    Some(done)
}

#[test]
fn a_landlock_that_lets_files_be_truncated_is_refused() {
    for version in ["1", "2"] {
        let inject = format!("inject=landlock_create_ruleset:retval={version}");
        let Some(done) = injected(&["-e", &inject], "") else { return };
        done.exits(1).prints("").complains(&format!(
            "libsandbox: Landlock in this kernel (ABI {version}) cannot stop a file from being truncated; ABI 3 (Linux 6.2) can\n"
        ));
    }
}

const NO_PROC: [&str; 4] = ["-P", "/proc/self/task", "-e", "inject=openat:error=ENOENT"];

#[test]
fn without_proc_the_threads_are_counted_in_another_way() {
    let Some(done) = injected(&NO_PROC, "") else { return };
    done.exits(0).prints("read=ok\nwrite=13\n");
}

#[test]
fn threads_that_cannot_be_counted_are_a_refusal() {
    let Some(done) = injected(&NO_PROC, "unshare") else { return };
    done.exits(1).prints("");
    let line = "libsandbox: cannot tell whether the program already has threads: EPERM\n";
    assert!(done.stderr().ends_with(line), "{done}");
}
