//! All attacks on a kernel that may lack layers, for tests/kernels.

use super::scene::{Scene, attacker};
use super::{Attack, Delivery, FATAL, attacks, confined, granted, results};
use crate::run::User;
use crate::support::fresh;
use std::fs;

/// What attacks on a kernel that may lack layers reached.
pub struct Survey {
    pub tried: usize,
    /// Theme and name of the attacks that got through although the profile grants no such thing.
    pub through: Vec<(String, String)>,
    /// The report of the run that made most of them.
    pub report: serde_json::Value,
}

/// Makes all attacks but those on addresses under a profile. For tests/kernels, which judges what got through by what
/// the report says is missing. The attacks `on_us` would end the run if they got through.
pub fn survey(user: User, profile: &str, flags: &[&str], on_us: &[&str]) -> Survey {
    let attacker = attacker();
    let program = attacker.to_str().expect("text");
    let report = fs::canonicalize(fresh("survey")).expect("just made").join("report.json");
    let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    flags.extend(["--report".to_owned(), report.display().to_string()]);
    let all = attacks().iter().filter(|attack| attack.theme != "addresses" && !on_us.contains(&attack.name.as_str()));
    let (fatal, shared): (Vec<&Attack>, Vec<&Attack>) = all.partition(|attack| attack.is(FATAL));
    let mut names: Vec<&str> = shared.iter().map(|attack| attack.name.as_str()).collect();
    // First, before other attacks open descriptors.
    names.sort_by_key(|name| !name.starts_with("inherit"));
    let scene = Scene::new(user);
    let done = confined(&scene, Delivery::BeforeExec, profile, &flags, &names, program);
    let seen = results(done.exits(0));
    let text = fs::read(&report).unwrap_or_else(|error| panic!("no report: {error}{done}"));
    let report = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}{done}"));
    let mut through = Vec::new();
    for attack in &shared {
        let result = seen.get(&attack.name).unwrap_or_else(|| panic!("{}{done}", attack.name));
        if attack.got_through(result) && granted(attack, Delivery::BeforeExec, profile).is_none() {
            through.push((attack.theme.clone(), attack.name.clone()));
        }
    }
    for attack in &fatal {
        let done = confined(&scene, Delivery::BeforeExec, profile, &flags, &[&attack.name], program);
        if done.code() != Some(128 + libc::SIGSYS) || !done.stdout().is_empty() {
            through.push((attack.theme.clone(), attack.name.clone()));
        }
    }
    match through.is_empty() {
        true => scene.unchanged(profile),
        false => scene.spent(),
    }
    Survey { tried: shared.len() + fatal.len(), through, report }
}

/// Makes an attack that ends gatekeeper if it gets through. Then nothing of the command may be left.
pub fn ends_nothing_else(user: User, flags: &[&str], name: &str) {
    let scene = Scene::new(user);
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let attacker = attacker();
    let done = confined(
        &scene,
        Delivery::BeforeExec,
        "read",
        &flags,
        &[name, "in-a-signal-handler"],
        attacker.to_str().expect("text"),
    );
    let top = scene.top.display().to_string();
    let left = || {
        let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let words = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        words.filter(|words| words.contains(&top)).collect::<Vec<_>>()
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !left().is_empty() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(left().is_empty(), "{name} left {:?}{done}", left());
    scene.unchanged(name);
}
