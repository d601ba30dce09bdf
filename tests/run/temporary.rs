//! /tmp and /var/tmp are private under `write`: programs that ignore TMPDIR work, and nothing of them stays.

use super::{Gate, User, act, denials, layer, owned_by, unprivileged, users};
use crate::support::{fresh, probe};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory outside of /tmp and /var/tmp, removed at the end: the working directory of a run that uses nothing in them.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn new(user: User) -> Elsewhere {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let root = rustix::process::geteuid().is_root();
        let base = if root { Path::new("/var/lib") } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let top = base.join(format!("gatekeeper-tests-{}-{count}", std::process::id()));
        for directory in [top.clone(), top.join("home"), top.join("work")] {
            fs::create_dir(&directory).expect("new");
            owned_by(user, &directory);
        }
        Elsewhere(top)
    }

    fn gate(&self, user: User) -> Gate {
        Gate::profile(user, "write").in_directory(&self.0.join("work")).env("HOME", self.0.join("home"))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name that no other run uses.
fn unique(name: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn namespaces(report: &Value) -> &str {
    layer(report, "namespaces").1
}

#[test]
fn tmp_is_empty_and_private_to_the_run() {
    for user in users() {
        let place = Elsewhere::new(*user);
        let gate = place.gate(*user);
        let (theirs, ours) = (unique("theirs"), unique("ours"));
        // Of the machine, readable by all.
        fs::write(Path::new("/tmp").join(&theirs), "theirs").expect("/tmp is writable");
        for directory in ["/tmp", "/var/tmp"] {
            let script = "cd \"$D\" && test ! -e \"$T\" && echo x >\"$O\" && mkdir d && mv \"$O\" d/o && chmod 600 d/o && cat d/o";
            let gate = place.gate(*user).flags(["--env", &format!("D={directory}"), "--env", &format!("O={ours}")]);
            let (done, report) = gate.flags(["--env", &format!("T={theirs}")]).report(["sh", "-c", script]);
            done.exits(0).prints("x\n");
            assert_eq!(report["denials"], serde_json::json!([]), "{report:#}");
            assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
            assert!(
                namespaces(&report).contains("private and discarded at the end: /dev/shm /tmp /var/tmp"),
                "{report:#}"
            );
            assert!(!Path::new(directory).join(&ours).exists() && !Path::new(directory).join("d").exists());
        }
        let plan = place.gate(*user).verb("plan").run(["true"]);
        assert!(plan.exits(0).stdout().contains("its own /dev/shm /tmp /var/tmp"), "{plan}");
        let summary = gate.run(["sh", "-c", "grep ^temporary: \"$GATEKEEPER_SUMMARY\""]);
        summary.exits(0).prints("temporary: /tmp /var/tmp: private to this run, empty at its start, gone at its end\n");
        fs::remove_file(Path::new("/tmp").join(&theirs)).expect("just made");
    }
}

#[test]
fn programs_that_ignore_tmpdir_work() {
    for user in users() {
        let place = Elsewhere::new(*user);
        let gate = place.gate(*user);
        gate.run(["perl", "-MIO::File", "-e", "print {IO::File->new_tmpfile or die $!} 'x'"]).exits(0);
        gate.file("a", "one\n");
        let (done, report) = gate.report(["busybox", "sh", "-c", "echo two | busybox diff a -"]);
        done.exits(1);
        assert!(done.stdout().contains("+two"), "{done}");
        assert_eq!(report["denials"], serde_json::json!([]), "{report:#}");
        gate.file(
            "Hello.java",
            "class Hello { public static void main(String[] a) { System.out.println(\"hello\"); } }",
        );
        gate.run(["javac", "Hello.java"]).exits(0);
        let (done, report) = gate.report(["java", "-cp", ".", "Hello"]);
        done.exits(0).prints("hello\n");
        assert_eq!(denials(&report, "mkdir"), Vec::<&Value>::new(), "{report:#}");
    }
}

/// A UNIX socket of the run below /tmp can be connected to.
#[test]
fn a_socket_of_the_run_in_tmp_is_reached() {
    let user = unprivileged();
    let place = Elsewhere::new(user);
    let script = "import socket, threading\n\
                  s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen()\n\
                  t = threading.Thread(target=lambda: s.accept()[0].sendall(b'met')); t.start()\n\
                  c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); print(c.recv(9).decode()); t.join()";
    place.gate(user).run(["python3", "-c", script]).exits(0).prints("met\n");
}

/// What the run directory holds decides how later programs of the run start: only TMPDIR in it is the command's.
#[test]
fn the_run_directory_stays_as_it_was_made() {
    for user in users() {
        let place = Elsewhere::new(*user);
        let script = "echo ok >\"$TMPDIR/made\" && cat \"$TMPDIR/made\"\n\
                      run=${TMPDIR%/tmp}\n\
                      (echo x >\"$GATEKEEPER_SUMMARY\") 2>/dev/null && echo written\n\
                      chmod 600 \"$GATEKEEPER_SUMMARY\" 2>/dev/null && echo changed\n\
                      rm -f \"$GATEKEEPER_SUMMARY\" 2>/dev/null && echo removed\n\
                      touch \"$run/new\" 2>/dev/null && echo created\n\
                      mv \"$run\" /tmp/moved 2>/dev/null && echo moved\n\
                      mv \"$run/tmp\" /tmp/moved 2>/dev/null && echo moved\n\
                      test -s \"$GATEKEEPER_SUMMARY\" && echo kept";
        let done = place.gate(*user).run(["sh", "-c", script]);
        done.exits(0).prints("ok\nkept\n");
    }
}

/// An empty /tmp would hide what the caller named: then it stays the machine's, readable and not writable.
#[test]
fn what_the_run_uses_in_tmp_stays_there() {
    for user in users() {
        let place = Elsewhere::new(*user);
        let used = fresh("used");
        fs::write(used.join("script.sh"), "echo ran; touch /tmp/denied 2>/dev/null || echo denied\n").expect("own");
        let script = used.join("script.sh").to_str().expect("text").to_owned();
        let (done, report) = place.gate(*user).report(["sh", &script]);
        done.exits(0).prints("ran\ndenied\n");
        assert!(!namespaces(&report).contains("/tmp"), "{report:#}");
        let denied: Vec<&Value> = ["openat", "open"].iter().flat_map(|call| denials(&report, call)).collect();
        assert!(denied.iter().all(|one| one["allow_with"] == "--write /tmp") && !denied.is_empty(), "{report:#}");
        let line = format!("cat {script} >/dev/null && echo read");
        place.gate(*user).flags(["-c", &line]).run(super::NOTHING).exits(0).prints("read\n");
        let named = format!("LIST=x:{script}");
        place.gate(*user).flags(["--env", &named]).run(["sh", "-c", "cat ${LIST#x:} >/dev/null && echo read"]).exits(0);
        // A granted tree is the machine's.
        owned_by(*user, &used);
        let write = place.gate(*user).flags(["--write", used.to_str().expect("text")]);
        write.run(["sh", "-c", "echo kept >\"$0/result\"", used.to_str().expect("text")]).exits(0);
        assert_eq!(fs::read_to_string(used.join("result")).expect("written"), "kept\n");
    }
}

#[test]
fn a_denied_tmp_is_not_given_back() {
    let user = unprivileged();
    let place = Elsewhere::new(user);
    let gate = place.gate(user).flags(["--deny-path", "/tmp"]);
    let copy = place.0.join("work/act");
    fs::copy(act(), &copy).expect("own");
    let (done, report) = gate.report(["./act", "create", &format!("/tmp/{}", unique("denied"))]);
    done.exits(0).prints("create 13\n");
    assert!(!namespaces(&report).contains("/tmp"), "{report:#}");
    let gate = place.gate(user);
    gate.run(["./act", "create", "/tmp/granted"]).exits(0).prints("create 0\n");
}

/// Without namespaces the machine's /tmp must not become writable instead.
#[test]
fn without_namespaces_tmp_is_the_machines_and_closed() {
    for user in users() {
        let place = Elsewhere::new(*user);
        let copy = place.0.join("work/act");
        fs::copy(act(), &copy).expect("own");
        let outer: Vec<OsString> =
            vec![probe("outer", &[]).into(), format!("{}=1", libc::SYS_unshare).into(), "--".into()];
        let name = format!("/tmp/{}", unique("escaped"));
        let gate = place.gate(*user).under(outer);
        let words = ["./act", "create", &name, ",", "create", "made", ",", "chmod", "/tmp"];
        let (done, report) = gate.report(words);
        done.exits(0).prints("create 13\ncreate 0\nchmod 1\n");
        assert_eq!(layer(&report, "namespaces").0, "unavailable", "{report:#}");
        assert!(!Path::new(&name).exists());
        let [denial] = denials(&report, "openat")[..] else { panic!("{report:#}") };
        assert_eq!(denial["allow_with"], "--write /tmp", "{report:#}");
        let summary = gate.run(["sh", "-c", "grep -c ^temporary: \"$GATEKEEPER_SUMMARY\""]);
        summary.exits(1).prints("0\n");
    }
}
