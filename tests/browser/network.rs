//! What a confined browser can reach: listed hosts through the proxy, public addresses only, and its debugging port.

use super::site::Site;
use super::{Desk, layer, ready};
use crate::plumbing::{eventually, gatekeeper};
use crate::support::{has, run, skip};
use std::fs;
use std::process::Stdio;

fn site() -> Site {
    Site::of(&[("/", "text/html", "<title>page</title>")])
}

/// Asserts in one browser which sites load.
#[track_caller]
fn reaches(desk: &Desk, flags: &[&str], urls: &[String]) -> Vec<bool> {
    let mut browser = desk.driven(flags, &[]);
    let page = browser.tab("about:blank");
    let mut loaded = Vec::new();
    for url in urls {
        let error = browser.go(&page, url);
        loaded.push(error.is_empty() && browser.eval(&page, "document.title") == "page");
    }
    assert_eq!(browser.close().code(), Some(0));
    loaded
}

#[test]
fn only_listed_hosts_are_reached_by_the_proxy_and_in_a_network_of_its_own() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let (listed, other) = (site(), site());
    let host = format!("hosts=127.0.0.1:{}", listed.port);
    assert_eq!(reaches(&desk, &["--net", &host], &[listed.url("/"), other.url("/")]), [true, false]);
    assert!(listed.asked().contains(&"/".to_owned()));
    assert_eq!(other.asked(), Vec::<String>::new());
    let report = desk.report();
    assert!(layer(&report, "namespaces").1.contains(", network;"), "{report:#}");
    assert_eq!(layer(&report, "proxy").0, "enforced", "{report:#}");
    let refused = format!("127.0.0.1:{}", other.port);
    let denials = report["denials"].as_array().expect("a list");
    assert!(denials.iter().any(|one| one["layer"] == "proxy" && one["host"] == refused.as_str()), "{report:#}");
    assert_eq!(report["browser"]["inner_sandbox"], "on", "{report:#}");
}

/// Private and metadata addresses, a public address of this machine (`own`) and one of another machine (`pub`), which
/// is a second namespace. No packet leaves the two.
const SETUP: &str = r#"
set -e
ip link set lo up
for a in 10.99.0.1 169.254.169.254; do ip addr add $a/32 dev lo; done
unshare -n sleep 600 & other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add near type veth peer name far netns $other
ip addr add 93.184.216.1/24 dev near
ip link set near up
mount --bind hosts /etc/hosts
for port in 8000 8001; do
  python3 -m http.server --bind 0.0.0.0 --directory served $port >/dev/null 2>&1 & servers="$servers $!"
done
serve='ip addr add 93.184.216.34/24 dev far; ip link set far up; exec python3 -m http.server --bind 0.0.0.0 --directory served 8000'
nsenter -t $other -n sh -c "$serve" >/dev/null 2>&1 & servers="$servers $! $other"
trap 'kill $servers' EXIT
for try in $(seq 600); do
  curl -s http://127.0.0.1:8000/ http://127.0.0.1:8001/ http://93.184.216.34:8000/ >/dev/null && break
  sleep 0.1
done
load() {
  "$GATEKEEPER" browser -q --report report.json $1 -- chromium --headless --no-first-run --disable-background-networking \
      --disable-component-update --dump-dom "$2" 2>/dev/null | grep -o 'the page' || echo refused
}
for mode in '--net full' --deny-private; do
  for name in svc meta pub own rebound; do
    printf '%s %s ' "$mode" $name
    load "$mode" "http://$name.test:8000/"
  done
done
for port in 8000 8001; do
  printf '%s ' $port
  load '--deny-private --local-port 8000' http://127.0.0.1:$port/
done
"#;

#[test]
fn a_name_that_leads_to_a_private_address_leads_nowhere() {
    if !ready() {
        return;
    }
    if !["unshare", "nsenter", "ip", "python3", "curl"].into_iter().all(has) {
        return;
    }
    let desk = Desk::plain();
    let work = desk.workspace();
    fs::create_dir(work.join("served")).expect("own");
    fs::write(work.join("served/index.html"), "<p>the page</p>").expect("own");
    let names = "10.99.0.1 svc.test\n169.254.169.254 meta.test\n93.184.216.34 pub.test\n93.184.216.1 own.test\n127.0.0.1 rebound.test localhost\n";
    fs::write(work.join("hosts"), names).expect("own");
    let mut command = desk.place.any(std::path::Path::new("/usr/bin/unshare"), &["-rnm", "sh", "-c", SETUP]);
    command.env("GATEKEEPER", gatekeeper()).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let done = run(&mut command);
    if done.stderr().contains("unshare failed") {
        return skip("no user and network namespace can be made here");
    }
    let mut expected = String::new();
    for (mode, answers) in
        [("--net full", ["the page"; 5]), ("--deny-private", ["refused", "refused", "the page", "refused", "refused"])]
    {
        for (name, answer) in ["svc", "meta", "pub", "own", "rebound"].iter().zip(answers) {
            expected.push_str(&format!("{mode} {name} {answer}\n"));
        }
    }
    expected.push_str("8000 the page\n8001 refused\n");
    done.prints(&expected);
    let report = fs::read_to_string(work.join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let denied = report["denials"].as_array().expect("a list").iter().find(|one| one["host"] == "127.0.0.1:8001");
    let denied = denied.unwrap_or_else(|| panic!("no denial in {report:#}"));
    assert_eq!(denied["allow_with"], "--local-port 8001");
    assert_eq!(denied["allow_with_policy"], "network.local_ports = [8000, 8001]");
    assert!(denied["rule"].as_str().is_some_and(|rule| rule.contains("this machine itself")), "{denied:#}");
}

#[test]
fn a_browser_is_driven_by_a_port_also_behind_the_proxy() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let (listed, other) = (site(), site());
    for flags in [vec![], vec!["--net".to_owned(), format!("hosts=127.0.0.1:{}", listed.port)]] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let _ = fs::remove_dir_all(desk.profile());
        let asked = other.asked().len();
        let mut command = desk.browser(&flags, &["--remote-debugging-port=0", &other.url("/")]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let named = desk.profile().join("DevToolsActivePort");
        let port = || fs::read_to_string(&named).ok()?.lines().next()?.parse::<u16>().ok();
        eventually("the browser tells its port", || port().is_some());
        let ask = |path: &str| super::site::ask(port().expect("just read"), "GET", path, "");
        assert!(ask("/json/version").contains("webSocketDebuggerUrl"));
        // While it starts, Chromium ignores SIGTERM.
        eventually("it has a page", || ask("/json/list").contains(&other.url("/")));
        if flags.is_empty() {
            eventually("the page is asked for", || !other.asked().is_empty());
        }
        crate::plumbing::signal(child.id(), "TERM");
        // If it has to end while it loads a page, Chromium may also crash. The exit code is Chromium's in any case.
        let status = child.wait().expect("own child");
        let report = desk.report();
        assert_eq!(report["exit_code"], status.code().expect("exits"), "{report:#}");
        assert_ne!(status.code(), Some(124), "{report:#}");
        if !flags.is_empty() {
            // No network namespace, so that the port is reachable; the supervisor checks all other connections.
            assert!(!layer(&report, "namespaces").1.contains(", network"), "{report:#}");
            assert_eq!(layer(&report, "proxy").0, "enforced", "{report:#}");
            assert_eq!(other.asked().len(), asked, "nothing of it came through");
        }
    }
}
