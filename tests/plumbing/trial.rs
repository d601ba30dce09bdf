//! `doctor` tries a container engine: it does not wait for nothing, and a signal leaves nothing behind. The engine is a script
//! that notes how it is called.

use super::{PATIENCE, Place, gatekeeper, users};
use crate::support::{fresh, is_root, run, skip};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An engine of the system: root owns it and every directory above it. Removed at the end.
struct Engine {
    directory: PathBuf,
    /// A line for each call: its XDG_RUNTIME_DIR and its words.
    calls: PathBuf,
    /// The process ids of a container that does not end.
    containers: PathBuf,
}

impl Engine {
    fn new(name: &str) -> Option<Engine> {
        if !is_root() {
            skip("only root can install an engine");
            return None;
        }
        let directory = PathBuf::from(format!("/var/lib/gatekeeper-tests-{name}-{}", std::process::id()));
        let notes = fresh("engine");
        let (calls, containers) = (notes.join("calls"), notes.join("containers"));
        for file in [&calls, &containers] {
            fs::write(file, "").expect("own directory");
            fs::set_permissions(file, fs::Permissions::from_mode(0o666)).expect("own");
        }
        fs::create_dir(&directory).expect("root may");
        let script = format!(
            "#!/bin/sh\n\
             echo \"${{XDG_RUNTIME_DIR-none}} $*\" >> {}\n\
             case \"$*\" in\n\
             info*) echo '{{\"host\":{{\"security\":{{\"rootless\":true}},\"cgroupVersion\":\"v2\"}},\"version\":{{\"Version\":\"0\"}}}}' ;;\n\
             *' run '*|run*) echo $$ >> {}; exec sleep 600 ;;\n\
             esac\n",
            calls.display(),
            containers.display()
        );
        let engine = Engine { directory, calls, containers };
        fs::write(engine.program(), script).expect("root may");
        fs::set_permissions(engine.program(), fs::Permissions::from_mode(0o755)).expect("own");
        Some(engine)
    }

    fn program(&self) -> PathBuf {
        self.directory.join("podman")
    }

    fn doctor(&self, place: &Place, temporary: &Path) -> Command {
        let mut command = place.any(gatekeeper(), &["doctor"]);
        command.env("GATEKEEPER_ENGINE", self.program()).env("TMPDIR", temporary);
        command
    }

    fn called(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(&self.calls).expect("a list");
        let split = |line: &str| line.split_once(' ').map(|(at, words)| (at.to_owned(), words.to_owned()));
        text.lines().filter_map(split).collect()
    }

    /// The directory that doctor made: the container's root is in it.
    fn directory_of_trial(&self) -> PathBuf {
        let root = self
            .called()
            .into_iter()
            .find_map(|(_, words)| words.split(' ').skip_while(|word| *word != "--rootfs").nth(1).map(PathBuf::from));
        root.expect("a container").parent().expect("not the top").to_owned()
    }

    /// Waits for the container of the trial.
    fn container(&self) -> Pid {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = fs::read_to_string(&self.containers).expect("a list");
            if let Some(pid) = text.lines().last().and_then(|line| Pid::from_raw(line.parse().ok()?)) {
                return pid;
            }
            assert!(Instant::now() < until, "no container was started: {:?}", self.called());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Ended with the test, also if that fails: it would hold the streams of the tests open.
struct Doctor(Child);

impl Drop for Doctor {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// podman 4.3 refuses a run root of more than 50 characters when it cleans up after a container, and waits 20 seconds for that.
#[test]
fn the_run_root_of_the_trial_is_short_enough_for_podman() {
    let Some(engine) = Engine::new("short") else { return };
    fs::write(
        engine.program(),
        format!("#!/bin/sh\necho \"${{XDG_RUNTIME_DIR-none}} $*\" >> {}\nexit 1\n", engine.calls.display()),
    )
    .expect("own");
    let place = Place::new(Some(crate::support::NOBODY));
    let deep = place.at("tmp").join("a-directory-for-temporary-files-with-a-very-long-name");
    fs::create_dir(&deep).expect("root may");
    std::os::unix::fs::chown(&deep, place.user, place.user).expect("root may");
    for temporary in [Path::new("/tmp"), Path::new("/var/tmp"), &deep] {
        fs::write(&engine.calls, "").expect("own");
        run(&mut engine.doctor(&place, temporary)).exits(1);
        let called = engine.called();
        assert!(!called.is_empty(), "the engine was not tried");
        for (runtime, words) in called {
            let root = Path::new(&runtime).join("containers");
            assert!(runtime.starts_with('/') && root.as_os_str().len() <= 50, "{words}: {}", root.display());
            assert!(!Path::new(&runtime).exists(), "{runtime} was left");
        }
    }
}

#[test]
fn a_signal_ends_doctor_and_leaves_nothing() {
    for user in users() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let Some(engine) = Engine::new(&format!("signal-{}-{}", user.unwrap_or(0), signal.as_raw())) else {
                return;
            };
            let place = Place::new(user);
            let mut command = engine.doctor(&place, &place.at("tmp"));
            let mut doctor = Doctor(command.stdout(Stdio::null()).spawn().expect("it starts"));
            let container = engine.container();
            // The control: there is something to remove.
            let directory = engine.directory_of_trial();
            assert!(directory.is_dir(), "{}", directory.display());
            test_kill_process(container).expect("it runs");
            kill_process(Pid::from_child(&doctor.0), signal).expect("our child");
            let status = doctor.0.wait().expect("our child");
            assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
            assert!(!directory.exists(), "{} was left", directory.display());
            assert!(test_kill_process(container).is_err(), "the container still runs");
            let words: Vec<String> = engine.called().into_iter().map(|(_, words)| words).collect();
            assert!(words.iter().any(|words| words.starts_with("rm --force")), "{words:?}");
            // Only an ordinary user's podman keeps a process.
            assert_eq!(words.last().is_some_and(|words| words == "system migrate"), user.is_some(), "{words:?}");
        }
    }
}
