//! From a lesson to a policy: the smallest profile, and exactly what is missing beside it.

use super::trees::{Around, gathered, outermost};
use super::writable_down;
use crate::check::Verdict;
use crate::plan::Plan;
use crate::plan::paths::{DEVICES, Places, SYSTEM, TERMINALS, credentials};
use crate::plan::table::{Table, Verb};
use crate::policy::{ArgTest, Document, NetworkMode, Policy, PolicyError, Profile, RuleAction, SyscallRule};
use crate::supervise::denials::name;
use crate::supervise::lesson::Lesson;
use sandbox_contract::bpf::Op;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A policy, and what a person should know before using it.
pub struct Learned {
    pub document: Document,
    pub notes: Vec<String>,
    /// What of it lets whoever reads it be somebody; granted by name.
    pub credentials: Vec<PathBuf>,
}

/// The policy under which the command would have passed. `look_up` tells the exec chain of a program.
pub fn compose(lesson: &Lesson, plan: &Plan, look_up: &dyn Fn(&OsStr) -> Verdict) -> Result<Learned, PolicyError> {
    let places = &plan.places;
    let around = Around { places };
    let mut notes = Vec::new();
    let mut document = Document { env: plan.policy.env.clone(), ..Document::default() };

    let in_tmp = |path: &PathBuf| places.tmp.as_ref().is_some_and(|tmp| path.starts_with(tmp));
    let changes = lesson.written.iter().chain(&lesson.entries);
    let mut profiles = vec![Profile::Minimal];
    if changes.clone().any(in_tmp) {
        // A private TMPDIR comes with both; the working directory and /dev/shm only with `write`.
        let granted = [places.cwd.canonicalize().ok(), Some(PathBuf::from("/dev/shm"))];
        let elsewhere = |path: &PathBuf| granted.iter().flatten().any(|top| path.starts_with(top));
        profiles = vec![if changes.clone().any(elsewhere) { Profile::Write } else { Profile::Read }];
    }
    match network(lesson) {
        NetworkMode::None => {}
        NetworkMode::Loopback => document.network.mode = Some(NetworkMode::Loopback),
        _ => {
            profiles.retain(|profile| *profile != Profile::Minimal);
            profiles.push(Profile::Network);
        }
    }
    document.profile = Some(profiles.clone());

    let mut written = written(lesson, &around, &mut notes);
    written.retain(|path| !in_tmp(path));
    if profiles.contains(&Profile::Write) {
        let granted = [places.cwd.canonicalize().ok(), Some(PathBuf::from("/dev/shm"))];
        written.retain(|path| !granted.iter().flatten().any(|top| path.starts_with(top)));
    }
    let mut secret = BTreeSet::new();
    let readable = read(lesson, &around, &written, &mut notes, &mut secret);
    document.paths.execute = Some(spelled(executed(lesson, plan, look_up), places));
    document.paths.write = spelled(written, places);
    document.paths.read = readable.map(|read| spelled(read, places));
    let sockets = lesson.sockets.iter().filter(|socket| !changes.clone().any(|made| made == *socket));
    document.network.unix = sockets.map(|socket| writable_down(socket)).collect();
    cover(&mut document, lesson)?;

    if !lesson.hosts.is_empty() {
        let hosts: Vec<_> = lesson.hosts.iter().take(20).map(ToString::to_string).collect();
        notes.push(format!("addresses connected to: {}", hosts.join(" ")));
    }
    notes.push(format!(
        "peak: {} of memory in one process, {} processes and threads at once",
        mebibytes(lesson.peak_memory),
        lesson.peak_processes.max(1)
    ));
    if lesson.overflowed {
        notes.push("it touched more files than are kept: some are missing here".to_owned());
    }
    Ok(Learned { document, notes, credentials: spelled(secret, places) })
}

/// The narrowest mode that holds every socket and every address. Names are not seen, so hosts are only told of.
fn network(lesson: &Lesson) -> NetworkMode {
    let sockets = lesson.calls.iter().filter(|((nr, _), _)| i64::from(*nr) == libc::SYS_socket).map(|(_, args)| args);
    let internet = |args: &[u64; 6]| matches!(args[0] as i32, libc::AF_INET | libc::AF_INET6);
    let routes = |args: &[u64; 6]| args[0] as i32 == libc::AF_NETLINK && args[2] as u32 == 0;
    let tcp = |args: &[u64; 6]| args[1] & 0xf == libc::SOCK_STREAM as u64 && matches!(args[2] as u32, 0 | 6);
    let used: Vec<_> = sockets.filter(|args| internet(args) || routes(args)).collect();
    let mut addresses = lesson.hosts.iter().chain(&lesson.bound).peekable();
    match () {
        () if used.is_empty() => NetworkMode::None,
        () if addresses.peek().is_some()
            && addresses.all(|address| address.ip().is_loopback())
            && used.iter().all(|args| internet(args) && tcp(args)) =>
        {
            NetworkMode::Loopback
        }
        () => NetworkMode::Full,
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1024 * 1024))
}

/// A call by number and the arguments that matter.
type Class = (i32, [u64; 2]);

/// Adds the calls that the document so far does not grant, until it grants all.
fn cover(document: &mut Document, lesson: &Lesson) -> Result<(), PolicyError> {
    let decide = |document: &Document| -> Result<Vec<(Class, [u64; 6])>, PolicyError> {
        let policy = Policy::resolve(document.clone())?;
        let table = Table::new(&policy, &policy.network_mode(), false, true);
        let refused = |((nr, _), args): &(&Class, &[u64; 6])| {
            !matches!(table.decide(*nr as u32, args), Verb::Allow | Verb::Supervise | Verb::Watch | Verb::Fallback)
        };
        Ok(lesson.calls.iter().filter(refused).map(|(key, args)| (*key, *args)).collect())
    };
    let refused = decide(document)?;
    let forks = |nr: i32, args: &[u64; 6]| match name(nr).as_str() {
        "fork" | "vfork" => true,
        "clone" => args[0] & 0x7e02_0000 == 0,
        _ => false,
    };
    if refused.iter().any(|((nr, _), args)| forks(*nr, args)) {
        document.syscalls.allow.push("@process".to_owned());
    } else if refused.iter().any(|((nr, _), _)| matches!(name(*nr).as_str(), "execve" | "execveat")) {
        document.syscalls.allow.push("@exec".to_owned());
    }
    for ((nr, _), args) in decide(document)? {
        let call = name(nr);
        if call.starts_with("syscall ") {
            continue;
        }
        let low = |index: u8| ArgTest {
            index,
            op: Op::Eq,
            mask: 0xffff_ffff,
            value: u64::from(args[usize::from(index)] as u32),
        };
        let tests = match call.as_str() {
            "socket" => vec![low(0), ArgTest { mask: 0xf, value: args[1] & 0xf, ..low(1) }],
            "clone" => vec![ArgTest { mask: 0x7e02_0000, value: args[0] & 0x7e02_0000, ..low(0) }],
            "ioctl" => vec![low(1)],
            "personality" => vec![low(0)],
            // Which process it will be next time nobody knows.
            "prlimit64" => vec![ArgTest { op: Op::Ne, value: 0, ..low(0) }],
            _ => {
                document.syscalls.allow.push(call);
                continue;
            }
        };
        let rule = SyscallRule { syscall: call, action: RuleAction::Allow, args: tests };
        if !document.syscalls.rules.contains(&rule) {
            document.syscalls.rules.push(rule);
        }
    }
    Ok(())
}

/// Places to be written. A new name needs its directory; in one that is too wide, the file itself if it is there by now.
fn written(lesson: &Lesson, around: &Around<'_>, notes: &mut Vec<String>) -> BTreeSet<PathBuf> {
    let device = |path: &Path| {
        DEVICES.iter().chain(TERMINALS).any(|device| path.starts_with(device)) || path.starts_with("/proc")
    };
    let mut places = BTreeSet::new();
    let mut left_out = BTreeSet::new();
    for entry in &lesson.entries {
        match entry.parent() {
            Some(parent) if !around.too_wide(parent) => drop(places.insert(writable_down(parent))),
            _ if entry.exists() => drop(places.insert(writable_down(entry))),
            parent => left_out.extend(parent.map(Path::to_owned)),
        }
    }
    places.extend(lesson.written.iter().filter(|file| file.exists()).map(|file| writable_down(file)));
    for directory in left_out {
        notes.push(format!("left out: new names in {}, too wide to be granted whole", directory.display()));
    }
    let mut places = outermost(places);
    places.retain(|place| !device(place));
    // Many directories of the working tree are the working tree.
    match around.work() {
        Some(work) if places.iter().filter(|place| place.starts_with(&work)).count() >= 3 => {
            places.insert(work);
            outermost(places)
        }
        _ => gathered(places, around),
    }
}

/// Places to be read beside the system's; `None` where no list could be narrow.
fn read(
    lesson: &Lesson,
    around: &Around<'_>,
    written: &BTreeSet<PathBuf>,
    notes: &mut Vec<String>,
    named: &mut BTreeSet<PathBuf>,
) -> Option<BTreeSet<PathBuf>> {
    let implied = |path: &Path| {
        let known = SYSTEM.iter().chain(DEVICES).chain(TERMINALS).any(|known| {
            let real = Path::new(known).canonicalize();
            path.starts_with(known) || real.is_ok_and(|real| path.starts_with(real))
        });
        let tmp = around.places.tmp.as_ref().is_some_and(|tmp| path.starts_with(tmp));
        known || tmp || written.iter().any(|place| path.starts_with(place))
    };
    let secret = credentials(around.places, &crate::plan::disk::Disk);
    let mut places = BTreeSet::new();
    let work = around.work();
    for path in lesson.read.iter().chain(&lesson.listed).filter(|path| !implied(path)) {
        if let Some(secret) = secret.iter().find(|secret| path.starts_with(secret)) {
            named.insert(secret.clone());
        } else if work.as_ref().is_some_and(|work| path.starts_with(work)) {
            places.extend(work.clone());
        } else {
            places.insert(path.clone());
        }
    }
    for secret in named.iter() {
        notes.push(format!(
            "CREDENTIALS: it read {}, which is granted below; take it out unless it must",
            secret.display()
        ));
    }
    let wide: Vec<_> = lesson.listed.iter().filter(|path| !implied(path) && around.too_wide(path)).collect();
    if let Some(wide) = wide.first() {
        notes.push(format!("it listed {}, so everything but credentials may be read", wide.display()));
        return (!named.is_empty()).then(|| named.iter().cloned().chain([PathBuf::from("/")]).collect());
    }
    let mut all = gathered(places.iter().map(|place| writable_down(place)).collect(), around);
    // By name, also inside a place that is granted: a credential is granted by name or not at all.
    all.extend(named.iter().cloned());
    Some(all)
}

/// The programs that were executed, with their interpreters and loaders.
fn executed(lesson: &Lesson, plan: &Plan, look_up: &dyn Fn(&OsStr) -> Verdict) -> BTreeSet<PathBuf> {
    let mut programs: BTreeSet<PathBuf> = BTreeSet::from([plan.target.path.clone()]);
    programs.extend(crate::plan::commands::files_of(&plan.verdict));
    for program in &lesson.executed {
        programs.insert(program.clone());
        programs.extend(crate::plan::commands::files_of(&look_up(program.as_os_str())));
    }
    let real = programs.iter().map(|program| program.canonicalize().unwrap_or_else(|_| program.clone()));
    // One that was made by the command itself is another file the next time: then its directory is named.
    let made = |program: &Path| lesson.entries.contains(program) || lesson.written.contains(program);
    let real = real.map(|program| match program.parent() {
        Some(parent) if made(&program) => parent.to_owned(),
        _ => program,
    });
    let real: BTreeSet<PathBuf> = real.map(|program| writable_down(&program)).collect();
    outermost(real)
}

/// Paths as a policy file should have them: the working directory as `.`, the home as `~`.
fn spelled(paths: BTreeSet<PathBuf>, places: &Places) -> Vec<PathBuf> {
    let cwd = places.cwd.canonicalize().ok();
    let home = places.home.as_ref().and_then(|home| home.canonicalize().ok()).filter(|home| home.parent().is_some());
    let spell = |path: PathBuf| match (&cwd, &home) {
        (Some(cwd), _) if path == *cwd => PathBuf::from("."),
        (Some(cwd), _) if path.starts_with(cwd) && cwd.parent().is_some() => {
            let rest = path.strip_prefix(cwd).map(Path::to_owned).unwrap_or_default();
            Path::new(".").join(rest)
        }
        (_, Some(home)) if path.starts_with(home) => {
            let rest = path.strip_prefix(home).map(Path::to_owned).unwrap_or_default();
            Path::new("~").join(rest)
        }
        _ => path,
    };
    paths.into_iter().map(spell).collect()
}

/// What was learned laid over an older policy: grants add up, and what that denies stays denied.
pub fn merged(learned: Learned, old: Document) -> Document {
    let Learned { document: learned, credentials, .. } = learned;
    let mut profiles = old.profile.clone().unwrap_or_else(|| vec![Profile::Minimal]);
    profiles.extend(learned.profile.clone().unwrap_or_default());
    let loose = |profile: &Profile| matches!(profile, Profile::Unrestricted | Profile::Custom);
    if let Some(loose) = profiles.iter().copied().find(loose) {
        profiles = vec![loose];
    }
    profiles.sort();
    profiles.dedup();
    if profiles.len() > 1 {
        profiles.retain(|profile| *profile != Profile::Minimal);
    }
    // Switched off by name: the profile must not switch it on again.
    let mode = old.network.mode.clone().or_else(|| learned.network.mode.clone());
    if old.network.mode == Some(NetworkMode::None) {
        profiles.retain(|profile| *profile != Profile::Network);
        if profiles.is_empty() {
            profiles.push(Profile::Minimal);
        }
    }
    let everything = |old: &Option<Vec<PathBuf>>, grown: Option<Vec<PathBuf>>| match old {
        None => None,
        Some(_) => grown,
    };
    let (read, execute) = (old.paths.read.clone(), old.paths.execute.clone());
    let programs = learned.paths.execute.clone().unwrap_or_default();
    let mut document = learned.over(old);
    document.paths.read = everything(&read, document.paths.read);
    if document.paths.read.is_none() && !credentials.is_empty() {
        document.paths.read = Some([vec![PathBuf::from("/")], credentials].concat());
    }
    document.paths.execute = everything(&execute, document.paths.execute);
    if let (Some(read), None) = (&mut document.paths.read, &document.paths.execute) {
        // What may be read may be executed: then a program is one of the things to read.
        let implied = |path: &&PathBuf| SYSTEM.iter().any(|known| path.starts_with(known));
        read.extend(programs.iter().filter(|path| !implied(path)).cloned());
    }
    document.profile = Some(profiles);
    document.network.mode = mode;
    for list in [&mut document.syscalls.allow, &mut document.syscalls.deny, &mut document.env.pass] {
        unique(list);
    }
    for list in [&mut document.paths.write, &mut document.paths.deny, &mut document.network.unix] {
        unique(list);
    }
    [&mut document.paths.read, &mut document.paths.execute].into_iter().flatten().for_each(unique);
    document.syscalls.allow.retain(|name| !document.syscalls.deny.contains(name));
    document
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
