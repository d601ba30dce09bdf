//! A browser with a window, on a virtual display.

use super::{Desk, QUIET, ready};
use crate::plumbing::eventually;
use crate::support::has;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A virtual X server that chooses its own display number and keeps its frame buffer in a file.
struct Display {
    server: Child,
    number: String,
}

impl Display {
    fn new(directory: &std::path::Path) -> Display {
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "800x600x24", "-nolisten", "tcp", "-ac", "-fbdir"]);
        let mut server =
            command.arg(directory).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut number = String::new();
        BufReader::new(server.stdout.take().expect("piped")).read_line(&mut number).expect("it tells");
        Display { server, number: format!(":{}", number.trim()) }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_window_is_drawn_on_the_display_and_other_sockets_are_out_of_reach() {
    if !ready() {
        return;
    }
    if !has("Xvfb") {
        return;
    }
    let desk = Desk::plain();
    let pictures = desk.place.at("pictures");
    fs::create_dir(&pictures).expect("own");
    let (display, other) = (Display::new(&pictures), Display::new(&desk.place.at("tmp")));
    let mut command = desk.bare(&[]);
    command.args(["--", "chromium"]).args(QUIET).args(["--remote-debugging-pipe", "--window-size=800,600"]);
    command.args(["--window-position=0,0", "about:blank"]).env("DISPLAY", &display.number);
    let mut browser = super::cdp::Browser::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let page = "data:text/html,<title>Confined</title><body style='background:rgb(0,120,60);color:white;font:40px sans-serif'>\
        <p>A window of a confined browser</p>";
    let page = browser.open(page);
    browser.call_in(&page, "Page.bringToFront", json!({}));
    assert_eq!(browser.eval(&page, "navigator.userAgent.includes('Headless')"), false);
    // The colour of the page in the frame buffer: blue, green, red, padding.
    let green = [60u8, 120, 0, 0].repeat(50);
    let file = pictures.join("Xvfb_screen0");
    let shows =
        |colour: &[u8]| fs::read(&file).unwrap_or_default().windows(colour.len()).any(|pixels| pixels == colour);
    eventually("the window shows the page", || shows(&green) || shows(&[60u8, 120, 0, 255].repeat(50)));
    if let Some(keep) = std::env::var_os("GATEKEEPER_KEEP_PICTURE") {
        fs::copy(&file, keep).expect("a place for it");
    }
    assert_eq!(browser.close().code(), Some(0));
    assert_eq!(desk.report()["browser"]["inner_sandbox"], "on");

    // Only the display in DISPLAY is reachable.
    let sockets = "ls /tmp/.X11-unix 2>&1";
    let listed = |name: &str, headless: &str| {
        let mut command = desk.bare(&[]);
        command.arg("--").arg(desk.script(sockets)).arg(headless).env("DISPLAY", name);
        crate::support::run(&mut command).stdout()
    };
    let name = |display: &Display| format!("X{}\n", &display.number[1..]);
    assert_eq!(listed(&display.number, "--x"), name(&display));
    assert_eq!(listed(&other.number, "--x"), name(&other));
    assert!(listed(&display.number, "--headless").contains("No such file"), "a headless browser gets none");
}
