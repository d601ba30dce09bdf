//! What an engine really enforces, found out by a container that is gone a moment later.

use super::engine::{About, Engine, Kind, Made, Mount, RUN, run_root};
use super::seen::{Seen, compare};
use super::state::{hexadecimal, own_program, random};
use crate::sys::interrupt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What the trial asks for.
const MEMORY: u64 = 64 << 20;
const PIDS: u64 = 50;
const CPUS: f64 = 0.5;

/// What a trial found.
pub struct Trial {
    pub engine: Engine,
    pub about: About,
    /// The limits that the engine ignores, or why no container could be started.
    pub ignored: Result<Vec<&'static str>, String>,
}

/// podman refuses a longer `--runroot`, but only in the command that conmon starts to clean up after a container. `podman run`
/// then waits 20 seconds for the exit code that this command would have written ("the specified runroot is longer than 50
/// characters", libpod/options.go of 4.3).
const LONGEST_RUN_ROOT: usize = 50;

/// Why nothing was tried.
pub enum Untried {
    /// No directory could be made for it.
    Place(String),
    Engine(String),
}

/// Tries the named engine, or the first that answers. It leaves nothing behind, also if a signal ends it: whatever podman keeps for
/// an ordinary user goes to a directory that is removed, and not to the home of somebody who may never have used podman.
pub fn tried(named: Option<&str>, arguments: &[String]) -> Result<Trial, Untried> {
    let mut suffix = [0; 4];
    random(&mut suffix).map_err(Untried::Engine)?;
    let name = format!("gatekeeper-doctor-{}", hexadecimal(&suffix));
    let directory = place(&name).map_err(Untried::Place)?;
    in_place(&directory, &name, named, arguments).map_err(Untried::Engine)
}

fn in_place(directory: &Path, name: &str, named: Option<&str>, arguments: &[String]) -> Result<Trial, String> {
    let home = (!rustix::process::geteuid().is_root()).then_some(directory);
    let ready = |engine: Engine| engine.on_trial(home);
    let trial = tried_in(directory, named, arguments, name, ready);
    // An engine that failed or was interrupted may have left its process, too.
    let ended = match Engine::named(named.unwrap_or(Kind::Podman.name()), arguments).map(ready) {
        Ok(podman) if home.is_some() && podman.kind == Kind::Podman => podman.end_pause(),
        _ => Ok(String::new()),
    };
    std::fs::remove_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    trial.and_then(|trial| match trial.engine.kind {
        Kind::Podman => ended.map(|_| trial),
        Kind::Docker => Ok(trial),
    })
}

/// Makes the directory for a trial: below TMPDIR, or where its name is short enough for podman.
fn place(name: &str) -> Result<PathBuf, String> {
    let asked = std::env::temp_dir();
    let is_short = |path: &PathBuf| run_root(path).as_os_str().len() <= LONGEST_RUN_ROOT;
    let usual = [asked.as_path(), Path::new("/tmp"), Path::new("/var/tmp")].map(|base| base.join(name));
    let made = usual.into_iter().filter(is_short).find(|path| make(path).is_ok());
    made.map_or_else(|| make(&asked.join(name)).map(|()| asked.join(name)), Ok)
}

fn make(path: &Path) -> Result<(), String> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| format!("{}: {error}", path.display()))
}

fn tried_in(
    directory: &Path,
    named: Option<&str>,
    arguments: &[String],
    name: &str,
    ready: impl Fn(Engine) -> Engine,
) -> Result<Trial, String> {
    let root = directory.join("root");
    make(&root)?;
    make(&directory.join(RUN))?;
    let (engine, about) = match named {
        Some(text) => ready(Engine::named(text, arguments)?).asked()?,
        None => Engine::that_works(arguments, ready)?,
    };
    let ignored = engine.ignored_limits(name, &root, &about);
    Ok(Trial { engine, about, ignored })
}

impl Engine {
    /// podman starts a container from an empty directory, and gatekeeper in it measures; docker can only start images, so it is
    /// asked.
    fn ignored_limits(&self, name: &str, root: &Path, about: &About) -> Result<Vec<&'static str>, String> {
        match self.kind {
            Kind::Docker => self.info_of_limits(),
            Kind::Podman => self.tried(name, root, about),
        }
    }

    fn tried(&self, name: &str, root: &Path, about: &About) -> Result<Vec<&'static str>, String> {
        let made = Made {
            image: root.to_string_lossy().into_owned(),
            network: "none".to_owned(),
            read_only_root: false,
            tmpfs: Vec::new(),
            user: (0, 0),
            cap_drop: vec!["ALL".to_owned()],
            memory: MEMORY,
            cpus: CPUS,
            pids: PIDS,
            mounts: vec![Mount {
                host: own_program()?,
                inside: super::PROGRAM.into(),
                writable: false,
                id: None,
                key: String::new(),
            }],
            workdir: "/".to_owned(),
            published: Vec::new(),
        };
        let mut last = String::new();
        for engine in self.variants() {
            let said = engine.once(name, &made, about);
            if interrupt::arrived().is_some() {
                return engine.remove(name).and(Err("interrupted".to_owned()));
            }
            match said {
                Ok(text) => {
                    let seen: Seen =
                        serde_json::from_str(text.trim()).map_err(|_| format!("{}: no answer", self.kind.name()))?;
                    return Ok(compare(&seen, &made, &engine, about).missing);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
