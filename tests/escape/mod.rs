//! Attacks: each tries one way out, first unconfined to show that it works, then under every profile, by every delivery
//! and as every user. docs/security-tests.md lists what stopped each attack, and the tests compare it with what they
//! see.

mod absent;
mod asked;
mod asking;
mod found;
mod scene;
mod storms;
pub mod survey;
mod table;
mod words;

use crate::isolate;
use crate::run::{User, become_user, finish, gatekeeper, users};
use crate::support::{self, Done, fresh, is_root, libsandbox, note, skip};
use scene::{Scene, attacker, tools};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

pub const PROFILES: [&str; 5] = ["minimal", "read", "network", "write", "write+network"];

/// The flags of tests/probes/escape/escape.h.
const ROOT: u32 = 1;
const KERNEL: u32 = 2;
const FATAL: u32 = 4;
const GATE: u32 = 16;
const INET: u32 = 32;
const WRITES: u32 = 64;
const SETUID: u32 = 128;
const CAPS: u32 = 256;

pub struct Attack {
    pub name: String,
    pub theme: String,
    flags: u32,
    /// Its results if nothing stops it.
    open: Vec<String>,
    pub text: String,
}

impl Attack {
    fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether this delivery claims to stop it. libsandbox.so alone does not drop root's capabilities.
    fn claimed(&self, delivery: Delivery, user: User) -> bool {
        let root = user == User::Own && is_root();
        delivery != Delivery::Preload || !(self.is(GATE) || self.is(CAPS) && root)
    }

    fn got_through(&self, result: &str) -> bool {
        result == "done" || self.open.iter().any(|open| open == result)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Delivery {
    BeforeExec,
    Bubblewrap,
    Preload,
}

pub fn attacks() -> &'static [Attack] {
    static ALL: OnceLock<Vec<Attack>> = OnceLock::new();
    ALL.get_or_init(|| {
        let done = support::run(Command::new(attacker()).arg("list"));
        let parse = |line: &str| {
            let mut parts = line.splitn(5, '|').map(str::to_owned);
            let mut next = || parts.next().unwrap_or_else(|| panic!("{line}"));
            let (name, theme, flags, open, text) = (next(), next(), next(), next(), next());
            let open = open.split(' ').map(str::to_owned).collect();
            Attack { name, theme, flags: flags.parse().expect("a number"), open, text }
        };
        done.exits(0).stdout().lines().map(parse).collect()
    })
}

/// Results by the name of the attack.
type Seen = BTreeMap<String, String>;

fn results(done: &Done) -> Seen {
    let text = done.stdout();
    text.lines().filter_map(|line| line.split_once(' ')).map(|(name, result)| (name.into(), result.into())).collect()
}

#[test]
fn only_attacks_on_what_a_kernel_may_lack_are_ever_absent() {
    let optional: Vec<&str> =
        attacks().iter().filter(|attack| attack.is(KERNEL)).map(|attack| attack.name.as_str()).collect();
    let mut listed: Vec<&str> = absent::names().collect();
    let unknown: Vec<&&str> = listed.iter().filter(|name| !optional.contains(name)).collect();
    // modify_ldt, int 0x80 and x32 exist on x86_64 only.
    assert!(unknown.is_empty() || !cfg!(target_arch = "x86_64"), "not optional: {unknown:?}");
    let missing: Vec<&&str> = optional.iter().filter(|name| !listed.contains(name)).collect();
    assert!(missing.is_empty(), "without an errno that says so: {missing:?}");
    listed.sort_unstable();
    assert!(listed.windows(2).all(|two| two[0] != two[1]), "{listed:?}");
    // These once counted as absent: any result as `nobody`, and errnos that the attack never gives.
    for (attack, result) in [("userfaultfd", "EPERM"), ("af-alg", "ENOSYS"), ("af-alg", "EPERM"), ("keyctl", "EINVAL")]
    {
        assert!(!absent::is_absent(attack, result, true), "{attack} {result}");
    }
    assert!(!absent::is_absent("chmod-by-new-call", "EACCES", false), "a broken attack is not an absent one");
    assert!(absent::is_absent("userfaultfd", "EPERM", false) && absent::is_absent("af-alg", "EAFNOSUPPORT", true));
}

#[test]
fn every_way_is_open_without_confinement() {
    let root = is_root();

    let (mut shut, mut absent) = (Vec::new(), Vec::new());
    for user in users() {
        let tried = attacks().iter().filter(|attack| !(attack.is(ROOT) && *user == User::Nobody));
        let (possible, other): (Vec<&Attack>, Vec<&Attack>) =
            tried.partition(|attack| root || !(attack.is(ROOT) || attack.is(SETUID)));
        other.iter().for_each(|attack| skip(&format!("{}: shown to be open only as root", attack.name)));
        // Attacks that change files get a scene each.
        let (spoils, keeps): (Vec<&Attack>, Vec<&Attack>) =
            possible.into_iter().partition(|attack| ["files", "races"].contains(&attack.theme.as_str()));
        for group in spoils.chunks(1).chain([keeps.as_slice()]) {
            let seen = unconfined(*user, group);
            for attack in group {
                let mut result = of(&seen, attack);
                let privileged = root && *user == User::Own;
                if attack.is(KERNEL) && absent::is_absent(&attack.name, &result, privileged) {
                    absent.push(format!("{} ({result}, {user:?})", attack.name));
                    continue;
                }
                // One success shows that the way is open. Another try, alone, tells a broken attack from a busy machine.
                if !attack.open.contains(&result) {
                    note(&format!("{} unconfined, first try: {result}, {user:?}", attack.name));
                    result = of(&unconfined(*user, &[attack]), attack);
                }
                if !attack.open.contains(&result) {
                    shut.push(format!("{}: {result} and not {:?}, {user:?}", attack.name, attack.open));
                }
            }
        }
    }
    assert!(shut.is_empty(), "not open without confinement:\n{}", shut.join("\n"));
    // These attacks are shown to be stopped, but on this machine not shown to work unconfined.
    note(&format!("this machine lacks what these attack: {}", absent.join(", ")));
    assert!(absent.len() < attacks().len() / 4, "{absent:?}");
}

#[track_caller]
fn of(seen: &Seen, attack: &Attack) -> String {
    seen.get(&attack.name).unwrap_or_else(|| panic!("{}: {seen:?}", attack.name)).clone()
}

fn unconfined(user: User, attacks: &[&Attack]) -> Seen {
    let scene = Scene::new(user);
    let mut command = Command::new(attacker());
    command.arg("free").args(scene.words()).arg("--").args(attacks.iter().map(|attack| &attack.name));
    let _left_open = scene.careless(&mut command);
    become_user(&mut command, user);
    let done = finish(command, None);
    scene.spent();
    results(done.exits(0))
}

/// Makes all of these attacks in one confined process, each in a child process if the profile grants one.
#[track_caller]
fn confined(scene: &Scene, delivery: Delivery, profile: &str, flags: &[String], names: &[&str], program: &str) -> Done {
    let mut command = match delivery {
        Delivery::Preload => preloaded(scene, profile, program),
        _ => {
            let mut command = Command::new(gatekeeper());
            let timeout = if support::emulated() { "1200s" } else { "100s" };
            command.args(["run", "--quiet", "--timeout", timeout, "--profile", profile]).args(flags);
            if delivery == Delivery::Bubblewrap {
                command.args(["--isolate", "required", "--read"]).arg(tools());
            }
            command.arg("--").arg(program);
            command
        }
    };
    command.env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8");
    command.arg("run").args(scene.words()).arg("--").args(names);
    let _left_open = scene.careless(&mut command);
    become_user(&mut command, scene.user);
    finish(command, None)
}

/// Calls `with` for each attack that does not kill, with a function that makes the attack under given flags and returns
/// the report. tests/denials/property.rs uses this to grant attacks what they need, which is as harmless as no
/// confinement.
pub fn each(user: User, mut with: impl FnMut(&str, &dyn Fn(&[std::ffi::OsString]) -> (Done, serde_json::Value))) {
    let chosen = |attack: &&Attack| !attack.is(FATAL) && attack.theme != "addresses" && attack.theme != "races";
    // Half of the attacks for each user, the same half in every run, because all of them take minutes.
    let (first, step) = if users().len() > 1 { (usize::from(user == User::Nobody), 2) } else { (0, 1) };
    let possible = |attack: &&Attack| !(attack.is(ROOT) && user == User::Nobody);
    for attack in attacks().iter().skip(first).step_by(step).filter(chosen).filter(possible) {
        let scene = Scene::new(user);
        let report = fresh("report").join("report.json");
        with(&attack.name, &|flags| {
            let _ = fs::remove_file(&report);
            let mut command = Command::new(gatekeeper());
            command.args(["run", "--quiet", "--timeout", "20s", "--report"]).arg(&report).args(flags);
            command.arg("--").arg(attacker()).env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8");
            command.arg("run").args(scene.words()).arg("--").arg(&attack.name);
            let _left_open = scene.careless(&mut command);
            become_user(&mut command, user);
            let done = finish(command, None);
            let text = fs::read(&report).unwrap_or_default();
            (done, serde_json::from_slice(&text).unwrap_or_default())
        });
        scene.spent();
    }
}

/// libsandbox.so alone, with the filter of the profile and the paths that gatekeeper would grant.
fn preloaded(scene: &Scene, profile: &str, program: &str) -> Command {
    static FILTERS: OnceLock<PathBuf> = OnceLock::new();
    let filters = FILTERS.get_or_init(|| {
        let dir = fs::canonicalize(fresh("filters")).expect("just made");
        for profile in PROFILES {
            let mut command = Command::new(gatekeeper());
            command.args(["compile", "--profile", profile, "--to", "filter", "-o"]).arg(dir.join(profile));
            support::run(&mut command).exits(0);
        }
        dir
    });
    let work = scene.work().display().to_string();
    let read =
        format!("/usr:/lib:/lib64:/bin:/etc:/proc:/dev:/sys:{}:{}:{work}", tools().display(), attacker().display());
    let writes = profile.contains("write");
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", libsandbox()).env("SANDBOX_FILTER", filters.join(profile));
    command.env("SANDBOX_FS_READ", read).env("SANDBOX_FS_WRITE", if writes { work.as_str() } else { "" });
    command
}

/// All results by attack, delivery, column and user.
#[derive(Default)]
pub struct Record(BTreeMap<(String, Delivery, usize, bool), String>);

impl Record {
    fn add(&mut self, seen: Seen, delivery: Delivery, column: usize, user: User) {
        for (name, result) in seen {
            self.0.insert((name, delivery, column, user == User::Nobody), result);
        }
    }
}

/// Why an attack may get through: the profile grants it, or docs/threat-model.md lists it as open.
fn granted(attack: &Attack, delivery: Delivery, profile: &str) -> Option<&'static str> {
    let writes = profile.contains("write");
    // Under `read`, /dev/shm is private and discarded at the end: found::mounts::shared_memory_is_the_commands_own.
    let private = profile == "read" && attack.name == "shared-memory";
    if attack.is(INET) && profile.contains("network") || attack.is(WRITES) && (writes || private) {
        return Some("granted");
    }
    let terminals = attack.name.starts_with("terminal-") && delivery == Delivery::BeforeExec;
    (writes && (terminals || attack.name == "settings-new")).then_some("open")
}

fn deliveries() -> Vec<Delivery> {
    let mut deliveries = vec![Delivery::BeforeExec, Delivery::Preload];
    if isolate::works() {
        deliveries.push(Delivery::Bubblewrap);
    }
    deliveries
}

/// Makes these attacks confined, those that kill in a process each. Adds to `through` those that wrongly got through.
fn attempt(
    attacks: &[&Attack],
    (user, delivery, profile): (User, Delivery, &str),
    flags: &[String],
    through: &mut Vec<String>,
) -> Seen {
    let attacker = attacker();
    let program = attacker.to_str().expect("text");
    let what = format!("{profile}, {delivery:?}, {user:?}");
    let (claimed, other): (Vec<&Attack>, Vec<&Attack>) =
        attacks.iter().partition(|attack| attack.claimed(delivery, user));
    let (fatal, shared): (Vec<&Attack>, Vec<&Attack>) = claimed.iter().partition(|attack| attack.is(FATAL));
    let mut names: Vec<&str> = shared.iter().map(|attack| attack.name.as_str()).collect();
    // First, before other attacks open descriptors.
    names.sort_by_key(|name| !name.starts_with("inherit"));
    let scene = Scene::new(user);
    let done = confined(&scene, delivery, profile, flags, &names, program);
    done.exits(0);
    let mut seen = results(&done);
    for attack in fatal {
        let done = confined(&scene, delivery, profile, flags, &[&attack.name], program);
        let end = done.signal().or(done.code().and_then(|code| code.checked_sub(128)));
        assert_eq!((end, done.stdout()), (Some(libc::SIGSYS), String::new()), "{} {what}{done}", attack.name);
        seen.insert(attack.name.clone(), "SIGSYS".to_owned());
    }
    scene.unchanged(&what);
    for attack in claimed {
        let result = seen.get_mut(&attack.name).unwrap_or_else(|| panic!("{}, {what}{done}", attack.name));
        match granted(attack, delivery, profile) {
            // Also if the kernel has no such socket.
            Some(why) => *result = why.to_owned(),
            None if attack.got_through(result) => through.push(format!("{}: {result}, {what}", attack.name)),
            None => {}
        }
    }
    // Attacks that libsandbox.so does not claim to stop are not tried: they could kill the tests.
    seen.extend(other.iter().map(|attack| (attack.name.clone(), "not claimed".to_owned())));
    seen
}

#[test]
fn every_way_is_closed_by_every_delivery() {
    let mut record = Record::default();
    let mut through = Vec::new();
    let (addresses, shared): (Vec<&Attack>, Vec<&Attack>) =
        attacks().iter().partition(|attack| attack.theme == "addresses");
    for user in users() {
        for delivery in deliveries() {
            for (column, profile) in PROFILES.iter().enumerate() {
                let seen = attempt(&shared, (*user, delivery, profile), &[], &mut through);
                record.add(seen, delivery, column, *user);
            }
            if delivery == Delivery::Preload {
                continue;
            }
            let policy = fresh("escape-policy").join("policy.toml");
            let port = scene::granted_port(*user);
            fs::write(&policy, format!("[network]\nmode = \"loopback\"\nports = [{port}]\n")).expect("own directory");
            let flags = ["--config".to_owned(), policy.display().to_string()];
            let seen = attempt(&addresses, (*user, delivery, "minimal"), &flags, &mut through);
            record.add(seen, delivery, 0, *user);
        }
    }
    assert!(through.is_empty(), "{} got through:\n{}", through.len(), through.join("\n"));
    table::compare(&record);
}

/// Even under `unrestricted`, the command inherits nothing and gains no rights from setuid programs.
#[test]
fn what_holds_without_restrictions() {
    let root = is_root();
    let always = |attack: &&Attack| {
        attack.name.starts_with("inherit-") || root && attack.is(SETUID) || attack.name == "no-new-privs-off"
    };
    let attacks: Vec<&Attack> = attacks().iter().filter(always).collect();
    let mut through = Vec::new();
    for user in users() {
        for delivery in deliveries().into_iter().filter(|delivery| *delivery != Delivery::Preload) {
            attempt(&attacks, (*user, delivery, "unrestricted"), &[], &mut through);
        }
    }
    assert!(through.is_empty(), "{}", through.join("\n"));
}

/// The same with a static program, into which no library is loaded.
#[test]
fn every_way_is_closed_to_a_static_program() {
    let program = tools().join("escape-static");
    let attacks: Vec<&Attack> = attacks().iter().filter(|attack| attack.theme != "addresses").collect();
    // ld.so does not run static programs.
    let attacks: Vec<&Attack> =
        attacks.into_iter().filter(|attack| !attack.is(FATAL) && !attack.name.ends_with("-loader")).collect();
    let names: Vec<&str> = attacks.iter().map(|attack| attack.name.as_str()).collect();
    let mut through = Vec::new();
    for user in users() {
        for profile in ["minimal", "write+network"] {
            let scene = Scene::new(*user);
            let done = confined(&scene, Delivery::BeforeExec, profile, &[], &names, program.to_str().expect("text"));
            let seen = results(done.exits(0));
            scene.unchanged(profile);
            for attack in &attacks {
                let result = seen.get(&attack.name).unwrap_or_else(|| panic!("{}{done}", attack.name));
                let inherit = attack.name == "inherit-anything" && profile == "minimal";
                if attack.got_through(result) && granted(attack, Delivery::BeforeExec, profile).is_none() && !inherit {
                    through.push(format!("{}: {result}, {profile}, {user:?}", attack.name));
                }
            }
        }
    }
    assert!(through.is_empty(), "{} got through:\n{}", through.len(), through.join("\n"));
}
