//! Converts the syscalls of a policy to other formats: the filter file and the colon list of libsandbox.so, and the
//! seccomp profile of container engines. Returns bytes, and notes on what the format cannot express.
//!
//! The result never allows more than the policy. If it would, that is an error unless the caller asked for `lossy`.

use crate::oci::{self, ExportError};
use crate::plan::table::{Answers, Clause, Table, Verb};
use crate::policy::{NetworkMode, Policy, Profile};
use sandbox_contract::bpf::{self, LIMIT};
use sandbox_contract::{file, syscalls};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For `SANDBOX_FILTER`.
    Filter,
    /// For `SECCOMP_SYSCALL_ALLOW`.
    List,
    /// OCI runtime specification, `linux.seccomp`.
    Oci,
}

pub struct Compiled {
    pub bytes: Vec<u8>,
    /// What the user of the result should know, one line each.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    #[error("the policy needs a filter of more than {} instructions, which the kernel does not accept", bpf::MAX_LEN)]
    TooLong(bpf::CompileError),
    #[error(
        "a list cannot test arguments, and would allow these calls with any: {}; --lossy accepts that",
        .0.join(", ")
    )]
    Arguments(Vec<String>),
    #[error("a filter cannot distinguish {0} and would allow the whole network; --lossy accepts that")]
    Network(&'static str),
    #[error(
        "profile {profile} has no filter that enforces network mode {mode}, and the whole network would be allowed; \
         --lossy accepts that"
    )]
    Unfiltered { profile: String, mode: &'static str },
    #[error("the policy denies nothing, and no list can express that")]
    Open,
    #[error(transparent)]
    Oci(#[from] ExportError),
}

/// Whether the policy's syscalls fit into one filter.
pub fn fits(policy: &Policy) -> Result<(), CompileError> {
    filter(policy, &Table::alone(policy)).map(drop)
}

/// Compiles a policy. `lossy`: allow what the format cannot restrict.
pub fn compile(policy: &Policy, form: Form, lossy: bool) -> Result<Compiled, CompileError> {
    let table = Table::alone(policy);
    let mut notes = Vec::new();
    network(policy, lossy, &mut notes)?;
    let bytes = match form {
        Form::Filter => filter(policy, &table)?,
        Form::List => list(policy, &table, lossy, &mut notes)?,
        Form::Oci => {
            if oci::missing_for_start(&table) {
                notes.push("container engines load the profile before they execute the program, and this one does not allow execve: nothing would start; add --allow execve".to_owned());
            }
            let mut json = serde_json::to_vec_pretty(&oci::export(&table, policy.on_violation)?).unwrap_or_default();
            json.push(b'\n');
            json
        }
    };
    notes.extend(left_out(policy));
    Ok(Compiled { bytes, notes })
}

/// The filter file for libsandbox.so.
pub fn filter(policy: &Policy, table: &Table) -> Result<Vec<u8>, CompileError> {
    let program = table.program(&Answers::new(policy.on_violation, false), None).map_err(CompileError::TooLong)?;
    let mut out = Box::new([0u8; file::MAX_FILE]);
    let len = file::encode(&program, &mut out).ok_or(CompileError::TooLong(bpf::CompileError::TooLong))?;
    Ok(out.get(..len).unwrap_or_default().to_vec())
}

fn list(policy: &Policy, table: &Table, lossy: bool, notes: &mut Vec<String>) -> Result<Vec<u8>, CompileError> {
    if table.is_open() {
        return Err(CompileError::Open);
    }
    let (mut allowed, mut wider, mut otherwise) = (Vec::new(), Vec::new(), Vec::new());
    for nr in 0..LIMIT {
        let Some(name) = syscalls::with_name(nr, |name| String::from_utf8_lossy(name).into_owned()) else { continue };
        let (clauses, verb) = table.entry(nr);
        let verbs = || clauses.iter().map(Clause::verb).chain([verb]);
        if verbs().all(|verb| matches!(verb, Verb::Allow | Verb::Watch)) {
            allowed.push(name);
        } else if verbs().any(Verb::passes) {
            wider.push(name);
        } else if verbs()
            .any(|verb| !matches!(verb, Verb::Deny | Verb::DenyWith(_) | Verb::Supervise | Verb::Refuse(_)))
        {
            otherwise.push(name);
        }
    }
    if !wider.is_empty() && !lossy {
        return Err(CompileError::Arguments(wider));
    }
    if !wider.is_empty() {
        let names = wider.join(", ");
        notes.push(format!("allowed with any arguments, but by the policy only with some: {names}"));
    }
    if !otherwise.is_empty() {
        let names = otherwise.join(", ");
        notes.push(format!("these get SECCOMP_DEFAULT_ACTION instead of the action in the policy: {names}"));
    }
    if table.beyond() == Verb::Allow {
        notes.push("the policy allows unlisted calls; the list denies calls that have no name here".to_owned());
    }
    let action = policy.on_violation;
    notes.push(format!("use it as SECCOMP_SYSCALL_ALLOW, with SECCOMP_DEFAULT_ACTION={action}"));
    allowed.extend(wider);
    allowed.sort();
    Ok(format!("{}\n", allowed.join(":")).into_bytes())
}

/// Refuses a network mode that no filter alone enforces.
fn network(policy: &Policy, lossy: bool, notes: &mut Vec<String>) -> Result<(), CompileError> {
    // The lists of these profiles are all that is compiled: no network mode adds to them.
    let open = policy.profiles.iter().any(|profile| matches!(profile, Profile::Unrestricted | Profile::Custom));
    let ports = !policy.network.ports.is_empty();
    let what = match policy.network_mode() {
        NetworkMode::Full if !ports => return Ok(()),
        mode if open => {
            let mode = if mode == NetworkMode::Full { "full with a list of ports" } else { mode.word() };
            return widened(
                lossy,
                notes,
                &format!("profile {} does not enforce network mode {mode}", policy.profile_name()),
                || CompileError::Unfiltered { profile: policy.profile_name(), mode },
            );
        }
        NetworkMode::None => return Ok(()),
        NetworkMode::Hosts(_) => "hosts",
        NetworkMode::Loopback => "loopback and other addresses",
        // A namespace makes that network. Where the filter is used, there is only the machine's.
        NetworkMode::Own => "the run's own network and the machine's",
        NetworkMode::Full => "ports",
    };
    widened(lossy, notes, &format!("a filter cannot distinguish {what}"), || CompileError::Network(what))
}

/// Accepts what would allow the whole network only where the caller asked for it.
fn widened(
    lossy: bool,
    notes: &mut Vec<String>,
    why: &str,
    error: impl Fn() -> CompileError,
) -> Result<(), CompileError> {
    if !lossy {
        return Err(error());
    }
    notes.push(format!("the whole network is allowed: {why}"));
    Ok(())
}

/// A note on the parts of the policy that a filter cannot enforce.
fn left_out(policy: &Policy) -> Option<String> {
    let paths = &policy.paths;
    let limits = policy.limits != Default::default() || policy.timeout.is_some();
    let used = [
        (
            "paths",
            paths.read.is_some()
                || !paths.also_read.is_empty()
                || paths.execute.is_some()
                || !paths.write.is_empty()
                || !paths.deny.is_empty(),
        ),
        ("unix sockets", !policy.network.unix.is_empty()),
        ("limits", limits),
        ("the environment", policy.env != Default::default()),
        ("commands", policy.commands != Default::default()),
    ];
    let used: Vec<&str> = used.into_iter().filter(|(_, used)| *used).map(|(what, _)| what).collect();
    (!used.is_empty()).then(|| format!("only syscalls are compiled; only gatekeeper run enforces {}", used.join(", ")))
}
