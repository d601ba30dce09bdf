//! Makes a policy from a lesson: the smallest profiles, and exactly what the command needs beyond them.

use super::grants::{Found, executed, read, written};
use crate::check::Verdict;
use crate::plan::Plan;
use crate::plan::paths::{Places, TERMINALS};
use crate::plan::table::{Table, Verb};
use crate::policy::{ArgTest, Document, NetworkMode, Policy, PolicyError, Profile, RuleAction, SyscallRule};
use crate::supervise::denials::name;
use crate::supervise::lesson::Lesson;
use sandbox_contract::bpf::Op;
use sandbox_contract::grammar::NumberSet;
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

/// The policy under which the command would have passed. `secret`: the credentials as they were before it ran. `look_up` finds
/// the exec chain of a program.
pub fn compose(
    lesson: &Lesson,
    plan: &Plan,
    secret: BTreeSet<PathBuf>,
    look_up: &dyn Fn(&OsStr) -> Verdict,
) -> Result<Learned, PolicyError> {
    let places = &plan.places;
    let mut found = Found::new(places, secret);
    let mut document = Document { env: plan.policy.env.clone(), ..Document::default() };

    let network = network(lesson);
    let profiles = profiles(lesson, places, &network);
    if network == NetworkMode::Loopback {
        document.network.mode = Some(network);
    }
    let mut written = written(lesson, &mut found);
    let by_write = if profiles.contains(&Profile::Write) { granted_by_write(places) } else { Vec::new() };
    written.retain(|path| !in_tmp(path, places) && !by_write.iter().any(|top| path.starts_with(top)));
    let terminal = |path: &PathBuf| TERMINALS.iter().any(|terminal| path.starts_with(terminal));
    if let Some(path) = lesson.written.iter().find(|path| terminal(path) && !profiles.contains(&Profile::Write)) {
        found.notes.push(format!("not granted: {}, because only profile write grants terminals", path.display()));
    }
    document.profile = Some(profiles);
    let readable = read(lesson, (&written, &by_write), &mut found);
    let executed = executed(lesson, plan, look_up, &mut found);
    let sockets = lesson.sockets.iter().filter(|socket| !changes(lesson).any(|made| made == *socket));
    document.network.unix = sockets.filter(|socket| found.can_name("connecting to", socket)).cloned().collect();
    // The next run has another TMPDIR, which no list can name.
    if executed.iter().any(|program| in_tmp(program, places)) {
        found.notes.push(ANY_PROGRAM.to_owned());
    } else {
        found.notes.extend(memory_files(lesson));
        document.paths.execute = Some(found.all_spelled(&executed));
    }
    // A writable directory does not open the credentials in it: name each of them.
    written.extend(found.written.iter().cloned());
    document.paths.write = found.all_spelled(&written);
    document.paths.read = readable.map(|read| found.all_spelled(&read));
    cover(&mut document, lesson, &mut found.notes)?;
    let credentials = found.all_spelled(&found.read);
    let notes = found.notes.into_iter().chain(remarks(lesson)).collect();
    Ok(Learned { document, notes, credentials })
}

const ANY_PROGRAM: &str = "it executed what it made in its private TMPDIR, so every readable file may be executed";

/// A note on memory files that could be executed: a list of programs refuses them.
fn memory_files(lesson: &Lesson) -> Option<String> {
    let used = lesson.calls.keys().any(|(nr, class)| i64::from(*nr) == libc::SYS_memfd_create && class[0] == 0);
    used.then(|| {
        "not granted: memory files without MFD_NOEXEC_SEAL, because paths.execute lists programs; memfd_create fails with \
         ENOSYS"
            .to_owned()
    })
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
fn cover(document: &mut Document, lesson: &Lesson, notes: &mut Vec<String>) -> Result<(), PolicyError> {
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
        // No grant opens memory files where programs are listed, and `memory_files` has noted it.
        if call.starts_with("syscall ") || call == "memfd_create" {
            continue;
        }
        // Where paths may be written, the supervisor makes these calls there. By name they would change every file of the user.
        if NumberSet::of_group(b"metadata").is_some_and(|calls| calls.contains(nr as u16)) {
            notes.push(format!("not granted: {call}, because none of the files it changed may be written"));
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
