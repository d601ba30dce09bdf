//! Merges a learned policy into an existing one: grants add up, and what the existing policy denies stays denied.

use super::Learned;
use crate::plan::paths::SYSTEM;
use crate::policy::{Document, NetworkMode, Profile};
use std::path::PathBuf;

/// The existing policy, extended by what was learned.
pub fn merged(learned: Learned, old: Document) -> Document {
    let Learned { document: learned, credentials, .. } = learned;
    let profiles = profiles(&learned, &old);
    let mode = old.network.mode.clone().or_else(|| learned.network.mode.clone());
    // A policy without a list of readable or executable paths restricts none: keep it so.
    let (lists_read, lists_execute) = (old.paths.read.is_some(), old.paths.execute.is_some());
    let programs = learned.paths.execute.clone().unwrap_or_default();
    let mut document = learned.over(old);
    document.paths.read = document.paths.read.filter(|_| lists_read);
    if document.paths.read.is_none() && !credentials.is_empty() {
        document.paths.read = Some([vec![PathBuf::from("/")], credentials].concat());
    }
    document.paths.execute = document.paths.execute.filter(|_| lists_execute);
    if let (Some(read), None) = (&mut document.paths.read, &document.paths.execute) {
        // Without a list of executable paths every readable file may be executed, so programs have to be readable.
        let implied = |path: &&PathBuf| SYSTEM.iter().any(|known| path.starts_with(known));
        read.extend(programs.iter().filter(|path| !implied(path)).cloned());
    }
    document.profile = Some(profiles);
    document.network.mode = mode;
    without_repetitions(&mut document);
    document.syscalls.allow.retain(|name| !document.syscalls.deny.contains(name));
    document
}

fn profiles(learned: &Document, old: &Document) -> Vec<Profile> {
    let mut profiles = old.profile.clone().unwrap_or_else(|| vec![Profile::Minimal]);
    profiles.extend(learned.profile.iter().flatten());
    let loose = |profile: &Profile| matches!(profile, Profile::Unrestricted | Profile::Custom);
    if let Some(loose) = profiles.iter().copied().find(loose) {
        profiles = vec![loose];
    }
    profiles.sort();
    profiles.dedup();
    if profiles.len() > 1 {
        profiles.retain(|profile| *profile != Profile::Minimal);
    }
    // The old policy switches the network off explicitly: profile network must not switch it on again.
    if old.network.mode == Some(NetworkMode::None) {
        profiles.retain(|profile| *profile != Profile::Network);
        if profiles.is_empty() {
            profiles.push(Profile::Minimal);
        }
    }
    profiles
}

fn without_repetitions(document: &mut Document) {
    for list in [&mut document.syscalls.allow, &mut document.syscalls.deny, &mut document.env.pass] {
        unique(list);
    }
    for list in [&mut document.paths.write, &mut document.paths.deny, &mut document.network.unix] {
        unique(list);
    }
    unique(&mut document.network.http);
    unique(&mut document.network.credentials);
    [&mut document.paths.read, &mut document.paths.execute].into_iter().flatten().for_each(unique);
}

fn unique<T: PartialEq>(list: &mut Vec<T>) {
    let mut kept = Vec::new();
    for item in list.drain(..) {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    *list = kept;
}
