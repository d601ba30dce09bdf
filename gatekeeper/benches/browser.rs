//! What confinement costs a browser: the time to the first page and for each further page, interleaved with the same
//! browser unconfined, as ratios of medians. Runs as the user nobody if started by root.
//! `cargo bench --bench browser [ROUNDS]`.

#[allow(dead_code)]
#[path = "../../tests/browser/cdp.rs"]
mod cdp;
#[allow(dead_code)]
#[path = "../../tests/browser/site.rs"]
mod site;

#[allow(dead_code)]
mod interleaved;

use cdp::Browser;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const NOBODY: u32 = 65534;
/// Pages loaded by each browser.
const PAGES: u32 = 100;

const ARGS: [&str; 8] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--metrics-recording-only",
    "--host-resolver-rules=MAP * ~NOTFOUND,EXCLUDE 127.0.0.1,EXCLUDE localhost",
];

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(15);
    if Command::new("chromium").arg("--version").output().is_err() {
        return println!("chromium is not installed");
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("own");
    let gatekeeper = dir.path().join("gatekeeper");
    std::fs::copy(interleaved::program(), &gatekeeper).expect("copied");
    let site = site::Site::of(&[(
        "/",
        "text/html",
        "<title>page</title><script>let s = ''; for (let i = 0; i < 20000; i++) s += i; document.title = s.length</script>",
    )]);
    let mut first = [Vec::new(), Vec::new()];
    let mut each = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for (at, name) in ["plain", "confined"].into_iter().enumerate() {
            let home = dir.path().join(format!("{name}-{round}"));
            std::fs::create_dir(&home).expect("new");
            let profile = home.join("profile");
            let mut command = match name {
                "plain" => {
                    let mut command = Command::new("chromium");
                    command.arg(format!("--user-data-dir={}", profile.display()));
                    command
                }
                _ => {
                    let mut command = Command::new(&gatekeeper);
                    command.args(["browser", "-q", "--profile-dir"]).arg(&profile).args(["--", "chromium"]);
                    command
                }
            };
            let (start, page) = timed(command.args(ARGS), &home, &site.url("/"));
            first[at].push(start);
            each[at].push(page);
        }
    }
    println!("{rounds} rounds of {PAGES} pages   unconfined  confined  ratio");
    for (what, times) in [("first page, ms", first), ("each page, ms", each)] {
        let [plain, confined] = times.map(median);
        println!("{what:26} {plain:10.2} {confined:9.2} {:6.3}", confined / plain);
    }
}

/// Milliseconds from the start to the first page, and for each page after it.
fn timed(command: &mut Command, home: &Path, url: &str) -> (f64, f64) {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } == 0 {
        chown(home, Some(NOBODY), Some(NOBODY)).expect("root may");
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(home).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", home);
    let began = Instant::now();
    let mut browser = Browser::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    let page = browser.open(url);
    let start = began.elapsed();
    let began = Instant::now();
    for _ in 0..PAGES {
        assert_eq!(browser.go(&page, url), "");
    }
    let each = began.elapsed() / PAGES;
    browser.close();
    (start.as_secs_f64() * 1000.0, each.as_secs_f64() * 1000.0)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
