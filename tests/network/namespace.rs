//! Private, metadata and public addresses, all on the loopback of a new network namespace, which no packet leaves.
//! Names come from a hosts file that is mounted there.

use super::users;
use crate::support::{fresh, gatekeeper, has, run, skip};
use std::os::unix::process::CommandExt;
use std::process::Command;

const SETUP: &str = r#"
set -e
ip link set lo up
for a in 10.99.0.1 169.254.169.254 93.184.216.34; do ip addr add $a/32 dev lo; done
mount --bind hosts /etc/hosts
python3 server.py & trap "kill $!" EXIT
while [ ! -e ready ]; do sleep 0.05; done
for list in svc.test meta.test pub.test mixed.test svc.test,10.99.0.1 '*.test'; do
  for name in svc meta pub mixed; do
    printf '%s %s ' "$list" $name
    "$GATEKEEPER" run -q --report report.json --net "hosts=$list" -- curl -s -o body -w '%{http_code}\n' "http://$name.test:8000/" || true
  done
done
"#;

const SERVER: &str = r#"
import http.server, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer.allow_reuse_address = True
s = http.server.ThreadingHTTPServer(("0.0.0.0", 8000), H)
open("ready", "w").close()
s.serve_forever()
"#;

#[test]
fn a_name_is_judged_by_the_address_that_it_leads_to() {
    for tool in ["unshare", "ip", "python3", "curl"] {
        if !has(tool) {
            return;
        }
    }
    for user in users() {
        let dir = fresh("addresses-of-names");
        let hosts = "10.99.0.1 svc.test\n169.254.169.254 meta.test\n93.184.216.34 pub.test\n10.99.0.1 mixed.test\n93.184.216.34 mixed.test\n127.0.0.1 localhost\n";
        std::fs::write(dir.join("hosts"), hosts).expect("own directory");
        std::fs::write(dir.join("server.py"), SERVER).expect("own directory");
        let mut command = Command::new("unshare");
        command.args(["-rnm", "sh", "-c", SETUP]).current_dir(&dir).env("GATEKEEPER", gatekeeper()).env("HOME", &dir);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let done = run(&mut command);
        if done.stderr().contains("unshare failed") {
            return skip("no user and network namespace can be made here");
        }
        done.exits(0);
        let expected = [
            ("svc.test", ["403", "403", "403", "403"]),
            ("meta.test", ["403", "403", "403", "403"]),
            ("pub.test", ["403", "403", "200", "403"]),
            // A name with a private and a public address: only the public one is used.
            ("mixed.test", ["403", "403", "403", "200"]),
            ("svc.test,10.99.0.1", ["200", "403", "403", "403"]),
            ("*.test", ["403", "403", "200", "200"]),
        ];
        let mut lines = String::new();
        for (list, codes) in expected {
            for (name, code) in ["svc", "meta", "pub", "mixed"].iter().zip(codes) {
                lines.push_str(&format!("{list} {name} {code}\n"));
            }
        }
        done.prints(&lines);
    }
}
