//! What a process of root's command has given up, the supervisor does not give back: the kernel judges the calls that it makes for the
//! process as it judges the process.

use super::{Gate, User, owned_by};
use crate::support::{as_root_too, has};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn is_tested() -> bool {
    as_root_too() && has("python3")
}

/// Prints the errno of each change of another user's file, and of one's own.
const CHANGE: &str = r#"
import os
def attempt(name, act):
    try: act(); print(name, 0)
    except OSError as error: print(name, error.errno)
attempt("mode", lambda: os.chmod("other", 0o604))
attempt("owner", lambda: os.chown("other", 0, 0))
attempt("times", lambda: os.utime("other", (1, 1)))
attempt("descriptor", lambda: os.fchmod(os.open("readable", os.O_RDONLY), 0o600))
open("own", "w").close()
attempt("own mode", lambda: os.chmod("own", 0o600))
attempt("own times", lambda: os.utime("own", (1, 1)))
"#;

#[test]
fn dropped_capabilities_are_not_used() {
    if !is_tested() || !has("setpriv") {
        return;
    }
    let gate = Gate::profile(User::Own, "write");
    let other = gate.file("other", "x");
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o600)).expect("own file");
    for file in [&other, &gate.file("readable", "x")] {
        owned_by(User::Nobody, file);
    }
    let drops = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "python3", "-c", CHANGE];
    let own = "own mode 0\nown times 0\n";
    gate.run(drops).exits(0).prints(&format!("mode 1\nowner 1\ntimes 1\ndescriptor 1\n{own}"));
    let after = std::fs::metadata(&other).expect("there");
    assert_eq!((after.mode() & 0o777, after.uid()), (0o600, crate::support::NOBODY));
    // With its capabilities, root may.
    gate.run(["python3", "-c", CHANGE]).exits(0).prints(&format!("mode 0\nowner 0\ntimes 0\ndescriptor 0\n{own}"));
}

/// Root serves; its child becomes nobody, and prints what it is refused and what not.
const BECOME: &str = r#"
import os, socket, struct
N = 65534
def attempt(name, act):
    try: act(); print(name, 0, flush=True)
    except OSError as error: print(name, error.errno, flush=True)
def serve(name, mode):
    server = socket.socket(socket.AF_UNIX); server.bind(name); os.chmod(name, mode); server.listen(); return server
open("root", "w").close(); os.chmod("root", 0o600)
open("own", "w").close(); os.chown("own", N, N)
os.mkdir("shut", 0o700); open("shut/own", "w").close(); os.chown("shut/own", N, N)
os.chmod(".", 0o755)
closed, opened, inner = serve("closed.sock", 0o600), serve("open.sock", 0o777), serve("shut/open.sock", 0o777)
if os.fork() == 0:
    os.setgroups([]); os.setresgid(N, N, N); os.setresuid(N, N, N)
    attempt("root's mode", lambda: os.chmod("root", 0o666))
    attempt("root's owner", lambda: os.chown("root", N, N))
    attempt("own mode", lambda: os.chmod("own", 0o604))
    attempt("behind a closed directory", lambda: os.chmod("shut/own", 0o604))
    attempt("closed socket", lambda: socket.socket(socket.AF_UNIX).connect("closed.sock"))
    attempt("socket behind a closed directory", lambda: socket.socket(socket.AF_UNIX).connect("shut/open.sock"))
    client = socket.socket(socket.AF_UNIX)
    attempt("open socket", lambda: client.connect("open.sock"))
    client = socket.socket(socket.AF_UNIX); client.setblocking(False)
    attempt("without blocking", lambda: client.connect("open.sock"))
    os._exit(0)
os.wait()
for _ in range(2):
    print(struct.unpack("3i", opened.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:])
attempt("root again", lambda: os.chmod("root", 0o640))
"#;

#[test]
fn a_process_that_became_another_user_acts_as_that_user() {
    if !is_tested() {
        return;
    }
    let gate = Gate::profile(User::Own, "write").flags(["--allow", "@identity"]);
    let (done, report) = gate.report(["python3", "-c", BECOME]);
    done.exits(0).prints(
        "root's mode 1\nroot's owner 1\nown mode 0\nbehind a closed directory 13\nclosed socket 13\n\
         socket behind a closed directory 13\nopen socket 0\nwithout blocking 0\n\
         (65534, 65534)\n(65534, 65534)\nroot again 0\n",
    );
    // The kernel refused them, and not gatekeeper.
    assert_eq!(report["denials"], serde_json::json!([]), "{report:#}");
}

/// A datagram shows its receiver the user who sent it.
#[test]
fn a_datagram_is_that_users_too() {
    if !is_tested() {
        return;
    }
    let script = r#"
import os, socket, struct
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
def sent():
    a.sendmsg([b"x"]); _, control, _, _ = b.recvmsg(9, 99); print(struct.unpack("3i", control[0][2])[1:], flush=True)
sent()
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sent()
"#;
    let flags = ["--net", "own", "--allow", "socketpair", "--allow", "@identity"];
    let gate = Gate::profile(User::Own, "write").flags(flags);
    gate.run(["python3", "-c", script]).exits(0).prints("(0, 0)\n(65534, 65534)\n");
}
