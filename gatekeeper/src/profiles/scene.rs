//! A scene: the directory in which a workload runs, and a snapshot of the files in it afterwards.
//!
//! Both runs of a workload use the same path, so their output can be compared without rewriting it.

use super::corpus::{Fixture, Workload};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

pub struct Scene {
    top: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// The entries of the working directory after a run, by path.
pub type Picture = BTreeMap<PathBuf, Entry>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    kind: char,
    mode: u32,
    /// The contents of a file or the target of a link; empty if they are not compared.
    contents: Vec<u8>,
    /// Only if it is older than the run, because then the command set it.
    modified: Option<i64>,
}

impl Scene {
    pub fn new(top: PathBuf) -> Scene {
        let environment = environment(&top);
        Scene { top, environment }
    }

    pub fn work(&self) -> PathBuf {
        self.top.join("work")
    }

    /// A directory beside the working directory, which no profile makes writable.
    pub fn outside(&self) -> PathBuf {
        self.top.join("outside")
    }

    pub fn served(&self) -> PathBuf {
        self.top.join("served")
    }

    /// Creates every directory anew.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.top) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for name in ["work", "outside", "served", "home", "tmp"] {
            fs::create_dir_all(self.top.join(name))?;
        }
        Ok(())
    }

    /// Writes the files of the fixture, then those of the workload.
    pub fn set_up(&self, workload: &Workload, fixture: Option<&Fixture>, port: u16) -> io::Result<()> {
        self.clear()?;
        let own = Fixture { files: workload.files.clone(), setup: workload.setup.clone(), loose: Vec::new() };
        for part in fixture.into_iter().chain([&own]) {
            for (name, text) in &part.files {
                let path = self.work().join(name);
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(path, text)?;
            }
            if let Some(line) = &part.setup {
                let line = with_port(line, port);
                let done = self.command("/bin/sh").args(["-ec", &line]).stdin(Stdio::null()).output()?;
                if !done.status.success() {
                    let text = String::from_utf8_lossy(&done.stderr);
                    return Err(io::Error::other(format!("the set-up failed: {line}: {text}")));
                }
            }
        }
        Ok(())
    }

    /// A command in the working directory, with the same environment for every run.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.work()).env_clear().envs(self.environment.iter().cloned());
        command
    }

    pub fn finds(&self, program: &str) -> bool {
        if program.contains('/') {
            return true;
        }
        let path = self.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        std::env::split_paths(&path.unwrap_or_default()).any(|directory| is_executable(&directory.join(program)))
    }

    pub fn picture(&self, loose: &[&str], began: SystemTime) -> io::Result<Picture> {
        let mut all = Picture::new();
        let top = self.work();
        let mut stack = vec![top.clone()];
        while let Some(directory) = stack.pop() {
            for entry in fs::read_dir(&directory)? {
                let path = entry?.path();
                let meta = fs::symlink_metadata(&path)?;
                let name = path.strip_prefix(&top).unwrap_or(&path).to_owned();
                let is_loose = loose.iter().any(|loose| name.starts_with(loose));
                all.insert(name, picture_of(&path, &meta, is_loose, began)?);
                if meta.is_dir() && !is_loose {
                    stack.push(path);
                }
            }
        }
        Ok(all)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.top);
    }
}

fn picture_of(path: &Path, meta: &fs::Metadata, loose: bool, began: SystemTime) -> io::Result<Entry> {
    let kind = meta.file_type();
    let (kind, contents) = match () {
        () if kind.is_symlink() => ('l', fs::read_link(path)?.into_os_string().into_encoded_bytes()),
        () if kind.is_dir() => ('d', Vec::new()),
        () if kind.is_fifo() => ('p', Vec::new()),
        () if kind.is_socket() => ('s', Vec::new()),
        () if kind.is_file() && !loose => ('f', fs::read(path)?),
        () => ('f', Vec::new()),
    };
    let before = meta.modified().is_ok_and(|modified| modified + RECENT < began);
    let modified = (before && kind == 'f' && !loose).then(|| meta.mtime());
    let mode = if loose || kind == 'l' { 0 } else { meta.mode() & 0o7777 };
    Ok(Entry { kind, mode, contents, modified })
}

/// Describes the first difference between two snapshots.
pub fn difference(plain: &Picture, confined: &Picture) -> Option<String> {
    let missing = plain.keys().find(|path| !confined.contains_key(*path));
    if let Some(path) = missing {
        return Some(format!("{} is missing", path.display()));
    }
    if let Some(path) = confined.keys().find(|path| !plain.contains_key(*path)) {
        return Some(format!("{} was created by the confined run only", path.display()));
    }
    let differs = plain.iter().find(|(path, entry)| confined.get(*path) != Some(entry));
    differs.map(|(path, entry)| {
        let other = &confined[path];
        let what = match () {
            () if entry.kind != other.kind => format!("has type {:?} instead of {:?}", other.kind, entry.kind),
            () if entry.mode != other.mode => format!("has mode {:o} instead of {:o}", other.mode, entry.mode),
            () if entry.contents != other.contents => "has different contents".to_owned(),
            () => "has a different modification time".to_owned(),
        };
        format!("{} {what}", path.display())
    })
}

/// A modification time within this period comes from the set-up or from the run, and differs from run to run.
const RECENT: Duration = Duration::from_secs(3600);

pub fn with_port(text: &str, port: u16) -> String {
    text.replace("{port}", &port.to_string())
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Searched before the caller's PATH, so that a wrapper script in a home directory is not used.
const PROGRAMS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of both runs. It has no variable that gatekeeper would remove.
fn environment(top: &Path) -> Vec<(OsString, OsString)> {
    let caller = |name: &str| std::env::var_os(name);
    let mut path = OsString::from(PROGRAMS);
    for directory in caller("PATH").iter().flat_map(std::env::split_paths).filter(|path| path.is_absolute()) {
        path.push(":");
        path.push(directory);
    }
    let below = |name: &str| top.join(name).into_os_string();
    let home = caller("HOME").map(PathBuf::from);
    let tool_home = |variable: &str, name: &str| {
        let usual = || home.as_ref().map(|home| home.join(name)).filter(|path| path.is_dir());
        caller(variable).or_else(|| usual().map(PathBuf::into_os_string))
    };
    let mut set = vec![
        ("PATH", path),
        ("HOME", below("home")),
        ("TMPDIR", below("tmp")),
        ("LANG", "C.UTF-8".into()),
        ("TZ", "UTC".into()),
        ("USER", "somebody".into()),
        ("LOGNAME", "somebody".into()),
        ("TERM", "dumb".into()),
        ("SHELL", "/bin/sh".into()),
        ("SOURCE_DATE_EPOCH", "1700000000".into()),
    ];
    // With these, commits have the same hash in every run.
    set.extend([
        ("GIT_AUTHOR_NAME", "A U Thor".into()),
        ("GIT_AUTHOR_EMAIL", "author@example.com".into()),
        ("GIT_AUTHOR_DATE", "1700000000 +0000".into()),
        ("GIT_COMMITTER_NAME", "C O Mitter".into()),
        ("GIT_COMMITTER_EMAIL", "committer@example.com".into()),
        ("GIT_COMMITTER_DATE", "1700000000 +0000".into()),
    ]);
    let homes = [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")];
    set.extend(homes.into_iter().filter_map(|(name, usual)| Some((name, tool_home(name, usual)?))));
    set.extend(caller("RUSTUP_TOOLCHAIN").map(|value| ("RUSTUP_TOOLCHAIN", value)));
    set.into_iter().map(|(name, value)| (OsString::from(name), value)).collect()
}
