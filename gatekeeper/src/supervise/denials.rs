//! The denials of a run: each distinct one once, with a count.

use super::decode;
use super::files;
use super::reason::{self, Asked};
use super::refused::Refused;
use super::remedy::Remedy;
use super::target::{Target, shown};
use crate::plan::Plan;
use crate::plan::table::Why;
use crate::policy::{HttpRule, NetworkMode};
use crate::report::{Denial, Layer};
use crate::sys::notify::Call;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The most distinct denials that are kept; later ones are only counted.
const MOST: usize = 1000;

#[derive(Default)]
pub struct Denials {
    list: Vec<Denial>,
    known: HashMap<Key, usize>,
    dropped: u64,
}

/// What makes two denials the same. The PID is left out: a shell loop would otherwise fill the list.
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

/// The name of a syscall, or `syscall N` if it has none.
pub fn name(number: i32) -> String {
    let known = u16::try_from(number).ok().and_then(|number| {
        sandbox_contract::syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned())
    });
    known.unwrap_or_else(|| format!("syscall {number}"))
}

/// The record of a call that the filter or the supervisor denied. `path` is the file, if the supervisor has looked it
/// up.
pub fn of_call(call: &Call, why: Why, plan: &Plan, path: Option<PathBuf>, errno: i32) -> Denial {
    let target = Target { tid: call.tid };
    let syscall = name(call.number);
    let peer = decode::peer(&syscall, call, &target);
    let socket = peer.as_ref().and_then(|peer| peer.path()).map(|path| absolute(&target, path));
    let path = path.or(socket).or_else(|| first_path(call, &target));
    let asked = Asked { syscall: &syscall, call, target: &target, path: path.as_deref(), peer: peer.as_ref() };
    let (rule, remedy) = reason::of_call(why, &asked, plan);
    let host = peer.and_then(|peer| peer.host());
    record(call, plan, syscall, Cause { layer: Layer::Seccomp, path, host, errno, rule, remedy })
}

/// The record of a call that a path layer will refuse.
pub fn of_path(call: &Call, plan: &Plan, refused: Refused) -> Denial {
    let (rule, remedy) = reason::of_path(plan, &refused);
    let Refused { layer, errno, path, .. } = refused;
    record(call, plan, name(call.number), Cause { layer, path: Some(path), host: None, errno, rule, remedy })
}

/// The record of a host that the proxy refused.
pub fn of_proxy(refusal: crate::proxy::gate::Refusal, plan: &Plan) -> Denial {
    if let Some((method, path)) = refusal.request.clone() {
        return of_request(refusal, method, path, plan);
    }
    let line = refusal.allow_with.as_deref().map(|flag| policy_line(flag, plan));
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

/// The record of a request that the proxy refused, to a host that is allowed.
fn of_request(refusal: crate::proxy::gate::Refusal, method: String, path: String, plan: &Plan) -> Denial {
    let rule = |flag: &str| flag.strip_prefix("--http ")?.trim_matches('\'').parse::<HttpRule>().ok();
    let line = refusal.allow_with.as_deref().and_then(rule).map(|added| {
        let shown = |rule: &HttpRule| {
            let list = |name: &str, items: &Option<Vec<String>>| match items {
                Some(items) => format!(", {name} = {}", toml::Value::from(items.clone())),
                None => String::new(),
            };
            let host = toml::Value::from(rule.host.as_str());
            format!("{{ host = {host}{}{} }}", list("methods", &rule.methods), list("paths", &rule.paths))
        };
        let all: Vec<String> = plan.policy.network.http.iter().chain([&added]).map(shown).collect();
        format!("network.http = [{}]", all.join(", "))
    });
    Denial {
        layer: Layer::Proxy,
        syscall: "http".to_owned(),
        args: vec![method, format!("{}{path}", refusal.host)],
        path: Some(path),
        host: Some(refusal.host),
        pid: refusal.guest.pid,
        tid: refusal.guest.pid,
        comm: refusal.guest.comm,
        exe: None,
        errno: "EACCES".to_owned(),
        count: refusal.count,
        rule: format!("rules for requests: {}", refusal.why),
        allow_with: refusal.allow_with,
        allow_with_policy: line,
    }
}

/// The line of a policy file for a flag of the proxy: `--net hosts=A,B`, or `--local-port N` under `deny_private`. The
/// last item of the flag is the one to add.
pub(super) fn policy_line(flag: &str, plan: &Plan) -> String {
    let network = &plan.policy.network;
    let added = flag.rsplit([',', '=', ' ']).next().unwrap_or_default();
    let (key, all): (_, Vec<String>) = match &plan.network {
        _ if network.deny_private => {
            ("network.local_ports", network.local_ports.iter().map(u16::to_string).chain([added.to_owned()]).collect())
        }
        NetworkMode::Hosts(listed) => {
            let all = listed.iter().map(String::as_str).chain([added]);
            ("network.hosts", all.map(|host| toml::Value::from(host).to_string()).collect())
        }
        _ => ("network.hosts", vec![toml::Value::from(added).to_string()]),
    };
    format!("{key} = [{}]", all.join(", "))
}

/// What was denied, by which layer, and why.
struct Cause {
    layer: Layer,
    path: Option<PathBuf>,
    host: Option<String>,
    errno: i32,
    rule: String,
    remedy: Remedy,
}

fn record(call: &Call, plan: &Plan, syscall: String, cause: Cause) -> Denial {
    let target = Target { tid: call.tid };
    let Cause { layer, path, host, errno, rule, remedy } = cause;
    Denial {
        layer,
        args: decode::arguments(&syscall, call, &target),
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

/// The real path of the first file that a call names; the path as given if it does not resolve.
pub(super) fn first_path(call: &Call, target: &Target) -> Option<PathBuf> {
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
