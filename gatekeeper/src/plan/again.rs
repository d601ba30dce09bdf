//! The same plan for another run: with other arguments, and another private directory.

use super::paths::{Grant, PathPlan};
use super::{Landlock, Plan};
use crate::check::Target;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The run directory of a plan, and of the run that uses it again.
#[derive(Clone, Copy)]
pub struct Moved<'a> {
    pub from: &'a Path,
    pub to: &'a Path,
}

impl Moved<'_> {
    /// A path in the run directory, in the new one.
    fn path(&self, path: &mut PathBuf) {
        if let Ok(inside) = path.strip_prefix(self.from) {
            *path = self.to.join(inside);
        }
    }

    fn grants(&self, grants: &mut [Grant]) {
        grants.iter_mut().for_each(|grant| self.path(&mut grant.path));
    }
}

impl Plan {
    /// This plan for a command with these words. `program`: the same file as that of this plan.
    pub fn again(&self, program: File, words: Vec<OsString>, moved: Option<Moved<'_>>) -> Plan {
        let Target { file: _, path, argv } = &self.target;
        let target = Target { file: program, path: path.clone(), argv: argv.clone() };
        let argv = target.argv.iter().chain(words.iter().skip(1)).cloned().collect();
        let mut plan = Plan {
            policy: self.policy.clone(),
            verdict: self.verdict.clone(),
            target,
            argv,
            command: words,
            places: self.places.clone(),
            directory: self.directory.clone(),
            environment: self.environment.clone(),
            network: self.network.clone(),
            proxy: self.proxy,
            inside: self.inside,
            browser: self.browser.clone(),
            no_inner_sandbox: self.no_inner_sandbox.clone(),
            starts_programs: self.starts_programs,
            seccomp: self.seccomp,
            landlock: self.landlock.clone(),
            stage: self.stage.clone(),
            preload: self.preload.clone(),
            user: self.user,
            purpose: self.purpose,
            ask: self.ask.clone(),
            layers: self.layers.clone(),
            warnings: self.warnings.clone(),
            lost_network: self.lost_network,
            // Each run finds out for itself.
            unmounted: AtomicBool::new(false),
        };
        if let Some(moved) = moved {
            plan.places.tmp.iter_mut().for_each(|tmp| moved.path(tmp));
            plan.landlock.iter_mut().for_each(|landlock| landlock.paths.follow(moved));
            for (_, value) in &mut plan.environment {
                let mut path = PathBuf::from(std::mem::take(value));
                moved.path(&mut path);
                *value = path.into_os_string();
            }
        }
        plan
    }

    /// Which part of two plans is different, if any.
    pub fn difference(&self, other: &Plan) -> Option<&'static str> {
        let file = |plan: &Plan| plan.target.file.metadata().ok().map(|found| (found.dev(), found.ino()));
        let paths = |plan: &Plan| plan.landlock.as_ref().map(|landlock| (landlock.abi, landlock.paths.sorted()));
        let parts = [
            (self.policy == other.policy, "policy"),
            (self.verdict == other.verdict, "verdict"),
            (file(self) == file(other) && self.target.path == other.target.path, "program"),
            (self.argv == other.argv && self.command == other.command, "arguments"),
            (self.places == other.places && self.directory == other.directory, "places"),
            (self.environment == other.environment, "environment"),
            (self.network == other.network && self.proxy == other.proxy, "network"),
            (self.seccomp == other.seccomp && self.user == other.user, "filter"),
            (paths(self) == paths(other), "paths"),
            (self.preload == other.preload && self.stage == other.stage && self.ask == other.ask, "additions"),
            (self.layers == other.layers && self.warnings == other.warnings, "report"),
        ];
        parts.into_iter().find(|(same, _)| !same).map(|(_, part)| part)
    }
}

impl PathPlan {
    /// The same grants in the order of their paths. A run directory with another name has another place among them.
    fn sorted(&self) -> PathPlan {
        let mut paths = self.clone();
        paths.grants.sort();
        paths.without_mounts.iter_mut().for_each(|(grants, _)| grants.sort());
        paths
    }

    fn follow(&mut self, moved: Moved<'_>) {
        moved.grants(&mut self.grants);
        moved.grants(&mut self.temporary);
        self.without_mounts.iter_mut().for_each(|(grants, _)| moved.grants(grants));
    }

    /// Whether anything but the grants is in this directory.
    fn mentions(&self, directory: &Path) -> bool {
        let lists = [
            &self.hidden,
            &self.protected,
            &self.links,
            &self.covered,
            &self.unwanted,
            &self.open,
            &self.private,
            &self.shared,
            &self.missing,
            &self.denied,
        ];
        lists.into_iter().flatten().any(|path| path.starts_with(directory))
    }
}

impl Landlock {
    /// Whether the plan can be used with another run directory: everything that names it is a grant.
    pub fn can_move(&self, from: &Path) -> bool {
        let name = from.to_string_lossy();
        !self.paths.mentions(from) && !self.paths.notes.iter().any(|note| note.contains(&*name))
    }
}
