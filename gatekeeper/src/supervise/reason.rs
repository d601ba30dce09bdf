//! Explains a denial: turns the reason given by the rule table into text with the values of the call, and finds the
//! smallest grant that would allow it. Decides nothing, and never suggests a grant that would not help.

mod paths;

pub use paths::of_path;

use super::decode::address::Peer;
use super::files::{self, Does};
use super::foresee::{permitted, permitted_by};
use super::metadata::{LENDS_RIGHTS, prepare};
use super::remedy::Remedy;
use super::target::{Target, shown};
use crate::plan::Plan;
use crate::plan::table::sockets::by_address;
use crate::plan::table::{NEW_NAMESPACES, Why};
use crate::policy::{NetworkMode, Profile, print};
use crate::report::TRUNCATION;
use crate::sys::notify::Call;
use crate::trust::place;
use paths::{denied, grant, of_process, write_rule};
use rustix::fs::{Access, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A denied call, and what could be read about it.
pub struct Asked<'a> {
    pub syscall: &'a str,
    pub call: &'a Call,
    pub target: &'a Target,
    pub path: Option<&'a Path>,
    pub peer: Option<&'a Peer>,
}

type Explained = (String, Remedy);

const LOW: u64 = 0xffff_ffff;
const SOCKET_TYPE: u64 = 0xf;

/// The rule that denied a call, and the grant that would allow it.
pub fn of_call(why: Why, asked: &Asked<'_>, plan: &Plan) -> Explained {
    let (policy, syscall) = (&plan.policy, asked.syscall);
    let word = |at: u8| asked.call.args.get(usize::from(at)).map_or(0, |value| value & LOW);
    let only = |call: &'static str, args: Vec<(u8, u64, u64)>| Remedy::Rule { call, args };
    let profile = || format!("not in profile {}", policy.profile_name());
    match why {
        Why::Named => (format!("denied by name: {syscall}"), Remedy::Nothing),
        Why::Rule(number) => {
            let rule = number.checked_sub(1).and_then(|at| policy.syscalls.rules.get(at as usize));
            let action = rule.map_or_else(|| "deny".to_owned(), |rule| print::action(rule.action));
            (format!("syscalls.rule {number} of the policy: {action} {syscall}"), Remedy::Nothing)
        }
        Why::List => ("not in the policy's list of syscalls".to_owned(), by_name(syscall)),
        Why::Undoes => ("can undo a sandbox: denied together with every deny list".to_owned(), Remedy::Nothing),
        Why::Terminal => {
            let rule = "injecting input into a terminal is refused in every profile".to_owned();
            (rule, only("ioctl", vec![(1, word(1), LOW)]))
        }
        Why::FileSystem => {
            let rule = "ioctls that change files regardless of the path rules are refused in every profile".to_owned();
            (rule, only("ioctl", vec![(1, word(1), LOW)]))
        }
        Why::Lease => {
            let rule = "leases are refused in every profile: they block other processes that open the file".to_owned();
            (rule, only("fcntl", vec![(1, word(1), LOW)]))
        }
        Why::SetIds => (LENDS_RIGHTS.to_owned(), Remedy::Nothing),
        Why::Truncation => (TRUNCATION.to_owned(), Remedy::Nothing),
        Why::Others => ("acts on other processes of the user".to_owned(), by_name(syscall)),
        Why::Memory => {
            let rule = "without MFD_NOEXEC_SEAL the file could be executed, and only some programs may be";
            (rule.to_owned(), Remedy::Nothing)
        }
        Why::Process if word(0) & u64::from(NEW_NAMESPACES) != 0 => {
            let mask = u64::from(NEW_NAMESPACES);
            let rule = "new namespaces are refused in every profile".to_owned();
            (rule, only("clone", vec![(0, word(0) & mask, mask)]))
        }
        Why::Process => (profile(), Remedy::Profile(Profile::Read)),
        Why::Arguments(at) => match known(syscall) {
            Some(call) => (profile(), only(call, vec![(at, word(at), LOW)])),
            None => (profile(), Remedy::Nothing),
        },
        // Only root may change its IDs.
        Why::Identity => (profile(), if plan.user.uid == 0 { by_name(syscall) } else { Remedy::Nothing }),
        Why::Socket => socket(plan, [word(0), word(1), word(2)]),
        Why::Pair => {
            let args = vec![(0, word(0), LOW), (1, word(1) & SOCKET_TYPE, SOCKET_TYPE)];
            ("a socket pair that can send to other sockets".to_owned(), only("socketpair", args))
        }
        Why::Reach => reach(asked, plan),
        Why::Detour => ("would bypass the check of addresses".to_owned(), network(plan, None)),
        Why::Metadata | Why::Profile if lends_rights(asked) => (LENDS_RIGHTS.to_owned(), Remedy::Nothing),
        Why::Metadata => (write_rule(plan), written(asked, plan)),
        Why::Profile if is_of("file-write", syscall) || is_of("metadata", syscall) => (profile(), written(asked, plan)),
        Why::Profile if matches!(syscall, "execve" | "execveat" | "fork" | "vfork") => {
            (profile(), Remedy::Profile(Profile::Read))
        }
        // It reaches no other process.
        Why::Profile if syscall == "memfd_secret" => (profile(), by_name(syscall)),
        // Landlock refuses to open what is in no directory that could be granted.
        Why::Profile if syscall.starts_with("mq_") && plan.landlock.is_some() => {
            (format!("{}; no grant opens POSIX queues", profile()), Remedy::Nothing)
        }
        // These calls are useless without each other.
        Why::Profile if is_of("ipc", syscall) => (profile(), Remedy::Allow("@ipc".to_owned())),
        Why::Profile => (profile(), by_name(syscall)),
    }
}

/// Whether a call would make a program run with the rights of its owner, which no grant allows.
fn lends_rights(asked: &Asked<'_>) -> bool {
    is_of("metadata", asked.syscall) && prepare(asked.call, asked.target).is_ok_and(|(_, change)| change.lends_rights())
}

fn is_of(group: &str, syscall: &str) -> bool {
    sandbox_contract::groups::names(group.as_bytes()).is_some_and(|calls| calls.contains(&syscall))
}

/// The syscalls that a rule can allow by the value of one argument.
fn known(syscall: &str) -> Option<&'static str> {
    ["personality", "unshare"].into_iter().find(|known| *known == syscall)
}

/// A syscall that is too new to have a name here cannot be listed.
fn by_name(syscall: &str) -> Remedy {
    if syscall.starts_with("syscall ") { Remedy::Nothing } else { Remedy::Allow(syscall.to_owned()) }
}

const DATAGRAMS: &str = "datagrams can go to any UNIX socket: only stream sockets are allowed";

fn socket(plan: &Plan, [family, kind, protocol]: [u64; 3]) -> Explained {
    let netlink = family as i32 == libc::AF_NETLINK;
    let internet = matches!(family as i32, libc::AF_INET | libc::AF_INET6) || netlink && protocol == 0;
    let rule = match &plan.network {
        NetworkMode::None if internet => "network mode none",
        NetworkMode::Loopback if internet => "network mode loopback: only TCP, to and from this machine",
        NetworkMode::Hosts(_) if internet => "network mode hosts: only TCP, to the proxy, which resolves names",
        _ if family as i32 == libc::AF_UNIX => DATAGRAMS,
        _ => {
            let args = vec![(0, family, LOW), (1, kind & SOCKET_TYPE, SOCKET_TYPE), (2, protocol, LOW)];
            let args = if netlink { args } else { args[..2].to_vec() };
            let rule = format!("not in profile {}", plan.policy.profile_name());
            return (rule, Remedy::Rule { call: "socket", args });
        }
    };
    if !internet {
        // Within a network of the run, the name of socketpair grants all datagrams, and the supervisor sends each of them.
        if plan.network == NetworkMode::Own && rule == DATAGRAMS {
            return (rule.to_owned(), Remedy::Allow("socketpair".to_owned()));
        }
        let args = vec![(0, family, LOW), (1, kind & SOCKET_TYPE, SOCKET_TYPE)];
        return (rule.to_owned(), Remedy::Rule { call: "socket", args });
    }
    (rule.to_owned(), network(plan, None))
}

/// The grant that opens the network, if a single flag does.
fn network(plan: &Plan, port: Option<u16>) -> Remedy {
    let network = &plan.policy.network;
    let missing = port.filter(|port| !network.ports.is_empty() && !network.ports.contains(port));
    match &plan.network {
        // deny_private keeps private addresses closed in every mode.
        _ if network.deny_private => Remedy::Nothing,
        NetworkMode::Full => missing.map_or(Remedy::Nothing, Remedy::Port),
        NetworkMode::None if network.mode.is_none() && missing.is_none() => Remedy::Profile(Profile::Network),
        _ => Remedy::Network(missing),
    }
}

fn reach(asked: &Asked<'_>, plan: &Plan) -> Explained {
    if let Some(path) = asked.path.filter(|path| path.is_absolute()) {
        if let Some(denied) = denied(plan, path) {
            return (format!("denied path {}", shown(&denied)), Remedy::Nothing);
        }
        // Inside bubblewrap the program does not see it, but this process does.
        let own = || rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let file = asked.target.open(libc::AT_FDCWD, path, true).or_else(|_| own());
        let may = file.is_ok_and(|file| permitted(&file, Access::WRITE_OK)) && !of_process(path);
        let rule = "the socket is neither in a writable tree nor listed".to_owned();
        return (rule, if may { Remedy::Unix(path.to_owned()) } else { Remedy::Nothing });
    }
    let (address, port) = match asked.peer {
        Some(Peer::Abstract(_) | Peer::Unnamed) => {
            return ("abstract sockets have no path that could be granted".to_owned(), Remedy::Nothing);
        }
        Some(Peer::Internet(address)) => (Some(address.ip().to_canonical()), Some(address.port())),
        _ => (None, None),
    };
    let local = address.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified());
    let rule = match (asked.syscall, &plan.network) {
        (_, NetworkMode::None) => "network mode none",
        ("listen", _) => "may listen only on 127.0.0.1 or ::1",
        (_, NetworkMode::Hosts(_)) => "network mode hosts: connections must go through the proxy in HTTP_PROXY",
        (_, NetworkMode::Loopback) if local => {
            let port = port.map_or(Remedy::Nothing, Remedy::Port);
            return ("not among the policy's ports".to_owned(), port);
        }
        (_, NetworkMode::Loopback) => "network mode loopback: only this machine may be reached",
        (_, NetworkMode::Full) if by_address(&plan.policy, &plan.network) => "not among the policy's ports",
        _ => "not an internet address",
    };
    (rule.to_owned(), network(plan, port))
}

/// The grant that would let a call change the files that it names.
fn written(asked: &Asked<'_>, plan: &Plan) -> Remedy {
    let changes = |at: PathBuf, file: &OwnedFd| (at, permitted_by(plan, file, Access::WRITE_OK) || owned(file));
    let mut places = Vec::new();
    let mut whole = Vec::new();
    let by_descriptor = files::descriptor(asked.call);
    if let Some(fd) = by_descriptor {
        let named = format!("/proc/self/fd/{fd}");
        let Ok(file) = asked.target.open(libc::AT_FDCWD, Path::new(&named), true) else { return Remedy::Nothing };
        let Ok(at) = asked.target.place_of(fd) else { return Remedy::Nothing };
        whole.push(at.clone());
        places.push(changes(at, &file));
    }
    for shape in files::shapes(asked.call).into_iter().flatten().filter(|_| by_descriptor.is_none()) {
        let Ok(named) = shape.named(asked.call, asked.target) else { return Remedy::Nothing };
        let itself = matches!(named.does, Does::Change | Does::Open { create: false, .. });
        let file = itself.then(|| asked.target.open(named.directory, &named.path, named.follow).ok()).flatten();
        if let Some((at, file)) = file.and_then(|file| Some((place(&file).ok()?, file))) {
            whole.push(at.clone());
            places.push(changes(at, &file));
            continue;
        }
        // The file does not exist, or the call changes its directory. (touch(1) would create it first.)
        let Ok((directory, at, name)) = asked.target.parent(named.directory, &named.path) else {
            return Remedy::Nothing;
        };
        whole.push(at.join(name));
        places.push((at, permitted_by(plan, &directory, Access::WRITE_OK | Access::EXEC_OK)));
    }
    match places.iter().all(|(_, may)| *may) {
        _ if places.is_empty() => by_name(asked.syscall),
        true => grant(plan, places.into_iter().map(|(at, _)| at).collect(), &whole),
        false => Remedy::Nothing,
    }
}

pub(super) fn owned(file: &OwnedFd) -> bool {
    let me = rustix::process::geteuid();
    rustix::fs::fstat(file).is_ok_and(|stat| me.is_root() || stat.st_uid == me.as_raw())
}
