//! The denials of a run: each distinct one once, with a count.

use super::decode;
use super::files;
use super::foresee::Refused;
use super::reason::{self, Asked};
use super::remedy::Remedy;
use super::target::{Target, shown};
use crate::plan::Plan;
use crate::plan::table::Why;
use crate::policy::NetworkMode;
use crate::report::{Denial, Layer};
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

/// The record of a call that the filter denied, or the supervisor in its place, for this reason. `path`: where that was
/// looked at.
pub fn of_call(call: &Call, why: Why, plan: &Plan, path: Option<PathBuf>, errno: i32) -> Denial {
    let target = Target { tid: call.tid };
    let syscall = name(call.number);
    let peer = decode::peer(&syscall, call, &target);
    let socket = peer.as_ref().and_then(|peer| peer.path()).map(|path| absolute(&target, path));
    let path = path.or(socket).or_else(|| first_path(call, &target));
    let asked = Asked { syscall: &syscall, call, target: &target, path: path.as_deref(), peer: peer.as_ref() };
    let (rule, remedy) = reason::of_call(why, &asked, plan);
    record(call, &target, plan, Layer::Seccomp, syscall, path, peer.and_then(|peer| peer.host()), errno, rule, remedy)
}

/// The record of a call that a path layer is about to refuse.
pub fn of_path(call: &Call, plan: &Plan, refused: Refused) -> Denial {
    let target = Target { tid: call.tid };
    let (rule, remedy) = reason::of_path(plan, &refused);
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
        errno: crate::sys::errno_name(errno),
        count: 1,
        rule,
        allow_with: remedy.flag(plan),
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
    let whole = whole.and_then(|file| crate::trust::place(&file).ok());
    let entry = || target.parent(named.directory, &named.path).ok().map(|(_, at, name)| at.join(name));
    whole.or_else(entry).unwrap_or_else(|| named.path.clone())
}

fn absolute(target: &Target, path: &Path) -> PathBuf {
    let named =
        files::Named { directory: libc::AT_FDCWD, path: path.to_owned(), follow: true, does: files::Does::Make };
    located(target, &named)
}
