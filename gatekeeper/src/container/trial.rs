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

impl Engine {
    /// The limits that the engine ignores. podman starts a container from an empty directory, and gatekeeper in it measures;
    /// docker can only start images, so it is asked.
    pub fn ignored_limits(&self, about: &About) -> Result<Vec<&'static str>, String> {
        if self.kind == Kind::Docker {
            return self.info_of_limits();
        }
        let mut suffix = [0; 8];
        random(&mut suffix)?;
        let name = format!("gatekeeper-doctor-{}", hexadecimal(&suffix));
        let directory = std::env::temp_dir().join(&name);
        let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
        std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(wrong)?;
        let done = self.tried(&name, &directory, about);
        std::fs::remove_dir_all(&directory).map_err(wrong)?;
        done
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
