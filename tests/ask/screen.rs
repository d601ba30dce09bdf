//! `--ask` in a real terminal, tmux: job control, Ctrl-C, and a window that is closed.

use crate::plumbing::{Place, eventually};
use crate::support::{Done, has, run};
use std::fs;

/// A window of tmux, in which a shell runs one line.
struct Window<'a> {
    place: &'a Place,
    socket: String,
}

impl Window<'_> {
    fn open<'a>(place: &'a Place, line: &str) -> Window<'a> {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let window = Window { place, socket: place.at(&format!("tmp/tmux{count}")).display().to_string() };
        let line = format!("{line}; echo status $?; exec sleep 300");
        window.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "24", "sh", "-c", &line]).exits(0);
        window
    }

    fn tmux(&self, words: &[&str]) -> Done {
        let all = [&["-S", &self.socket], words].concat();
        run(self.place.any("/usr/bin/tmux".as_ref(), &all).env("TERM", "xterm").env("SHELL", "/bin/sh"))
    }

    /// What the user sees.
    fn screen(&self) -> String {
        // With wrapped lines joined.
        self.tmux(&["capture-pane", "-p", "-J"]).stdout()
    }

    fn shows(&self, text: &str) {
        let end = std::time::Instant::now() + crate::plumbing::PATIENCE;
        while !self.screen().contains(text) {
            assert!(std::time::Instant::now() < end, "{text:?} is not on the screen:\n{}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat()).exits(0);
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

fn quoted(flags: &[&str], rest: &str) -> String {
    let gatekeeper = crate::support::gatekeeper_for_all().display();
    format!("{gatekeeper} run --ask {} --profile write -- {rest}", flags.join(" "))
}

#[test]
fn the_shell_gets_the_terminal_for_a_stopped_job_and_the_question_comes_back() {
    if !has("tmux") || !has("bash") {
        return;
    }
    let place = Place::new(None);
    let asked = place.at("home/x");
    let window = Window::open(&place, "PS1='ready> ' bash --norc -i");
    window.shows("ready>");
    let line = quoted(&[], &format!("sh -c 'echo x > {}; echo went-\"on\"'", asked.display()));
    window.types(&[&line, "Enter"]);
    window.shows("? more:");
    window.types(&["C-z"]);
    window.shows("Stopped");
    assert!(!asked.exists());
    window.types(&["fg", "Enter"]);
    eventually("the question comes back", || window.screen().matches("? more:").count() > 1);
    window.types(&["y"]);
    window.shows("went-on");
    assert!(asked.exists());
    // The terminal is the shell's, with its modes.
    window.types(&["echo the-\"shell\"", "Enter"]);
    window.shows("the-shell");
}

/// The window is closed while a question is in it, and the command ignores that.
#[test]
fn a_closed_terminal_denies_what_waits_and_what_comes_later() {
    if !has("tmux") {
        return;
    }
    let place = Place::new(None);
    let line = format!("trap '' HUP; echo x > {0}/1; echo x > {0}/2; echo > ended", place.at("home").display());
    let window = Window::open(&place, &quoted(&["--ask-timeout", "1h"], &format!("sh -c \"{line}\"")));
    window.shows("? more:");
    window.tmux(&["kill-server"]).exits(0);
    eventually("the command goes on", || place.at("work/ended").exists());
    assert_eq!(fs::read_dir(place.at("home")).expect("there").count(), 0);
}

#[test]
fn control_c_works_at_every_moment() {
    if !has("tmux") || !has("bash") {
        return;
    }
    let place = Place::new(None);
    for (name, before) in
        [("at the question", &[][..]), ("after details", &["?"][..]), ("after another answer", &["n"][..])]
    {
        let window = Window::open(&place, "PS1='ready> ' bash --norc -i");
        window.shows("ready>");
        let write = |name: &str| format!("echo x > {}/{name}", place.at("home").display());
        let line = quoted(&[], &format!("sh -c '{}; {}; echo went-\"on\"'", write("1"), write("2")));
        window.types(&[&line, "Enter"]);
        window.shows("? more:");
        let questions = |screen: &str| screen.matches("? more:").count();
        for key in before {
            window.types(&[key]);
            eventually("the next prompt", || questions(&window.screen()) > 1);
        }
        window.types(&["C-c"]);
        eventually(name, || window.screen().trim_end().ends_with("ready>"));
        window.types(&["echo status $?", "Enter"]);
        window.shows("status 130");
        assert!(!window.screen().contains("went-on"), "{name}: {}", window.screen());
        assert!(!place.at("home/1").exists() && !place.at("home/2").exists(), "{name}");
    }
}
