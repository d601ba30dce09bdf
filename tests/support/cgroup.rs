//! A cgroup of a test's own, so that what is left below it is of nobody else.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two levels: what is started is in the lower one, and makes its own beside it.
pub struct Cgroup {
    top: PathBuf,
}

impl Cgroup {
    /// `None` where this user may make none: then nobody below makes one either.
    pub fn new(name: &str) -> Option<Cgroup> {
        let mount = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .into_iter()
            .find(|mount| Path::new(mount).join("cgroup.procs").exists() && !Path::new(mount).join("tasks").exists())?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let top = Path::new(mount).join(own).join(format!("tests-{name}-{}", std::process::id()));
        fs::create_dir(&top).ok()?;
        let cgroup = Cgroup { top };
        fs::create_dir(cgroup.top.join("inner")).ok()?;
        Some(cgroup)
    }

    /// Starts a command in it.
    pub fn enter(&self, command: &mut Command) {
        // Opened here: whoever the command is may not.
        let procs = File::options().write(true).open(self.top.join("inner/cgroup.procs")).expect("own cgroup");
        // SAFETY: one write of a static text to a descriptor that the closure owns.
        unsafe { command.pre_exec(move || (&procs).write_all(b"0")) };
    }

    /// One beside what is started.
    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.top.join(name);
        fs::create_dir(&path).expect("own cgroup");
        path
    }

    /// What was made in it and is still there.
    pub fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.top).expect("own cgroup").flatten();
        let made = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("gatekeeper-"));
        made.map(|entry| entry.path()).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.top.join("inner"));
        let _ = fs::remove_dir(&self.top);
    }
}
