//! What an engine really enforces, found out by a container that is gone a moment later.

use super::engine::{About, Engine, Kind, Made, Mount};
use super::seen::{Seen, compare};
use super::state::{hexadecimal, own_program, random};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

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

/// Tries the named engine, or the first that answers. It leaves nothing behind: whatever podman keeps for an ordinary user goes to a
/// directory that is removed, and not to the home of somebody who may never have used podman.
pub fn tried(named: Option<&str>, arguments: &[String]) -> Result<Trial, String> {
    let mut suffix = [0; 8];
    random(&mut suffix)?;
    let name = format!("gatekeeper-doctor-{}", hexadecimal(&suffix));
    let directory = std::env::temp_dir().join(&name);
    let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
    let make = |path: &Path| std::fs::DirBuilder::new().mode(0o700).create(path).map_err(wrong);
    make(&directory)?;
    let root = directory.join("root");
    let trial = make(&root).and_then(|()| make(&directory.join("run"))).and_then(|()| {
        let home = (!rustix::process::geteuid().is_root()).then_some(directory.as_path());
        let (engine, about) = match named {
            Some(text) => Engine::named(text, arguments)?.at(home).asked()?,
            None => Engine::that_works(arguments, home)?,
        };
        let ignored = engine.ignored_limits(&name, &root, &about);
        if home.is_some() && engine.kind == Kind::Podman {
            engine.end_pause()?;
        }
        Ok(Trial { engine, about, ignored })
    });
    std::fs::remove_dir_all(&directory).map_err(wrong)?;
    trial
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
            mounts: vec![Mount { host: own_program()?, inside: super::PROGRAM.into(), writable: false, id: None }],
            workdir: "/".to_owned(),
            published: Vec::new(),
        };
        let mut last = String::new();
        for engine in self.variants() {
            match engine.once(name, &made, about) {
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
