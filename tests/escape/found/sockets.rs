//! Sockets that a command must not reach, or must not serve: closed places, abstract names, this machine's own
//! addresses.

use super::{Hole, Severity, supervised, unconfined, words};
use crate::run::{Gate, become_user, denials, owned_by, users};
use crate::support::{fresh, gatekeeper, has, run, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

pub const HOLES: &[Hole] = &[
    Hole {
        severity: Severity::Medium,
        attack: "connect through an absolute link to a socket in a covered directory inside a writable tree",
        reached: "the agent that signs with the user's keys",
        held_by: &["a_socket_in_a_closed_place_is_out_of_reach"],
    },
    Hole {
        severity: Severity::Low,
        attack: "listen on an abstract name that programs outside connect to",
        reached: "cookies and requests of those programs",
        held_by: &["abstract_names_serve_nobody_outside"],
    },
    Hole {
        severity: Severity::Medium,
        attack: "ask the proxy, under deny_private, for a public address of this machine",
        reached: "services of this machine that listen on every address",
        held_by: &["an_own_public_address_is_private"],
    },
];

/// A server on a socket that every user may connect to.
fn serve(path: &Path) {
    fs::create_dir_all(path.parent().expect("in a directory")).expect("own directory");
    let listener = UnixListener::bind(path).expect("a short path");
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("own");
    std::thread::spawn(move || listener.incoming().for_each(drop));
}

#[test]
fn a_socket_in_a_closed_place_is_out_of_reach() {
    let program = supervised();
    for user in users() {
        let home = fs::canonicalize(fresh("h")).expect("just made");
        let (agent, open) = (home.join(".gnupg/S.gpg-agent"), home.join("app.sock"));
        serve(&agent);
        serve(&open);
        let work = home.join("work");
        fs::create_dir(&work).expect("own directory");
        symlink(&agent, work.join("link")).expect("own directory");
        symlink(&open, work.join("open")).expect("own directory");
        for path in [&home, &work, &home.join(".gnupg")] {
            owned_by(*user, path);
        }
        assert_eq!(unconfined(*user, &work, &["connect", "link"]), "0\n");
        let tree = home.to_str().expect("text");
        let agent = agent.to_str().expect("text");
        let gate = |flags: &[&str]| {
            let mut gate = Gate::profile(*user, "write").flags(["--write", tree]).flags(flags).env("HOME", &home);
            gate.dir = work.clone();
            gate
        };
        for name in ["link", agent, "../.gnupg/S.gpg-agent"] {
            let (done, report) = gate(&[]).report(words(&program, &["connect", name]));
            // Covered by a mount, the socket does not exist. Otherwise the connection is refused and recorded.
            match done.exits(0).stdout().as_str() {
                "2\n" | "13\n" => assert_eq!(report["denials"], serde_json::json!([]), "{name}"),
                "1\n" => {
                    let [denial] = denials(&report, "connect")[..] else { panic!("{report:#}") };
                    assert_eq!(
                        (&denial["path"], &denial["allow_with"]),
                        (&agent.into(), &format!("--unix {agent}").into())
                    );
                }
                _ => panic!("{name}{done}"),
            }
        }
        for name in ["open", "../app.sock"] {
            gate(&[]).run(words(&program, &["connect", name])).exits(0).prints("0\n");
        }
        // Granted by its own path, but not by the path of a directory above it.
        gate(&["--unix", agent]).run(words(&program, &["connect", agent])).exits(0).prints("0\n");
        let around = gate(&["--unix", tree]).run(words(&program, &["connect", agent]));
        assert!(["1\n", "2\n", "13\n"].contains(&around.exits(0).stdout().as_str()), "{around}");
    }
}

#[test]
fn abstract_names_serve_nobody_outside() {
    let program = supervised();
    for user in users() {
        let name = format!("@gatekeeper-test-{}-{user:?}", std::process::id());
        assert_eq!(unconfined(*user, Path::new("/"), &["listen", &name]), "0\n");
        for profile in ["minimal", "write", "write+network"] {
            let gate = Gate::profile(*user, profile);
            let (done, report) = gate.report(words(&program, &["listen", &name]));
            done.exits(0).prints("1\n");
            let [denial] = denials(&report, "listen")[..] else { panic!("{report:#}") };
            // In a namespace of its own the name is served to nobody else. Not where that takes the network away, and not
            // where the run has not shown that namespaces can be made.
            let own = (profile == "write").then_some("--net own");
            assert_eq!(denial["allow_with"].as_str(), own, "{denial:#}");
            assert!(denial["rule"].as_str().is_some_and(|rule| rule.starts_with("abstract names")), "{denial:#}");
        }
        let gate = Gate::profile(*user, "write");
        gate.run(words(&program, &["listen", "by-path"])).exits(0).prints("0\n");
    }
}

/// A network namespace in which this machine has a public address, connected to a second one that acts as another
/// machine with a public address. No packet leaves the two.
const OWN_ADDRESS: &str = r#"
set -e
ip link set lo up
unshare -n sleep 300 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add near type veth peer name far netns $other
ip addr add 93.184.216.1/24 dev near
ip link set near up
python3 -m http.server --bind 0.0.0.0 8000 >/dev/null 2>&1 & own=$!
serve='ip addr add 93.184.216.34/24 dev far; ip link set far up; exec python3 -m http.server --bind 0.0.0.0 8000'
nsenter -t $other -n sh -c "$serve" >/dev/null 2>&1 & far=$!
trap "kill $own $far $other" EXIT
for address in 93.184.216.1 93.184.216.34; do
  while ! curl -s -o /dev/null http://$address:8000/; do sleep 0.05; done
done
for policy in private open listed named; do
  for address in 93.184.216.1 93.184.216.34; do
    printf '%s %s ' $policy $address
    "$GATEKEEPER" run -q --report $policy-$address.json --config $policy.toml -- curl -s -o body -w '%{http_code}\n' http://$address:8000/ || true
  done
done
"#;

#[test]
fn an_own_public_address_is_private() {
    for tool in ["unshare", "nsenter", "ip", "python3", "curl"] {
        if !has(tool) {
            return;
        }
    }
    for user in users() {
        let dir = fresh("own-address");
        let network = [
            ("private", "mode = \"full\"\ndeny_private = true\n"),
            ("open", "mode = \"full\"\n"),
            ("listed", "mode = \"hosts\"\nhosts = [\"93.184.216.1:8000\"]\n"),
            ("named", "mode = \"full\"\ndeny_private = true\nlocal_ports = [8000]\n"),
        ];
        for (name, text) in network {
            fs::write(dir.join(format!("{name}.toml")), format!("profile = \"write\"\n[network]\n{text}"))
                .expect("own");
        }
        let mut command = Command::new("unshare");
        command.args(["-rn", "sh", "-c", OWN_ADDRESS]).current_dir(&dir).env("GATEKEEPER", gatekeeper());
        command.env("HOME", "/nonexistent").env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        become_user(&mut command, *user);
        let done = run(&mut command);
        if done.stderr().contains("unshare failed") {
            return skip("no user and network namespace can be made here");
        }
        let expected = [
            ("private", ["403", "200"]),
            ("open", ["200", "200"]),
            ("listed", ["200", "403"]),
            // local_ports applies to loopback, not to addresses that other machines can reach.
            ("named", ["403", "200"]),
        ];
        let expected = expected
            .map(|(policy, [own, other])| format!("{policy} 93.184.216.1 {own}\n{policy} 93.184.216.34 {other}\n"));
        done.exits(0).prints(&expected.concat());
        let text = fs::read_to_string(dir.join("private-93.184.216.1.json")).expect("a report");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let [denial] = denials(&report, "connect")[..] else { panic!("{report:#}") };
        let rule = denial["rule"].as_str().expect("text");
        assert!(rule.contains("this machine itself, under one of its addresses"), "{rule}");
        assert_eq!(denial["allow_with"], serde_json::Value::Null, "{denial:#}");
    }
}
