//! The denials of a run: each distinct one once, with a count.

use super::decode;
use super::files;
use super::foresee::{Refused, What};
use super::metadata::LENDS_RIGHTS;
use super::remedy::Remedy;
use super::report::{Denial, Layer};
use super::target::{Target, shown};
use crate::plan::Plan;
use crate::plan::table::files::{F_SETDELEG, F_SETLEASE, sets_ids};
use crate::plan::table::sockets::by_address;
use crate::policy::{NetworkMode, Profile};
use crate::sys::notify::Call;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Distinct denials kept; what comes after is only counted.
const MOST: usize = 1000;

#[derive(Default)]
pub struct Denials {
    list: Vec<Denial>,
    known: HashMap<Key, usize>,
    dropped: u64,
}

/// What makes two denials the same: not the process, or a loop of children would be a list of them.
type Key = (Layer, String, Vec<String>, Option<String>, Option<String>, String);

impl Denials {
    pub fn add(&mut self, denial: Denial) {
        let key = (
            denial.layer,
            denial.syscall.clone(),
            denial.args.clone(),
            denial.path.clone(),
            denial.host.clone(),
            denial.comm.clone(),
        );
        if let Some(at) = self.known.get(&key) {
            if let Some(known) = self.list.get_mut(*at) {
                known.count += 1;
            }
        } else if self.list.len() < MOST {
            self.known.insert(key, self.list.len());
            self.list.push(denial);
        } else {
            self.dropped += 1;
        }
    }

    pub fn finish(self) -> (Vec<Denial>, u64) {
        (self.list, self.dropped)
    }
}

pub fn name(number: i32) -> String {
    let known = u16::try_from(number).ok().and_then(|number| {
        sandbox_contract::syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned())
    });
    known.unwrap_or_else(|| format!("syscall {number}"))
}

/// The record of a call that the filter denied, or the supervisor in its place. `path`: where that was looked at.
pub fn of_call(call: &Call, plan: &Plan, path: Option<PathBuf>, errno: i32) -> Denial {
    let target = Target { tid: call.tid };
    let syscall = name(call.number);
    let peer = decode::peer(&syscall, call, &target);
    let socket = peer.as_ref().and_then(|peer| peer.path()).map(|path| absolute(&target, path));
    let path = path.or(socket).or_else(|| first_path(call, &target));
    let (rule, remedy) = explained(&syscall, call, plan, path.as_deref(), &target);
    record(call, &target, plan, Layer::Seccomp, syscall, path, peer.and_then(|peer| peer.host()), errno, rule, remedy)
}

/// The record of a call that a path layer is about to refuse.
pub fn of_path(call: &Call, plan: &Plan, refused: Refused) -> Denial {
    let target = Target { tid: call.tid };
    let (rule, remedy) = path_explained(plan, &refused);
    let Refused { layer, errno, path, .. } = refused;
    record(call, &target, plan, layer, name(call.number), Some(path), None, errno, rule, remedy)
}

/// The record of a host that the proxy refused.
pub fn of_proxy(refusal: crate::proxy::gate::Refusal, plan: &Plan) -> Denial {
    let hosts = refusal.allow_with.as_deref().and_then(|flag| flag.rsplit(',').next()?.rsplit('=').next());
    let line = hosts.map(|host| match &plan.network {
        _ if plan.policy.network.deny_private => {
            let port = host.rsplit(' ').next().unwrap_or_default();
            let all = plan.policy.network.local_ports.iter().map(u16::to_string).chain([port.to_owned()]);
            format!("network.local_ports = [{}]", all.collect::<Vec<_>>().join(", "))
        }
        NetworkMode::Hosts(listed) => {
            let all = listed.iter().map(String::as_str).chain([host]).map(|host| toml::Value::from(host).to_string());
            format!("network.hosts = [{}]", all.collect::<Vec<_>>().join(", "))
        }
        _ => format!("network.hosts = [{}]", toml::Value::from(host)),
    });
    Denial {
        layer: Layer::Proxy,
        syscall: "connect".to_owned(),
        args: vec![refusal.host.clone()],
        path: None,
        host: Some(refusal.host),
        pid: refusal.guest.pid,
        tid: refusal.guest.pid,
        comm: refusal.guest.comm,
        exe: None,
        errno: "EACCES".to_owned(),
        count: refusal.count,
        rule: format!("network mode hosts: {}", refusal.why),
        allow_with: refusal.allow_with,
        allow_with_policy: line,
    }
}

#[expect(clippy::too_many_arguments, reason = "the fields of a record, each from another source")]
fn record(
    call: &Call,
    target: &Target,
    plan: &Plan,
    layer: Layer,
    syscall: String,
    path: Option<PathBuf>,
    host: Option<String>,
    errno: i32,
    rule: String,
    remedy: Remedy,
) -> Denial {
    Denial {
        layer,
        args: decode::arguments(&syscall, call, target),
        path: path.as_deref().map(shown),
        host,
        pid: target.pid().unwrap_or(call.tid),
        tid: call.tid,
        comm: target.comm(),
        exe: target.exe().as_deref().map(shown),
        errno: decode::names::one(decode::names::ERRNOS, errno as u64),
        count: 1,
        rule,
        allow_with: remedy.flag(&plan.policy),
        allow_with_policy: remedy.line(&plan.policy),
        syscall,
    }
}

/// The first file that a call names, as it really is; as it is named where it leads nowhere.
fn first_path(call: &Call, target: &Target) -> Option<PathBuf> {
    if let Some(fd) = files::descriptor(call) {
        return target.place_of(fd).ok();
    }
    let shape = files::shapes(call).into_iter().flatten().next()?;
    let named = shape.named(call, target).ok()?;
    if named.path.as_os_str().is_empty() {
        return target.place_of(named.directory).ok();
    }
    Some(located(target, &named))
}

fn located(target: &Target, named: &files::Named) -> PathBuf {
    let whole = named.follow.then(|| target.open(named.directory, &named.path, true)).and_then(Result::ok);
    let whole = whole.and_then(|file| super::target::place(&file).ok());
    let entry = || target.parent(named.directory, &named.path).ok().map(|(_, at, name)| at.join(name));
    whole.or_else(entry).unwrap_or_else(|| named.path.clone())
}

fn absolute(target: &Target, path: &Path) -> PathBuf {
    let named =
        files::Named { directory: libc::AT_FDCWD, path: path.to_owned(), follow: true, does: files::Does::Make };
    located(target, &named)
}

fn is_of(group: &str, syscall: &str) -> bool {
    sandbox_contract::groups::names(group.as_bytes()).is_some_and(|calls| calls.contains(&syscall))
}

const LOW: Option<u64> = Some(0xffff_ffff);
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// The rule that denied a call, and what would let it through.
fn explained(syscall: &str, call: &Call, plan: &Plan, path: Option<&Path>, target: &Target) -> (String, Remedy) {
    let policy = &plan.policy;
    let args = &call.args;
    let word = |at: usize| u64::from(args[at] as u32);
    let denied = policy.syscalls.deny.iter().any(|item| match item.strip_prefix('@') {
        Some(group) => is_of(group, syscall),
        None => item == syscall,
    });
    if denied {
        return (format!("denied by name: {syscall}"), Remedy::Nothing);
    }
    let profile = format!("not in profile {}", policy.profile_name());
    let writes = policy.starts_programs() || !policy.paths.write.is_empty();
    match syscall {
        "socket" => {
            let internet = matches!(word(0) as i32, libc::AF_INET | libc::AF_INET6)
                || (word(0) as i32 == libc::AF_NETLINK && word(2) == 0);
            match &plan.network {
                NetworkMode::None if internet && policy.network.mode.is_some() => {
                    ("network mode none".to_owned(), Remedy::Network)
                }
                NetworkMode::None if internet => ("network mode none".to_owned(), Remedy::Profile(Profile::Network)),
                NetworkMode::Loopback if internet => {
                    ("network mode loopback: only TCP, to and from this machine".to_owned(), Remedy::Network)
                }
                NetworkMode::Hosts(_) if internet => {
                    ("network mode hosts: only TCP, to the proxy, which resolves names".to_owned(), Remedy::Network)
                }
                _ => {
                    let args = vec![(0, word(0), LOW), (1, word(1) & 0xf, Some(0xf))];
                    (profile, Remedy::Where { call: "socket", args })
                }
            }
        }
        "connect" | "bind" | "sendto" if plan.network == NetworkMode::None => match path {
            Some(path) if is_denied(plan, path) => (format!("denied path {}", shown(path)), Remedy::Nothing),
            Some(path) if path.is_absolute() => {
                ("the socket is neither in a writable tree nor listed".to_owned(), Remedy::Unix(path.to_owned()))
            }
            _ => ("network mode none".to_owned(), Remedy::Allow(syscall.to_owned())),
        },
        "connect" if path.is_some_and(|path| is_denied(plan, path)) => {
            (format!("denied path {}", path.map(shown).unwrap_or_default()), Remedy::Nothing)
        }
        "connect" if path.is_some_and(Path::is_absolute) => {
            let path = path.map(Path::to_owned).unwrap_or_default();
            ("the socket is neither in a writable tree nor listed".to_owned(), Remedy::Unix(path))
        }
        "connect" | "listen" | "setsockopt" | "sendto" | "sendmsg" | "sendmmsg"
            if by_address(policy, &plan.network) =>
        {
            (address_rule(syscall, &plan.network), Remedy::Network)
        }
        "execve" | "execveat" => (profile, Remedy::Allow("@exec".to_owned())),
        "fork" | "vfork" => (profile, Remedy::Allow("@process".to_owned())),
        "clone" if args[0] & NEW_NAMESPACES == 0 => (profile, Remedy::Allow("@process".to_owned())),
        // Nothing grants a namespace or the terminal's input, but a rule that names it, or to leave the sandbox.
        "clone" => {
            let wanted = args[0] & NEW_NAMESPACES;
            let rule = "new namespaces are refused in every profile".to_owned();
            (rule, Remedy::Only { call: "clone", args: vec![(0, wanted, Some(NEW_NAMESPACES))] })
        }
        "ioctl" => {
            let rule = "putting words into a terminal is refused in every profile".to_owned();
            (rule, Remedy::Only { call: "ioctl", args: vec![(1, word(1), LOW)] })
        }
        "fcntl" if matches!(word(1) as u32, F_SETLEASE | F_SETDELEG) => {
            let rule = "leases are refused in every profile: they make others wait who write the file".to_owned();
            (rule, Remedy::Only { call: "fcntl", args: vec![(1, word(1), LOW)] })
        }
        _ if sets_ids(syscall, args) => (LENDS_RIGHTS.to_owned(), Remedy::Nothing),
        "personality" => (profile, Remedy::Where { call: "personality", args: vec![(0, word(0), LOW)] }),
        "prlimit64" => {
            ("limits of other processes".to_owned(), Remedy::Where { call: "prlimit64", args: vec![(0, word(0), LOW)] })
        }
        _ if is_of("metadata", syscall) && writes => match path {
            Some(path) if path.is_absolute() => (write_rule(plan), Remedy::Write(vec![path.to_owned()])),
            _ => (profile, Remedy::Allow(syscall.to_owned())),
        },
        _ if is_of("file-write", syscall) || is_of("metadata", syscall) => {
            let places = places_to_write(call, target);
            let remedy = match places.is_empty() {
                true => Remedy::Profile(Profile::Write),
                false => Remedy::Write(places),
            };
            (profile, remedy)
        }
        // Newer than every name: no list can hold it.
        _ if syscall.starts_with("syscall ") => (profile, Remedy::Nothing),
        _ => (profile, Remedy::Allow(syscall.to_owned())),
    }
}

fn address_rule(syscall: &str, network: &NetworkMode) -> String {
    let rule = match (syscall, network) {
        ("connect", NetworkMode::Hosts(_)) => "network mode hosts: connections go through the proxy of HTTP_PROXY",
        ("connect", NetworkMode::Loopback) => "network mode loopback: only this machine, and only listed ports of it",
        ("connect", _) => "not among the ports of the policy",
        ("listen", _) => "only on 127.0.0.1 or ::1, not for others",
        _ => "would lead around the address that was checked",
    };
    rule.to_owned()
}

/// The directories that a call changes, or the file itself where only that is changed.
fn places_to_write(call: &Call, target: &Target) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(fd) = files::descriptor(call) {
        places.extend(target.place_of(fd).ok().filter(|place| place.is_absolute()));
    }
    for shape in files::shapes(call).into_iter().flatten() {
        let Ok(named) = shape.named(call, target) else { continue };
        let itself = matches!(named.does, files::Does::Change | files::Does::Open { create: false, .. });
        let file = || target.open(named.directory, &named.path, named.follow);
        let file = itself.then(file).and_then(|file| super::target::place(&file.ok()?).ok());
        let place = file.or_else(|| target.parent(named.directory, &named.path).ok().map(|(_, at, _)| at));
        places.extend(place.filter(|place| place.is_absolute()));
    }
    places.dedup();
    places
}

fn write_rule(plan: &Plan) -> String {
    let writable = plan.writable();
    if writable.is_empty() {
        return format!("profile {} writes nothing", plan.policy.profile_name());
    }
    let tmp = plan.places.tmp.as_deref();
    let named = writable.iter().take(4).map(|path| match tmp == Some(path) {
        true => "the private TMPDIR".to_owned(),
        false => shown(path),
    });
    let more = if writable.len() > 4 { ", ..." } else { "" };
    format!("written only below {}{more}", named.collect::<Vec<_>>().join(", "))
}

fn is_denied(plan: &Plan, path: &Path) -> bool {
    let denied = plan.policy.paths.deny.iter().map(|path| plan.places.absolute(path));
    denied.filter_map(|denied| std::fs::canonicalize(denied).ok()).any(|denied| path.starts_with(denied))
}

fn path_explained(plan: &Plan, refused: &Refused) -> (String, Remedy) {
    let denied = plan.policy.paths.deny.iter().map(|path| plan.places.absolute(path));
    let by_pattern = plan.landlock.iter().flat_map(|landlock| landlock.paths.denied.iter().cloned());
    let mut denied = denied.filter_map(|path| std::fs::canonicalize(path).ok()).chain(by_pattern);
    if let Some(denied) = denied.find(|denied| refused.path.starts_with(denied)) {
        return (format!("denied path {}", shown(&denied)), Remedy::Nothing);
    }
    let hidden = plan.landlock.iter().flat_map(|landlock| &landlock.paths.hidden);
    let hidden = hidden.into_iter().find(|hidden| refused.path.starts_with(hidden));
    match (refused.what, refused.layer, hidden) {
        (What::Write, Layer::Namespaces, _) => {
            let place = refused.grant.first().map(|place| shown(place)).unwrap_or_default();
            (format!("protected: {place} is read-only in a writable tree"), Remedy::Write(refused.grant.clone()))
        }
        (What::Write, ..) => (write_rule(plan), Remedy::Write(refused.grant.clone())),
        (What::Execute, ..) => {
            ("not among the programs that may be executed".to_owned(), Remedy::Execute(refused.path.clone()))
        }
        // By name, because a credential is granted by name or not at all.
        (What::Read, _, Some(hidden)) => (format!("credentials: {}", shown(hidden)), Remedy::Read(hidden.clone())),
        (What::Read, ..) => ("not among the paths that may be read".to_owned(), Remedy::Read(refused.path.clone())),
    }
}
