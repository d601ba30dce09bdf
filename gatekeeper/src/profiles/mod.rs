//! The built-in profiles: what each grants, and tests that run commands and forbidden actions under them.
//!
//! The tests use gatekeeper as its users do: they start the program.

pub mod corpus;
pub mod granted;
pub mod scene;
pub mod served;
mod stopped;
pub mod trial;
mod watched;

use crate::enforce::rundir::Base;
use crate::trust::Hostile;
use corpus::Corpus;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use trial::{Stage, Tried};

/// Which tests to run.
pub struct Asked {
    pub corpus: Corpus,
    pub profile: Option<String>,
    /// Only tests whose name contains this.
    pub matching: Option<String>,
    pub jobs: usize,
}

/// Runs the tests. Calls `progress` after each with the number done and the number in all.
pub fn test(asked: &Asked, progress: Option<&(dyn Fn(usize, usize) + Sync)>) -> io::Result<Vec<Tried>> {
    let base = directory()?;
    let stage = Stage {
        corpus: &asked.corpus,
        gatekeeper: std::env::current_exe()?,
        base: base.clone(),
        only: asked.profile.clone(),
        scenes: AtomicUsize::new(0),
    };
    let matches = |name: &str| asked.matching.as_ref().is_none_or(|part| name.contains(part.as_str()));
    type Job<'a> = Box<dyn Fn() -> Vec<Tried> + Sync + Send + 'a>;
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for workload in asked.corpus.workload.iter().filter(|workload| matches(&workload.name)) {
        let stage = &stage;
        jobs.push(Box::new(move || stage.try_workload(workload)));
    }
    for stop in asked.corpus.stop.iter().filter(|stop| matches(&stop.name)) {
        let stage = &stage;
        jobs.push(Box::new(move || stage.try_stop(stop)));
    }
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let tried: Mutex<Vec<(usize, Vec<Tried>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { return };
                    let results = job();
                    tried.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((at, results));
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress.inspect(|progress| progress(done, jobs.len()));
                }
            });
        }
    });
    std::fs::remove_dir_all(&base)?;
    let mut tried = tried.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    tried.sort_by_key(|(at, _)| *at);
    Ok(tried.into_iter().flat_map(|(_, results)| results).collect())
}

/// Creates a private directory for this run. Its name is short, because the path of a UNIX socket in it must fit into 107
/// bytes.
fn directory() -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let mut random = [0u8; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let name = format!("gkp-{:08x}", u32::from_ne_bytes(random));
    let variable = |name: &str| std::env::var_os(name);
    let base = Base::choose(variable("TMPDIR").as_deref(), variable("XDG_RUNTIME_DIR").as_deref(), &Hostile::here());
    let path = base.map_err(io::Error::other)?.path().join(name);
    std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
        io::Error::other(format!("{}: {error}; set TMPDIR to a directory that you may enter and write", path.display()))
    })?;
    std::fs::canonicalize(path)
}
