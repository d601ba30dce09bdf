//! What a confined browser reaches: listed hosts by the proxy, public addresses only, a driving port.

use super::site::Site;
use super::{Desk, layer, ready};
use crate::plumbing::{eventually, gatekeeper};
use crate::support::{on_path, run, skip};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

fn site() -> Site {
    Site::of(&[("/", "text/html", "<title>page</title>")])
}

/// Whether a page of each site loads, in one browser.
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

#[test]
fn private_addresses_are_denied_but_for_listed_ports_of_this_machine() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let (listed, other) = (site(), site());
    let port = listed.port.to_string();
    let urls = [listed.url("/"), other.url("/"), format!("http://localhost:{}/", other.port)];
    assert_eq!(reaches(&desk, &["--deny-private", "--local-port", &port], &urls), [true, false, false]);
    assert_eq!(other.asked(), Vec::<String>::new());
    let report = desk.report();
    let denials = report["denials"].as_array().expect("a list");
    let denied = denials.iter().find(|one| one["host"] == format!("127.0.0.1:{}", other.port).as_str());
    let denied = denied.unwrap_or_else(|| panic!("no denial in {report:#}"));
    assert_eq!(denied["allow_with"], format!("--local-port {}", other.port).as_str());
    assert_eq!(denied["allow_with_policy"], format!("network.local_ports = [{port}, {}]", other.port).as_str());
    assert!(denied["rule"].as_str().is_some_and(|rule| rule.contains("this machine itself")), "{denied:#}");
}

/// Private, metadata and public addresses on the loopback of a namespace of the test's own: nothing leaves it.
const SETUP: &str = r#"
set -e
ip link set lo up
for a in 10.99.0.1 169.254.169.254 93.184.216.34; do ip addr add $a/32 dev lo; done
mount --bind hosts /etc/hosts
python3 -m http.server --bind 0.0.0.0 --directory served 8000 >/dev/null 2>&1 & server=$!
trap 'kill $server' EXIT
for try in $(seq 600); do curl -s -o /dev/null http://127.0.0.1:8000/ && break; sleep 0.1; done
for mode in '--net full' --deny-private; do
  for name in svc meta pub rebound; do
    printf '%s %s ' "$mode" $name
    "$GATEKEEPER" browser -q $mode -- chromium --headless --no-first-run --disable-background-networking \
      --disable-component-update --dump-dom "http://$name.test:8000/" 2>/dev/null | grep -o 'the page' || echo refused
  done
done
"#;

#[test]
fn a_name_that_leads_to_a_private_address_leads_nowhere() {
    if !ready() {
        return;
    }
    if let Some(tool) = ["unshare", "ip", "python3", "curl"].into_iter().find(|tool| !on_path(tool)) {
        return skip(&format!("{tool} is not installed"));
    }
    let desk = Desk::plain();
    let work = desk.workspace();
    fs::create_dir(work.join("served")).expect("own");
    fs::write(work.join("served/index.html"), "<p>the page</p>").expect("own");
    let names =
        "10.99.0.1 svc.test\n169.254.169.254 meta.test\n93.184.216.34 pub.test\n127.0.0.1 rebound.test localhost\n";
    fs::write(work.join("hosts"), names).expect("own");
    let mut command = desk.place.any(std::path::Path::new("/usr/bin/unshare"), &["-rnm", "sh", "-c", SETUP]);
    command.env("GATEKEEPER", gatekeeper()).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let done = run(&mut command);
    if done.stderr().contains("unshare failed") {
        return skip("no user and network namespace can be made here");
    }
    let mut expected = String::new();
    for (mode, answers) in
        [("--net full", ["the page"; 4]), ("--deny-private", ["refused", "refused", "the page", "refused"])]
    {
        for (name, answer) in ["svc", "meta", "pub", "rebound"].iter().zip(answers) {
            expected.push_str(&format!("{mode} {name} {answer}\n"));
        }
    }
    done.prints(&expected);
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
        let mut command = desk.browser(&flags, &["--remote-debugging-port=0", &other.url("/")]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let named = desk.profile().join("DevToolsActivePort");
        let port = || fs::read_to_string(&named).ok()?.lines().next()?.parse::<u16>().ok();
        eventually("the browser tells its port", || port().is_some());
        let mut stream = TcpStream::connect(("127.0.0.1", port().expect("just read"))).expect("it listens here");
        stream.write_all(b"GET /json/version HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").expect("open");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("webSocketDebuggerUrl"), "{answer}");
        if flags.is_empty() {
            eventually("the page is asked for", || !other.asked().is_empty());
        }
        crate::plumbing::signal(child.id(), "TERM");
        assert_eq!(child.wait().expect("own child").code(), Some(0));
        let report = desk.report();
        if !flags.is_empty() {
            // No namespace of its own, so that the port is where it is looked for; the supervisor holds the rest.
            assert!(!layer(&report, "namespaces").1.contains(", network"), "{report:#}");
            assert_eq!(layer(&report, "proxy").0, "enforced", "{report:#}");
            let host = format!("127.0.0.1:{}", other.port);
            let denials = report["denials"].as_array().expect("a list");
            assert!(denials.iter().any(|one| one["layer"] == "proxy" && one["host"] == host.as_str()), "{report:#}");
        }
    }
}
