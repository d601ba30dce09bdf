//! A cgroup for one test, so that everything left in it comes from that test.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cgroup with a child `inner`. Commands start in `inner`, and gatekeeper creates its cgroups beside it.
pub struct Cgroup {
    top: PathBuf,
}

impl Cgroup {
    /// `None` if this user may not create cgroups. Then gatekeeper cannot create any either.
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

    /// Makes a command start in `inner`.
    pub fn enter(&self, command: &mut Command) {
        // Open it here, because the command's user may not have the permission.
        let procs = File::options().write(true).open(self.top.join("inner/cgroup.procs")).expect("own cgroup");
        // SAFETY: a single write of a static string to a descriptor that the closure owns.
        unsafe { command.pre_exec(move || (&procs).write_all(b"0")) };
    }

    /// Creates a cgroup beside `inner`.
    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.top.join(name);
        fs::create_dir(&path).expect("own cgroup");
        path
    }

    /// The cgroups of gatekeeper that are left.
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
