//! The denials of a run: each distinct one once, with a count.

use super::report::{Denial, Layer};
use super::target::Target;
use crate::policy::{NetworkMode, Policy, Profile};
use crate::sys::notify::Call;
use std::collections::HashMap;

/// Distinct denials kept; what comes after is only counted.
const MOST: usize = 1000;

#[derive(Default)]
pub struct Denials {
    list: Vec<Denial>,
    known: HashMap<(String, Vec<String>, Option<String>, i32), usize>,
    dropped: u64,
}

impl Denials {
    pub fn add(&mut self, denial: Denial) {
        let key = (denial.syscall.clone(), denial.args.clone(), denial.path.clone(), denial.pid);
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

/// The record of a call that the filter denied.
pub fn of_call(call: &Call, policy: &Policy, network: &NetworkMode, path: Option<String>) -> Denial {
    let target = Target { tid: call.tid };
    let syscall = u16::try_from(call.number).ok().and_then(name).unwrap_or_else(|| format!("syscall {}", call.number));
    let args = arguments(&syscall, &call.args);
    let allow_with = remedy(&syscall, &call.args, policy, network, path.as_deref());
    Denial {
        layer: Layer::Seccomp,
        rule: rule(&syscall, policy, network),
        args,
        path,
        host: None,
        pid: target.pid().unwrap_or(call.tid),
        comm: target.comm(),
        count: 1,
        allow_with,
        syscall,
    }
}

pub fn name(number: u16) -> Option<String> {
    sandbox_contract::syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned())
}

fn arguments(syscall: &str, args: &[u64; 6]) -> Vec<String> {
    match syscall {
        "socket" | "socketpair" => vec![family(args[0] as u32), socket_type(args[1] as u32), args[2].to_string()],
        _ => args.iter().map(|arg| if *arg < 4096 { arg.to_string() } else { format!("{arg:#x}") }).collect(),
    }
}

fn family(family: u32) -> String {
    let known = match family {
        1 => "AF_UNIX",
        2 => "AF_INET",
        10 => "AF_INET6",
        16 => "AF_NETLINK",
        17 => "AF_PACKET",
        38 => "AF_ALG",
        40 => "AF_VSOCK",
        other => return other.to_string(),
    };
    known.to_owned()
}

fn socket_type(kind: u32) -> String {
    let base = match kind & 0xf {
        1 => "SOCK_STREAM".to_owned(),
        2 => "SOCK_DGRAM".to_owned(),
        3 => "SOCK_RAW".to_owned(),
        5 => "SOCK_SEQPACKET".to_owned(),
        other => other.to_string(),
    };
    let flag = |bit: i32, name: &'static str| (kind & bit as u32 != 0).then_some(name);
    let flags = [flag(libc::SOCK_NONBLOCK, "SOCK_NONBLOCK"), flag(libc::SOCK_CLOEXEC, "SOCK_CLOEXEC")];
    flags.into_iter().flatten().fold(base, |text, flag| format!("{text}|{flag}"))
}

fn rule(syscall: &str, policy: &Policy, network: &NetworkMode) -> String {
    if policy.syscalls.deny.iter().any(|item| item == syscall) {
        return format!("denied by name: {syscall}");
    }
    if is_of("network", syscall) && *network == NetworkMode::None {
        return "network mode none".to_owned();
    }
    format!("not in profile {}", profile_name(policy))
}

/// The profiles of a policy as a flag names them.
pub fn profile_name(policy: &Policy) -> String {
    let word = |profile: &Profile| match profile {
        Profile::Minimal => "minimal",
        Profile::Network => "network",
        Profile::Write => "write",
        Profile::Unrestricted => "unrestricted",
        Profile::Custom => "custom",
    };
    policy.profiles.iter().map(word).collect::<Vec<_>>().join("+")
}

fn is_of(group: &str, syscall: &str) -> bool {
    sandbox_contract::groups::names(group.as_bytes()).is_some_and(|calls| calls.contains(&syscall))
}

/// The smallest flag that would have let the call through.
fn remedy(
    syscall: &str,
    args: &[u64; 6],
    policy: &Policy,
    network: &NetworkMode,
    path: Option<&str>,
) -> Option<String> {
    let with = |added: &str| match profile_name(policy).as_str() {
        "minimal" => format!("--profile {added}"),
        name => format!("--profile {name}+{added}"),
    };
    let writes = policy.profiles.contains(&Profile::Write);
    Some(match syscall {
        "socket" | "bind" | "connect" if path.is_none() && *network == NetworkMode::None => match args[0] as u32 {
            2 | 10 | 16 => with("network"),
            _ => format!("--allow {syscall}"),
        },
        "connect" => return None,
        "fork" | "vfork" | "execve" | "execveat" => "--allow @process".to_owned(),
        "clone" if args[0] as u32 & 0x7e02_0000 == 0 => "--allow @process".to_owned(),
        // Nothing allows a namespace or the terminal's input, but to leave the sandbox.
        "clone" | "ioctl" => "--profile unrestricted".to_owned(),
        _ if is_of("file-write", syscall) && !writes => with("write"),
        _ if is_of("metadata", syscall) => match path {
            Some(path) if writes => format!("--write {path}"),
            _ => with("write"),
        },
        _ => format!("--allow {syscall}"),
    })
}
