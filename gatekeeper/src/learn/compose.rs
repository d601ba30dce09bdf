//! Makes a policy from a lesson: the smallest profiles, and exactly what the command needs beyond them.

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
    /// The credential files that the policy grants, each by its exact path.
    pub credentials: Vec<PathBuf>,
}

/// The policy under which the command would have passed. `look_up` finds the exec chain of a program.
pub fn compose(lesson: &Lesson, plan: &Plan, look_up: &dyn Fn(&OsStr) -> Verdict) -> Result<Learned, PolicyError> {
    let places = &plan.places;
    let around = Around { places };
    let mut notes = Vec::new();
    let mut document = Document { env: plan.policy.env.clone(), ..Document::default() };

    let network = network(lesson);
    let profiles = profiles(lesson, places, &network);
    if network == NetworkMode::Loopback {
        document.network.mode = Some(network);
    }
    let mut written = written(lesson, &around, &mut notes);
    let by_write = if profiles.contains(&Profile::Write) { granted_by_write(places) } else { Vec::new() };
    written.retain(|path| !in_tmp(path, places) && !by_write.iter().any(|top| path.starts_with(top)));
    document.profile = Some(profiles);
    let mut secret = BTreeSet::new();
    let readable = read(lesson, &around, (&written, &by_write), &mut notes, &mut secret);
    let executed = executed(lesson, plan, look_up);
    // The next run has another TMPDIR, which no list can name.
    if executed.iter().any(|program| in_tmp(program, places)) {
        notes.push("it executed what it made in its private TMPDIR, so every readable file may be executed".to_owned());
    } else {
        document.paths.execute = Some(spelled(executed, places));
    }
    document.paths.write = spelled(written, places);
    document.paths.read = readable.map(|read| spelled(read, places));
    let sockets = lesson.sockets.iter().filter(|socket| !changes(lesson).any(|made| made == *socket));
    document.network.unix = sockets.map(|socket| writable_down(socket)).collect();
    cover(&mut document, lesson)?;
    notes.extend(remarks(lesson));
    Ok(Learned { document, notes, credentials: spelled(secret, places) })
}

/// Every path that was written, created, removed or replaced.
fn changes(lesson: &Lesson) -> impl Iterator<Item = &PathBuf> {
    lesson.written.iter().chain(&lesson.entries)
}

fn in_tmp(path: &Path, places: &Places) -> bool {
    places.tmp.as_ref().is_some_and(|tmp| path.starts_with(tmp))
}

/// The trees that profile `write` makes writable. It has a private TMPDIR as well, but so has profile `read`.
fn granted_by_write(places: &Places) -> Vec<PathBuf> {
    places.cwd.canonicalize().ok().into_iter().chain([PathBuf::from("/dev/shm")]).collect()
}

/// The smallest profiles that cover the changes and the network.
fn profiles(lesson: &Lesson, places: &Places, network: &NetworkMode) -> Vec<Profile> {
    let mut profiles = vec![Profile::Minimal];
    if changes(lesson).any(|path| in_tmp(path, places)) {
        let by_write = granted_by_write(places);
        let needs_write = changes(lesson).any(|path| by_write.iter().any(|top| path.starts_with(top)));
        profiles = vec![if needs_write { Profile::Write } else { Profile::Read }];
    }
    if !matches!(network, NetworkMode::None | NetworkMode::Loopback) {
        profiles.retain(|profile| *profile != Profile::Minimal);
        profiles.push(Profile::Network);
    }
    profiles
}

/// Remarks on what a policy cannot express.
fn remarks(lesson: &Lesson) -> Vec<String> {
    let mut notes = Vec::new();
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
        notes.push("it touched more files than gatekeeper keeps: some are missing here".to_owned());
    }
    notes
}

/// The narrowest mode that allows every socket and address. Mode `hosts` is never chosen: a syscall shows addresses,
/// not names.
fn network(lesson: &Lesson) -> NetworkMode {
    let sockets = lesson.calls.iter().filter(|((nr, _), _)| i64::from(*nr) == libc::SYS_socket).map(|(_, args)| args);
    let internet = |args: &[u64; 6]| matches!(args[0] as i32, libc::AF_INET | libc::AF_INET6);
    let tcp = |args: &[u64; 6]| args[1] & 0xf == libc::SOCK_STREAM as u64 && matches!(args[2] as u32, 0 | 6);
    let used: Vec<_> = sockets.filter(|args| internet(args)).collect();
    let mut addresses = lesson.hosts.iter().chain(&lesson.bound).peekable();
    match () {
        () if used.is_empty() => NetworkMode::None,
        () if addresses.peek().is_some()
            && addresses.all(|address| address.ip().is_loopback())
            && used.iter().all(|args| tcp(args)) =>
        {
            NetworkMode::Loopback
        }
        () => NetworkMode::Full,
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1024 * 1024))
}

/// A syscall by number and by the arguments that policies distinguish.
type Class = (i32, [u64; 2]);

/// Adds the syscalls of the lesson that the document does not grant yet.
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
            // The PID will be another one in the next run, so allow all that are not 0 (itself).
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

/// The paths to grant for writing. A new file needs a grant of its directory. If that is too wide, the file itself is
/// granted, provided that it exists now.
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
        notes.push(format!("not granted: new files in {}, which is too wide to grant as a whole", directory.display()));
    }
    let mut places = outermost(places);
    places.retain(|place| !device(place));
    // Three or more directories in the working directory: grant all of it.
    match around.work() {
        Some(work) if places.iter().filter(|place| place.starts_with(&work)).count() >= 3 => {
            places.insert(work);
            outermost(places)
        }
        _ => gathered(places, around),
    }
}

/// The paths to grant for reading, beyond those of the system and those that may be written, by a grant or `by_write`, the
/// profile; `None` if no list would be narrow. Credentials go to `named`.
fn read(
    lesson: &Lesson,
    around: &Around<'_>,
    (written, by_write): (&BTreeSet<PathBuf>, &[PathBuf]),
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
        } else if by_write.iter().any(|top| top.parent().is_some() && path.starts_with(top)) {
            continue;
        } else if work.as_ref().is_some_and(|work| path.starts_with(work)) {
            places.extend(work.clone());
        } else {
            places.insert(path.clone());
        }
    }
    for secret in named.iter() {
        notes.push(format!(
            "CREDENTIALS: it read {}, which is granted below; remove that unless the command needs it",
            secret.display()
        ));
    }
    let wide: Vec<_> = lesson.listed.iter().filter(|path| !implied(path) && around.too_wide(path)).collect();
    if let Some(wide) = wide.first() {
        notes.push(format!("it listed {}, so everything except credentials may be read", wide.display()));
        return (!named.is_empty()).then(|| named.iter().cloned().chain([PathBuf::from("/")]).collect());
    }
    let mut all = gathered(places.iter().map(|place| writable_down(place)).collect(), around);
    // A grant of a parent directory does not open credentials: name each of them.
    all.extend(named.iter().cloned());
    Some(all)
}

/// The executed programs, with their interpreters and loaders.
fn executed(lesson: &Lesson, plan: &Plan, look_up: &dyn Fn(&OsStr) -> Verdict) -> BTreeSet<PathBuf> {
    let mut programs: BTreeSet<PathBuf> = BTreeSet::from([plan.target.path.clone()]);
    programs.extend(crate::plan::commands::files_of(&plan.verdict));
    for program in &lesson.executed {
        programs.insert(program.clone());
        programs.extend(crate::plan::commands::files_of(&look_up(program.as_os_str())));
    }
    let real = programs.iter().map(|program| program.canonicalize().unwrap_or_else(|_| program.clone()));
    // A program that the command built itself will be another file next time: grant its directory. If the command made that
    // too, as for a virtual environment, grant the one that was there before.
    let made = |path: &Path| lesson.entries.contains(path) || lesson.written.contains(path);
    let real = real.map(|program| match made(&program) {
        true => program.ancestors().find(|above| !made(above)).unwrap_or(&program).to_owned(),
        false => program,
    });
    let real: BTreeSet<PathBuf> = real.map(|program| writable_down(&program)).collect();
    outermost(real)
}

/// Paths as a policy file writes them: relative to `.` in the working directory, to `~` in the home directory.
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
