//! `gatekeeper browser` with a real Chromium, driven from outside, and pages served on loopback.

mod automation;
mod cdp;
mod ends;
mod files;
mod headed;
mod network;
mod site;
mod stops;
mod table;

use crate::plumbing::{Place, users};
use crate::run::layer;
use crate::support::{Done, has, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Flags that keep Chromium from contacting other machines: no updates, no reports, no names but localhost.
const QUIET: [&str; 7] = [
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
    "--metrics-recording-only",
    "--host-resolver-rules=MAP * ~NOTFOUND,EXCLUDE 127.0.0.1,EXCLUDE localhost",
];

/// The directories of a browser and its user.
struct Desk {
    place: Place,
}

impl Desk {
    fn new(user: Option<u32>) -> Desk {
        Desk { place: Place::new(user) }
    }

    /// For a user without privileges, if there is one.
    fn plain() -> Desk {
        Desk::new(*users().last().expect("at least one user"))
    }

    fn profile(&self) -> PathBuf {
        self.place.at("profile")
    }

    fn workspace(&self) -> PathBuf {
        self.place.at("work")
    }

    fn media(&self, name: &str) -> PathBuf {
        self.workspace().join("media").join(name)
    }

    fn report_file(&self) -> PathBuf {
        self.place.at("home").join("report.json")
    }

    /// `gatekeeper browser FLAGS -- chromium ARGS`, with a profile, a workspace and a report.
    fn browser(&self, flags: &[&str], args: &[&str]) -> Command {
        let mut command = self.bare(flags);
        command.args(["--", "chromium", "--headless"]).args(QUIET).args(args);
        command
    }

    /// The same without the browser's command line.
    fn bare(&self, flags: &[&str]) -> Command {
        let mut command = self.place.command(&["browser", "--quiet", "--timeout", "300s"]);
        command.arg("--profile-dir").arg(self.profile()).arg("--workspace").arg(self.workspace());
        command.arg("--report").arg(self.report_file()).args(flags);
        command
    }

    /// A directory for programs that replace the browser. They can see it because they are in it.
    fn beside(&self) -> PathBuf {
        let directory = self.place.at("beside");
        fs::create_dir_all(&directory).expect("own");
        directory
    }

    /// A script that replaces the browser.
    fn script(&self, lines: &str) -> PathBuf {
        let path = self.beside().join("script");
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("own");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("own");
        path
    }

    fn driven(&self, flags: &[&str], args: &[&str]) -> cdp::Browser {
        let mut command = self.browser(flags, &[&["--remote-debugging-pipe"], args].concat());
        cdp::Browser::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn dump(&self, flags: &[&str], url: &str) -> Done {
        run(&mut self.browser(flags, &["--dump-dom", url]))
    }

    #[track_caller]
    fn report(&self) -> Value {
        let text = fs::read_to_string(self.report_file()).expect("a report");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Whether Chromium and a working bubblewrap are installed. If not, the test counts as skipped.
#[track_caller]
fn ready() -> bool {
    has("chromium") && crate::isolate::works()
}
