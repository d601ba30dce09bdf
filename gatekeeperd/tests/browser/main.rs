//! One confined browser, and tasks in it, with real pages on loopback.

mod acting;
mod ending;
mod hanging;
mod page;
mod site;
mod tasks;

use gatekeeperd::browser::{Browser, Options};
use site::Site;
use std::time::Duration;

/// Opens a browser that may reach this site, as the program itself does.
async fn open(site: &Site) -> Browser {
    Browser::open(options(site)).await.unwrap_or_else(|error| panic!("{error}"))
}

fn options(site: &Site) -> Options {
    Options {
        viewport: (800, 600),
        local_ports: vec![site.port],
        action_timeout: Duration::from_secs(20),
        supervisor: Some(env!("CARGO_BIN_EXE_gatekeeperd").into()),
        ..Options::default()
    }
}

/// Whether Chromium and bubblewrap are installed. If not, the test counts as skipped.
fn ready() -> bool {
    let missing = ["/usr/bin/chromium", "/usr/bin/bwrap"].into_iter().find(|path| !std::path::Path::new(path).exists());
    if let Some(missing) = missing {
        let must = std::env::var_os("SANDBOX_TESTS_MUST_RUN").is_some();
        assert!(!must, "{missing} is missing");
        println!("SKIPPED: {missing} is missing");
    }
    missing.is_none()
}

/// Processes of this machine whose command line contains a word.
fn marked(word: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("proc").flatten();
    let lines = entries.filter_map(|entry| {
        let pid = entry.file_name().into_string().ok()?.parse::<u32>().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(word).then(|| format!("{pid} {line}"))
    });
    lines.collect()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..400 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("{what}: not after ten seconds");
}
